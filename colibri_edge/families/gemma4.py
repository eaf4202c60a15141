"""gemma4: the text part of Gemma 4, dense or with experts beside the dense branch.

Owns: config.json of model_type gemma4 (settings in text_config) and gemma4_text, and GGUF architecture gemma4. Values get an RMS norm
without weights; in global layers with attention_k_eq_v they are the keys' projection. Global layers have heads of another width and a
proportional RoPE, which rotates the first channels of each half only. The router reads the residual stream through a norm of its own
and a learned scale, its weights sum to one and are then multiplied by a factor per expert (transformers, models/gemma4).
Refuses: embeddings per layer and layers that share keys and values with earlier ones (E2B, E4B), attention in both directions.
"""

from __future__ import annotations

from functools import partial

from . import gemma
from .common import GGUFConfig, HFConfig, Spec, attention, dense, moe, text_part

MODEL_TYPE, GGUF_ARCH, SPARSE = "gemma4", "gemma4", None
SMALL = "models with embeddings per layer (E2B, E4B) are not served yet"
hf_tensors, gguf_tensors = partial(gemma.hf_tensors, zero_centred=False), gemma.gguf_tensors


def _layer(kind: str, n: int, kv: int, hd: int, window: int, k_eq_v: bool, ffn: dict) -> dict:
    attn = attention(n, kv, hd, "head", window if kind == gemma.WINDOW else 0) | {"scale": 1.0, "v_norm": True, "post_norm": True}
    if k_eq_v and kind == gemma.GLOBAL:
        attn["k_eq_v"] = True
    return {"attn": attn, "ffn": ffn, "scale": True}


def _ffn(width: int, activation: str, experts: int, top_k: int | None, expert_width: int | None) -> dict:
    if not experts:
        return dense(width, activation) | {"post_norm": True}
    return moe(experts, top_k, expert_width, activation, True, {"intermediate": width, "gate": False}) | {
        "post_norm": True, "branches": True, "expert_scale": True}


def _overrides(cfg: HFConfig, kinds: list[str]) -> list[dict]:
    """What each layer changes of head_dim and num_key_value_heads."""
    given = cfg.get("per_layer_config", None)
    wide = {"head_dim": cfg.integer("global_head_dim", 512)}
    kv = cfg.integer("num_global_key_value_heads", None)
    if kv is not None and cfg.boolean("attention_k_eq_v", False):
        wide["num_key_value_heads"] = kv
    if given is None:
        return [wide if k == gemma.GLOBAL else {} for k in kinds]
    if not isinstance(given, dict) or set(given) - {str(i) for i in range(len(kinds))} or not all(
            isinstance(v, dict) and not set(v) - {"head_dim", "num_key_value_heads"} for v in given.values()):
        cfg.fail("per_layer_config", given, "head_dim and num_key_value_heads by layer number")
    return [given.get(str(i), {}) for i in range(len(kinds))]


