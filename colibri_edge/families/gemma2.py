"""gemma2: Gemma 2, dense, every second layer with a window, a soft cap on scores and on logits.

Owns: config.json of model_type gemma2 and GGUF architecture gemma2. A checkpoint keeps norms less one, GGUF as they are multiplied. GGUF
has no key for query_pre_attn_scalar: it is the width of a head, but for the model of 46 layers (27B), where it is hidden_size / heads.
Refuses: attention in both directions.
"""

from __future__ import annotations

from . import gemma, rope
from .common import GGUFConfig, HFConfig, Spec, attention, dense, gguf_heads, heads

MODEL_TYPE, GGUF_ARCH, SPARSE = "gemma2", "gemma2", False
LAYERS_27B = 46


def _layers(kinds: list[str], n: int, kv: int, hd: int, window: int, scale: float, softcap: float, ffn: dict) -> list[dict]:
    extra = {"scale": scale ** -0.5, "post_norm": True} | ({"softcap": softcap} if softcap else {})
    return [{"attn": attention(n, kv, hd, None, window if k == gemma.WINDOW else 0) | extra, "ffn": ffn | {"post_norm": True}}
            for k in kinds]


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
    layers = _layers(kinds, n, kv, hd, cfg.integer("sliding_window", 4096), cfg.number("query_pre_attn_scalar", 256.0, low=1e-6),
                     _cap(cfg, "attn_logit_softcapping", 50.0), dense(cfg.integer("intermediate_size", 9216), act))
    out = gemma.spec(MODEL_TYPE, cfg, kinds, {gemma.WINDOW: turn, gemma.GLOBAL: turn}, layers, hidden_size=cfg.integer("hidden_size", 2304),
                     vocab_size=cfg.integer("vocab_size", 256000), context_length=context, norm_eps=cfg.number("rms_norm_eps", 1e-6),
                     tied=cfg.boolean("tie_word_embeddings", True), logit_softcap=_cap(cfg, "final_logit_softcapping", 30.0))
    out.biases = tuple("qkvo") if cfg.boolean("attention_bias", False) else ()
    cfg.finish("cache_implementation hidden_act")           # published files have both spellings of the activation; the other one counts
    return out


def from_gguf(cfg: GGUFConfig) -> Spec:
    n, kv, hd = gguf_heads(cfg)
    context, count, hidden = cfg.integer("context_length"), cfg.integer("block_count"), cfg.integer("embedding_length")
    kinds = gemma.gguf_kinds(cfg, count, 2)
    turn = rope.from_gguf(cfg, hd, context)
    cfg.only("rope.freq_base_swa", cfg.number("rope.freq_base", 10000.0))
    layers = _layers(kinds, n, kv, hd, cfg.integer("attention.sliding_window", 4096), hidden / n if count == LAYERS_27B else hd,
                     cfg.number("attn_logit_softcapping", 50.0), dense(cfg.integer("feed_forward_length"), "gelu_tanh"))
    out = gemma.spec(MODEL_TYPE, cfg, kinds, {gemma.WINDOW: turn, gemma.GLOBAL: turn}, layers, hidden_size=hidden,
                     vocab_size=cfg.rows("token_embd.weight"), context_length=context,
                     norm_eps=cfg.number("attention.layer_norm_rms_epsilon"), tied="output.weight" not in cfg.tensors,
                     logit_softcap=cfg.number("final_logit_softcapping", 30.0))
    cfg.finish()
    return out


def hf_tensors(spec: Spec, tensors: dict) -> dict:
    return gemma.hf_tensors(spec, tensors, zero_centred=True)


def gguf_tensors(spec: Spec, tensors: dict) -> dict:
    return gemma.gguf_tensors(spec, tensors)
