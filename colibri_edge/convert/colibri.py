"""A `.colibri` file as a source: to put its experts into another format, or its floats.

Owns: `read(path)`: topology, places, tokenizer and settings as they are, and `Stored`, whose rows come out of R8 as source
blocks, so that what keeps its format keeps its bits. Refuses: damaged files (every checksum is looked at first).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..families.common import Spec
from ..file import ColibriFile
from ..topology import FORMATS
from .formats import FLOATS, GGML, unpack_r8
from .source import ConvertError, Rows, SourceFile, SourceTensor


@dataclass(slots=True)
class Stored(SourceTensor):
    """A matrix [rows, cols] in R8 from byte `offset` on; its row groups lie `apart` groups apart (2: gate and up alternate)."""

    apart: int = 1

    @property
    def row_bytes(self) -> int:
        if self.format in FLOATS:
            return self.cols * FLOATS[self.format].itemsize
        return -(-self.cols // FORMATS[self.format].k) * GGML[self.format].itemsize

    def read(self, first: int, last: int) -> np.ndarray:
        """Rows first .. last-1 as uint8[rows, row bytes]; padded columns come along with blocks."""
        if not 0 <= first <= last <= self.rows:
            raise ConvertError(f"tensor {self.name} has {self.rows} rows, asked for {first} to {last}")
        if first == last:
            return np.empty((0, self.row_bytes), np.uint8)
        low, high, size = first // 8, -(-last // 8), FORMATS[self.format].group_bytes(self.cols)
        span = ((high - low - 1) * self.apart + 1) * size
        raw = self.file.read(self.offset + low * self.apart * size, span).reshape(-1, size)[::self.apart]
        return unpack_r8(self.format, raw, self.cols)[first - 8 * low:last - 8 * low]


def read(path: Path):
    """(Spec, bindings, extras, tensors by name, name) as the other readers give them."""
    with ColibriFile(path) as f:
        f.verify()
        file, tensors, bindings = SourceFile(path), {}, {}

        def rows(name: str, fmt: str, shape: tuple[int, ...], offset: int, apart: int = 1) -> Rows:
            tensors[name] = Stored(name, fmt, shape, file, offset, apart=apart)
            return Rows(tensors[name], 0, shape[0])

        def vector(view) -> np.ndarray:
            return np.frombuffer(view, "<f4").copy()

        for name, t in f.tensors.items():
            if t.kind == "vector":
                bindings[name] = vector(f.view(t))
            elif t.kind == "matrix":
                bindings[name] = rows(name, t.format, t.shape, t.offset)
            else:
                bindings[name] = _stack(f, t, rows, vector)
        ropes = [bindings.pop(r["tensor"]) for r in f.topology["ropes"]]
        tokenizer = f.tokenizer_view()
        extras = {"chat_template": f.meta.get("chat_template"), "generation": f.meta.get("generation", {}),
                  "tokenizer": None if tokenizer is None else bytes(tokenizer)}
        del tokenizer
        name = f.meta.get("source", {}).get("name")
        return Spec(f.topology, ropes), bindings, extras, tensors, name if isinstance(name, str) else Path(path).stem


def _stack(f: ColibriFile, t, rows, vector) -> dict:
    """{part: one for each record} of an FFN stack; gate and up apart."""
    inter, out = t.shape[1], {}
    for e in range(t.count):
        for p in t.parts:
            at = t.offset + e * t.stride + p.offset
            if len(p.shape) == 1:
                out.setdefault(p.name, []).append(vector(f.view(t, e)[p.offset:p.offset + p.length]))
            elif p.name == "gate_up":
                size = FORMATS[p.format].group_bytes(p.shape[1])
                for i, part in enumerate(("gate", "up")):
                    out.setdefault(part, []).append(rows(f"{t.name} {part} of expert {e}", p.format, (inter, p.shape[1]),
                                                         at + i * size, 2))
            else:
                out.setdefault(p.name, []).append(rows(f"{t.name} {p.name} of expert {e}", p.format, p.shape, at))
    return out
