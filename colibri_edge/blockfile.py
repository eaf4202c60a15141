"""Version 1 of the `.colibri` file, one float32 MoE block: writer, reader in numpy, and `export_block`.

    header (32 bytes) | router [hidden, experts]
    | per expert: w1 [hidden, inter], if gated w3 [hidden, inter], w2 [inter, hidden]

Owns: the layout, finding the matrices of a torch module or of named tensors, and the check after writing: the file is
read again and compared with the source, the router column by column, before it gets its name. Refuses: experts of
unequal shape, tensors it does not use, activations that version 1 cannot say. docs/block.md is the specification.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

__all__ = ["Block", "export_block", "read_block"]

MAGIC = bytes.fromhex("C04C314252310000")
MAGIC_ASCII = b"C0L1BR1\0"
HEADER = struct.Struct(
    "<8sBBHHHIIQ"
)  # magic, version, flags, experts, top_k, zero, hidden, intermediate, payload bytes
ACTIVATIONS = ("relu", "gelu_tanh", "silu")
# Names of activation classes and of config strings -> ours. "gelu" with erf is another function, which version 1 cannot
# say.
_ACT_NAMES = {
    "relu": "relu",
    "silu": "silu",
    "siluactivation": "silu",
    "swish": "silu",
    "gelu_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelutanh": "gelu_tanh",
    "pytorchgelutanh": "gelu_tanh",
    "newgeluactivation": "gelu_tanh",
}


@dataclass(frozen=True)
class Block:
    """A block in float32. router [hidden, E]; w1, w3 [E, hidden, inter] (w3 None: not gated); w2 [E, inter, hidden]."""

    router: np.ndarray
    w1: np.ndarray
    w2: np.ndarray
    w3: np.ndarray | None
    top_k: int
    activation: str
    renormalise: bool


def _array(x) -> np.ndarray:
    """float32 of a numpy array or a torch tensor of any float type."""
    if hasattr(x, "detach"):
        x = x.detach().to("cpu").float().numpy()
    return np.asarray(x, dtype=np.float32)


def read_block(path) -> Block:
    """The file as read-only memory maps. Raises ValueError where it is no whole version-1 file."""
    size = os.path.getsize(path)
    with open(path, "rb") as f:
        head = f.read(HEADER.size)
    if len(head) < HEADER.size or head[:8] not in (MAGIC, MAGIC_ASCII):
        raise ValueError(f"{path}: bad magic {head[:8].hex(' ')}, wanted {MAGIC.hex(' ')} or {MAGIC_ASCII!r}")
    _, version, flags, experts, top_k, zero, hidden, inter, payload = HEADER.unpack(head)
    gated = bool(flags & 2)
    want = 4 * (hidden * experts + experts * (3 if gated else 2) * hidden * inter)
    if (
        version != 1
        or not flags & 1
        or zero
        or flags >> 5
        or flags >> 2 & 3 == 3
        or payload != want
        or size != want + HEADER.size
    ):
        raise ValueError(
            f"{path}: not a whole version 1 file: version {version}, flags {flags:#x}, payload {payload}, "
            f"wanted {want}, file {size} bytes"
        )
    raw = np.memmap(path, np.float32, "r", HEADER.size, (want // 4,))
    side = hidden * inter
    each = raw[hidden * experts :].reshape(experts, -1)
    return Block(
        raw[: hidden * experts].reshape(hidden, experts),
        each[:, :side].reshape(experts, hidden, inter),
        each[:, -side:].reshape(experts, inter, hidden),
        each[:, side : 2 * side].reshape(experts, hidden, inter) if gated else None,
        top_k,
        ACTIVATIONS[flags >> 2 & 3],
        bool(flags & 16),
    )


# -- finding the matrices ----------------------------------------------------------------------------------------------


class _Source:
    """Where the matrices come from: `router` [hidden, E] and `expert(e)` -> (w1, w3 or None, w2), as in the file."""

    def __init__(self, router, count: int, expert, gated: bool):
        self.router, self.count, self.expert, self.gated = router, count, expert, gated


def _from_arrays(d: Mapping) -> _Source:
    w1, w2, w3 = d["w1"], d["w2"], d.get("w3")
    if len(w2) != len(w1) or (w3 is not None and len(w3) != len(w1)):
        raise ValueError(
            f"w1 has {len(w1)} experts, w2 {len(w2)}, w3 {len(w3) if w3 is not None else 'none'}: want the same number"
        )
    return _Source(
        _array(d["router"]),
        len(w1),
        lambda e: (_array(w1[e]), None if w3 is None else _array(w3[e]), _array(w2[e])),
        w3 is not None,
    )


_EXPERT = re.compile(r"experts\.(\d+)\.(w1|w2|w3|gate_proj|up_proj|down_proj|fc1|fc2)\.weight")
_ROLE = {
    "w1": "w1",
    "gate_proj": "w1",
    "fc1": "w1",
    "w3": "w3",
    "up_proj": "w3",
    "w2": "w2",
    "down_proj": "w2",
    "fc2": "w2",
}


def _from_tensors(tensors: Mapping, shared: str) -> _Source:
    """Named tensors of one block, as torch stores them ([out, in]); every one has to be used."""
    left = dict(tensors)
    dropped = [n for n in left if n.startswith(("shared_expert.", "shared_experts.", "shared_expert_gate."))]
    if dropped and shared != "leave_out":
        raise ValueError(
            f"the block has a shared expert ({dropped[0]}), which version 1 cannot hold; shared='leave_out' exports "
            "the routed experts alone"
        )
    for n in dropped:
        del left[n]
    gate = left.pop("gate.weight", None)
    if gate is None:
        raise ValueError(f"no router: 'gate.weight' is missing among {sorted(tensors)[:6]}")
    fused, down = left.pop("experts.gate_up_proj", None), left.pop("experts.down_proj", None)
    router = _array(gate).T
    source = _separate(router, left) if fused is None or down is None else _fused(router, fused, down)
    if left:
        raise ValueError(
            f"tensors that version 1 has no place for: {sorted(left)[:6]}; a bias or another layout is not "
            "dropped silently"
        )
    return source


def _fused(router: np.ndarray, fused, down) -> _Source:
    """gate_up_proj [E, 2 I, H] with the gates first, down_proj [E, H, I]."""
    e, two, h = fused.shape
    if tuple(down.shape) != (e, h, two // 2):
        raise ValueError(
            f"experts.gate_up_proj is {tuple(fused.shape)} and experts.down_proj {tuple(down.shape)}: want "
            f"[E, 2 I, hidden] and [E, hidden, I]"
        )

    def expert(i: int):
        both = _array(fused[i])
        return both[: two // 2].T, both[two // 2 :].T, _array(down[i]).T

    return _Source(router, e, expert, True)


def _separate(router: np.ndarray, left: dict) -> _Source:
    """One tensor per matrix. Ids are numbers: sorted as text, 10 would come before 2."""
    found: dict[int, dict[str, str]] = {}
    for name in list(left):
        m = _EXPERT.fullmatch(name)
        if m:
            found.setdefault(int(m[1]), {})[_ROLE[m[2]]] = name
    ids = sorted(found)
    if ids != list(range(len(ids))) or not ids:
        raise ValueError(
            f"expert ids are {ids[:12]}{'...' if len(ids) > 12 else ''}: want 0 to {router.shape[1] - 1} without a gap"
        )
    roles = set(found[0])
    for i in ids:
        if set(found[i]) != roles or not {"w1", "w2"} <= roles:
            raise ValueError(
                f"expert {i} has the matrices {sorted(found[i].values())}, expert 0 {sorted(found[0].values())}"
            )
    tensors = {i: {role: left.pop(name) for role, name in found[i].items()} for i in ids}
    gated = "w3" in roles
    return _Source(
        router,
        len(ids),
        lambda i: (
            _array(tensors[i]["w1"]).T,
            _array(tensors[i]["w3"]).T if gated else None,
            _array(tensors[i]["w2"]).T,
        ),
        gated,
    )


def _activation(module) -> str | None:
    """Our name of a module's activation; None where none can be seen. ValueError for one that version 1 cannot say."""
    experts = getattr(module, "experts", None)
    first = experts[0] if hasattr(experts, "__getitem__") and len(experts) else experts
    fn = next(
        (getattr(o, a) for o in (experts, first, module) for a in ("act_fn", "act", "activation_fn") if hasattr(o, a)),
        None,
    )
    if fn is None:
        return None
    name = getattr(fn, "__name__", type(fn).__name__)
    if name.lower() not in _ACT_NAMES:
        raise ValueError(f"activation {name}: version 1 knows {', '.join(ACTIVATIONS)}")
    return _ACT_NAMES[name.lower()]


