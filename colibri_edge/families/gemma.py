"""What the Gemma families share: windowed and global layers, each kind with its own RoPE, four norms a layer, names.

Owns: the kinds of layers, their RoPE, the layers of the dense families, `hf_spec` and `gguf_spec`, and the tables of names.
Refuses: nothing of its own.
"""

from __future__ import annotations

import math

import numpy as np

from . import names, rope, table
from .common import GGUFConfig, HFConfig, Spec, attention, text_tensors

WINDOW, GLOBAL = "sliding_attention", "full_attention"

HF = {"attn_norm": "input_layernorm.weight", "attn_post_norm": "post_attention_layernorm.weight",
      "ffn_norm": "pre_feedforward_layernorm.weight", "ffn_post_norm": "post_feedforward_layernorm.weight",
      "router": "router.proj.weight", "router_norm": "router.scale", "expert_scale": "router.per_expert_scale",
      "experts_norm": "pre_feedforward_layernorm_2.weight", "experts_post_norm": "post_feedforward_layernorm_2.weight",
      "shared_post_norm": "post_feedforward_layernorm_1.weight", "scale": "layer_scalar",
      "attn.q_norm": "self_attn.q_norm.weight", "attn.k_norm": "self_attn.k_norm.weight"}
GGUF = {"attn_norm": "attn_norm.weight", "attn_post_norm": "post_attention_norm.weight", "ffn_norm": "ffn_norm.weight",
        "ffn_post_norm": "post_ffw_norm.weight", "router": "ffn_gate_inp.weight", "router_norm": "ffn_gate_inp.scale",
        "expert_scale": "ffn_down_exps.scale", "experts_norm": "pre_ffw_norm_2.weight", "experts_post_norm": "post_ffw_norm_2.weight",
        "shared_post_norm": "post_ffw_norm_1.weight", "scale": "layer_output_scale.weight",
        "attn.q_norm": "attn_q_norm.weight", "attn.k_norm": "attn_k_norm.weight"}
for _x in "qkvo":
    HF[f"attn.{_x}"], HF[f"attn.{_x}_bias"] = f"self_attn.{_x}_proj.weight", f"self_attn.{_x}_proj.bias"
    GGUF[f"attn.{_x}"] = f"{'attn_output' if _x == 'o' else 'attn_' + _x}.weight"

# Of a multimodal checkpoint: towers and what joins them to the text; with text alone they change nothing.
TOWERS = ("vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.", "multi_modal_projector.")


def layer_kinds(cfg: HFConfig, layers: int, pattern: int = 6) -> list[str]:
    """WINDOW or GLOBAL for each layer; by default every pattern-th is global."""
    kinds = cfg.get("layer_types", [WINDOW if (i + 1) % pattern else GLOBAL for i in range(layers)])
    if not isinstance(kinds, list) or len(kinds) != layers or set(kinds) - {WINDOW, GLOBAL}:
        cfg.fail("layer_types", kinds, f"an array of {layers} times {GLOBAL} or {WINDOW}")
    return list(kinds)


def gguf_kinds(cfg: GGUFConfig, layers: int, pattern: int = 6) -> list[str]:
    """The same of a GGUF file, whose pattern is an array of booleans, a number, or absent."""
    given = cfg.get("attention.sliding_window_pattern", pattern)
    if type(given) is int:
        given = [bool((i + 1) % given) for i in range(layers)]
    if not isinstance(given, list) or len(given) != layers:
        cfg.fail("attention.sliding_window_pattern", given, f"an array of {layers}")
    return [WINDOW if g else GLOBAL for g in given]


def layers_of(kinds: list[str], n: int, kv: int, hd: int, qk_norm: str | None, window: int, scale: float, ffn: dict, **attn) -> list[dict]:
    """Dense layers with norms before and after each half. scale: the scores' divisor, squared; attn: more of a layer's `attn`."""
    more = {"scale": scale ** -0.5, "post_norm": True} | attn
    return [{"attn": attention(n, kv, hd, qk_norm, window if k == WINDOW else 0) | more, "ffn": ffn | {"post_norm": True}} for k in kinds]


def _spec(model_type: str, kinds: list[str], ropes: dict, layers: list[dict], **top) -> Spec:
    """ropes: of each kind in use, (inverse frequencies, attention factor); layers: with attn's rope still to be named; top: the rest
    of the topology. The embedding is multiplied by the root of the hidden size."""
    used = [k for k in (WINDOW, GLOBAL) if k in kinds]
    for kind, layer in zip(kinds, layers, strict=True):
        layer["attn"] = layer["attn"] | {"rope": used.index(kind)}
    topo = {"model_type": model_type, "embed_scale": math.sqrt(top["hidden_size"]), **top,
            "ropes": [{"tensor": f"rope.{i}", "dim": 2 * len(ropes[k][0]), "attention_factor": ropes[k][1]} for i, k in enumerate(used)],
            "layers": layers}
    return Spec(topo, [ropes[k][0].astype(np.float32) for k in used])