def from_hf(cfg: HFConfig) -> Spec:
    cfg = text_part(cfg)
    context, layers = cfg.integer("max_position_embeddings", 131072), cfg.integer("num_hidden_layers", 30)
    kinds = gemma.layer_kinds(cfg, layers)
    kinds[-1] = gemma.GLOBAL                                # as transformers has it, whatever the configuration says
    n = cfg.integer("num_attention_heads", 8)
    base = {"head_dim": cfg.integer("head_dim", 256), "num_key_value_heads": cfg.integer("num_key_value_heads", 4)}
    shapes = [HFConfig(base | o) for o in _overrides(cfg, kinds)]
    heads = [(c.integer("num_key_value_heads"), c.integer("head_dim")) for c in shapes]
    for kv, hd in heads:
        if n % kv or hd % 2:
            cfg.fail("num_key_value_heads", f"{kv} with heads of {hd}", f"a divisor of num_attention_heads, {n}, and an even width")
    act = cfg.activation("hidden_activation", "gelu_pytorch_tanh")
    experts = cfg.integer("num_experts", 0, low=0) if cfg.boolean("enable_moe_block", False) else 0
    ffn = _ffn(cfg.integer("intermediate_size", 9216), act, experts, *(
        (cfg.integer("top_k_experts"), cfg.integer("moe_intermediate_size")) if experts else (None, None)))
    window, same = cfg.integer("sliding_window", 512), cfg.boolean("attention_k_eq_v", False)
    dims = {k: hd for k, (_, hd) in zip(kinds, heads, strict=True)}
    if any(dims[k] != hd for k, (_, hd) in zip(kinds, heads, strict=True)):
        cfg.fail("per_layer_config", dims, "one head_dim for all layers of a kind")
    params = cfg.data.get("rope_parameters")
    if params is None:
        cfg.data = cfg.data | {"rope_parameters": {gemma.GLOBAL: {"rope_type": "proportional", "partial_rotary_factor": 0.25}}}
    elif isinstance(params, dict):
        cfg.data = cfg.data | {"rope_parameters": {k: v for k, v in params.items() if k in dims or k not in (gemma.GLOBAL, gemma.WINDOW)}}
    ropes = gemma.hf_ropes(cfg, context, dims, {gemma.WINDOW: 1e4, gemma.GLOBAL: 1e6})
    cfg.only("num_kv_shared_layers", 0, SMALL)
    if cfg.integer("hidden_size_per_layer_input", 256, low=0):
        cfg.only("hidden_size_per_layer_input", 0, SMALL)
        cfg.fail("hidden_size_per_layer_input", "absent, which means 256", f"0; {SMALL}")
    if cfg.get("use_bidirectional_attention", "vision") != "vision":
        cfg.only("use_bidirectional_attention", None)
    stack = [_layer(k, n, kv, hd, window, same, ffn) for k, (kv, hd) in zip(kinds, heads, strict=True)]
    out = gemma.hf_spec(MODEL_TYPE, cfg, kinds, ropes, stack, context, 262144, cfg.number("final_logit_softcapping", None) or 0.0)
    cfg.finish("vocab_size_per_layer_input use_double_wide_mlp num_experts top_k_experts moe_intermediate_size")
    return out


def from_gguf(cfg: GGUFConfig) -> Spec:
    context, layers = cfg.integer("context_length"), cfg.integer("block_count")
    kinds = gemma.gguf_kinds(cfg, layers)
    n = cfg.integer("attention.head_count")
    wide = cfg.integer("attention.key_length", 512)
    dims = {gemma.GLOBAL: wide, gemma.WINDOW: cfg.integer("attention.key_length_swa", wide)}
    cfg.only("attention.value_length", wide)
    cfg.only("attention.value_length_swa", dims[gemma.WINDOW])
    cfg.only("rope.dimension_count", wide)
    cfg.only("rope.dimension_count_swa", dims[gemma.WINDOW])
    kv = cfg.get("attention.head_count_kv")
    kv = kv if isinstance(kv, list) else [kv] * layers
    if len(kv) != layers or any(type(k) is not int or k < 1 or n % k for k in kv):
        cfg.fail("attention.head_count_kv", kv, f"{layers} divisors of {n}")
    experts, width = cfg.integer("expert_count", 0, low=0), cfg.get("feed_forward_length")
    if isinstance(width, list):
        if len(set(width)) != 1:
            cfg.fail("feed_forward_length", width, f"one width for all layers; {SMALL}")
        width = width[0]
    cfg.only("attention.shared_kv_layers", 0, SMALL)
    cfg.only("embedding_length_per_layer_input", 0, SMALL)
    ffn = _ffn(width, "gelu_tanh", experts, *((cfg.integer("expert_used_count"), cfg.integer("expert_feed_forward_length")) if experts
                                              else (None, None)))
    window = cfg.integer("attention.sliding_window", 512)
    ropes = gemma.gguf_ropes(cfg, context, dims)
    same = [f"blk.{i}.attn_v.weight" not in cfg.tensors for i in range(layers)]
    out = gemma.gguf_spec(MODEL_TYPE, cfg, kinds, ropes, [_layer(k, n, kv[i], dims[k], window, same[i], ffn) for i, k in enumerate(kinds)])
    cfg.finish("expert_used_count expert_feed_forward_length")
    return out
