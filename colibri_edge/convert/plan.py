"""From bindings to a plan: which format each matrix gets, where each record lies, and how its bytes are made.

Owns: the choice of formats, the directory of docs/format.md (offsets, strides, parts) and the makers of each record,
whose `jobs()` make its bytes in chunks of about a megabyte whatever the model's size.
Refuses: weights that a format cannot hold (NaN, infinity, beyond half precision), naming the tensor.

Formats: quantised blocks are kept. Floats keep their type unless `quant` asks for another; from q4_0 on down the
embedding and the output matrix become q6_k (q8_0 where the hidden size is no multiple of 256), because errors there
reach every token. `q2` means 2-bit routed experts (q2_a), whatever they were, and q8_0 for all other matrices stored as
floats (head as above): attention, shared and dense FFNs take few bytes, and every token passes through them. Router,
shared gate, norms and biases are float32. Experts of one layer share a format; where the source mixes types within one
part, the part becomes f32 (never silently: the report says what became what).
Order in the file: tokenizer, vectors, embedding and output, the layers' matrices and dense FFNs, then the routed
experts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ..topology import FORMATS, Want, part_shapes, wanted
from .formats import FLOATS, finite, pack_r8, quantise, rows_to_float
from .source import ConvertError, Rows

QUANTS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k", "q4_a", "mxfp4", "q2")
FINER = ("q4_0", "q4_k", "q4_a", "mxfp4", "q2")      # for these, embedding and output matrix get q6_k or q8_0
LINE, PAGE, SECTION = 64, 4096, 65536
PACK_BYTES = 1 << 19         # source bytes of a chunk that is reordered
FLOAT_WEIGHTS = 1 << 18      # weights of a chunk that is requantised


Made = tuple[np.ndarray, int]        # bytes of the file uint8[n], and the source bytes they came from


def align(n: int, to: int) -> int:
    return -(-n // to) * to


@dataclass(slots=True)
class Matrix:
    """How one matrix (or the alternating row groups of two) is made: sources [1 or 2], rows and columns of each."""

    sources: list[Rows]
    rows: int
    cols: int
    format: str
    importance: np.ndarray | None = None     # float32[cols], for quantise()

    @property
    def nbytes(self) -> int:
        return len(self.sources) * FORMATS[self.format].nbytes(self.rows, self.cols)

    @property
    def read_bytes(self) -> int:
        return sum(s.nbytes for s in self.sources)

    def jobs(self) -> Iterator[Callable[[], Made]]:
        """The matrix in pieces of some 512 KiB; jobs may run in any order and in threads."""
        same = all(s.format == self.format for s in self.sources)
        row = self.sources[0].tensor.row_bytes
        step = PACK_BYTES // row if same else FLOAT_WEIGHTS // self.cols
        step = max(8, step // (8 * len(self.sources)) * 8)
        for first in range(0, self.rows, step):
            yield partial(self._make, first, min(first + step, self.rows), same)

    def _make(self, first: int, last: int, same: bool) -> Made:
        group = FORMATS[self.format].group_bytes(self.cols)
        out = np.empty((-(-(last - first) // 8), len(self.sources), group), np.uint8)
        for i, source in enumerate(self.sources):
            self._pack(source, first, last, same, out[:, i])
        return out.reshape(-1), sum((last - first) * s.tensor.row_bytes for s in self.sources)

    def _pack(self, source: Rows, first: int, last: int, same: bool, out: np.ndarray) -> None:
        raw = source.read(first, last)
        if len(raw) % 8:
            raw = np.concatenate([raw, np.zeros((-len(raw) % 8, raw.shape[1]), np.uint8)])
        if same:
            if not finite(self.format, raw):
                raise ConvertError(f"tensor {source.tensor.name}, rows {source.first + first} to {source.first + last}, "
                                   "holds NaN or infinite weights; download or export it again")
            pack_r8(self.format, raw, out)
            return
        try:
            out[...] = quantise(self.format, rows_to_float(source.format, raw)[:, :self.cols], self.importance)
        except ValueError as e:
            raise ConvertError(f"tensor {source.tensor.name}, rows {source.first + first} to {source.first + last}: "
                               f"{e}") from None


@dataclass(slots=True)
class Vector:
    """A raw float32 vector, from a source tensor or computed."""

    values: np.ndarray | Rows
    length: int

    @property
    def nbytes(self) -> int:
        return 4 * self.length

    @property
    def read_bytes(self) -> int:
        return self.values.nbytes if isinstance(self.values, Rows) else 0

    def jobs(self) -> Iterator[Callable[[], Made]]:
        yield self._make

    def _make(self) -> Made:
        x = self.values
        if isinstance(x, Rows):
            order = x.order
            change, shape = x.change, x.tensor.shape
            x = x.tensor.all().floats().reshape(-1)
            x = x if order is None else x[order]
            x = x if change is None else change(x.reshape(shape)).reshape(-1)
            if not np.isfinite(x).all():
                raise ConvertError(f"tensor {self.values.tensor.name} holds NaN or infinite values; export it again")
        return np.ascontiguousarray(x, "<f4").view(np.uint8).reshape(-1), self.read_bytes


@dataclass(slots=True)
class Raw:
    """Bytes that are there already: the tokenizer's tables."""

    data: bytes
    read_bytes: int = 0

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def jobs(self) -> Iterator[Callable[[], Made]]:
        yield lambda: (np.frombuffer(self.data, np.uint8), 0)


