"""gpt_oss: windowed and full attention in turn, each head with a sink, biases everywhere, experts with a clamped SwiGLU.

Owns: config.json of model_type gpt_oss and GGUF architecture gpt-oss. The router has a bias, and its softmax runs over the chosen
experts. A checkpoint keeps an expert's matrices as x W, [hidden, 2 I] with gate and up in turn and [I, hidden]; GGUF and MLX keep
gate and up apart, as W x. Gate: g = min(gate, limit), u = up held in -limit .. limit, h = (u + 1) g sigmoid(alpha g) (gpt-oss model card,
arXiv:2508.10925, and its reference implementation). RoPE is yarn without rounding of the channels between which it blends; GGUF has
no key for that, so it holds for every file of this architecture.
Refuses: what common.py refuses.
"""

from __future__ import annotations

import numpy as np

from . import names, rope, table
from .common import GGUFConfig, HFConfig, Spec, attention, gguf_heads, heads, moe, topology

MODEL_TYPE, GGUF_ARCH, SPARSE = "gpt_oss", "gpt-oss", True
ALPHA, LIMIT = 1.702, 7.0
YARN = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        "original_max_position_embeddings": 4096}
BIASES = ("attn.q_bias", "attn.k_bias", "attn.v_bias", "attn.o_bias")

HF = {"attn_norm": "input_layernorm.weight", "ffn_norm": "post_attention_layernorm.weight", "attn.sinks": "self_attn.sinks",
      "router": "mlp.router.weight", "router_bias": "mlp.router.bias"}
GGUF = {"attn_norm": "attn_norm.weight", "ffn_norm": "post_attention_norm.weight", "attn.sinks": "attn_sinks.weight",
        "router": "ffn_gate_inp.weight", "router_bias": "ffn_gate_inp.bias"}
for _x in "qkvo":
    for _kind, _ours in (("weight", f"attn.{_x}"), ("bias", f"attn.{_x}_bias")):
        HF[_ours] = f"self_attn.{_x}_proj.{_kind}"
        GGUF[_ours] = f"{'attn_output' if _x == 'o' else 'attn_' + _x}.{_kind}"


def _layers(windows: list[int], n: int, kv: int, hd: int, ffn: dict, alpha: float, limit: float) -> list[tuple[dict, dict]]:
    ffn = ffn | {"alpha": alpha, "limit": limit, "router_bias": True}
    return [(attention(n, kv, hd, window=w) | {"sinks": True}, ffn) for w in windows]


def from_hf(cfg: HFConfig) -> Spec:
    n, kv, hd = heads(cfg, head_dim_default=64)
    context, count = cfg.integer("max_position_embeddings", 131072), cfg.integer("num_hidden_layers")
    window = cfg.integer("sliding_window", None) or 0
    types = cfg.get("layer_types", ["sliding_attention" if i % 2 == 0 else "full_attention" for i in range(count)])
    if not isinstance(types, list) or len(types) != count or set(types) - {"sliding_attention", "full_attention"}:
        cfg.fail("layer_types", types, f"an array of {count} times full_attention or sliding_attention")
    cfg.only("hidden_act", "silu")
    quantised = cfg.get("quantization_config", {})
    if not isinstance(quantised, dict) or quantised.get("quant_method", "mxfp4") != "mxfp4":
        cfg.fail("quantization_config", quantised, "the method mxfp4 or none")
    if cfg.data.get("rope_parameters") is None and cfg.data.get("rope_scaling") is None:
        cfg.data = cfg.data | {"rope_scaling": YARN}
    ffn = moe(cfg.integer(("num_local_experts", "num_experts")), cfg.integer(("num_experts_per_tok", "experts_per_token")),
              cfg.integer("intermediate_size"), "swiglu_clamped", True)
    layers = _layers([window if t == "sliding_attention" else 0 for t in types], n, kv, hd, ffn,
                     cfg.number("swiglu_alpha", ALPHA), cfg.number("swiglu_limit", LIMIT))
    topo, ropes = topology(MODEL_TYPE, cfg.integer("hidden_size"), cfg.integer("vocab_size"), context, cfg.number("rms_norm_eps", 1e-5),
                           cfg.boolean("tie_word_embeddings", False), rope.from_hf(cfg, hd, context, 150000.0), hd, layers)
    spec = Spec(topo, ropes, tuple("qkvo") if cfg.boolean("attention_bias", True) else ())
    cfg.finish("initial_context_length swiglu_clamp")
    return spec


