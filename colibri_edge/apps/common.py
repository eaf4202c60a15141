"""What the commands share: the errors they raise, checked argument types, sizes for people, plain tables.

Owns: `Fail` (a message and an exit code) and the argument types. Refuses: to import anything that is slow to load.
"""
from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence

OK, ERROR, USAGE, INTERRUPTED = 0, 1, 2, 130
MAX_THREADS = 256           # of the pool (csrc/threads.c)

MODEL_HELP = ("a .colibri file, a .gguf file (any part of a split one), a Hugging Face, MLX or flash-moe folder, or the word demo for "
              "the model that comes with colibri-edge; anything but .colibri is converted once, beside the source or "
              "in your cache folder (COLIBRI_EDGE_CACHE names another)")


class Fail(Exception):
    """Ends the command with one line on stderr. code: ERROR (found while running) or USAGE (wrong command line)."""

    def __init__(self, message: str, code: int = ERROR):
        super().__init__(message)
        self.code = code


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """Argument type: a whole number from low to high."""

    def parse(text: str) -> int:
        try:
            value = int(text, 10)
        except ValueError:
            value = None
        if value is None or value < low or (high is not None and value > high):
            limit = f"of at least {low}" if high is None else f"from {low} to {high}"
            raise argparse.ArgumentTypeError(f"{_short(text)} found, wanted a whole number {limit}")
        return value

    return parse


def real(low: float, high: float, wanted: str, *, open_low: bool = False) -> Callable[[str], float]:
    """Argument type: a finite number from low (itself left out with open_low) to high."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high or not math.isfinite(value) or (open_low and value == low):
            raise argparse.ArgumentTypeError(f"{_short(text)} found, wanted {wanted}")
        return value

    return parse


def size(text: str) -> int:
    """Argument type: bytes, such as 2GiB or 512M."""
    from colibri_edge.limits import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def not_empty(text: str) -> str:
    """Argument type: a string of at least one character."""
    if not text:
        raise argparse.ArgumentTypeError("an empty text found, wanted at least one character")
    return text


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def mib(n: float) -> str:
    """Bytes for people: 1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if n < 1024 or unit == "TiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    raise AssertionError


def table(rows: Iterable[Sequence[str]], left: int = 1, indent: str = "") -> str:
    """Rows of texts as aligned columns; the first `left` columns to the left, the others to the right."""
    rows = [list(map(str, r)) for r in rows]
    widths = [max(len(r[i]) for r in rows if i < len(r)) for i in range(max(map(len, rows)))]
    lines = ("  ".join(c.ljust(w) if i < left else c.rjust(w)
                       for i, (c, w) in enumerate(zip(r, widths, strict=False))) for r in rows)
    return "\n".join((indent + line).rstrip() for line in lines)
