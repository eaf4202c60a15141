"""Writer of `.colibri` version 2.

Owns: `write(dst, plan, meta, progress)`. The plan knows every length, so the metadata's room is reserved first (with
every checksum at its widest), records are streamed to their places, and metadata and header are written last: until
then the file has no magic. It goes to a temporary name beside the target, is flushed to the disk, and takes the
target's name in one step; the folder is flushed as well.
Refuses: a target that is not a plain file, folders without room. On any failure, Ctrl-C included, the temporary file is
removed and an old target stays as it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .._native import default_threads
from ..crc32c import crc32c
from ..file import HEADER, MAGIC, MAX_META
from .plan import Piece, Plan
from .source import ConvertError

Progress = Callable[[int, int, str], None]
WIDEST = 0xFFFFFFFF


def _encode(meta: dict) -> bytes:
    return json.dumps(meta, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")


def _room(meta: dict, plan: Plan) -> int:
    """Bytes to reserve for the metadata: its length with the widest offsets and checksums."""
    for p in plan.pieces:
        p.entry["crc32c"] = [WIDEST] * len(p.records) if isinstance(p.entry["crc32c"], list) else WIDEST
    guess = len(_encode(meta))
    for _ in range(8):
        plan.place(HEADER.size + guess)
        n = len(_encode(meta))
        if n <= guess:
            return guess
        guess = n + 64
    raise ConvertError("the metadata's length does not settle; please report it")


def write(dst: Path, plan: Plan, meta: dict, progress: Progress | None = None) -> int:
    """Write the file; returns its length in bytes. meta: everything but "tensors" and "tokenizer", which this adds.

    progress(source bytes read, source bytes in all, name of the record) is called as it goes.
    """
    dst = Path(dst)
    if dst.exists() and not dst.is_file():
        raise ConvertError(f"{dst} exists and is no file; choose another name")
    folder = dst.resolve().parent
    if not folder.is_dir():
        raise ConvertError(f"the folder {folder} does not exist; make it first")
    meta = dict(meta)
    meta["tensors"] = {p.name: p.entry for p in plan.pieces if p.name != "tokenizer"}
    for p in plan.pieces:
        if p.name == "tokenizer":
            meta["tokenizer"] = p.entry
    room = _room(meta, plan)
    if room > MAX_META:
        raise ConvertError(f"the metadata takes {room} bytes, wanted at most {MAX_META}; is the chat template damaged?")
    length = plan.place(HEADER.size + room)
    free = shutil.disk_usage(folder).free
    if free < length + (1 << 20):
        raise ConvertError(f"{folder} has {free >> 20} MiB free, the file needs {(length >> 20) + 1} MiB; free some "
                           "room or choose another disk")
    temp = folder / f"{dst.name}.tmp-{os.getpid()}"
    try:
        with open(temp, "wb", buffering=0) as f:
            f.truncate(length)
            _records(f, plan, progress)
            raw = _encode(meta)
            raw += b" " * (room - len(raw))
            head = HEADER.pack(MAGIC, 2, 1, 0, room, length, crc32c(raw), 0)
            head = head[:28] + crc32c(head[:28]).to_bytes(4, "little")
            _put(f, HEADER.size, raw)
            f.flush()
            os.fsync(f.fileno())                         # everything else is on the disk before the magic is
            _put(f, 0, head)
            os.fsync(f.fileno())
        os.replace(temp, dst)
        _sync_folder(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            temp.unlink()
        raise
    return length


def _put(f, offset: int, data) -> None:
    f.seek(offset)
    view = memoryview(data).cast("B")
    while view:
        view = view[f.write(view):]


def _jobs(plan: Plan) -> Iterator[tuple[tuple[Piece, int, int, int], Callable]]:
    """((piece, record, offset in the record, planned length), job) in file order; the length is 0 for a maker's later
    jobs, which go on where the one before ended."""
    for piece in plan.pieces:
        for i, record in enumerate(piece.records):
            for offset, maker in record:
                length = maker.nbytes
                for job in maker.jobs():
                    yield (piece, i, offset, length), job
                    length = 0


def _ahead(jobs: Iterator) -> Iterator:
    """Results in order, made by a few threads that run a few jobs ahead (reading and numpy let go of the GIL)."""
    threads = max(1, min(8, default_threads()))
    pool, waiting = ThreadPoolExecutor(threads), deque()
    try:
        for where, job in jobs:
            waiting.append((where, pool.submit(job)))
            if len(waiting) > 2 * threads:
                where, future = waiting.popleft()
                yield where, future.result()
        while waiting:
            where, future = waiting.popleft()
            yield where, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _records(f, plan: Plan, progress) -> None:
    """Write all records, their padding included in the checksums, which are noted in the directory."""
    total, done = sum(p.read_bytes for p in plan.pieces), 0
    piece, record, pos, end, crc = None, 0, 0, 0, 0

    def finish() -> None:
        if pos != end:
            raise ConvertError(f"{piece.name} record {record} came to {pos} bytes, planned were {end}; please report it")
        whole = crc32c(bytes(piece.stride - pos), crc) if pos < piece.stride else crc
        if isinstance(piece.entry["crc32c"], list):
            piece.entry["crc32c"][record] = whole
        else:
            piece.entry["crc32c"] = whole

    for (now, i, offset, length), (data, read) in _ahead(_jobs(plan)):
        if now is not piece or i != record:
            if piece is not None:
                finish()
            piece, record, pos, end, crc = now, i, 0, 0, 0
        if length:
            if pos != end or offset < pos:
                finish()
            crc = crc32c(bytes(offset - pos), crc) if offset > pos else crc
            pos, end = offset, offset + length
        _put(f, piece.offset + i * piece.stride + pos, data)
        crc = crc32c(data, crc)
        pos += len(data)
        done += read
        if progress:
            progress(done, total, piece.name)
    finish()


def _sync_folder(folder: Path) -> None:
    """Make the rename durable where folders can be opened (not on Windows)."""
    with contextlib.suppress(OSError, AttributeError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
