"""Tensors of a source model as rows of bytes, read piece by piece.

Owns: `SourceTensor` (where a tensor lies in which file, and `read(first, last)` of its rows), `Rows` (a slice of a
tensor's rows, perhaps in another order: one expert of a stack, the gate half of a fused matrix, query rows in RoPE
order) and `ConvertError`. Reads go through plain file reads into fresh buffers of the size asked for, not through a
mapping, so that resident memory stays small whatever the model's size.
Refuses: reads outside a tensor, files that ended meanwhile, and formats nobody here knows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..topology import FORMATS
from .formats import FLOATS, GGML, rows_to_float, source_row_bytes

KNOWN = (*FLOATS, *GGML)


class ConvertError(ValueError):
    """A model that cannot be converted. The message names the thing, what was found, what was wanted, what to do."""


class SourceFile:
    """One open file of the source; opened at the first read. Threads may read at the same time."""

    def __init__(self, path):
        self.path = path
        self.size = os.path.getsize(path)
        self._f = None
        self._lock = threading.Lock()

    def read(self, offset: int, length: int) -> np.ndarray:
        """uint8[length]"""
        out = np.empty(length, np.uint8)
        view, done = memoryview(out), 0
        with self._lock:
            if self._f is None:
                self._f = open(self.path, "rb", buffering=0)  # noqa: SIM115 (kept open, see close)
            self._f.seek(offset)
            while done < length:
                n = self._f.readinto(view[done:])
                if not n:
                    raise ConvertError(f"{self.path} ended at byte {offset + done} of {offset + length}; it was changed "
                                       "or cut while it was read: copy it again")
                done += n
        return out

    def close(self) -> None:
        if self._f is not None:
            self._f.close()
            self._f = None


@dataclass(slots=True)
class SourceTensor:
    """A tensor of the source. shape: as torch writes it, rows of `cols` weights over all leading axes.

    format: a name of formats.GGML or formats.FLOATS, or any other text, which is refused when the tensor is used.
    offset: bytes, absolute in the file.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    file: SourceFile
    offset: int
    _row_bytes: int = field(default=0)
    kept = ""                # why no format keeps it as it is, where that is so (packed.py)

    @property
    def cols(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        n = 1
        for s in self.shape[:-1]:
            n *= s
        return n

    @property
    def row_bytes(self) -> int:
        if not self._row_bytes:
            if self.format not in KNOWN:
                raise ConvertError(f"{self.file.path}: tensor {self.name} is stored as {self.format}, wanted one of "
                                   f"{', '.join(KNOWN)}; export the model as BF16, F16 or F32")
            self._row_bytes = source_row_bytes(self.format, self.cols)
        return self._row_bytes

    @property
    def files(self) -> set:
        """Every file it lies in."""
        return {self.file}

    def read(self, first: int, last: int) -> np.ndarray:
        """Rows first .. last-1 as uint8[rows, row bytes]."""
        if not 0 <= first <= last <= self.rows:
            raise ConvertError(f"tensor {self.name} has {self.rows} rows, asked for {first} to {last}")
        n = self.row_bytes
        return self.file.read(self.offset + first * n, (last - first) * n).reshape(last - first, n)

    def all(self) -> Rows:
        return Rows(self, 0, self.rows)


@dataclass(slots=True)
class Rows:
    """`count` rows of a tensor from row `first` on. order: int64[count], relative to first, or None for as they lie.

    change: for vectors, what is stored instead of the source's values: float32 array of the tensor's shape -> float32 array.
    """

    tensor: SourceTensor
    first: int
    count: int
    order: np.ndarray | None = None
    change: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def format(self) -> str:
        return self.tensor.format

    @property
    def cols(self) -> int:
        return self.tensor.cols

    @property
    def nbytes(self) -> int:
        return self.count * self.tensor.row_bytes

    def read(self, first: int, last: int) -> np.ndarray:
        """Rows first .. last-1 of the slice as uint8[rows, row bytes]."""
        if self.order is None:
            return self.tensor.read(self.first + first, self.first + last)
        idx = self.order[first:last]
        if not len(idx):
            return self.tensor.read(0, 0)
        low, high = int(idx.min()), int(idx.max()) + 1       # whole heads: the span is at most two heads larger
        return self.tensor.read(self.first + low, self.first + high)[idx - low]

    def floats(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """Rows as float32[rows, cols]."""
        return rows_to_float(self.format, self.read(first, self.count if last is None else last))


def bits_per_weight(fmt: str) -> float:
    """Bits a weight takes in the source."""
    return FLOATS[fmt].itemsize * 8 if fmt in FLOATS else GGML[fmt].itemsize * 8 / FORMATS[fmt].k
