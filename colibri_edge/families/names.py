"""Which source tensor fills which place: Hugging Face names and GGUF names.

Owns: `hf(spec, tensors, ...)` and `gguf(spec, tensors, ...)`. Both walk the topology, so dense or sparse comes from the
configuration and never from what happens to be there, and expert ids are counted, never sorted. Each returns
{target: Rows} for vectors and matrices and {target: {part: [Rows per expert]}} for FFN stacks, and the names it used.
Refuses: a tensor that is missing, has another shape, or that nobody uses.
"""

from __future__ import annotations

import numpy as np

from ..convert.source import ConvertError, Rows
from . import deltanet
from .binder import Binder
from .common import Spec


def slice_expert(t, e: int, rows: int, first: int = 0, of: int | None = None) -> Rows:
    """Rows first .. first+rows-1 of expert e in a stack [E, of, cols]."""
    return Rows(t, e * (of or rows) + first, rows)


def half_split(heads: int, head_dim: int) -> np.ndarray:
    """int64[heads * head_dim]: where half-split row (h, p, i) lies among GGUF llama's interleaved rows (h, i, p)."""
    h, p, i = np.ogrid[:heads, :2, :head_dim // 2]
    return (h * head_dim + 2 * i + p).reshape(-1)


def _head(b: Binder, spec: Spec, embed: str, norm: str, output: str) -> dict:
    t = spec.topology
    shape = (t["vocab_size"], t["hidden_size"])
    out = {"embed": b.rows(embed, shape, "embed"), "output_norm": b.rows(norm, shape[1:], "output_norm")}
    if not t["tied"]:
        out["output"] = b.rows(output, shape, "output")
    elif b.has(output):
        _same(b.take(output, shape, "output"), out["embed"].tensor)
    return out


def _same(output, embed) -> None:
    """A tied model may carry its output matrix as well, if it is the embedding once more."""
    step = max(1, (4 << 20) // embed.row_bytes)
    if output.format != embed.format or any(
            not np.array_equal(output.read(r, min(r + step, embed.rows)), embed.read(r, min(r + step, embed.rows)))
            for r in range(0, embed.rows, step)):
        raise ConvertError(f"the configuration ties the output matrix to the embedding, but {output.name} differs from "
                           f"{embed.name}; set tie_word_embeddings to what the model was trained with")


def hf(spec: Spec, tensors: dict, *, mlp=("mlp",), experts=("gate_proj", "up_proj", "down_proj"), norm=None) -> dict:
    """Bindings of a Hugging Face checkpoint. mlp: names of a sparse layer's block, newest first; experts: the names of
    gate, up and down of one expert where each has tensors of its own; fused 3-D tensors are `experts.gate_up_proj`
    [E, 2 I, H] (gate first) and `experts.down_proj` [E, H, I]; MLX stacks experts as `switch_mlp.{gate,up,down}_proj`
    (Gemma 4: `experts.switch_glu.`; gpt-oss: `experts.`).
    norm: what is stored instead of a norm's weights."""
    b = Binder(tensors, "the checkpoint")
    out = _head(b, spec, "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
    out["output_norm"].change = norm
    hidden = spec.topology["hidden_size"]
    for n, layer in enumerate(spec.topology["layers"]):
        s, p, a, f = f"model.layers.{n}.", f"layers.{n}.", layer["attn"], layer["ffn"]
        out[p + "attn_norm"] = b.rows(s + "input_layernorm.weight", (hidden,), p + "attn_norm", change=norm)
        out[p + "ffn_norm"] = b.rows(s + "post_attention_layernorm.weight", (hidden,), p + "ffn_norm", change=norm)
        out |= deltanet.hf_delta(b, s, p + "attn.", a, hidden) if a["kind"] == "delta" else _hf_attention(b, spec, s, p, a, hidden, norm)
        if f["kind"] == "dense":
            out[p + "mlp"] = _hf_mlp(b, s + "mlp.", p + "mlp", f["intermediate"], hidden, spec.mlp_bias)
            continue
        out[p + "router"] = b.rows([f"{s}{m}.gate.weight" for m in mlp], (f["experts"], hidden), p + "router")
        out[p + "experts"] = _hf_experts(b, [f"{s}{m}.experts." for m in mlp], p + "experts", f, hidden, experts)
        if f["shared"]:
            width = f["shared"]["intermediate"]
            out[p + "shared"] = _hf_mlp(b, s + "mlp.shared_expert.", p + "shared", width, hidden, False)
            if f["shared"]["gate"]:
                out[p + "shared_gate"] = b.rows(s + "mlp.shared_expert_gate.weight", (1, hidden), p + "shared_gate")
    b.finish(spec.uses)
    return out


def _hf_attention(b: Binder, spec: Spec, s: str, p: str, a: dict, hidden: int, norm) -> dict:
    q, kv, out = a["heads"] * a["head_dim"], a["kv_heads"] * a["head_dim"], {}
    if a["kind"] == "gated":
        out = deltanet.query_and_gate(b, f"{s}self_attn.q_proj.weight", p + "attn.", a, hidden)
    for x, shape in (("q", (q, hidden)), ("k", (kv, hidden)), ("v", (kv, hidden)), ("o", (hidden, q))):
        if f"{p}attn.{x}" not in out:
            out[f"{p}attn.{x}"] = b.rows(f"{s}self_attn.{x}_proj.weight", shape, f"{p}attn.{x}")
        if x in (spec.biases or ()):
            out[f"{p}attn.{x}_bias"] = b.rows(f"{s}self_attn.{x}_proj.bias", shape[:1], f"{p}attn.{x}_bias")
    if a["qk_norm"]:
        full = a["qk_norm"] == "full"
        for x, width in (("q", q), ("k", kv)):
            shape = (width if full else a["head_dim"],)
            out[f"{p}attn.{x}_norm"] = b.rows(f"{s}self_attn.{x}_norm.weight", shape, f"{p}attn.{x}_norm", change=norm)
    return out


def _hf_mlp(b: Binder, s: str, target: str, inter: int, hidden: int, bias: bool) -> dict[str, list[Rows]]:
    shapes = {"gate": (inter, hidden), "up": (inter, hidden), "down": (hidden, inter)}
    out = {x: [b.rows(f"{s}{x}_proj.weight", shape, target)] for x, shape in shapes.items()}
    if bias:
        out |= {f"{x}_bias": [b.rows(f"{s}{x}_proj.bias", shape[:1], target)] for x, shape in shapes.items()}
    return out


def _hf_experts(b: Binder, prefixes: list[str], target: str, f: dict, hidden: int, names) -> dict[str, list[Rows]]:
    count, inter = f["experts"], f["intermediate"]
    fused = next((p for p in prefixes if b.has(p + "gate_up_proj") or b.has(p + "down_proj")), None)
    if fused is not None:
        both = b.take(fused + "gate_up_proj", (count, 2 * inter, hidden), target)
        down = b.take(fused + "down_proj", (count, hidden, inter), target)
        return {"gate": [slice_expert(both, e, inter, 0, 2 * inter) for e in range(count)],
                "up": [slice_expert(both, e, inter, inter, 2 * inter) for e in range(count)],
                "down": [slice_expert(down, e, hidden) for e in range(count)]}
    shapes = {"gate": (inter, hidden), "up": (inter, hidden), "down": (hidden, inter)}
    stacked = [p for x in prefixes for p in (x.removesuffix("experts.") + "switch_mlp.", x + "switch_glu.", x)]
    mlx = next((p for p in stacked if b.has(p + "down_proj.weight")), None)
    if mlx is not None:                              # MLX: one tensor [E, rows, cols] for each part
        stacks = {x: b.take(f"{mlx}{x}_proj.weight", (count, *shape), target) for x, shape in shapes.items()}
        return {x: [slice_expert(t, e, shapes[x][0]) for e in range(count)] for x, t in stacks.items()}
    out: dict[str, list[Rows]] = {}
    for part, name, shape in zip(shapes, names, shapes.values(), strict=True):
        out[part] = [b.rows([f"{p}{e}.{name}.weight" for p in prefixes], shape, f"{target} {part} of expert {e}")
                     for e in range(count)]
    return out


def gguf(spec: Spec, tensors: dict, *, interleaved: bool = False):
    """Bindings of a GGUF file. interleaved: query and key rows are in GGUF llama's order (pairs 2i, 2i+1) and are put
    back into the half-split order. Biases are taken where the file has them (spec.biases None) or where demanded."""
    b = Binder(tensors, "the GGUF file")
    out = _head(b, spec, "token_embd.weight", "output_norm.weight", "output.weight")
    hidden = spec.topology["hidden_size"]
    for n, layer in enumerate(spec.topology["layers"]):
        s, p, a, f = f"blk.{n}.", f"layers.{n}.", layer["attn"], layer["ffn"]
        out[p + "attn_norm"] = b.rows(s + "attn_norm.weight", (hidden,), p + "attn_norm")
        out[p + "ffn_norm"] = b.rows([s + "ffn_norm.weight", s + "post_attention_norm.weight"], (hidden,), p + "ffn_norm")
        out |= (deltanet.gguf_delta(b, s, p + "attn.", a, hidden) if a["kind"] == "delta"
                else _gguf_attention(b, spec, s, p, a, hidden, interleaved))
        if f["kind"] == "dense":
            out[p + "mlp"] = _gguf_mlp(b, s, "", p + "mlp", f["intermediate"], hidden)
            continue
        out[p + "router"] = b.rows(s + "ffn_gate_inp.weight", (f["experts"], hidden), p + "router")
        out[p + "experts"] = _gguf_experts(b, s, p + "experts", f, hidden)
        if f["shared"]:
            out[p + "shared"] = _gguf_mlp(b, s, "_shexp", p + "shared", f["shared"]["intermediate"], hidden)
            if f["shared"]["gate"]:
                name = s + "ffn_gate_inp_shexp.weight"
                flat = b.has(name) and tensors[name].shape == (hidden,)
                out[p + "shared_gate"] = b.rows(name, (hidden,) if flat else (1, hidden), p + "shared_gate")
    b.finish(spec.uses | {"rope_freqs.weight"})
    return out


def _gguf_attention(b: Binder, spec: Spec, s: str, p: str, a: dict, hidden: int, interleaved: bool) -> dict:
    q, kv, out = a["heads"] * a["head_dim"], a["kv_heads"] * a["head_dim"], {}
    order = {"q": half_split(a["heads"], a["head_dim"]), "k": half_split(a["kv_heads"], a["head_dim"])} if interleaved else {}
    if a["kind"] == "gated":
        out = deltanet.query_and_gate(b, s + "attn_q.weight", p + "attn.", a, hidden)
    for x, shape in (("q", (q, hidden)), ("k", (kv, hidden)), ("v", (kv, hidden)), ("o", (hidden, q))):
        name = s + ("attn_output" if x == "o" else f"attn_{x}")
        rows = order.get(x)
        if f"{p}attn.{x}" not in out:
            out[f"{p}attn.{x}"] = b.rows(name + ".weight", shape, f"{p}attn.{x}", rows)
        if x in (spec.biases or ()) or (spec.biases is None and b.has(name + ".bias")):
            out[f"{p}attn.{x}_bias"] = b.rows(name + ".bias", shape[:1], f"{p}attn.{x}_bias", rows)
    if a["qk_norm"]:
        full = a["qk_norm"] == "full"
        for x, width in (("q", q), ("k", kv)):
            shape = (width if full else a["head_dim"],)
            out[f"{p}attn.{x}_norm"] = b.rows(f"{s}attn_{x}_norm.weight", shape, f"{p}attn.{x}_norm")
    return out


def _gguf_mlp(b: Binder, s: str, suffix: str, target: str, inter: int, hidden: int) -> dict[str, list[Rows]]:
    shapes = {"gate": (inter, hidden), "up": (inter, hidden), "down": (hidden, inter)}
    out = {x: [b.rows(f"{s}ffn_{x}{suffix}.weight", shape, target)] for x, shape in shapes.items()}
    for x, shape in shapes.items():
        if b.has(f"{s}ffn_{x}{suffix}.bias"):
            out[f"{x}_bias"] = [b.rows(f"{s}ffn_{x}{suffix}.bias", shape[:1], target)]
    return out


def _gguf_experts(b: Binder, s: str, target: str, f: dict, hidden: int) -> dict[str, list[Rows]]:
    """Stacked [E, rows, cols] (gate and up apart or fused), or the older files with one tensor per expert."""
    count, inter = f["experts"], f["intermediate"]
    shapes = {"gate": (inter, hidden), "up": (inter, hidden), "down": (hidden, inter)}
    out: dict[str, list[Rows]] = {}
    fused = s + "ffn_gate_up_exps.weight"
    if b.has(fused):
        both = b.take(fused, (count, 2 * inter, hidden), target)
        out["gate"] = [slice_expert(both, e, inter, 0, 2 * inter) for e in range(count)]
        out["up"] = [slice_expert(both, e, inter, inter, 2 * inter) for e in range(count)]
    for x, shape in shapes.items():
        if x in out:
            continue
        if b.has(f"{s}ffn_{x}.0.weight"):
            out[x] = [b.rows(f"{s}ffn_{x}.{e}.weight", shape, f"{target} {x} of expert {e}") for e in range(count)]
        else:
            t = b.take(f"{s}ffn_{x}_exps.weight", (count, *shape), target)
            out[x] = [slice_expert(t, e, shape[0]) for e in range(count)]
    return {x: out[x] for x in shapes}