@dataclass(slots=True)
class Piece:
    """One entry of the directory: `records` of one or more (offset in the record, maker), each `stride` bytes long.

    entry: the JSON entry; its crc32c is filled in while the record is written.
    """

    name: str
    entry: dict
    records: list[list[tuple[int, Matrix | Vector | Raw]]]
    stride: int
    alignment: int
    offset: int = 0

    @property
    def length(self) -> int:
        return self.stride * len(self.records)

    @property
    def read_bytes(self) -> int:
        return sum(maker.read_bytes for r in self.records for _, maker in r)


@dataclass(slots=True)
class Plan:
    """pieces in file order; became: {source format: Counter of stored formats}, counted in tensors of the source;
    classes: {kind of tensor: [weights, bytes]}; importance: {layers.N.experts: {part: float32[columns] or [experts, columns]}}."""

    topology: dict
    pieces: list[Piece] = field(default_factory=list)
    became: dict[str, Counter] = field(default_factory=dict)
    weights: int = 0
    weight_bytes: int = 0
    classes: dict[str, list[int]] = field(default_factory=dict)
    importance: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)

    def place(self, start: int) -> int:
        """Give every piece its offset from byte `start` on; returns the file's length."""
        routed = False
        pos = align(start, SECTION)
        for p in self.pieces:
            if p.name.endswith(".experts") and not routed:
                routed, pos = True, align(pos, SECTION)
            p.offset = pos = align(pos, p.alignment)
            p.entry["offset"] = pos
            pos += p.length
        return pos


def choose(rows: list[Rows], quant: str | None, routed: bool = False) -> str:
    """The stored format of a matrix made of these rows. routed: of routed experts."""
    kinds = {r.format for r in rows}
    for r in rows:
        _ = r.tensor.row_bytes                       # refuses formats nobody knows, by name
    if quant == "q2":
        if routed and not kinds <= {"q2_a", "q2_a32", "q2_k"}:
            return "q2_a"
        quant = "q8_0"
    if kinds <= set(FLOATS) and quant:
        return quant
    lost = next((r.tensor for r in rows if r.tensor.kept), None)
    if lost:
        raise ConvertError(f"tensor {lost.name} is {lost.kept}, which no format here keeps as it is; say what it shall become, "
                           "such as --quant q8_0")
    if len(kinds) == 1:
        return kinds.pop()
    return "f32"                                     # mixed types within one part: keep every bit


def head_quant(quant: str | None, hidden: int) -> str | None:
    """The format of embedding and output matrix when the others get `quant`."""
    if quant in FINER:
        return "q6_k" if hidden % 256 == 0 else "q8_0"
    return quant


def class_of(name: str) -> str:
    """What kind of tensor a name means, for reports."""
    last = name.rsplit(".", 1)[-1]
    if name in ("embed", "output"):
        return {"embed": "embedding", "output": "output matrix"}[name]
    return {"experts": "routed experts", "shared": "shared experts", "mlp": "dense FFN", "router": "router and gates",
            "shared_gate": "router and gates"}.get(last, "attention")


