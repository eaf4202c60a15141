"""A progress line on a terminal: share done, rate, time left.

Owns: `Bar`, a callable with the signature of every `progress` argument: (bytes done, bytes in all, what).
Refuses: nothing; where the stream is no terminal it stays quiet.
"""

from __future__ import annotations

import sys
import time


def clock(seconds: float) -> str:
    """75 -> '1:15', 4000 -> '1:06:40'."""
    m, s = divmod(int(seconds + 0.5), 60)
    h, m = divmod(m, 60)
    return f"{h}:{m:02d}:{s:02d}" if h else f"{m}:{s:02d}"


def line(label: str, done: int, total: int, elapsed: float, what: str, width: int = 24) -> str:
    """One line of at most 100 characters."""
    share = min(1.0, done / total) if total else 1.0
    rate = done / elapsed if elapsed > 0 else 0.0
    left = clock((total - done) / rate) if rate and done else "?"
    bar = "#" * int(share * width)
    return (f"{label} [{bar:<{width}}] {share:4.0%} {done / 1e9:.2f}/{total / 1e9:.2f} GB {rate / 1e6:.0f} MB/s, "
            f"{left} left  {what}")[:100]


class Bar:
    """progress = Bar("convert"); ...; progress.close(). Draws at most ten times a second, on stderr."""

    def __init__(self, label: str, stream=None):
        self.label, self.stream = label, stream or sys.stderr
        self.tty = getattr(self.stream, "isatty", lambda: False)()
        self.start = self.drawn = time.monotonic()
        self.width = 0

    def __call__(self, done: int, total: int, what: str = "") -> None:
        now = time.monotonic()
        if not self.tty or (now - self.drawn < 0.1 and done < total):
            return
        self.drawn = now
        text = line(self.label, done, total, now - self.start, what)
        self.stream.write("\r" + text.ljust(self.width))
        self.stream.flush()
        self.width = len(text)

    def close(self) -> None:
        """End the line."""
        if self.tty and self.width:
            self.stream.write("\n")
            self.stream.flush()
            self.width = 0