def _facts(module) -> dict:
    """top_k and renormalise of a transformers block, where it says them."""
    gate = getattr(module, "gate", None)
    out = {"top_k": None, "renormalise": None}
    for holder in (gate, module):
        for key, name in (("top_k", "top_k"), ("renormalise", "norm_topk_prob")):
            if out[key] is None and hasattr(holder, name):
                out[key] = getattr(holder, name)
    if out["renormalise"] is None and "Mixtral" in type(module).__name__:
        out["renormalise"] = True  # Mixtral always divides by the sum of the chosen ones
    return out


# -- writing -----------------------------------------------------------------------------------------------------------


def _checked(source: _Source) -> Iterator[tuple[np.ndarray, ...]]:
    """The matrices of each expert, all of the first one's shapes."""
    hidden = source.router.shape[0]
    first = None
    for e in range(source.count):
        w1, w3, w2 = source.expert(e)
        shapes = tuple(m.shape for m in (w1, w3, w2) if m is not None)
        first = first or shapes
        if shapes != first:
            raise ValueError(
                f"expert {e} has shapes {shapes}, expert 0 {first}: non-uniform experts are refused, because the pool "
                "and the dispatch of a block are sized for one shape"
            )
        if w1.shape[0] != hidden or w2.shape != w1.shape[::-1] or (w3 is not None and w3.shape != w1.shape):
            raise ValueError(
                f"expert {e}: shapes {shapes} do not fit hidden size {hidden}: want w1 and w3 [hidden, inter], w2 "
                "[inter, hidden]"
            )
        yield tuple(m for m in (w1, w3, w2) if m is not None)


