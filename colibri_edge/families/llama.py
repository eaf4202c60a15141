"""llama: dense decoder with grouped-query attention, RMS norms and SwiGLU.

Owns: config.json of model_type llama and GGUF architecture llama without experts (with experts: mixtral.py). GGUF keeps
query and key rows interleaved for this architecture. Refuses: what common.py refuses.
"""

from __future__ import annotations

from . import names, rope
from .common import GGUFConfig, HFConfig, Spec, attention, dense, gguf_heads, heads, topology

MODEL_TYPE, GGUF_ARCH, SPARSE = "llama", "llama", False


def from_hf(cfg: HFConfig) -> Spec:
    n, kv, hd = heads(cfg, kv_default=None)
    context = cfg.integer("max_position_embeddings", 2048)
    layer = attention(n, kv, hd), dense(cfg.integer("intermediate_size"), cfg.activation())
    topo, ropes = topology(MODEL_TYPE, cfg.integer("hidden_size"), cfg.integer("vocab_size"), context,
                           cfg.number("rms_norm_eps", 1e-6), cfg.boolean("tie_word_embeddings", False),
                           rope.from_hf(cfg, hd, context), hd, [layer] * cfg.integer("num_hidden_layers"))
    bias = cfg.boolean("attention_bias", False)
    spec = Spec(topo, ropes, tuple("qkvo") if bias else (), cfg.boolean("mlp_bias", False))
    cfg.finish()
    return spec


def from_gguf(cfg: GGUFConfig) -> Spec:
    n, kv, hd = gguf_heads(cfg)
    context = cfg.integer("context_length")
    cfg.only("expert_count", 0)
    cfg.only("expert_used_count", 0)
    window = cfg.integer("attention.sliding_window", 0, low=0)
    layer = attention(n, kv, hd, window=window), dense(cfg.integer("feed_forward_length"), "silu")
    topo, ropes = topology(MODEL_TYPE, cfg.integer("embedding_length"), cfg.rows("token_embd.weight"), context,
                           cfg.number("attention.layer_norm_rms_epsilon"), "output.weight" not in cfg.tensors,
                           rope.from_gguf(cfg, hd, context), hd, [layer] * cfg.integer("block_count"))
    cfg.finish()
    return Spec(topo, ropes, None)


def hf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.hf(spec, tensors)


def gguf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.gguf(spec, tensors, interleaved=True)