def from_gguf(cfg: GGUFConfig) -> Spec:
    n, kv, hd = gguf_heads(cfg)
    context, window = cfg.integer("context_length"), cfg.integer("attention.sliding_window", 0, low=0)
    ffn = moe(cfg.integer("expert_count"), cfg.integer("expert_used_count"), cfg.integer("expert_feed_forward_length"),
              "swiglu_clamped", True)
    layers = _layers([window * (i % 2 == 0) for i in range(cfg.integer("block_count"))], n, kv, hd, ffn, ALPHA, LIMIT)
    topo, ropes = topology(MODEL_TYPE, cfg.integer("embedding_length"), cfg.rows("token_embd.weight"), context,
                           cfg.number("attention.layer_norm_rms_epsilon"), "output.weight" not in cfg.tensors,
                           rope.from_gguf(cfg, hd, context, truncate=False), hd, layers)
    cfg.finish("feed_forward_length")
    return Spec(topo, ropes, None)


def hf_tensors(spec: Spec, tensors: dict) -> dict:
    b = names.Binder(tensors, "the checkpoint")
    attn = BIASES if spec.biases else ()
    layer = {k: v for k, v in HF.items() if attn or k not in BIASES}
    out = table.bind(b, spec, "model.layers.", ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"), layer, _hf_experts,
                     demanded=attn)
    b.finish(spec.uses)
    return out


def _hf_experts(b: names.Binder, at: str, name: str, shape: tuple[int, ...]) -> dict:
    count, inter, hidden = shape
    at += "mlp.experts."
    if b.has(at + "down_proj.weight"):                                                   # MLX
        out = names._hf_experts(b, [at], name, {"experts": count, "intermediate": inter}, hidden, ())
        return out | _biases(b, at + "{}_proj.bias", name, shape)
    if b.has(at + "down_proj") and b.tensors[at + "down_proj"].format == "mxfp4":        # convert/packed.py: rows as we have them
        both, down = b.take(at + "gate_up_proj", (count, 2 * inter, hidden), name), b.take(at + "down_proj", (count, hidden, inter), name)
    else:
        both = table.Transposed(b.take(at + "gate_up_proj", (count, hidden, 2 * inter), name))
        down = table.Transposed(b.take(at + "down_proj", (count, inter, hidden), name))
    bias, down_bias = b.take(at + "gate_up_proj_bias", (count, 2 * inter), name), b.take(at + "down_proj_bias", (count, hidden), name)
    even = np.arange(0, 2 * inter, 2)
    every = range(count)
    return {"gate": [names.Rows(both, e * 2 * inter, inter, even) for e in every],
            "up": [names.Rows(both, e * 2 * inter, inter, even + 1) for e in every],
            "down": [names.Rows(down, e * hidden, hidden) for e in every],
            "gate_bias": [table.part(bias, e, even) for e in every], "up_bias": [table.part(bias, e, even + 1) for e in every],
            "down_bias": [table.part(down_bias, e) for e in every]}


def gguf_tensors(spec: Spec, tensors: dict) -> dict:
    b = names.Binder(tensors, "the GGUF file")
    out = table.bind(b, spec, "blk.", ("token_embd.weight", "output_norm.weight", "output.weight"), GGUF, _gguf_experts)
    b.finish(spec.uses | {"rope_freqs.weight"})
    return out


def _gguf_experts(b: names.Binder, at: str, name: str, shape: tuple[int, ...]) -> dict:
    count, inter, hidden = shape
    out = names._gguf_experts(b, at, name, {"experts": count, "intermediate": inter}, hidden)
    return out | _biases(b, at + "ffn_{}_exps.bias", name, shape)


def _biases(b: names.Binder, called: str, name: str, shape: tuple[int, ...]) -> dict:
    """Each expert's biases from one tensor for each part; called: its name, with {} for the part's."""
    count, inter, hidden = shape
    tensors = {x: b.take(called.format(x), (count, width), name) for x, width in (("gate", inter), ("up", inter), ("down", hidden))}
    return {x + "_bias": [table.part(t, e) for e in range(count)] for x, t in tensors.items()}