def hf_spec(model_type: str, cfg: HFConfig, kinds: list[str], ropes: dict, layers: list[dict], context: int, vocab: int,
            softcap: float) -> Spec:
    """The Spec with what config.json says of the whole model. vocab: the class's default."""
    out = _spec(model_type, kinds, ropes, layers, hidden_size=cfg.integer("hidden_size", 2304),
                vocab_size=cfg.integer("vocab_size", vocab), context_length=context, norm_eps=cfg.number("rms_norm_eps", 1e-6),
                tied=cfg.boolean("tie_word_embeddings", True), logit_softcap=softcap)
    out.biases = tuple("qkvo") if cfg.boolean("attention_bias", False) else ()
    return out


def gguf_spec(model_type: str, cfg: GGUFConfig, kinds: list[str], ropes: dict, layers: list[dict], softcap: float = 0.0) -> Spec:
    """The same of a GGUF file. softcap: where it has no key for that."""
    return _spec(model_type, kinds, ropes, layers, hidden_size=cfg.integer("embedding_length"), vocab_size=cfg.rows("token_embd.weight"),
                 context_length=cfg.integer("context_length"), norm_eps=cfg.number("attention.layer_norm_rms_epsilon"),
                 tied="output.weight" not in cfg.tensors, logit_softcap=cfg.number("final_logit_softcapping", softcap))


def hf_ropes(cfg: HFConfig, context: int, dims: dict[str, int], thetas: dict[str, float]) -> dict:
    """{kind: (inverse frequencies, attention factor)}, each kind's settings under its name in rope_parameters."""
    params = cfg.get("rope_parameters", {})
    if not isinstance(params, dict) or set(params) - set(dims) or not all(isinstance(v, dict | None) for v in params.values()):
        cfg.fail("rope_parameters", params, f"one object each for {' and '.join(dims)}")
    return {k: rope.from_hf(HFConfig({"rope_parameters": params.get(k) or {}}), dims[k], context, thetas[k]) for k in dims}


def gguf_ropes(cfg: GGUFConfig, context: int, dims: dict[str, int]) -> dict:
    """The same of a GGUF file, where scaling concerns global layers only."""
    local = GGUFConfig({"general.architecture": "gemma", "gemma.rope.freq_base": cfg.number("rope.freq_base_swa", 1e4)}, {})
    return {GLOBAL: rope.from_gguf(cfg, dims[GLOBAL], context), WINDOW: rope.from_gguf(local, dims[WINDOW], context)}


def plus_one(w: np.ndarray) -> np.ndarray:
    """A norm's weight that a checkpoint keeps less one."""
    return w + np.float32(1)


def hf_tensors(s: Spec, tensors: dict, zero_centred: bool = True) -> dict:
    """Bindings of a checkpoint's language model, wherever the checkpoint has it. zero_centred: norms are kept less one."""
    b = names.Binder(text_tensors(tensors, TOWERS), "the checkpoint")
    root = np.float32(s.topology["hidden_size"] ** -0.5)

    def stack(b: names.Binder, at: str, name: str, shape: tuple[int, ...]) -> dict:
        count, inter, hidden = shape
        if name == "experts":
            return names._hf_experts(b, [at + "experts."], name, {"experts": count, "intermediate": inter}, hidden, ())
        return names._hf_mlp(b, at + "mlp.", name, inter, hidden, False)

    def change(name: str):
        if name == "router_norm":
            return lambda w: w * root
        return plus_one if zero_centred and name.endswith("norm") else None

    out = table.bind(b, s, "model.layers.", ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"), HF, stack, change,
                     tuple(f"attn.{x}_bias" for x in s.biases or ()))
    b.finish(s.uses)
    return out


def gguf_tensors(s: Spec, tensors: dict) -> dict:
    """Bindings of a GGUF file, which keeps norms as they are multiplied, but not the router's times the root of the hidden size."""
    b = names.Binder(tensors, "the GGUF file")
    root = np.float32(s.topology["hidden_size"] ** -0.5)

    def stack(b: names.Binder, at: str, name: str, shape: tuple[int, ...]) -> dict:
        count, inter, hidden = shape
        if name == "experts":
            return names._gguf_experts(b, at, name, {"experts": count, "intermediate": inter}, hidden)
        return names._gguf_mlp(b, at, "", name, inter, hidden)

    out = table.bind(b, s, "blk.", ("token_embd.weight", "output_norm.weight", "output.weight"), GGUF, stack,
                     lambda name: (lambda w: w * root) if name == "router_norm" else None)
    b.finish(s.uses | {"rope_freqs.weight"})
    return out
