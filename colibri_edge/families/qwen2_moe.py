"""qwen2_moe: llama's attention with biases on q, k and v, sparse FFNs beside a shared expert behind a sigmoid gate.

Owns: config.json of model_type qwen2_moe and GGUF architecture qwen2moe. Dense layers among sparse ones come from
mlp_only_layers and decoder_sparse_step. A sliding window serves every second layer below max_window_layers, or those
that layer_types names. Refuses: what common.py refuses.
"""

from __future__ import annotations

from . import names, rope
from .common import GGUFConfig, HFConfig, Spec, attention, dense, gguf_heads, heads, moe, topology
from .qwen3 import windows
from .qwen3_moe import sparse_layers

MODEL_TYPE, GGUF_ARCH, SPARSE = "qwen2_moe", "qwen2moe", True


def from_hf(cfg: HFConfig) -> Spec:
    n, kv, hd = heads(cfg)
    context, layers = cfg.integer("max_position_embeddings", 32768), cfg.integer("num_hidden_layers")
    first = cfg.integer("max_window_layers", 28, low=0)
    act, inter = cfg.activation(), cfg.integer("intermediate_size", None)
    experts = cfg.integer(("num_experts", "num_local_experts"), low=0)
    kinds = sparse_layers(cfg, layers, experts)
    if not all(kinds) and inter is None:
        cfg.integer("intermediate_size")
    shared = {"intermediate": cfg.integer("shared_expert_intermediate_size"), "gate": True} if experts else None
    sparse = moe(experts, cfg.integer("num_experts_per_tok"), cfg.integer("moe_intermediate_size"), act,
                 cfg.boolean("norm_topk_prob", False), shared) if experts else None
    slides = windows(cfg, layers, lambda i: i % 2 == 0 and i < first)
    topo, ropes = topology(MODEL_TYPE, cfg.integer("hidden_size"), cfg.integer("vocab_size"), context,
                           cfg.number("rms_norm_eps", 1e-6), cfg.boolean("tie_word_embeddings", False),
                           rope.from_hf(cfg, hd, context), hd,
                           [(attention(n, kv, hd, window=w), sparse if k else dense(inter, act))
                            for w, k in zip(slides, kinds, strict=True)])
    cfg.only("attention_bias", True)
    spec = Spec(topo, ropes, tuple("qkv") if cfg.boolean("qkv_bias", True) else ())
    cfg.finish("sliding_window")
    return spec


def from_gguf(cfg: GGUFConfig) -> Spec:
    n, kv, hd = gguf_heads(cfg)
    context = cfg.integer("context_length")
    cfg.only("expert_weights_scale", 1.0)
    cfg.integer("expert_shared_count", None)
    # Early files give feed_forward_length only; the tensors' shapes are checked against what follows from it.
    width, used = cfg.integer("feed_forward_length", None), cfg.integer("expert_used_count")
    shared = {"intermediate": cfg.integer("expert_shared_feed_forward_length", width), "gate": True}
    ffn = moe(cfg.integer("expert_count"), used, cfg.integer("expert_feed_forward_length", width and width // used),
              "silu", cfg.boolean("expert_weights_norm", False), shared)
    layer = attention(n, kv, hd), ffn
    topo, ropes = topology(MODEL_TYPE, cfg.integer("embedding_length"), cfg.rows("token_embd.weight"), context,
                           cfg.number("attention.layer_norm_rms_epsilon"), "output.weight" not in cfg.tensors,
                           rope.from_gguf(cfg, hd, context), hd, [layer] * cfg.integer("block_count"))
    cfg.finish()
    return Spec(topo, ropes, tuple("qkv"))


def hf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.hf(spec, tensors)


def gguf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.gguf(spec, tensors)
