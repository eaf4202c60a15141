"""qwen3: dense decoder like llama, with RMS norms over each head's queries and keys.

Owns: config.json of model_type qwen3 and GGUF architecture qwen3. A sliding window serves the layers from
max_window_layers on, or those that layer_types names. Refuses: what common.py refuses.
"""

from __future__ import annotations

from . import names, rope
from .common import GGUFConfig, HFConfig, Spec, attention, dense, gguf_heads, heads, topology

MODEL_TYPE, GGUF_ARCH, SPARSE = "qwen3", "qwen3", False


def windows(cfg: HFConfig, layers: int, default) -> list[int]:
    """The window of each layer, 0 for none. default(i): whether layer i slides where layer_types is absent."""
    window = cfg.integer("sliding_window", None) if cfg.boolean("use_sliding_window", False) else None
    types = cfg.get("layer_types", None)
    if types is None:
        types = ["sliding_attention" if window and default(i) else "full_attention" for i in range(layers)]
    if not isinstance(types, list) or len(types) != layers or set(types) - {"sliding_attention", "full_attention"}:
        cfg.fail("layer_types", types, f"an array of {layers} times full_attention or sliding_attention")
    if "sliding_attention" in types and not window:
        cfg.fail("layer_types", types, "full_attention only, because use_sliding_window or sliding_window is not set")
    return [window if t == "sliding_attention" else 0 for t in types]


def from_hf(cfg: HFConfig) -> Spec:
    n, kv, hd = heads(cfg, head_dim_default=128)
    context, layers = cfg.integer("max_position_embeddings", 32768), cfg.integer("num_hidden_layers")
    first = cfg.integer("max_window_layers", 28, low=0)
    ffn = dense(cfg.integer("intermediate_size"), cfg.activation())
    topo, ropes = topology(MODEL_TYPE, cfg.integer("hidden_size"), cfg.integer("vocab_size"), context,
                           cfg.number("rms_norm_eps", 1e-6), cfg.boolean("tie_word_embeddings", False),
                           rope.from_hf(cfg, hd, context), hd,
                           [(attention(n, kv, hd, "head", w), ffn) for w in windows(cfg, layers, lambda i: i >= first)])
    spec = Spec(topo, ropes, tuple("qkvo") if cfg.boolean("attention_bias", False) else ())
    cfg.finish("sliding_window")
    return spec


def from_gguf(cfg: GGUFConfig) -> Spec:
    n, kv, hd = gguf_heads(cfg)
    context = cfg.integer("context_length")
    layer = attention(n, kv, hd, "head"), dense(cfg.integer("feed_forward_length"), "silu")
    topo, ropes = topology(MODEL_TYPE, cfg.integer("embedding_length"), cfg.rows("token_embd.weight"), context,
                           cfg.number("attention.layer_norm_rms_epsilon"), "output.weight" not in cfg.tensors,
                           rope.from_gguf(cfg, hd, context), hd, [layer] * cfg.integer("block_count"))
    cfg.finish()
    return Spec(topo, ropes, None)


def hf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.hf(spec, tensors)


def gguf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.gguf(spec, tensors)
