"""Ids back to text, one at a time.

Owns: the two decoders (bytes, and SentencePiece pieces with byte fallback) as streams; decoding a whole list is the same
stream, so joined pieces always equal the whole. Refuses: negative ids (ValueError).
"""

from __future__ import annotations

import codecs

_CONTROL, _BYTE = 2, 8


class Stream:
    """push(id) gives the text that is settled by now; flush() gives the rest, broken bytes as U+FFFD."""

    pending = ""  #: text that is complete and still held, because what follows may change it

    def push(self, id: int) -> str:
        raise NotImplementedError

    def flush(self) -> str:
        raise NotImplementedError


class BytesStream(Stream):
    """Byte-level tokens: an incomplete UTF-8 tail is held back."""

    def __init__(self, tables, skip_special: bool):
        self._t, self._skip = tables, skip_special
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        return self._utf8.decode(self._t.join((id,), self._skip))

    def flush(self) -> str:
        rest = self._utf8.decode(b"", True)
        self._utf8.reset()
        return rest


def checked_rule(rule: dict) -> dict:
    """The decoder rule of a blob's config, every field of the type it should have; raises TypeError, KeyError otherwise."""
    if rule["kind"] == "bytes":
        return {"kind": "bytes"}
    if rule["kind"] != "pieces":
        raise TypeError(f"decoder kind {rule['kind']!r}")
    strip, first = rule["strip"], rule["drop_first"]
    replace = [(_text(a), _text(b)) for a, b in rule["replace"]]
    return {"kind": "pieces", "replace": replace, "drop_first": None if first is None else _text(first),
            "strip": None if strip is None else (_text(strip[0]), int(strip[1]))}


def _text(value) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} where text should be")
    return value


def byte_of(token: bytes) -> int:
    """65 of <0x41>; 63, a question mark, where a damaged table gives something else."""
    try:
        return int(token[3:5], 16)
    except ValueError:
        return 63


STRETCH = 256  #: bytes of a run after which what is whole and valid is settled


class PiecesStream(Stream):
    """SentencePiece tokens: a run of byte tokens is held back until it ends, because it is valid or broken as a whole; a
    long run that is valid so far is settled in stretches, so that a script spelled in bytes still streams."""

    def __init__(self, tables, rule: dict, skip_special: bool, lossless: bool = False):
        self._t, self._rule, self._skip, self._lossless = tables, rule, skip_special, lossless
        self._run = bytearray()
        self._first = True  # no piece yet
        self._strip = rule["strip"][1] if rule["strip"] else 0

    def push(self, id: int) -> str:
        if id < 0:
            raise ValueError(f"token id {id}: wanted 0 or more")
        if id >= self._t.vocab or (raw := self._t.token(id)) is None:
            return ""
        flags = self._t.token_flags(id)
        if self._skip and flags & _CONTROL:
            return ""
        if flags & _BYTE:
            self._run.append(byte_of(raw))
            self._first = False
            if len(self._run) < STRETCH or not (n := _valid(bytes(self._run))):
                return ""
            text = self._run[:n].decode()
            del self._run[:n]
            return self._stripped(text)
        text = raw.decode("utf-8", "replace")
        if self._first and self._rule["drop_first"]:
            text = text.replace(self._rule["drop_first"], "")
        self._first = False
        for a, b in self._rule["replace"]:
            text = text.replace(a, b)
        return self._stripped(self._settle() + text)

    def flush(self) -> str:
        return self._stripped(self._settle())

    @property
    def pending(self) -> str:
        """Text of a held run as it would come out now."""
        run = bytes(self._run)
        return _run_text(run, self._lossless)

    def _settle(self) -> str:
        if not self._run:
            return ""
        run = bytes(self._run)
        self._run.clear()
        return _run_text(run, self._lossless)

    def _stripped(self, text: str) -> str:
        if not text or not self._strip:
            return text
        mark = self._rule["strip"][0]
        while self._strip and text.startswith(mark):
            text = text[len(mark):]
            self._strip -= 1
            if not text:
                return text
        self._strip = 0
        return text


def decode_pieces(tables, rule: dict, ids, skip_special: bool, lossless: bool = False) -> str:
    """What a PiecesStream gives for all ids together."""
    out = []
    for is_byte, raw in tables.runs(ids, skip_special):
        if is_byte:
            while len(raw) >= STRETCH and (n := _valid(raw[:STRETCH])):
                out.append(raw[:n].decode())
                raw = raw[n:]
            out.append(_run_text(raw, lossless))
            continue
        text = raw.decode("utf-8", "replace")
        for a, b in rule["replace"]:
            text = text.replace(a, b)
        out.append(text)
    text = "".join(out)
    if rule["strip"]:
        mark, n = rule["strip"]
        while n and text.startswith(mark):
            text, n = text[len(mark):], n - 1
    return text


def _valid(run: bytes) -> int:
    """Bytes of the whole characters of a run that is valid but for an incomplete end; 0 where it is broken."""
    try:
        run.decode("utf-8")
        return len(run)
    except UnicodeDecodeError as e:
        return e.start if e.end == len(run) and e.reason == "unexpected end of data" else 0


def _run_text(run: bytes, lossless: bool) -> str:
    try:
        return run.decode("utf-8")
    except UnicodeDecodeError:
        return run.decode("utf-8", "surrogateescape") if lossless else "\ufffd" * len(run)
