"""Where the bytes go: what a model needs in memory at a context, and how it is placed under a ceiling.

Owns: the sum that `ram=` bounds (everything the process takes: weights, KV cache, buffers, expert slots, tokenizer, Python), the
choice between mapped and streamed experts, the table of a refusal and what would fit instead.
Refuses: models whose resident part and top-k experts do not fit.
"""
from __future__ import annotations

import contextlib
from dataclasses import dataclass

from colibri_edge import limits
from colibri_edge.engine import Program, Session
from colibri_edge.file import ColibriFile
from colibri_edge.topology import FORMATS

LATER_BYTES = 24 << 20   # what is imported and touched after loading: regular expressions, templates, thread stacks
BASE_BYTES = 40 << 20    # Python with numpy and this package, where the system does not tell
ROWS_FROM = 16 << 20     # a smaller embedding is not worth a read a token
PREFILL_CHUNK = 256      # tokens of one pass; an interrupt waits for one
STREAM_CHUNK = 512       # where a pass reads nearly every expert from disk, so that fewer passes pay
WORTH = 0.9              # of the experts in memory must be left for that
LEAST_CONTEXT = 64       # a shorter one is of no use
SLACK = 1 << 20         # advice holds although the interpreter takes a little more or less in the next process
QUANTS = ("q8_0", "q6_k", "q4_k", "q4_0")   # what convert() makes of floats, largest first


class DoesNotFit(ValueError):
    """The model does not fit the ceiling; the message holds the table and what would. rows: bytes by use; advice: what would fit."""

    def __init__(self, message: str, rows: dict[str, int], advice: str):
        super().__init__(message)
        self.rows, self.advice = rows, advice


@dataclass(frozen=True, slots=True)
class Placement:
    """weights: "map" or "stream"; slots: of streamed experts; need: bytes by use, in the order of the table; embed_rows: the embedding
    stays in the file as well; chunk: tokens of one prefill pass."""

    weights: str
    slots: int
    need: dict[str, int]
    embed_rows: bool = False
    chunk: int = PREFILL_CHUNK

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(self.need.values())


def routed(file: ColibriFile) -> list:
    """The stacks of routed experts."""
    return [t for name, t in file.tensors.items() if name.endswith(".experts")]


def resident_bytes(file: ColibriFile) -> int:
    """Bytes of everything but routed experts (tokenizer and metadata included)."""
    return file.size - sum(t.length for t in routed(file))


def by_row(file: ColibriFile) -> bool:
    """Whether the embedding can stay in the file, its rows read as tokens ask for them: a large one, and not the output matrix too."""
    return bool(routed(file)) and not file.topology["tied"] and file.tensors["embed"].length >= ROWS_FROM


def least_slots(file: ColibriFile) -> int:
    """Slots that the layer with the most chosen experts needs."""
    return max((layer["ffn"].get("top_k", 0) for layer in file.topology["layers"]), default=0)


def need(file: ColibriFile, program: Program, ctx: int, kv: str, chunk: int = 256, threads: int = 1) -> dict[str, int]:
    """Bytes by use, with all experts in memory."""
    session = Session(program, ctx, threads, kv, chunk, plan=True)
    state = {"recurrent state": session.state_bytes} if session.state_bytes else {}
    return {"resident weights": resident_bytes(file), "routed experts": file.size - resident_bytes(file), "KV cache": session.kv_bytes,
            **state, "buffers": session.arena_bytes, "Python": (limits.rss_bytes() or BASE_BYTES) + LATER_BYTES}


def table(rows: dict[str, int], ram: int) -> str:
    """Aligned lines in MiB, with the sum and the ceiling."""
    lines = [*rows.items(), ("sum", sum(rows.values())), ("ceiling", ram)]
    return "\n".join(f"  {name:18} {n / 2**20:10.1f} MiB" for name, n in lines)


