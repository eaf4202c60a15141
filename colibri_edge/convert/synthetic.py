"""Random-weight models of any shape, written directly as `.colibri`: for benchmarks, plans and golden files.

Owns: `write_random(dst, topology, format, seed)`, whose bytes depend on its arguments only, on every machine (splitmix64,
no float arithmetic that a library could do otherwise). Refuses: to pass for a trained model; source.kind says "random".
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..topology import FORMATS, Want, part_shapes, wanted
from . import plan, writer
from .formats import AFFINE, FLOATS, GGML

# Where a block's 16-bit scales stand in a source block: {format: ((byte offset, scale of weights of unit spread), ...)}
SCALES = {
    "q8_0": ((0, 1 / 74),), "q4_0": ((0, 1 / 4.6),), "q4_1": ((0, 1 / 4.6), (2, -7.5 / 4.6)), "q5_0": ((0, 1 / 9.2),),
    "q5_1": ((0, 1 / 9.2), (2, -15.5 / 9.2)), "q4_k": ((0, 1 / 147), (2, 7.5 / 147)), "q5_k": ((0, 1 / 295), (2, 15.5 / 295)),
    "q6_k": ((208, 1 / 1370),), "q3_k": ((108, 1 / 42),), "q2_k": ((80, 1 / 9), (82, 1.5 / 9)),
    "q4_a": ((0, 1 / 4.6), (2, -7.5 / 4.6)), "q4_a32": ((0, 1 / 4.6), (2, -7.5 / 4.6)), "q2_a": ((0, 1 / 1.1), (2, -1.5 / 1.1)),
    "q2_a32": ((0, 1 / 1.1), (2, -1.5 / 1.1)),
}


def splitmix64(seed: int, n: int, start: int = 0) -> np.ndarray:
    """Numbers start .. start+n-1 of the seed's sequence, uint64: Steele, Lea, Flood 2014 (OOPSLA), counter form."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.arange(start + 1, start + n + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(seed: int, n: int, spread: float, start: int = 0) -> np.ndarray:
    """n float32 of that standard deviation, uniform around zero; 24 random bits each, exact in float64."""
    u = (splitmix64(seed, n, start) >> np.uint64(40)).astype(np.float64) / (1 << 24) - 0.5
    return (u * (math.sqrt(12) * spread)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class RandomTensor:
    """A stand-in for a source tensor: rows of random blocks. seed: of its first row."""

    name: str
    format: str
    cols: int
    seed: int
    spread: float
    kept = ""

    @property
    def row_bytes(self) -> int:
        if self.format in FLOATS:
            return self.cols * FLOATS[self.format].itemsize
        return -(-self.cols // FORMATS[self.format].k) * GGML[self.format].itemsize


@dataclass(frozen=True, slots=True)
class RandomRows:
    """What plan.Matrix reads from: `count` rows of a RandomTensor."""

    tensor: RandomTensor
    count: int
    first: int = 0

    @property
    def format(self) -> str:
        return self.tensor.format

    @property
    def nbytes(self) -> int:
        return self.count * self.tensor.row_bytes

    def read(self, first: int, last: int) -> np.ndarray:
        """Rows first .. last-1 as uint8[rows, row bytes]."""
        t, n = self.tensor, last - first
        if t.format in FLOATS:
            x = uniform(t.seed, n * t.cols, t.spread, first * t.cols)
            if t.format == "bf16":
                return (x.view(np.uint32) >> 16).astype("<u2").view(np.uint8).reshape(n, -1)
            return x.astype("<f4" if t.format == "f32" else "<f2").view(np.uint8).reshape(n, -1)
        words = -(-t.row_bytes // 8)
        raw = splitmix64(t.seed, n * words, first * words).astype("<u8").view(np.uint8).reshape(n, 8 * words)[:, :t.row_bytes]
        raw = raw.reshape(n, -1, GGML[t.format].itemsize).copy()
        if t.format == "q4_0":    # codes 1 to 15: no mean, or every token's state would lean the same way
            low, high = raw & 15 == 0, raw >> 4 == 0
            raw |= (low * np.uint8(8)) | (high * np.uint8(128))
        if t.format == "mxfp4":   # a power of two below the spread and its double; values have a spread of 2.9 scales
            raw[..., 0] = (raw[..., 0] & 1) + (126 + math.frexp(t.spread / 2.9)[1] - 1)
        for offset, scale in SCALES.get(t.format, ()):
            # random bytes of the scale choose among 16 sizes from half to nearly one and a half
            size = (raw[..., offset] & 15).astype(np.float64) / 16 + 0.5
            value = size * (scale * t.spread)
            value = (value.astype("<f4").view("<u4") >> 16).astype("<u2") if t.format in AFFINE else value.astype("<f2")
            raw[..., offset:offset + 2] = value[..., None].view(np.uint8)
        return raw.reshape(n, -1)


def _binding(name: str, want: Want, fmt: str, seed: int, spread: float, biases: bool):
    if want.kind == "vector":
        if name.startswith("rope."):
            return None
        # a rate above zero would let a state grow
        centre = 1.0 if "norm" in name or name.endswith("scale") else -0.5 if name.endswith("attn.rate") else 0.0
        return (uniform(seed, want.shape[0], 0.1) + np.float32(centre)).astype(np.float32)
    if want.kind == "matrix":
        rows, cols = want.shape
        return RandomRows(RandomTensor(name, "f32" if want.f32 else fmt, cols, seed, spread), rows)
    count, inter, hidden = want.shape
    shapes = part_shapes(inter, hidden)

    def rows(part: str, e: int, i: int) -> RandomRows:
        return RandomRows(RandomTensor(f"{name}.{e}.{part}", fmt, shapes[part][1], seed + 7 * e + i, spread), shapes[part][0])

    out = {part: [rows(part, e, i) for e in range(count)] for i, part in enumerate(("gate", "up", "down"))}
    if biases:
        out |= {part: [uniform(seed + 7 * e + i, shapes[part][0], 0.1) for e in range(count)]
                for i, part in enumerate(("gate_bias", "up_bias", "down_bias"), 3)}
    return out


def write_random(dst, topology: dict, fmt: str, seed: int = 1, spread: float = 0.05, formats: dict[str, str] | None = None,
                 tokenizer: bytes | None = None, progress=None, biases: bool = False) -> int:
    """Write a model of that topology with random weights in `fmt`; returns the file's length in bytes.

    formats: other formats for single tensors by name or by the name's last part (such as {"output": "q6_k"}). rope.N fall from 1 to
    about 1/10,000 by one rounded factor (products, no powers: the same on every machine).
    biases: give every projection and expert one; else they are left out.
    """
    formats = formats or {}
    bindings, ropes = {}, []
    for i, (name, want) in enumerate(wanted(topology).items()):
        if want.optional and not biases:
            continue
        f = formats.get(name, formats.get(name.rsplit(".", 1)[-1], fmt))
        if name.startswith("rope."):
            half = want.shape[0]
            ropes.append(np.cumprod(np.r_[1.0, np.full(half - 1, round(10000.0 ** (-1 / half), 3))]).astype(np.float32))
            continue
        bindings[name] = _binding(name, want, f, seed * 100_000 + 500 * i, spread, biases)
    p = plan.make(topology, bindings, ropes, None, None, tokenizer)
    meta = {"format": "colibri", "version": 2, "topology": topology, "chat_template": None, "generation": {},
            "source": {"kind": "random", "name": f"seed {seed}", "model_type": topology["model_type"], "converter": "colibri-edge"},
            "quantisation": {"requested": fmt, "became": {}, "bits_per_weight": round(p.weight_bytes * 8 / p.weights, 3)}}
    return writer.write(Path(dst), p, meta, progress)


def topology_of(config: dict) -> dict:
    """The topology of a config.json, of any family that is served: what convert() would store."""
    from ..families import for_hf
    from ..families.common import HFConfig

    return for_hf(config.get("model_type")).from_hf(HFConfig(config)).topology


def topology(model_type: str = "qwen3_moe", *, hidden: int, layers: int, heads: int, kv_heads: int, head_dim: int, vocab: int,
             experts: int = 0, top_k: int = 0, intermediate: int, dense: dict[int, int] | None = None, shared: int = 0,
             shared_gate: bool = True, renormalise: bool = True, qk_norm: str | None = "head", window: int = 0, context: int = 4096,
             tied: bool = False, eps: float = 1e-6, rope_dim: int = 0, delta: dict | None = None, interval: int = 4) -> dict:
    """A topology (docs/format.md) from the figures that a model card gives. dense: {layer: width} of dense layers among sparse.

    rope_dim: rotated channels of a head, all by default. delta: key_heads, value_heads, key_dim, value_dim, taps of gated delta rule
    layers; every interval-th layer has gated attention, the others these.
    """
    attn = {"kind": "full", "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "scale": head_dim ** -0.5, "rope": 0,
            "window": window, "qk_norm": qk_norm}

    def attention(n: int) -> dict:
        if delta is None:
            return dict(attn)
        return attn | {"kind": "gated"} if (n + 1) % interval == 0 else {"kind": "delta", "pairing": "grouped"} | delta

    def ffn(n: int) -> dict:
        width = (dense or {}).get(n, 0 if experts else intermediate)
        if width:
            return {"kind": "dense", "intermediate": width, "activation": "silu"}
        return {"kind": "moe", "experts": experts, "top_k": top_k, "intermediate": intermediate, "activation": "silu",
                "renormalise": renormalise, "shared": {"intermediate": shared, "gate": shared_gate} if shared else None}

    return {"model_type": model_type, "hidden_size": hidden, "vocab_size": vocab, "context_length": context, "norm_eps": eps,
            "tied": tied, "embed_scale": 1.0, "logit_softcap": 0.0,
            "ropes": [{"tensor": "rope.0", "dim": rope_dim or head_dim, "attention_factor": 1.0}],
            "layers": [{"attn": attention(n), "ffn": ffn(n)} for n in range(layers)]}
