"""gemma3: the text part of Gemma 3, dense.

Owns: config.json of model_type gemma3 (settings in text_config) and gemma3_text, and GGUF architecture gemma3. A checkpoint keeps norms
less one, GGUF as they are multiplied. GGUF has no key for query_pre_attn_scalar: it is the width of a head, but for the model of 62
layers (27B), where it is hidden_size / heads. Scaling of RoPE concerns global layers only.
Refuses: attention in both directions.
"""

from __future__ import annotations

from . import gemma
from .common import GGUFConfig, HFConfig, Spec, dense, gguf_heads, heads, text_part

MODEL_TYPE, GGUF_ARCH, SPARSE = "gemma3", "gemma3", False
LAYERS_27B = 62
hf_tensors, gguf_tensors = gemma.hf_tensors, gemma.gguf_tensors


def from_hf(cfg: HFConfig) -> Spec:
    cfg = text_part(cfg)
    context, count = cfg.integer("max_position_embeddings", 131072), cfg.integer("num_hidden_layers", 26)
    cfg.data = {"num_attention_heads": 8, "num_key_value_heads": 4} | cfg.data         # which published files leave out
    n, kv, hd = heads(cfg, head_dim_default=256)
    kinds = gemma.layer_kinds(cfg, count, cfg.integer(("sliding_window_pattern", "_sliding_window_pattern"), 6))
    act = cfg.activation("hidden_activation", "gelu_pytorch_tanh")
    if cfg.data.get("rope_parameters") is None:             # the old spelling
        scaling = cfg.get("rope_scaling", {})
        cfg.data = cfg.data | {"rope_parameters": {gemma.GLOBAL: scaling}}
    ropes = gemma.hf_ropes(cfg, context, {gemma.GLOBAL: hd, gemma.WINDOW: hd}, {
        gemma.GLOBAL: cfg.number("rope_theta", 1e6, low=1.0), gemma.WINDOW: cfg.number("rope_local_base_freq", 1e4, low=1.0)})
    cfg.only("use_bidirectional_attention", False)
    layers = gemma.layers_of(kinds, n, kv, hd, "head", cfg.integer("sliding_window", 4096),
                             cfg.number("query_pre_attn_scalar", 256.0, low=1e-6), dense(cfg.integer("intermediate_size", 9216), act))
    cfg.only("attn_logit_softcapping", 0.0, "transformers does not apply it to this family")
    out = gemma.hf_spec(MODEL_TYPE, cfg, kinds, ropes, layers, context, 262208, cfg.number("final_logit_softcapping", None) or 0.0)
    cfg.finish("cache_implementation")
    return out


def from_gguf(cfg: GGUFConfig) -> Spec:
    n, kv, hd = gguf_heads(cfg)
    context, count, hidden = cfg.integer("context_length"), cfg.integer("block_count"), cfg.integer("embedding_length")
    kinds = gemma.gguf_kinds(cfg, count)
    cfg.data = {"rope.freq_base": 1e6} | cfg.data
    ropes = gemma.gguf_ropes(cfg, context, {gemma.GLOBAL: hd, gemma.WINDOW: hd})
    layers = gemma.layers_of(kinds, n, kv, hd, "head", cfg.integer("attention.sliding_window"),
                             hidden / n if count == LAYERS_27B else hd, dense(cfg.integer("feed_forward_length"), "gelu_tanh"))
    out = gemma.gguf_spec(MODEL_TYPE, cfg, kinds, ropes, layers)
    cfg.finish()
    return out