def place(file: ColibriFile, program: Program, *, ctx: int, kv: str, chunk: int | None, threads: int, ram: int) -> Placement:
    """How to place the model under `ram` bytes. chunk None: what pays, PREFILL_CHUNK in memory, STREAM_CHUNK streamed where its larger
    buffers take the place of few experts. Raises DoesNotFit with a table."""
    if chunk is None:
        small = place(file, program, ctx=ctx, kv=kv, chunk=PREFILL_CHUNK, threads=threads, ram=ram)
        if small.weights == "map":
            return small
        with contextlib.suppress(DoesNotFit):
            large = place(file, program, ctx=ctx, kv=kv, chunk=STREAM_CHUNK, threads=threads, ram=ram)
            return large if large.slots >= WORTH * small.slots else small
        return small
    rows = need(file, program, ctx, kv, chunk, threads)
    if sum(rows.values()) <= ram:
        return Placement("map", 0, rows, chunk=chunk)
    if by_row(file):
        rows["resident weights"] -= file.tensors["embed"].length
    stacks, slot = routed(file), _slot(file)
    slots = (ram - sum(rows.values()) + rows["routed experts"]) // slot if slot else 0
    if not stacks or slots < least_slots(file):
        rows["routed experts"] = least_slots(file) * slot
        advice = _advice(file, program, rows, ctx, kv, ram)
        raise DoesNotFit(f"the model does not fit ram={ram}; the least it takes with a context of {ctx}:\n{table(rows, ram)}\n{advice}",
                         rows, advice)
    slots = min(slots, sum(t.count for t in stacks))
    return Placement("stream", slots, rows | {"routed experts": slots * slot}, by_row(file), chunk)


def most_context(file: ColibriFile, program: Program, *, ram: int, kv: str, chunk: int, threads: int) -> int:
    """The longest context, in steps of 8, that fits `ram` with the fewest experts in memory; 0 where none does."""
    rows = need(file, program, 8, kv, chunk, threads)
    rows["routed experts"] = min(rows["routed experts"], least_slots(file) * _slot(file))
    rows["resident weights"] -= file.tensors["embed"].length if by_row(file) else 0
    return _context(program, rows, kv, ram)


def _slot(file: ColibriFile) -> int:
    return max((t.stride for t in routed(file)), default=0)


def _context(program: Program, rows: dict[str, int], kv: str, ram: int) -> int:
    """The longest context that leaves room for the other rows. Bytes grow with the context in equal steps, after a constant part."""
    spare = ram - (sum(rows.values()) - rows["KV cache"])
    one, two = Session.kv_bytes_for(program, 1024, kv), Session.kv_bytes_for(program, 2048, kv)
    step = max(1, (two - one) // 1024)
    return max(0, min(program.context, (spare - (one - 1024 * step)) // step // 8 * 8))


def _advice(file: ColibriFile, program: Program, rows: dict[str, int], ctx: int, kv: str, ram: int) -> str:
    fits = min(_context(program, rows, kv, ram - SLACK), ctx)
    if fits >= LEAST_CONTEXT:
        return f"a context of {fits} would fit (ctx={fits})"
    rest = rows["buffers"] + rows["Python"]
    now = rows["resident weights"] + rows["routed experts"]
    for quant in QUANTS:
        weights = least_bytes_as(file, quant)
        small = min(ctx, _context(program, {"weights": weights, "rest": rest, "KV cache": 0}, kv, ram))
        if weights < now and small >= LEAST_CONTEXT:
            return f"weights as {quant} would fit, with a context of up to {small} (convert the original with --quant {quant})"
    least = min(now, *(least_bytes_as(file, q) for q in QUANTS)) + rest + Session.kv_bytes_for(program, LEAST_CONTEXT, kv)
    return (f"no shorter context and no quantisation that convert knows would fit; the least is {least / 2**20:.0f} MiB: take more memory "
            "or a smaller model")


def least_bytes_as(file: ColibriFile, quant: str) -> int:
    """Bytes of resident weights and the fewest experts if all matrices were in `quant`, embedding and output as convert() would."""
    head = quant
    if quant in ("q4_0", "q4_k"):
        head = "q6_k" if file.topology["hidden_size"] % 256 == 0 else "q8_0"
    total = resident_bytes(file)

    def record(t) -> int:
        return sum(FORMATS[quant].nbytes(*p.shape) for p in t.parts if len(p.shape) == 2)

    total -= file.tensors["embed"].length if by_row(file) else 0
    for name, t in file.tensors.items():
        if name == "embed" and by_row(file):
            continue
        if t.kind == "matrix" and not name.endswith(("router", "shared_gate")):
            total += FORMATS[head if name in ("embed", "output") else quant].nbytes(*t.shape) - t.length
        elif t.kind == "experts" and not name.endswith(".experts"):
            total += record(t) - t.length
    return total + least_slots(file) * max(map(record, routed(file)), default=0)
