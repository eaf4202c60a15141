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
from collections.abc import Callable
from pathlib import Path

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
            total, done = sum(p.read_bytes for p in plan.pieces), 0
            for piece in plan.pieces:
                for i in range(len(piece.records)):
                    done = _record(f, piece, i, done, total, progress)
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


def _record(f, piece: Piece, i: int, done: int, total: int, progress) -> int:
    """Stream one record, its padding included, and note its checksum; returns the source bytes read so far."""
    base, pos, crc = piece.offset + i * piece.stride, 0, 0
    for offset, maker in piece.records[i]:
        if offset > pos:
            crc = crc32c(bytes(offset - pos), crc)
            pos = offset
        for data, read in maker.stream():
            _put(f, base + pos, data)
            crc = crc32c(data, crc)
            pos += len(data)
            done += read
            if progress:
                progress(done, total, piece.name)
        if pos != offset + maker.nbytes:
            raise ConvertError(f"{piece.name} record {i} came to {pos - offset} bytes, planned were {maker.nbytes}; "
                               "please report it")
    if pos < piece.stride:
        crc = crc32c(bytes(piece.stride - pos), crc)
    if isinstance(piece.entry["crc32c"], list):
        piece.entry["crc32c"][i] = crc
    else:
        piece.entry["crc32c"] = crc
    return done


def _sync_folder(folder: Path) -> None:
    """Make the rename durable where folders can be opened (not on Windows)."""
    with contextlib.suppress(OSError, AttributeError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
