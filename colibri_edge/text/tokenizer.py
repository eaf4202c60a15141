"""Text to ids and back, from compiled tables.

Owns: the order of work around the model: added tokens, normalisation, pre-tokenizer steps, begin and end ids, decoding.
The merge loops and table look-ups are C (csrc/text). Refuses: damaged tables (ValueError). A :class:`Tokenizer` holds its
buffer and belongs to one thread at a time.

    text -> added tokens cut out (raw) -> normalise -> added tokens cut out (normalised) -> pre-tokens -> model -> ids
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Sequence

from . import _tok
from ._decode import BytesStream, PiecesStream, Stream, byte_of, checked_rule, decode_pieces
from ._pretok import Pretokenizer, normalizer

_CONTROL, _PRESENT, _BYTE, _UNUSED = 2, 1, 8, 32
_LSTRIP, _RSTRIP, _WORD = 2, 4, 8
_SPACES = ("\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
           "\u2028\u2029\u202f\u205f\u3000")  # White_Space


class Tokenizer:
    """A tokenizer over a table blob (docs/tokenizer-tables.md).

    ``buffer``: bytes, mmap or memoryview holding the blob; it is mapped, not parsed, and kept alive.
    Raises ValueError when the blob does not check out.
    """

    def __init__(self, buffer):
        self._t = _tok.Tables(buffer)
        try:
            c = json.loads(self._t.section(0))
            self._config = c
            self._prefix, self._suffix = self._checked(c["prefix"]), self._checked(c["suffix"])
            self._eos = tuple(self._checked(c.get("eos") or []))
            self._bos = self._checked([c["bos"]])[0] if c.get("bos") is not None else None
            self._pad = self._checked([c["pad"]])[0] if c.get("pad") is not None else None
            self.note: str | None = c.get("note")  #: why the ``tokenizers`` library is needed, or None
            self._odd = None
            if self._t.kind == 0:
                from ._odd import OddTokenizer

                self._odd = OddTokenizer(self._t.section(11))
                self._decoder = {"kind": "bytes"}
                return
            self._normalize = normalizer(c["normalizer"], self._t)
            self._pretok = Pretokenizer(c["pretok"], int(c.get("programs") or 0))
            self._direct = not c["normalizer"] and not self._pretok.steps and not self._t.has_added(1)
            self._decoder = checked_rule(c["decoder"])
        except (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, ValueError) as e:
            if isinstance(e, ValueError) and "damaged" in str(e):
                raise
            raise ValueError(f"tokenizer tables are damaged: config section: {e!r}") from None

    def _checked(self, ids) -> list[int]:
        for i in ids:
            if not isinstance(i, int) or not 0 <= i < self._t.vocab:
                raise ValueError(f"tokenizer tables are damaged: id {i!r} outside 0..{self._t.vocab - 1}")
        return list(ids)

    # -- facts ---------------------------------------------------------------------------------------------------

    @property
    def vocab_size(self) -> int:
        """Number of ids, gaps included. The embedding may have more rows: see :meth:`banned`."""
        return self._t.vocab

    @property
    def bos_id(self) -> int | None:
        """Id that begins a text, or None."""
        return self._bos

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every declared end id."""
        return self._eos

    @property
    def eos_id(self) -> int | None:
        """The first declared end id (the one the model's files name first), or None."""
        e = self._config.get("eos_token")
        return e if e in self._eos else self._eos[0] if self._eos else None

    @property
    def pad_id(self) -> int | None:
        return self._pad

    @property
    def unk_id(self) -> int | None:
        return self._t.unk

    @property
    def special_ids(self) -> tuple[int, ...]:
        """Ids of control tokens: never made from plain text, left out by ``decode(skip_special=True)``."""
        return tuple(i for i, f in enumerate(self._t.flag_bytes()) if f & _CONTROL)

    @property
    def control_texts(self) -> tuple[str, ...]:
        """Spellings of the control tokens."""
        return tuple((self._t.token(i) or b"").decode("utf-8", "replace") for i in self.special_ids)

    def is_special(self, id: int) -> bool:
        """Whether ``id`` is a control token."""
        return 0 <= id < self._t.vocab and bool(self._t.token_flags(id) & _CONTROL)

    def token_bytes(self, id: int) -> bytes:
        """Bytes the token adds to a text (before the decoder's rule for the first piece); b"" where it has none."""
        if not 0 <= id < self._t.vocab:
            return b""
        raw = self._t.token(id) or b""
        if self._decoder["kind"] == "bytes":
            return raw
        if self._t.token_flags(id) & _BYTE:
            return bytes([byte_of(raw)])
        for a, b in self._decoder["replace"]:
            raw = raw.replace(a.encode(), b.encode())
        return raw

    def token_id(self, text: str) -> int | None:
        """Id of the control or added token spelled ``text``, or None."""
        raw = text.encode()
        for which in (0, 1):
            if self._odd is None and raw:
                hit = self._t.next_added(which, raw, 0)
                if hit and hit[:2] == (0, len(raw)):
                    return hit[2]
        return self._odd.token_id(text) if self._odd else None

    def banned(self, rows: int) -> bytes:
        """uint8[rows]: 1 where a row of the output matrix must never be sampled (no token, or declared unused)."""
        flags = self._t.flag_bytes()[:rows]
        table = bytes(int(not f & _PRESENT or bool(f & _UNUSED)) for f in range(256))
        return flags.translate(table) + b"\1" * (rows - len(flags))

    # -- encoding ------------------------------------------------------------------------------------------------

    def encode(self, text: str | bytes, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Ids of ``text``.

        ``text``: str, or bytes (UTF-8; lone bytes are kept and come back from :meth:`decode_bytes`).
        ``add_special``: put the begin and end ids of a raw prompt around it. ``parse_special``: let the spelling of a
        control token become that token; leave it False for anything a user typed.
        """
        raw, text = _both(text)
        if self._odd:
            return self._odd.encode(text, add_special, parse_special)
        out = list(self._prefix) if add_special else []
        self._encode_raw(raw, None if parse_special else [(0, len(raw))], not parse_special, out)
        if add_special:
            out += self._suffix
        return out

    def encode_segments(self, segments: Iterable[tuple[str, bool]], add_special: bool = False) -> list[int]:
        """Ids of a rendered conversation: (text, is_markup) pairs, as :meth:`ChatTemplate.render` returns them.

        The whole is encoded as one text, except that control tokens are found in markup only: a spelling that touches
        a segment which is not markup stays plain text.
        """
        parts, plain, at = [], [], 0
        for text, markup in segments:
            raw = _both(text)[0]
            if not markup and raw:
                plain.append((at, at + len(raw)))
            parts.append(raw)
            at += len(raw)
        if self._odd:
            return self._odd.encode_between(b"".join(parts).decode(), self.control_texts,
                                            lambda a, b: _touches(plain, a, b), add_special)
        out = list(self._prefix) if add_special else []
        self._encode_raw(b"".join(parts), plain, False, out)
        return out + self._suffix if add_special else out

    def _encode_raw(self, raw: bytes, plain: list | None, skip_whole: bool, out: list[int]) -> None:
        """``plain``: byte ranges where control tokens are not to be found, None for nowhere."""
        at = 0
        for start, end, id in self._matches(0, raw, plain, skip_whole):
            if start > at:
                self._encode_text(raw[at:start], at == 0, plain, skip_whole, out)
            out.append(id)
            at = end
        if at < len(raw):
            self._encode_text(raw[at:], at == 0, plain, skip_whole, out)

    def _encode_text(self, raw: bytes, first: bool, plain, skip_whole: bool, out: list[int]) -> None:
        if self._direct:
            self._t.encode_text(raw, out)
            return
        text = self._normalize(raw.decode("utf-8", "surrogateescape"))
        if self._t.has_added(1):
            raw = text.encode("utf-8", "surrogateescape")
            at = 0
            # normalised text has lost its ranges: control tokens are found in it only if nothing is plain (the compiler
            # leaves none in this list unless the tokenizer prepends a mark to its added tokens)
            for start, end, id in self._matches(1, raw, [(0, len(raw))] if plain else None, skip_whole):
                if start > at:
                    self._encode_words(raw[at:start].decode("utf-8", "surrogateescape"), first and at == 0, out)
                out.append(id)
                at = end
            if at:
                text = raw[at:].decode("utf-8", "surrogateescape")
                first = False
        if text:
            self._encode_words(text, first, out)

    def _encode_words(self, text: str, first: bool, out: list[int]) -> None:
        for piece in self._pretok(text, first):
            self._t.encode_text(piece, out)

    def _matches(self, which: int, raw: bytes, plain, skip_whole: bool):
        """Added tokens of list ``which`` that count, as (start, end, id), with the space their flags swallow."""
        at = floor = 0
        while (hit := self._t.next_added(which, raw, at)) is not None:
            start, end, id, flags = hit
            at = end
            if flags & 1 and plain and _touches(plain, start, end):
                at = end if skip_whole else start + 1
                continue
            if flags & _WORD and (_word(raw[:start][-4:], -1) or _word(raw[end:end + 4], 0)):
                continue
            if flags & _LSTRIP:
                start = max(floor, len(raw[:start].decode("utf-8", "surrogateescape").rstrip(_SPACES).encode(
                    "utf-8", "surrogateescape")))
            if flags & _RSTRIP:
                rest = raw[end:].decode("utf-8", "surrogateescape")
                end += len(rest[:len(rest) - len(rest.lstrip(_SPACES))].encode())
            yield start, end, id
            at = floor = max(end, at)

    # -- decoding ------------------------------------------------------------------------------------------------

    def stream(self, skip_special: bool = False) -> Stream:
        """A decoder that takes one id at a time and never gives half a character: push(id) -> str, flush() -> str."""
        if self._odd:
            return self._odd.stream(skip_special)
        if self._decoder["kind"] == "bytes":
            return BytesStream(self._t, skip_special)
        return PiecesStream(self._t, self._decoder, skip_special)

    def decode(self, ids: Sequence[int], skip_special: bool = False) -> str:
        """Text of ids; bytes that are no UTF-8 come out as U+FFFD. ``skip_special`` leaves control tokens out."""
        if self._odd:
            return self._odd.decode(ids, skip_special)
        if self._decoder["kind"] == "bytes":
            return self._t.join(ids, skip_special).decode("utf-8", "replace")
        if self._decoder["drop_first"] is None:
            return decode_pieces(self._t, self._decoder, ids, skip_special)
        s = self.stream(skip_special)
        return "".join([*map(s.push, ids), s.flush()])

    def decode_bytes(self, ids: Sequence[int], skip_special: bool = False) -> bytes:
        """Bytes of ids: what :meth:`encode` was given as bytes, where the tokenizer is lossless."""
        if self._odd:
            return self._odd.decode(ids, skip_special).encode()
        if self._decoder["kind"] == "bytes":
            return self._t.join(ids, skip_special)
        s = PiecesStream(self._t, self._decoder, skip_special, lossless=True)
        return "".join([*map(s.push, ids), s.flush()]).encode("utf-8", "surrogateescape")


def _both(text: str | bytes) -> tuple[bytes, str]:
    """(UTF-8 bytes, str with lone bytes escaped)."""
    if isinstance(text, str):
        try:
            return text.encode(), text
        except UnicodeEncodeError as e:
            raise ValueError(f"text holds a lone surrogate at position {e.start}: it is not Unicode text") from None
    raw = bytes(text)
    return raw, raw.decode("utf-8", "surrogateescape")


def _touches(ranges: list[tuple[int, int]], start: int, end: int) -> bool:
    """Whether [start, end) overlaps one of the rising, disjoint ranges."""
    i = bisect.bisect_left(ranges, (end, 0))
    return i > 0 and ranges[i - 1][1] > start


def _word(raw: bytes, index: int) -> bool:
    """Whether the first (0) or last (-1) character of ``raw`` is one of a word."""
    from . import _unicode

    text = raw.decode("utf-8", "ignore")
    return bool(text) and bisect.bisect_right(_unicode.words(), ord(text[index])) % 2 == 1
