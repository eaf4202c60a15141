"""qwen3_moe: grouped-query attention with RMS norms over each head's queries and keys, sparse FFNs.

Owns: config.json of model_type qwen3_moe and GGUF architecture qwen3moe. Dense layers among sparse ones come from
mlp_only_layers and decoder_sparse_step. GGUF has no key for norm_topk_prob: files of this architecture renormalise.
Refuses: a sliding window together with max_window_layers, whose meaning changed between versions of transformers.
"""

from __future__ import annotations

from . import names, rope
from .common import GGUFConfig, HFConfig, Spec, attention, dense, gguf_heads, heads, moe, topology

MODEL_TYPE, GGUF_ARCH, SPARSE = "qwen3_moe", "qwen3moe", True


def sparse_layers(cfg: HFConfig, layers: int, experts: int) -> list[bool]:
    """Which layers have experts: not in mlp_only_layers, and every decoder_sparse_step-th."""
    step = cfg.integer("decoder_sparse_step", 1)
    only = cfg.get("mlp_only_layers", [])
    if not isinstance(only, list) or any(type(i) is not int or not 0 <= i < layers for i in only):
        cfg.fail("mlp_only_layers", only, f"an array of layer numbers below {layers}")
    return [experts > 0 and i not in only and (i + 1) % step == 0 for i in range(layers)]


def from_hf(cfg: HFConfig) -> Spec:
    n, kv, hd = heads(cfg)
    context, layers = cfg.integer("max_position_embeddings", 32768), cfg.integer("num_hidden_layers")
    window = 0
    if cfg.boolean("use_sliding_window", False):
        window = cfg.integer("sliding_window", None) or 0
        cfg.only("max_window_layers", 0)
    types = cfg.get("layer_types", ["sliding_attention" if window else "full_attention"] * layers)
    if types != ["sliding_attention" if window else "full_attention"] * layers:
        cfg.fail("layer_types", types, f"{layers} times {'sliding' if window else 'full'}_attention")
    act, inter = cfg.activation(), cfg.integer("intermediate_size", None)
    experts = cfg.integer(("num_experts", "num_local_experts"), low=0)
    sparse = moe(experts, cfg.integer("num_experts_per_tok"), cfg.integer("moe_intermediate_size"), act,
                 cfg.boolean("norm_topk_prob", False)) if experts else None
    kinds = sparse_layers(cfg, layers, experts)
    if not all(kinds) and inter is None:
        cfg.integer("intermediate_size")
    attn = attention(n, kv, hd, "head", window)
    topo, ropes = topology(MODEL_TYPE, cfg.integer("hidden_size"), cfg.integer("vocab_size"), context,
                           cfg.number("rms_norm_eps", 1e-6), cfg.boolean("tie_word_embeddings", False),
                           rope.from_hf(cfg, hd, context), hd, [(attn, sparse if k else dense(inter, act)) for k in
                           kinds])
    spec = Spec(topo, ropes, tuple("qkvo") if cfg.boolean("attention_bias", False) else ())
    cfg.finish("" if window else "sliding_window max_window_layers")
    return spec


def from_gguf(cfg: GGUFConfig) -> Spec:
    n, kv, hd = gguf_heads(cfg)
    context = cfg.integer("context_length")
    cfg.only("expert_weights_scale", 1.0)
    ffn = moe(cfg.integer("expert_count"), cfg.integer("expert_used_count"), cfg.integer("expert_feed_forward_length"),
              "silu", cfg.boolean("expert_weights_norm", True))
    layer = attention(n, kv, hd, "head"), ffn
    topo, ropes = topology(MODEL_TYPE, cfg.integer("embedding_length"), cfg.rows("token_embd.weight"), context,
                           cfg.number("attention.layer_norm_rms_epsilon"), "output.weight" not in cfg.tensors,
                           rope.from_gguf(cfg, hd, context), hd, [layer] * cfg.integer("block_count"))
    cfg.finish("feed_forward_length")
    return Spec(topo, ropes, None)


def hf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.hf(spec, tensors)


def gguf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.gguf(spec, tensors)
