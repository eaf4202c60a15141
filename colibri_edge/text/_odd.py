"""Tokenizers the tables cannot express, run by the ``tokenizers`` library.

Owns: the lazy import and the mapping of our calls onto that library. Refuses: to run without it (ImportError that says so).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ._decode import Stream


class OddTokenizer:
    """Encodes and decodes with an embedded tokenizer.json."""

    def __init__(self, raw: bytes):
        try:
            import tokenizers
        except ImportError as e:
            raise ImportError("this model's tokenizer needs the 'tokenizers' package: pip install tokenizers") from e
        try:
            self._tok = tokenizers.Tokenizer.from_buffer(raw)
        except Exception as e:  # the library raises plain Exception
            raise ValueError(f"tokenizer tables are damaged: embedded tokenizer.json: {e}") from None
        self._tok.no_truncation()
        self._tok.no_padding()

    def encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        self._tok.encode_special_tokens = not parse_special
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return self._tok.encode(text, add_special_tokens=add_special).ids

    def encode_between(self, text: str, controls: Sequence[str], plain, add_special: bool) -> list[int]:
        """Encodes text whose control tokens count unless ``plain(start, end)`` (bytes) says that they touch data."""
        found = re.compile("|".join(map(re.escape, sorted(controls, key=len, reverse=True))) or r"(?!)")
        out, at, look = [], 0, 0
        while m := found.search(text, look):
            look = m.start() + 1
            a = len(text[:m.start()].encode())
            if plain(a, a + len(m[0].encode())):
                continue
            if m.start() > at:
                out += self.encode(text[at:m.start()], False, False)
            out.append(self._tok.token_to_id(m[0]))
            at = look = m.end()
        if at < len(text):
            out += self.encode(text[at:], False, False)
        if not add_special:
            return out
        inner, whole = self.encode("a", False, False), self.encode("a", True, False)
        k = next((i for i in range(len(whole)) if whole[i:i + len(inner)] == inner), 0)
        return whole[:k] + out + whole[k + len(inner):]

    def decode(self, ids: Sequence[int], skip_special: bool) -> str:
        return self._tok.decode(list(ids), skip_special_tokens=skip_special)

    def token_id(self, text: str) -> int | None:
        return self._tok.token_to_id(text)

    def stream(self, skip_special: bool) -> OddStream:
        return OddStream(self, skip_special)


class OddStream(Stream):
    """Decodes all ids again at each push and gives what is new and settled."""

    def __init__(self, tok: OddTokenizer, skip_special: bool):
        self._tok, self._skip = tok, skip_special
        self._ids: list[int] = []
        self._done = ""

    def push(self, id: int) -> str:
        self._ids.append(id)
        text = self._tok.decode(self._ids, self._skip)
        if text.endswith("\ufffd") or not text.startswith(self._done):
            return ""
        new, self._done = text[len(self._done):], text
        return new

    def flush(self) -> str:
        text = self._tok.decode(self._ids, self._skip)
        new, self._done = text[len(self._done):], text
        return new