def _compare(path, source: _Source) -> None:
    """Reads the file again and compares it with the source: router columns, then every expert at its place."""
    got = read_block(path)
    for e in range(source.count):
        if not np.array_equal(got.router[:, e], source.router[:, e], equal_nan=True):
            raise OSError(f"{path}: router column {e} reads back differently; the disk or the exporter is at fault")
    for e, want in enumerate(_checked(source)):
        have = [got.w1[e], got.w2[e]] if got.w3 is None else [got.w1[e], got.w3[e], got.w2[e]]
        for h, w in zip(have, want, strict=True):
            if not np.array_equal(h, w, equal_nan=True):
                raise OSError(f"{path}: expert {e} reads back differently; the disk or the exporter is at fault")


def export_block(
    source,
    path,
    *,
    top_k: int | None = None,
    activation: str | None = None,
    renormalise: bool | None = None,
    shared: str = "refuse",
    ascii_magic: bool = False,
) -> None:
    """Writes one MoE block as a version-1 `.colibri` file, for `MoEBlock` and the C API.

    source: a torch module of transformers (Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE; fused or one tensor per expert), its
    named tensors, or a mapping of arrays: "router" [hidden, E], "w1" [E, hidden, inter], "w2" [E, inter, hidden] and,
    gated, "w3" like w1 (y = x W). A module says top_k, activation ("relu", "gelu_tanh", "silu") and renormalise itself;
    else they have to be given (renormalise: False). shared="leave_out" drops a shared expert, which the
    file cannot hold.

    The file is written under a temporary name, read again, compared, then renamed. ValueError says what does not fit.
    """
    facts = {"top_k": None, "renormalise": None}
    if hasattr(source, "state_dict"):
        facts = _facts(source)
        activation = activation or _activation(source)
        src = _from_tensors(source.state_dict(), shared)
    elif "router" in source:
        src = _from_arrays(source)
    else:
        src = _from_tensors(source, shared)
    top_k = facts["top_k"] if top_k is None else top_k
    renormalise = bool(facts["renormalise"] if renormalise is None else renormalise)
    if top_k is None or activation is None:
        raise ValueError(
            f"top_k={top_k}, activation={activation}: the source does not say them, so they have to be given"
        )
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r}: version 1 knows {', '.join(ACTIVATIONS)}")
    if src.router.ndim != 2 or src.router.shape[1] != src.count or not 1 <= top_k <= src.count <= 65535:
        raise ValueError(
            f"router {src.router.shape}, {src.count} experts, top_k {top_k}: want router [hidden, experts] and 1 <= "
            "top_k <= experts <= 65535"
        )
    _write(src, os.fspath(path), top_k, activation, renormalise, MAGIC_ASCII if ascii_magic else MAGIC)


def _write(src: _Source, path, top_k: int, activation: str, renormalise: bool, magic: bytes) -> None:
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(temporary, "wb") as f:
            f.write(bytes(HEADER.size))
            f.write(np.ascontiguousarray(src.router).tobytes())
            inter = 0
            for matrices in _checked(src):
                inter = matrices[0].shape[1]
                for m in matrices:
                    f.write(np.ascontiguousarray(m).data)
            payload = f.tell() - HEADER.size
            flags = 1 | src.gated << 1 | ACTIVATIONS.index(activation) << 2 | renormalise << 4
            f.seek(0)
            f.write(HEADER.pack(magic, 1, flags, src.count, top_k, 0, src.router.shape[0], inter, payload))
            f.flush()
            os.fsync(f.fileno())
        _compare(temporary, src)
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.remove(temporary)
