"""Normalisation and pre-tokenizer steps.

Owns: the meaning of the ``normalizer`` and ``pretok`` lists of a table blob's config. Each pre-tokenizer step maps a list of
strings to a list of strings. Refuses: a step it does not know (ValueError).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable


def normalizer(ops: list[dict], tables) -> Callable[[str], str]:
    """One function text -> text for the whole list. ``tables`` (an opened blob) knows the characters to leave alone."""
    steps = [_normalizer_step(op, tables) for op in ops]
    if not steps:
        return lambda text: text
    if len(steps) == 1:
        return steps[0]

    def run(text: str) -> str:
        for s in steps:
            text = s(text)
        return text

    return run


def _unicode_step(form: str, tables) -> Callable[[str], str]:
    """Unicode normalisation as of Unicode 9.0, whatever edition Python has: later characters are left alone and part the
    text, as unassigned ones do."""

    def run(text: str) -> str:
        if text.isascii():
            return text
        raw = text.encode("utf-8", "surrogateescape")
        runs = tables.inert(raw)
        if not runs:
            return unicodedata.normalize(form, text)
        out, at = [], 0
        for a, b in [*runs, (len(raw), len(raw))]:
            out.append(unicodedata.normalize(form, raw[at:a].decode("utf-8", "surrogateescape")))
            out.append(raw[a:b].decode())
            at = b
        return "".join(out)

    return run


def _check_op(op: dict) -> None:
    """Texts are texts and the split's behaviour is known; TypeError otherwise."""
    for key in ("pattern", "to", "text", "behavior", "prepend"):
        if not isinstance(op.get(key, ""), str):
            raise TypeError(f"{key} = {op[key]!r}")
    if op.get("behavior", "Isolated") not in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        raise TypeError(f"behavior = {op['behavior']!r}")
    if op.get("pattern", "x") == "" or (op["op"] == "metaspace" and not op["text"]):
        raise TypeError("an empty pattern")


def _normalizer_step(op: dict, tables) -> Callable[[str], str]:
    kind = op["op"]
    _check_op(op)
    if kind == "unicode":
        form = op["form"]
        if form not in ("NFC", "NFD", "NFKC", "NFKD"):
            raise ValueError(f"tokenizer tables are damaged: Unicode form {form!r}")
        return _unicode_step(form, tables)
    if kind == "prepend":
        head = op["text"]
        return lambda text: head + text if text else text
    if kind == "replace" and not op["regex"]:
        a, b = op["pattern"], op["to"]
        return lambda text: text.replace(a, b)
    if kind == "replace":
        find, to = finder(op["pattern"], True), op["to"]

        def replace(text: str) -> str:
            out, at = [], 0
            for a, b in find(text):
                out += [text[at:a], to]
                at = b
            return "".join([*out, text[at:]])

        return replace
    if kind == "strip":
        left, right = op["left"], op["right"]

        def strip(text: str) -> str:
            text = text.lstrip() if left else text
            return text.rstrip() if right else text

        return strip
    raise ValueError(f"tokenizer tables are damaged or newer than this program: normalizer step {kind!r}")


def _cut(text: str, find, behavior: str, invert: bool, out: list[str]) -> None:
    """Cuts one string at the matches of ``find``; see the pre-tokenizer Split of the Hugging Face format."""
    spans: list[tuple[int, int, bool]] = []
    at = 0
    for a, b in find(text):
        if a > at:
            spans.append((at, a, invert))
        spans.append((a, b, not invert))
        at = b
    if at < len(text):
        spans.append((at, len(text), invert))
    if behavior == "Isolated":
        out += [text[a:b] for a, b, _ in spans]
    elif behavior == "Removed":
        out += [text[a:b] for a, b, m in spans if not m]
    elif behavior == "Contiguous":
        _join(text, spans, lambda last, m: last == m, out)
    elif behavior == "MergedWithPrevious":
        _join(text, spans, lambda last, m: m and not last, out)
    else:  # MergedWithNext
        back: list[tuple[int, int]] = []
        last = False
        for a, b, m in reversed(spans):
            if m and not last and back:
                back[-1] = (a, back[-1][1])
            else:
                back.append((a, b))
            last = m
        out += [text[a:b] for a, b in reversed(back)]


def _join(text: str, spans, glue, out: list[str]) -> None:
    merged: list[tuple[int, int]] = []
    last = None
    for a, b, m in spans:
        if last is not None and glue(last, m):
            merged[-1] = (merged[-1][0], b)
        else:
            merged.append((a, b))
        last = m
    out += [text[a:b] for a, b in merged]


class Pretokenizer:
    """The pre-tokenizer steps of one tokenizer that run in Python; call it with (text, first) -> list of pieces.

    ``first``: whether the text starts where the whole input starts. ``programs``: how many steps at the end are compiled
    (csrc/text/pretok_cut.c) and not run here; where a metaspace step splits, the first of them is its split."""

    def __init__(self, ops: list[dict], programs: int):
        splits = sum(op["op"] == "split" for op in ops)
        ops = [dict(op) for op in ops]
        if programs:
            ops = [op for op in ops if op["op"] != "split"]
            if programs > splits:
                ops[-1]["split"] = False
        self.steps = [self._step(op) for op in ops]

    def __call__(self, text: str, first: bool) -> list[str]:
        pieces = [text]
        for s in self.steps:
            pieces = s(pieces, first)
        return pieces

    def _step(self, op: dict):
        kind = op["op"]
        _check_op(op)
        if kind == "split":
            find, behavior, invert = finder(op["pattern"], op["regex"]), op["behavior"], op["invert"]

            def split(pieces: list[str], first: bool) -> list[str]:
                out: list[str] = []
                for p in pieces:
                    _cut(p, find, behavior, invert, out)
                return out

            return split
        if kind == "prefix_space":
            return lambda pieces, first: [p if p.startswith(" ") else " " + p for p in pieces]
        if kind == "metaspace":
            return _metaspace(op["text"], op["prepend"], op["split"])
        raise ValueError(f"tokenizer tables are damaged or newer than this program: pre-tokenizer step {kind!r}")


def _metaspace(mark: str, prepend: str, split: bool):
    if prepend not in ("always", "first", "never"):
        raise ValueError(f"tokenizer tables are damaged: metaspace prepend {prepend!r}")
    find = finder(mark, False)

    def run(pieces: list[str], first: bool) -> list[str]:
        out: list[str] = []
        for i, p in enumerate(pieces):
            p = p.replace(" ", mark)
            if (prepend == "always" or (prepend == "first" and first and i == 0)) and not p.startswith(mark):
                p = mark + p
            if split:
                _cut(p, find, "MergedWithNext", False, out)
            else:
                out.append(p)
        return out

    return run


def finder(pattern: str, is_regex: bool):
    """A function text -> iterator of (start, end) of the matches, never empty ones."""
    if not is_regex:
        def find_plain(text: str):
            at = text.find(pattern)
            while at >= 0:
                yield at, at + len(pattern)
                at = text.find(pattern, at + len(pattern))
        return find_plain
    import regex

    version = regex.V1 if "&&" in pattern else regex.V0
    try:
        compiled = regex.compile(pattern, version | regex.MULTILINE)
    except regex.error as e:
        raise ValueError(f"pre-tokenizer pattern {pattern!r}: {e}") from None

    def find_regex(text: str):
        for m in compiled.finditer(text):
            if m.end() > m.start():
                yield m.span()

    return find_regex
