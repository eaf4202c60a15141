"""mixtral: llama's attention, every FFN sparse, the weights of the selected experts always renormalised.

Owns: config.json of model_type mixtral and GGUF architecture llama with experts, whose query and key rows are
interleaved; older files have one tensor per expert. Checkpoints call the block block_sparse_moe (w1 gate, w3 up, w2
down per expert) or, since transformers 5, mlp with fused experts. Refuses: what common.py refuses.
"""

from __future__ import annotations

from . import names, rope
from .common import GGUFConfig, HFConfig, Spec, attention, gguf_heads, heads, moe, topology

MODEL_TYPE, GGUF_ARCH, SPARSE = "mixtral", "llama", True


def from_hf(cfg: HFConfig) -> Spec:
    n, kv, hd = heads(cfg)
    context = cfg.integer("max_position_embeddings", 131072)
    window = cfg.integer("sliding_window", None) or 0
    ffn = moe(cfg.integer(("num_local_experts", "num_experts")), cfg.integer("num_experts_per_tok"),
              cfg.integer("intermediate_size"), cfg.activation(), True)
    layer = attention(n, kv, hd, window=window), ffn
    topo, ropes = topology(MODEL_TYPE, cfg.integer("hidden_size"), cfg.integer("vocab_size"), context,
                           cfg.number("rms_norm_eps", 1e-5), cfg.boolean("tie_word_embeddings", False),
                           rope.from_hf(cfg, hd, context, 1e6), hd, [layer] * cfg.integer("num_hidden_layers"))
    cfg.only("attention_bias", False)
    cfg.finish()
    return Spec(topo, ropes)


def from_gguf(cfg: GGUFConfig) -> Spec:
    n, kv, hd = gguf_heads(cfg)
    context = cfg.integer("context_length")
    cfg.only("expert_weights_norm", True)
    cfg.only("expert_weights_scale", 1.0)
    width = cfg.integer("feed_forward_length")
    width = cfg.integer("expert_feed_forward_length", width)
    ffn = moe(cfg.integer("expert_count"), cfg.integer("expert_used_count"), width, "silu", True)
    layer = attention(n, kv, hd, window=cfg.integer("attention.sliding_window", 0, low=0)), ffn
    topo, ropes = topology(MODEL_TYPE, cfg.integer("embedding_length"), cfg.rows("token_embd.weight"), context,
                           cfg.number("attention.layer_norm_rms_epsilon"), "output.weight" not in cfg.tensors,
                           rope.from_gguf(cfg, hd, context), hd, [layer] * cfg.integer("block_count"))
    cfg.finish()
    return Spec(topo, ropes, None)


def hf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.hf(spec, tensors, mlp=("mlp", "block_sparse_moe"), experts=("w1", "w3", "w2"))


def gguf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.gguf(spec, tensors, interleaved=True)
