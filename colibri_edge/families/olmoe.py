"""olmoe: every FFN sparse, RMS norms over all channels of the query and of the key projection.

Owns: config.json of model_type olmoe and GGUF architecture olmoe. Refuses: clip_qkv, heads whose width is not
hidden_size / heads (the norms' widths assume it).
"""

from __future__ import annotations

from . import names, rope
from .common import GGUFConfig, HFConfig, Spec, attention, gguf_heads, heads, moe, topology

MODEL_TYPE, GGUF_ARCH, SPARSE = "olmoe", "olmoe", True


def from_hf(cfg: HFConfig) -> Spec:
    n, kv, hd = heads(cfg, kv_default=None)
    hidden, context = cfg.integer("hidden_size"), cfg.integer("max_position_embeddings", 4096)
    if n * hd != hidden:
        cfg.fail("head_dim", hd, f"hidden_size / num_attention_heads, {hidden / n:g}")
    cfg.only("clip_qkv", None, "clipped queries, keys and values are not served")
    ffn = moe(cfg.integer(("num_experts", "num_local_experts")), cfg.integer("num_experts_per_tok"),
              cfg.integer("intermediate_size"), cfg.activation(), cfg.boolean("norm_topk_prob", False))
    layer = attention(n, kv, hd, "full"), ffn
    topo, ropes = topology(MODEL_TYPE, hidden, cfg.integer("vocab_size"), context, cfg.number("rms_norm_eps", 1e-5),
                           cfg.boolean("tie_word_embeddings", False), rope.from_hf(cfg, hd, context), hd,
                           [layer] * cfg.integer("num_hidden_layers"))
    spec = Spec(topo, ropes, tuple("qkvo") if cfg.boolean("attention_bias", False) else ())
    cfg.finish()
    return spec


def from_gguf(cfg: GGUFConfig) -> Spec:
    n, kv, hd = gguf_heads(cfg)
    context = cfg.integer("context_length")
    cfg.only("attention.clamp_kqv", 0.0, "clipped queries, keys and values are not served")
    cfg.only("expert_weights_scale", 1.0)
    width = cfg.integer("expert_feed_forward_length", cfg.integer("feed_forward_length"))
    ffn = moe(cfg.integer("expert_count"), cfg.integer("expert_used_count"), width, "silu",
              cfg.boolean("expert_weights_norm", False))
    layer = attention(n, kv, hd, "full"), ffn
    topo, ropes = topology(MODEL_TYPE, cfg.integer("embedding_length"), cfg.rows("token_embd.weight"), context,
                           cfg.number("attention.layer_norm_rms_epsilon"), "output.weight" not in cfg.tensors,
                           rope.from_gguf(cfg, hd, context), hd, [layer] * cfg.integer("block_count"))
    cfg.finish()
    return Spec(topo, ropes, None)


def hf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.hf(spec, tensors)


def gguf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.gguf(spec, tensors)
