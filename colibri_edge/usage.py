"""The usage file, `MODEL.usage`: how often each routed expert was asked for, learned from earlier runs.

An expert counts once for each token that chose it, in the prompt as in the answer: counts / tokens is how often decoding asks for it.

Owns: its format (one JSON object), where it lies, the sum of old and new counts, a write that is whole or not at all.
Refuses: to matter. It only says which experts to keep in memory first, so no result depends on it; a file that is missing, damaged or
of another model is left aside with a note, and a write that fails (full disk, read-only folder) leaves the old file as it was.

    {"format": "colibri-usage", "version": 1, "tokens": N, "counts": [[uses of expert 0, 1, ...] for each layer with experts]}
"""
from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 64 << 20
MAX_COUNT = 1 << 53
STALE_S = 3600
KEEP_TOKENS = 100_000       # older counts fade once there are more tokens than this


@dataclass(frozen=True, slots=True)
class Usage:
    """counts: [[uses] per stack], None where there is no usable file; tokens: that they were counted over; note: why not used, or None."""

    counts: list[list[int]] | None
    tokens: int = 0
    note: str | None = None


def beside(model) -> Path:
    """Where the usage file of a model file lies."""
    return Path(f"{model}.usage")


def read(path: Path, experts: Sequence[int]) -> Usage:
    """The counts of a usage file for stacks of that many experts. Never raises for what the file holds or lacks."""
    try:
        with open(path, "rb") as f:
            raw = f.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return Usage(None)
    except OSError as e:
        return Usage(None, note=f"{path}: {e.strerror}; the usage file is left aside")
    try:
        return _parse(raw, experts)
    except (ValueError, RecursionError) as e:
        return Usage(None, note=f"{path} is left aside: {str(e)[:120]}; it is safe to delete")


def _parse(raw: bytes, experts: Sequence[int]) -> Usage:
    if len(raw) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB")
    data = json.loads(raw.decode("utf-8"))
    if not isinstance(data, dict) or data.get("format") != "colibri-usage" or data.get("version") != 1:
        raise ValueError("it is no usage file of version 1")
    counts, tokens = data.get("counts"), data.get("tokens")
    if type(tokens) is not int or not 0 <= tokens <= MAX_COUNT:
        raise ValueError("its number of tokens is none")
    if not isinstance(counts, list) or [len(c) if isinstance(c, list) else -1 for c in counts] != list(experts):
        raise ValueError("it belongs to a model with other layers or experts")
    if any(type(n) is not int or not 0 <= n <= MAX_COUNT for row in counts for n in row):
        raise ValueError("it holds a count that is none")
    return Usage(counts, tokens)


def merge(old: Usage, counts: Sequence[Sequence[int]], tokens: int) -> Usage:
    """Old counts and those of this run. Beyond KEEP_TOKENS the old ones fade, so that a new way of use shows."""
    if old.counts is None:
        return Usage([list(row) for row in counts], tokens)
    fade = min(1.0, KEEP_TOKENS / max(1, old.tokens + tokens))
    return Usage([[int(a * fade) + b for a, b in zip(x, y, strict=True)] for x, y in zip(old.counts, counts, strict=True)],
                 int(old.tokens * fade) + tokens)


def write(path: Path, usage: Usage) -> str | None:
    """Puts the counts there, whole or not at all: into a file beside it, on the disk, then renamed. A note where that cannot be done; none
    for a folder that this user may not write to, for that is how it should be."""
    temp = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        for left in path.parent.glob(f"{glob.escape(path.name)}.tmp-*"):
            _remove_stale(left)
        with open(temp, "wb") as f:
            f.write(json.dumps({"format": "colibri-usage", "version": 1, "tokens": usage.tokens, "counts": usage.counts},
                               separators=(",", ":")).encode())
            f.flush()
            os.fsync(f.fileno())
        os.replace(temp, path)
    except OSError as e:
        with contextlib.suppress(OSError):
            temp.unlink()
        if e.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            return f"{path}: {e.strerror}; what was learned in this run is not kept"
    return None


def _remove_stale(left: Path) -> None:
    """Removes what a run that was killed an hour ago or more left unfinished."""
    with contextlib.suppress(OSError):
        if time.time() - left.stat().st_mtime > STALE_S:
            left.unlink()
