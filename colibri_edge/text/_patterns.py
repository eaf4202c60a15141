"""Pre-tokenizer patterns: regular expressions to programs for the C matcher.

Owns: a parser of the part of regular-expression syntax that tokenizers use (alternation, groups, classes with properties and
intersections, greedy and possessive quantifiers of single characters, lookahead, line anchors, case-insensitive groups of
ASCII) and the writing of programs (include/colibri/pretok.h). Anything else is left to the ``regex`` library at run time, which
is imported only then. Refuses: nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from . import _unicode as U

MATCH, SET, REP, POSSESSIVE, SPLIT, JUMP, LOOK, BOL, EOL = range(9)
NO_LIMIT = 0xFFFFFFFF
CUTS = {"Isolated": 0, "Removed": 1, "MergedWithPrevious": 2, "MergedWithNext": 3, "Contiguous": 4}
MAX_STEPS, MAX_OPS = 16, 1024


class _Other(Exception):
    """Syntax the C matcher does not have."""


@dataclass
class _Node:
    op: int
    a: object = None
    b: int = 0
    c: int = 0


@dataclass
class _Parser:
    text: str
    at: int = 0
    fold: bool = False

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def take(self, wanted: str = "") -> str:
        c = self.peek()
        if not c or (wanted and c != wanted):
            raise _Other(f"{wanted!r} at {self.at}")
        self.at += 1
        return c

    def eat(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def alternatives(self) -> list[list]:
        out = [self.sequence()]
        while self.eat("|"):
            out.append(self.sequence())
        return out

    def sequence(self) -> list:
        items: list = []
        while self.peek() and self.peek() not in "|)":
            items.append(self.quantified(self.atom()))
        return items

    def atom(self):
        c = self.take()
        if c == "(":
            return self.group()
        if c == "[":
            return self.char_class()
        if c == "\\":
            return self.escape()
        if c == "^":
            return _Node(BOL)
        if c == "$":
            return _Node(EOL)
        if c == ".":
            return U.complement(U.span(10, 10))
        if c in "*+?{":
            raise _Other(c)
        return self.folded(U.span(ord(c), ord(c)))

    def group(self):
        fold = self.fold
        look = None
        if self.eat("?:"):
            pass
        elif self.eat("?i:"):
            self.fold = True
        elif self.eat("?="):
            look = 0
        elif self.eat("?!"):
            look = 1
        elif self.peek() == "?":
            raise _Other("group " + self.text[self.at:self.at + 3])
        inner = self.alternatives()
        self.take(")")
        self.fold = fold
        return _Node(LOOK, inner, look) if look is not None else inner

    def quantified(self, item):
        c = self.peek()
        if c == "*":
            low, high = 0, NO_LIMIT
        elif c == "+":
            low, high = 1, NO_LIMIT
        elif c == "?":
            low, high = 0, 1
        elif c == "{":
            close = self.text.find("}", self.at)
            parts = self.text[self.at + 1:close].split(",")
            if close < 0 or len(parts) > 2 or not all(p.isascii() and p.isdigit() or not p for p in parts) or not any(parts):
                raise _Other("{")
            low = int(parts[0] or 0)
            high = low if len(parts) == 1 else int(parts[1]) if parts[1] else NO_LIMIT
            if high < low or low > 1000:
                raise _Other("{}")
            self.at = close
        else:
            return item
        self.at += 1
        braces = c == "{"
        possessive = self.peek() == "+"
        if self.peek() in ("?", "*", "{") and self.peek() or (possessive and braces):
            raise _Other("quantifier of a quantifier")
        self.at += possessive
        if isinstance(item, tuple):
            return _Node(POSSESSIVE if possessive else REP, item, low, high)
        if c == "?" and isinstance(item, list) and not possessive:
            return [*item, []]  # the group, or else nothing
        raise _Other("quantified group")

    def folded(self, s: U.Borders) -> U.Borders:
        """ASCII letters in both cases, with the long s and the Kelvin sign, under (?i:."""
        if not self.fold:
            return s
        if any(b > 128 for b in s):
            raise _Other("(?i:) beyond ASCII")
        for c in range(128):
            if chr(c).isalpha() and U.intersection(s, U.span(c, c)):
                s = U.union(s, U.span(c ^ 32, c ^ 32))
                more = {"s": 0x17F, "k": 0x212A}.get(chr(c | 32))
                s = U.union(s, U.span(more, more)) if more else s
        return s

    def escape(self) -> U.Borders:
        c = self.take()
        simple = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "a": 7, "e": 27}
        if c in simple:
            return U.span(simple[c], simple[c])
        if c in "sS":
            s = U.named("space")
        elif c in "dD":
            s = U.named("Nd")
        elif c in "pP":
            self.take("{")
            name = self.text[self.at:self.text.index("}", self.at)]
            self.at += len(name) + 1
            negative = name.startswith("^")
            try:
                s = U.named(name.lstrip("^"))
            except KeyError:
                raise _Other(name) from None
            if negative:
                s = U.complement(s)
        elif c in "xu":
            digits = self.hex_digits(c)
            return self.folded(U.span(digits, digits))
        elif c.isalnum():
            raise _Other("\\" + c)
        else:
            return U.span(ord(c), ord(c))
        return U.complement(s) if c.isupper() else s

    def hex_digits(self, kind: str) -> int:
        if kind == "x" and self.eat("{"):
            n = self.text.index("}", self.at) - self.at
            value = int(self.text[self.at:self.at + n], 16)
            self.at += n + 1
            return value
        n = 2 if kind == "x" else 4
        value = int(self.text[self.at:self.at + n], 16)
        self.at += n
        return value

    def char_class(self) -> U.Borders:
        negative = self.eat("^")
        out: U.Borders = ()
        both: U.Borders | None = None
        first = True
        while True:
            c = self.take()
            if c == "]" and not first:
                break
            first = False
            if c == "[":
                if self.peek() == ":":
                    raise _Other("[:")
                item = self.char_class()
            elif c == "&" and self.eat("&"):
                both = out if both is None else U.intersection(both, out)
                out = ()
                continue
            else:
                item = self.escape() if c == "\\" else U.span(ord(c), ord(c))
                if self.peek() == "-" and self.text[self.at + 1:self.at + 2] not in ("]", "") and len(item) == 2 \
                        and item[1] == item[0] + 1:
                    self.at += 1
                    c = self.take()
                    high = self.escape() if c == "\\" else U.span(ord(c), ord(c))
                    if c == "[" or len(high) != 2 or high[0] < item[0]:
                        raise _Other("range")
                    item = (item[0], high[1])
                item = self.folded(item)
            out = U.union(out, item)
        if both is not None:
            out = U.intersection(both, out)
        return U.complement(out) if negative else out


@dataclass
class _Program:
    ops: list[list[int]] = field(default_factory=list)
    sets: dict[U.Borders, int] = field(default_factory=dict)

    def add(self, op: int, a: int = 0, b: int = 0, c: int = 0) -> int:
        self.ops.append([op, a, b, c])
        return len(self.ops) - 1

    def set_id(self, s: U.Borders) -> int:
        return self.sets.setdefault(s, len(self.sets))

    def alternatives(self, alts: list[list], last: bool) -> None:
        """``last``: nothing follows, each alternative ends the match."""
        jumps = []
        for i, seq in enumerate(alts):
            split = self.add(SPLIT) if i + 1 < len(alts) else None
            self.sequence(seq)
            if last:
                self.add(MATCH)
            elif split is not None:
                jumps.append(self.add(JUMP))
            if split is not None:
                self.ops[split][1] = len(self.ops)
        for j in jumps:
            self.ops[j][1] = len(self.ops)

    def sequence(self, items: list) -> None:
        for item in items:
            if isinstance(item, tuple):
                self.add(SET, self.set_id(item))
            elif isinstance(item, list):
                self.alternatives(item, False)
            elif item.op in (REP, POSSESSIVE):
                self.add(item.op, self.set_id(item.a), item.b, item.c)
            elif item.op == LOOK:
                look = self.add(LOOK, item.b)
                self.alternatives(item.a, True)
                self.ops[look][2] = len(self.ops)
            else:
                self.add(item.op)

    def pack(self, cut: int, invert: bool) -> bytes:
        ranges: list[int] = []
        sets = b""
        for s in self.sets:
            bitmap = bytearray(16)
            low_part = U.intersection(s, U.span(0, 127))
            for low, end in zip(low_part[::2], low_part[1::2], strict=True):
                for c in range(low, end):
                    bitmap[c >> 3] |= 1 << (c & 7)
            high = U.intersection(s, U.span(128, U.END - 1))
            sets += bytes(bitmap) + struct.pack("<2I", len(ranges) // 2, len(high) // 2)
            for low, end in zip(high[::2], high[1::2], strict=True):
                ranges += [low, end - 1]
        head = struct.pack("<5I", cut, invert, len(self.ops), len(self.sets), len(ranges) // 2)
        ops = b"".join(struct.pack("<4I", *op) for op in self.ops)
        return head + ops + sets + struct.pack(f"<{len(ranges)}I", *ranges)


def program(op: dict) -> bytes | None:
    """One split step as a program, or None where its pattern needs the ``regex`` library."""
    p = _Program()
    if op["regex"]:
        parser = _Parser(op["pattern"])
        try:
            alts = parser.alternatives()
            if parser.at < len(op["pattern"]):
                raise _Other(")")
        except (_Other, ValueError):
            return None
    else:
        alts = [[U.span(ord(c), ord(c)) for c in op["pattern"]]]
    p.alternatives(alts, True)
    if len(p.ops) > MAX_OPS:
        return None
    return p.pack(CUTS[op["behavior"]], bool(op["invert"]))


def compile_patterns(config: dict) -> bytes:
    """The section PATTERNS of a config: the split steps at the end of ``pretok``, if all of them can be programs.

    config["programs"] says how many steps they are; 0 leaves the whole list to Python."""
    config["programs"] = 0
    steps = config["pretok"]
    first = next((i for i, op in enumerate(steps) if op["op"] == "split"), len(steps))
    tail = [dict(op) for op in steps[first:]]
    if first and steps[first - 1]["op"] == "metaspace" and steps[first - 1]["split"]:
        tail.insert(0, {"op": "split", "pattern": steps[first - 1]["text"], "regex": False, "behavior": "MergedWithNext",
                        "invert": False})
    if not tail or len(tail) > MAX_STEPS or any(op["op"] != "split" for op in tail):
        return b""
    programs = [program(op) for op in tail]
    if any(p is None for p in programs):
        return b""
    config["programs"] = len(tail)
    return struct.pack("<I", len(programs)) + b"".join(programs)


def inert_section(config: dict) -> bytes:
    """The section INERT: code points that Unicode normalisation is to leave alone, where it is used at all."""
    if not any(op["op"] == "unicode" for op in config["normalizer"]):
        return b""
    s = U.named("after 9.0")
    return b"".join(struct.pack("<2I", low, end - 1) for low, end in zip(s[::2], s[1::2], strict=True))