def make(topology: dict, bindings: dict, ropes: list[np.ndarray], quant: str | None, head: str | None,
         tokenizer: bytes | None, importance: dict | None = None) -> Plan:
    """The plan of a file. bindings: names.py. quant: format for floats, or None. head: that of embed and output.
    importance: see Plan."""
    if quant is not None and quant not in QUANTS or head is not None and head not in QUANTS:
        raise ConvertError(f"quant is {quant!r} and {head!r}, wanted one of {', '.join(QUANTS)}")
    want = wanted(topology)
    plan = Plan(topology, importance=importance or {})
    bindings = dict(bindings)
    for i, inv in enumerate(ropes):
        bindings[f"rope.{i}"] = inv
    missing = [n for n, w in want.items() if n not in bindings and not w.optional]
    if missing or set(bindings) - set(want):
        raise ConvertError(f"{missing or sorted(set(bindings) - set(want))} and the topology do not agree; this is a "
                           "fault of the family's module: please report it")
    head = head or head_quant(quant, topology["hidden_size"])
    made = {}
    for n, w in want.items():
        if n in bindings:
            weights, nbytes = plan.weights, plan.weight_bytes
            made[n] = _piece(plan, n, w, bindings[n], head if n in ("embed", "output") else quant)
            if plan.weights > weights:
                sums = plan.classes.setdefault(class_of(n), [0, 0])
                sums[0] += plan.weights - weights
                sums[1] += plan.weight_bytes - nbytes
    if tokenizer is not None:
        made["tokenizer"] = Piece("tokenizer", {"offset": 0, "length": len(tokenizer), "crc32c": 0},
                                  [[(0, Raw(tokenizer))]], len(tokenizer), SECTION)

    def order(p: Piece):
        if p.name == "tokenizer":
            return 0
        if p.alignment == LINE:
            return 1
        return 2 if p.name in ("embed", "output") else 4 if p.name.endswith(".experts") else 3

    plan.pieces = sorted(made.values(), key=order)
    return plan


def _count(plan: Plan, rows: list, fmt: str, weights: int, nbytes: int) -> None:
    for name, src in {r.tensor.name: r.format for r in rows if isinstance(r, Rows)}.items():
        _ = name
        plan.became.setdefault(src, Counter())[fmt] += 1
    plan.weights += weights
    plan.weight_bytes += nbytes


def _matrix(plan: Plan, sources: list[Rows], rows: int, cols: int, fmt: str, importance=None) -> Matrix:
    m = Matrix(sources, rows, cols, fmt, importance)
    plan.weights += len(sources) * rows * cols
    plan.weight_bytes += m.nbytes
    return m


def _piece(plan: Plan, name: str, want: Want, binding, quant: str | None) -> Piece:
    if want.kind == "experts":
        return _stack(plan, name, want, binding, quant)
    if want.kind == "vector":
        maker, fmt, alignment = Vector(binding, want.shape[0]), "f32", LINE
    else:
        fmt = "f32" if want.f32 else choose([binding], quant)
        maker, alignment = _matrix(plan, [binding], *want.shape, fmt), PAGE
    if isinstance(binding, Rows):
        _count(plan, [binding], fmt, 0, 0)
    entry = {"shape": list(want.shape), "format": fmt, "offset": 0, "length": maker.nbytes, "crc32c": 0}
    return Piece(name, entry, [[(0, maker)]], maker.nbytes, alignment)


def _stack(plan: Plan, name: str, want: Want, binding: dict[str, list[Rows]], quant: str | None) -> Piece:
    count, inter, hidden = want.shape
    shapes = part_shapes(inter, hidden)
    formats = {}
    for part, rows in binding.items():
        formats[part] = "f32" if part.endswith("_bias") else choose(rows, quant, name.endswith(".experts"))
        _count(plan, [r for r in rows if not isinstance(r, np.ndarray)], formats[part], 0, 0)
    fused = "gate" in formats and formats["gate"] == formats["up"]
    order = (["gate_up"] if fused else [p for p in ("gate", "up") if p in formats]) + ["down"]
    order += [p for p in ("gate_bias", "up_bias", "down_bias") if p in formats]

    weighing = plan.importance.get(name, {})

    def maker(part: str, e: int):
        if part.endswith("_bias"):
            return Vector(binding[part][e], shapes[part][0])
        columns = weighing.get("down" if part == "down" else "gate_up")
        columns = columns if columns is None or columns.ndim == 1 else columns[e]
        if part == "gate_up":
            return _matrix(plan, [binding["gate"][e], binding["up"][e]], inter, hidden, formats["gate"], columns)
        return _matrix(plan, [binding[part][e]], *shapes[part], formats[part], columns)

    records = []
    for e in range(count):
        record, parts, pos = [], [], 0
        for part in order:
            m = maker(part, e)
            pos = align(pos, LINE)
            record.append((pos, m))
            parts.append({"name": part, "format": formats.get(part, formats.get("gate")), "shape": list(shapes[part]),
                          "offset": pos, "length": m.nbytes})
            pos += m.nbytes
        records.append(record)
    stride = align(pos, PAGE)
    entry = {"kind": "experts", "count": count, "stride": stride, "offset": 0, "length": count * stride, "parts": parts,
             "crc32c": [0] * count}
    return Piece(name, entry, records, stride, SECTION)
