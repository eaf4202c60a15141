"""Bindings from a table of names, for families whose layers hold more than names.py knows.

Owns: `bind(...)`, which asks topology.wanted() for every tensor and its shape, so that a family only says how each is called, and
`Transposed`. Refuses: what Binder refuses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..convert.formats import FLOATS
from ..convert.source import Rows, SourceTensor
from ..topology import wanted
from . import names
from .common import Spec

Stack = Callable[["names.Binder", str, str, tuple[int, ...]], dict[str, list[Rows]]]


def bind(b: names.Binder, spec: Spec, prefix: str, top: tuple[str, str, str], layer: dict[str, str], stack: Stack,
         change: Callable[[str], Callable | None] = lambda _: None, demanded: tuple[str, ...] = ()) -> dict:
    """Bindings of all but the RoPE tables.

    prefix: what stands before a layer's number; top: names of embedding, last norm and output matrix. layer: our name within a layer
    (topology.py) -> the source's. stack(b, "prefixN.", our name, shape): the parts of an FFN stack. change(our name): what is stored
    instead of a vector's values. Of the tensors that a topology leaves open, those demanded (our names) must be there.
    """
    out = names._head(b, spec, *top)
    out["output_norm"].change = change("output_norm")
    for target, want in wanted(spec.topology).items():
        if not target.startswith("layers."):
            continue
        _, n, name = target.split(".", 2)
        at = f"{prefix}{n}."
        if want.kind == "experts":
            out[target] = stack(b, at, name, want.shape)
            continue
        source = at + layer[name] if name in layer else None
        if want.optional and name not in demanded and (source is None or not b.has(source)):
            continue
        out[target] = b.rows(source, want.shape, target)
        out[target].change = change(name)
    return out


class Transposed:
    """A float tensor [E, cols, rows] read as [E, rows, cols]: experts that a checkpoint keeps as x W instead of W x.

    The last two experts are kept, so that chunks of rows do not read an expert's matrix again and again."""

    def __init__(self, source: SourceTensor):
        count, cols, rows = source.shape
        self.source, self.name, self.format, self.file = source, source.name, source.format, source.file
        self.shape, self.cols, self.rows, self.kept = (count, rows, cols), cols, count * rows, source.kept
        _ = source.row_bytes                    # refuses formats nobody knows, by name
        self.row_bytes = cols * FLOATS[self.format].itemsize
        self._kept: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def _expert(self, e: int) -> np.ndarray:
        with self._lock:
            if e not in self._kept:
                raw = self.source.read(e * self.cols, (e + 1) * self.cols).reshape(-1).view(FLOATS[self.format])
                while len(self._kept) > 1:
                    del self._kept[next(iter(self._kept))]
                self._kept[e] = np.ascontiguousarray(raw.reshape(self.cols, self.shape[1]).T)
            return self._kept[e]

    def read(self, first: int, last: int) -> np.ndarray:
        """Rows first .. last-1, of one expert, as uint8[rows, row bytes]."""
        e, at = divmod(first, self.shape[1])
        return self._expert(e)[at:at + last - first].view(np.uint8)


def part(t: SourceTensor, row: int, order: np.ndarray | None = None) -> Rows:
    """A vector that is one row of a matrix, or some of its values in that order: a bias of one expert."""
    return Rows(replace(t, shape=t.shape[1:], offset=t.offset + row * t.row_bytes), 0, 1, order)
