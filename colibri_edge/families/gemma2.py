"""gemma2: Gemma 2, dense, every second layer with a window, a soft cap on scores and on logits.

Owns: config.json of model_type gemma2 and GGUF architecture gemma2. A checkpoint keeps norms less one, GGUF as they are multiplied. GGUF
has no key for query_pre_attn_scalar: it is the width of a head, but for the model of 46 layers (27B), where it is hidden_size / heads.
Refuses: attention in both directions.
"""

from __future__ import annotations

from . import gemma, rope
from .common import GGUFConfig, HFConfig, Spec, dense, gguf_heads, heads

MODEL_TYPE, GGUF_ARCH, SPARSE = "gemma2", "gemma2", False
LAYERS_27B = 46
hf_tensors, gguf_tensors = gemma.hf_tensors, gemma.gguf_tensors


def _cap(cfg: HFConfig, key: str, default: float) -> float:
    """A soft cap that is null where there is none and the class's default where the key is absent."""
    return (cfg.number(key, None) or 0.0) if key in cfg.data else default


def from_hf(cfg: HFConfig) -> Spec:
    context, count = cfg.integer("max_position_embeddings", 8192), cfg.integer("num_hidden_layers", 26)
    n, kv, hd = heads(cfg, kv_default=4, head_dim_default=256)
    kinds = gemma.layer_kinds(cfg, count, 2)
    act = cfg.activation("hidden_activation", "gelu_pytorch_tanh")
    cfg.only("use_bidirectional_attention", False)
    turn = rope.from_hf(cfg, hd, context)
    cap = _cap(cfg, "attn_logit_softcapping", 50.0)
    layers = gemma.layers_of(kinds, n, kv, hd, None, cfg.integer("sliding_window", 4096),
                             cfg.number("query_pre_attn_scalar", 256.0, low=1e-6), dense(cfg.integer("intermediate_size", 9216), act),
                             **({"softcap": cap} if cap else {}))
    out = gemma.hf_spec(MODEL_TYPE, cfg, kinds, {gemma.WINDOW: turn, gemma.GLOBAL: turn}, layers, context, 256000,
                        _cap(cfg, "final_logit_softcapping", 30.0))
    cfg.finish("cache_implementation hidden_act")           # published files have both spellings of the activation; the other one counts
    return out


def from_gguf(cfg: GGUFConfig) -> Spec:
    n, kv, hd = gguf_heads(cfg)
    context, count, hidden = cfg.integer("context_length"), cfg.integer("block_count"), cfg.integer("embedding_length")
    kinds = gemma.gguf_kinds(cfg, count, 2)
    turn = rope.from_gguf(cfg, hd, context)
    cfg.only("rope.freq_base_swa", cfg.number("rope.freq_base", 10000.0))
    cap = cfg.number("attn_logit_softcapping", 50.0)
    layers = gemma.layers_of(kinds, n, kv, hd, None, cfg.integer("attention.sliding_window", 4096),
                             hidden / n if count == LAYERS_27B else hd, dense(cfg.integer("feed_forward_length"), "gelu_tanh"),
                             **({"softcap": cap} if cap else {}))
    out = gemma.gguf_spec(MODEL_TYPE, cfg, kinds, {gemma.WINDOW: turn, gemma.GLOBAL: turn}, layers, 30.0)
    cfg.finish()
    return out
