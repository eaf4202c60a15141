"""Where the bytes go: what a model needs in memory at a context, and how it is placed under a ceiling.

Owns: the sum that `ram=` bounds (everything the process takes: weights, KV cache, buffers, expert slots, tokenizer, Python), the
choice between mapped and streamed experts, the table of a refusal. Refuses: models whose resident part and top-k experts do not fit.
"""
from __future__ import annotations

from dataclasses import dataclass

from colibri_edge import limits
from colibri_edge.engine import Program, Session
from colibri_edge.file import ColibriFile

LATER_BYTES = 24 << 20   # what is imported and touched after loading: regular expressions, templates, thread stacks
BASE_BYTES = 40 << 20    # Python with numpy and this package, where the system does not tell


class DoesNotFit(ValueError):
    """The model does not fit the ceiling; the message holds the table and what would."""


@dataclass(frozen=True, slots=True)
class Placement:
    """weights: "map" or "stream"; slots: of streamed experts; need: bytes by use, in the order of the table."""

    weights: str
    slots: int
    need: dict[str, int]

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


def need(file: ColibriFile, program: Program, ctx: int, kv: str, chunk: int = 256, threads: int = 1) -> dict[str, int]:
    """Bytes by use, with all experts in memory."""
    session = Session(program, ctx, threads, kv, chunk, plan=True)
    return {"resident weights": resident_bytes(file), "routed experts": file.size - resident_bytes(file), "KV cache": session.kv_bytes,
            "buffers": session.arena_bytes, "Python": (limits.rss_bytes() or BASE_BYTES) + LATER_BYTES}


def table(rows: dict[str, int], ram: int) -> str:
    """Aligned lines in MiB, with the sum and the ceiling."""
    lines = [*rows.items(), ("sum", sum(rows.values())), ("ceiling", ram)]
    return "\n".join(f"  {name:18} {n / 2**20:10.1f} MiB" for name, n in lines)


def place(file: ColibriFile, program: Program, *, ctx: int, kv: str, chunk: int, threads: int, ram: int) -> Placement:
    """How to place the model under `ram` bytes. Raises DoesNotFit with a table."""
    rows = need(file, program, ctx, kv, chunk, threads)
    if sum(rows.values()) <= ram:
        return Placement("map", 0, rows)
    stacks = routed(file)
    slot = max((t.stride for t in stacks), default=0)
    fixed = sum(rows.values()) - rows["routed experts"]
    slots = (ram - fixed) // slot if slot else 0
    least = max((layer["ffn"].get("top_k", 0) for layer in file.topology["layers"]), default=0)
    if not stacks or slots < least:
        rows["routed experts"] = least * slot
        raise DoesNotFit(f"the model does not fit ram={ram}; the least it takes with a context of {ctx}:\n{table(rows, ram)}\n"
                         + _advice(file, program, rows, ctx, kv, ram))
    slots = min(slots, sum(t.count for t in stacks))
    return Placement("stream", slots, rows | {"routed experts": slots * slot})


def _advice(file: ColibriFile, program: Program, rows: dict[str, int], ctx: int, kv: str, ram: int) -> str:
    spare = ram - (sum(rows.values()) - rows["KV cache"])
    one = Session.kv_bytes_for(program, 1024, kv) // 1024
    fits = max(spare, 0) // max(one, 1) // 8 * 8
    if fits >= 64:
        return f"a context of {min(fits, ctx)} would fit (ctx={min(fits, ctx)})"
    return "take a smaller quantisation, a smaller chunk, or more memory"
