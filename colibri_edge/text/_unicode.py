"""Sets of code points, for compiling patterns.

Owns: set algebra on sorted borders (in, out, in, ...) and the named sets of one edition of Unicode. Refuses: names it does
not know (KeyError). Surrogates stand for lone bytes of a text and belong to no named set.
"""

from __future__ import annotations

import base64
import functools
import zlib

from ._unicode_table import PACKED

Borders = tuple[int, ...]
END = 0x110000

_GROUPS = {"L": ("Lu", "Ll", "Lt", "Lm", "Lo"), "M": ("Mn", "Mc", "Me"), "N": ("Nd", "Nl", "No"),
           "P": ("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"), "S": ("Sm", "Sc", "Sk", "So"), "Z": ("Zs", "Zl", "Zp")}


def combine(a: Borders, b: Borders, keep) -> Borders:
    """The set of points where keep(in a, in b)."""
    out: list[int] = []
    ia = ib = 0
    for p in sorted({0, *a, *b}):
        while ia < len(a) and a[ia] <= p:
            ia += 1
        while ib < len(b) and b[ib] <= p:
            ib += 1
        if keep(ia % 2 == 1, ib % 2 == 1) != (len(out) % 2 == 1):
            out.append(p)
    if len(out) % 2:
        out.append(END)
    return tuple(out)


def union(a: Borders, b: Borders) -> Borders:
    return combine(a, b, lambda x, y: x or y)


def intersection(a: Borders, b: Borders) -> Borders:
    return combine(a, b, lambda x, y: x and y)


def complement(a: Borders) -> Borders:
    return combine(a, (), lambda x, _: not x)


def span(low: int, high: int) -> Borders:
    """Code points low to high, both in."""
    return (low, high + 1)


@functools.cache
def named(name: str) -> Borders:
    """A general category (Lu, L, ...), "space" (White_Space), "Han", or "after 9.0"."""
    if name in _GROUPS:
        return functools.reduce(union, map(named, _GROUPS[name]))
    out, at = [], 0
    for step in zlib.decompress(base64.b85decode(PACKED[name])).split():
        at += int(step)
        out.append(at)
    return tuple(out)


@functools.cache
def words() -> Borders:
    """Characters of words (\\w of Unicode TS 18): letters, marks, decimal and letter numbers, connectors, joiners, circled
    letters."""
    more = [span(0x200C, 0x200D), span(0x24B6, 0x24E9), span(0x1F130, 0x1F149), span(0x1F150, 0x1F169), span(0x1F170, 0x1F189)]
    return functools.reduce(union, more, functools.reduce(union, map(named, ("L", "M", "Nd", "Nl", "Pc"))))
