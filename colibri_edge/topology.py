"""What a `.colibri` model is made of: the weight formats, the topology's rules, the tensors a topology asks for.

Owns: the Python copy of the format table (include/colibri/formats.h is the other; a test compares them), the check of
`topology` as docs/format.md describes it, and `wanted(topology)`: every tensor name with its kind and shape. The reader
(file.py) and the writer (convert/) both ask here, so that neither can forget a tensor the other needs.
Refuses: any topology field that is missing, of the wrong type or out of range, and any field it does not know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


class FileError(ValueError):
    """A model file that cannot be used. The message names the thing, what was found, what was wanted, what to do."""


@dataclass(frozen=True, slots=True)
class Format:
    """A weight format in R8 (docs/format.md). k: columns of a block; block_bytes: of one block of eight rows."""

    name: str
    id: int
    k: int
    block_bytes: int

    @property
    def bits(self) -> float:
        """Bits per weight."""
        return self.block_bytes / self.k

    def padded(self, rows: int, cols: int) -> tuple[int, int]:
        """(rows, cols) padded to whole groups of eight rows and whole blocks."""
        return -(-rows // 8) * 8, -(-cols // self.k) * self.k

    def group_bytes(self, cols: int) -> int:
        """Bytes of one row group (eight rows) of a matrix with `cols` columns."""
        return -(-cols // self.k) * self.block_bytes

    def nbytes(self, rows: int, cols: int) -> int:
        """Bytes of a whole matrix [rows, cols]."""
        return -(-rows // 8) * self.group_bytes(cols)


FORMATS: dict[str, Format] = {
    name: Format(name, i, k, nbytes)
    for i, (name, k, nbytes) in enumerate([
        ("f32", 32, 1024), ("f16", 32, 512), ("bf16", 32, 512), ("q8_0", 32, 272), ("q4_0", 32, 144),
        ("q4_1", 32, 160), ("q5_0", 32, 176), ("q5_1", 32, 192), ("q4_k", 256, 1152), ("q5_k", 256, 1408),
        ("q6_k", 256, 1680), ("q3_k", 256, 880), ("q2_k", 256, 672), ("mxfp4", 32, 136), ("q4_a", 64, 288),
        ("q2_a", 64, 160), ("q4_a32", 32, 160), ("q2_a32", 32, 96),
    ])
}

ACTIVATIONS = ("silu", "gelu_tanh", "relu", "swiglu_clamped")
QK_NORMS = (None, "head", "full")

MAX_LAYERS = 4096
MAX_EXPERTS = 65536
MAX_DIM = 1 << 24          # of hidden, vocabulary, head counts times head size, FFN widths
MAX_CONTEXT = 1 << 30
MAX_TAPS = 64              # of a convolution
MAX_STATE = 1 << 28        # numbers of a layer's recurrent state


@dataclass(frozen=True, slots=True)
class Want:
    """A tensor a topology asks for. kind: vector, matrix or experts. shape: vector [n], matrix [rows, cols],
    experts [count, intermediate, hidden]. f32: only that format will do. optional: may be absent (biases)."""

    kind: str
    shape: tuple[int, ...]
    f32: bool = False
    optional: bool = False


class _Reader:
    """Takes typed, ranged values out of one JSON object and knows which keys are left."""

    def __init__(self, obj, where: str):
        if not isinstance(obj, dict):
            raise FileError(f"{where} is {_show(obj)}, wanted an object; convert the model again")
        self.obj, self.where, self.left = obj, where, set(obj)

    def _get(self, key: str):
        if key not in self.obj:
            raise FileError(f"{self.where} lacks {key!r}; the file is damaged or from another version: "
                            "convert the model again")
        self.left.discard(key)
        return self.obj[key]

    def integer(self, key: str, low: int, high: int) -> int:
        v = self._get(key)
        if type(v) is not int or not low <= v <= high:
            raise FileError(f"{self.where} {key} is {_show(v)}, wanted a whole number from {low} to {high}")
        return v

    def number(self, key: str, low: float, high: float) -> float:
        v = self._get(key)
        if type(v) not in (int, float) or not (low <= v <= high) or not math.isfinite(v):
            raise FileError(f"{self.where} {key} is {_show(v)}, wanted a number from {low:g} to {high:g}")
        return float(v)

    def flag(self, key: str) -> bool:
        """A setting that is there as true or not at all: files that do not need it look as they did before it was known."""
        if key not in self.obj:
            return False
        if not self.boolean(key):
            raise FileError(f"{self.where} {key} is false, wanted true or no such setting; convert the model again")
        return True

    def boolean(self, key: str) -> bool:
        v = self._get(key)
        if type(v) is not bool:
            raise FileError(f"{self.where} {key} is {_show(v)}, wanted true or false")
        return v

    def choice(self, key: str, allowed: tuple) -> str | None:
        v = self._get(key)
        if not (v is None or isinstance(v, str)) or v not in allowed:
            raise FileError(f"{self.where} {key} is {_show(v)}, wanted one of {', '.join(map(repr, allowed))}; "
                            "a newer colibri-edge may know it")
        return v

    def array(self, key: str, most: int) -> list:
        v = self._get(key)
        if not isinstance(v, list) or len(v) > most:
            raise FileError(f"{self.where} {key} is {_show(v)}, wanted an array of at most {most}")
        return v

    def object_or_none(self, key: str):
        return self._get(key)

    def done(self) -> None:
        if self.left:
            raise FileError(f"{self.where} has the unknown setting {min(self.left)!r}; it may change results: "
                            "use a newer colibri-edge")


def _show(v) -> str:
    """A short, safe picture of a hostile value."""
    if isinstance(v, (dict, list)):
        return f"{'an object' if isinstance(v, dict) else 'an array'} of {len(v)}"
    if isinstance(v, int) and not isinstance(v, bool) and abs(v) > 1 << 80:
        return "a huge number"
    text = repr(v)
    return text if len(text) <= 60 else text[:57] + "..."


def wanted(topology) -> dict[str, Want]:
    """Check a topology and list its tensors, in file order. Raises FileError at the first fault."""
    t = _Reader(topology, "topology")
    if not isinstance(t._get("model_type"), str):
        raise FileError("topology model_type is not a string; convert the model again")
    hidden = t.integer("hidden_size", 1, MAX_DIM)
    vocab = t.integer("vocab_size", 1, MAX_DIM)
    t.integer("context_length", 1, MAX_CONTEXT)
    t.number("norm_eps", 0.0, 1.0)
    tied = t.boolean("tied")
    t.number("embed_scale", -1e6, 1e6)
    t.number("logit_softcap", 0.0, 1e6)
    out = {"embed": Want("matrix", (vocab, hidden)), "output_norm": Want("vector", (hidden,))}
    if not tied:
        out["output"] = Want("matrix", (vocab, hidden))
    dims = []
    for i, rope in enumerate(t.array("ropes", MAX_LAYERS)):
        r = _Reader(rope, f"topology ropes[{i}]")
        name = r._get("tensor")
        if name != f"rope.{i}":
            raise FileError(f"topology ropes[{i}] tensor is {_show(name)}, wanted 'rope.{i}'")
        dim = r.integer("dim", 2, MAX_DIM)
        if dim % 2:
            raise FileError(f"topology ropes[{i}] dim is {dim}, wanted an even number")
        r.number("attention_factor", 0.0, 1e6)
        r.done()
        dims.append(dim)
        out[name] = Want("vector", (dim // 2,))
    layers = t.array("layers", MAX_LAYERS)
    t.done()
    if not layers:
        raise FileError("topology has no layers; convert the model again")
    for n, layer in enumerate(layers):
        lay = _Reader(layer, f"topology layer {n}")
        attn, ffn, scaled = lay._get("attn"), lay._get("ffn"), lay.flag("scale")
        lay.done()
        p = f"layers.{n}."
        out[p + "attn_norm"] = Want("vector", (hidden,))
        _attention(attn, n, p, hidden, dims, out)
        out[p + "ffn_norm"] = Want("vector", (hidden,))
        _ffn(ffn, n, p, hidden, out)
        if scaled:
            out[p + "scale"] = Want("vector", (1,))
    return out


def _attention(attn, n: int, p: str, hidden: int, dims: list[int], out: dict[str, Want]) -> None:
    a = _Reader(attn, f"topology layer {n} attn")
    if a.choice("kind", ("full", "gated", "delta")) == "delta":
        _delta(a, n, p, hidden, out)
        return
    gated = a.obj["kind"] == "gated"
    heads = a.integer("heads", 1, MAX_DIM)
    kv = a.integer("kv_heads", 1, heads)
    hd = a.integer("head_dim", 2, MAX_DIM)
    if heads % kv:
        raise FileError(f"topology layer {n} has {heads} heads over {kv} key-value heads, wanted a whole ratio")
    if heads * hd > MAX_DIM:
        raise FileError(f"topology layer {n} has {heads} heads of {hd} channels, more than {MAX_DIM} in all")
    a.number("scale", 0.0, 1e6)
    a.integer("window", 0, MAX_CONTEXT)
    rope = a._get("rope")
    if rope is not None:
        if type(rope) is not int or not 0 <= rope < len(dims):
            raise FileError(f"topology layer {n} attn rope is {_show(rope)}, wanted null or an index below {len(dims)}")
        if dims[rope] > hd:
            raise FileError(f"topology layer {n} rotates {dims[rope]} channels of a head of {hd}")
    norm = a.choice("qk_norm", QK_NORMS)
    if "softcap" in a.obj and a.number("softcap", 0.0, 1e6) == 0:
        raise FileError(f"topology layer {n} attn softcap is 0, wanted a number above it or no such setting")
    shared, _, sinks, post = a.flag("k_eq_v"), a.flag("v_norm"), a.flag("sinks"), a.flag("post_norm")
    a.done()
    q, k = heads * hd, kv * hd
    for name, rows in (("q", q), ("k", k), *([] if shared else [("v", k)]), *([("gate", q)] if gated else [])):
        out[f"{p}attn.{name}"] = Want("matrix", (rows, hidden))
    out[p + "attn.o"] = Want("matrix", (hidden, q))
    for name, rows in (("q", q), ("k", k), *([] if shared else [("v", k)]), ("o", hidden)):
        out[f"{p}attn.{name}_bias"] = Want("vector", (rows,), optional=True)
    if norm is not None:
        out[p + "attn.q_norm"] = Want("vector", (hd if norm == "head" else q,))
        out[p + "attn.k_norm"] = Want("vector", (hd if norm == "head" else k,))
    if sinks:
        out[p + "attn.sinks"] = Want("vector", (heads,))
    if post:
        out[p + "attn_post_norm"] = Want("vector", (hidden,))


def _delta(a: _Reader, n: int, p: str, hidden: int, out: dict[str, Want]) -> None:
    kh, vh = a.integer("key_heads", 1, MAX_DIM), a.integer("value_heads", 1, MAX_DIM)
    dk, dv = a.integer("key_dim", 1, MAX_DIM), a.integer("value_dim", 1, MAX_DIM)
    taps = a.integer("taps", 1, MAX_TAPS)
    a.choice("pairing", ("grouped", "tiled"))
    a.done()
    if vh % kh:
        raise FileError(f"topology layer {n} has {vh} value heads over {kh} key heads, wanted a whole ratio")
    channels = 2 * kh * dk + vh * dv
    if channels > MAX_DIM or vh * dv * dk > MAX_STATE:
        raise FileError(f"topology layer {n} has {channels} channels and a state of {vh * dv * dk} numbers, more than {MAX_DIM} "
                        f"and {MAX_STATE}")
    out[p + "attn.qkv"] = Want("matrix", (channels, hidden))
    out[p + "attn.z"] = Want("matrix", (vh * dv, hidden))
    out[p + "attn.beta"] = Want("matrix", (vh, hidden), f32=True)
    out[p + "attn.alpha"] = Want("matrix", (vh, hidden), f32=True)
    out[p + "attn.conv"] = Want("vector", (taps * channels,))
    out[p + "attn.rate"] = Want("vector", (vh,))
    out[p + "attn.dt_bias"] = Want("vector", (vh,))
    out[p + "attn.out_norm"] = Want("vector", (dv,))
    out[p + "attn.o"] = Want("matrix", (hidden, vh * dv))


def _ffn(ffn, n: int, p: str, hidden: int, out: dict[str, Want]) -> None:
    f = _Reader(ffn, f"topology layer {n} ffn")
    if f.choice("kind", ("moe", "dense")) == "dense":
        inter = f.integer("intermediate", 1, MAX_DIM)
        out[p + "mlp"] = Want("experts", (1, inter, hidden))
    else:
        experts = f.integer("experts", 1, MAX_EXPERTS)
        f.integer("top_k", 1, experts)
        inter = f.integer("intermediate", 1, MAX_DIM)
        f.boolean("renormalise")
        out[p + "router"] = Want("matrix", (experts, hidden), f32=True)
        if f.flag("router_bias"):
            out[p + "router_bias"] = Want("vector", (experts,))
        branches = f.flag("branches")
        if f.flag("expert_scale"):
            out[p + "expert_scale"] = Want("vector", (experts,))
        shared = f.object_or_none("shared")
        if shared is not None:
            s = _Reader(shared, f"topology layer {n} ffn shared")
            out[p + "shared"] = Want("experts", (1, s.integer("intermediate", 1, MAX_DIM), hidden))
            if s.boolean("gate"):
                out[p + "shared_gate"] = Want("matrix", (1, hidden), f32=True)
            s.done()
        if branches:
            if shared is None:
                raise FileError(f"topology layer {n} ffn has branches and no shared expert; convert the model again")
            for name in ("router_norm", "experts_norm", "experts_post_norm", "shared_post_norm"):
                out[p + name] = Want("vector", (hidden,))
        out[p + "experts"] = Want("experts", (experts, inter, hidden))
    if f.choice("activation", ACTIVATIONS) == "swiglu_clamped":
        f.number("alpha", 0.0, 1e6)
        f.number("limit", 0.0, 1e30)
    if f.flag("post_norm"):
        out[p + "ffn_post_norm"] = Want("vector", (hidden,))
    f.done()


def part_shapes(inter: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the parts an expert record may hold; see docs/format.md, "Expert stack"."""
    i8 = -(-inter // 8) * 8
    return {"gate_up": (2 * i8, hidden), "gate": (inter, hidden), "up": (inter, hidden), "down": (hidden, inter),
            "gate_bias": (inter,), "up_bias": (inter,), "down_bias": (hidden,)}


PART_SETS = ({"gate_up", "down"}, {"gate", "up", "down"}, {"up", "down"})   # without the optional biases
