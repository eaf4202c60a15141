"""Gated delta rule layers and gated attention in the families that have them: settings and tensor names.

Owns: the settings of qwen3_next and qwen3_5_moe that both share, and the bindings of a layer's attention in every spelling: fused
`in_proj_qkvz` and `in_proj_ba` (rows by key head: query, key, its values, their gates) or the four apart; queries and gates of full
attention in one `q_proj` (rows by head: query, gate); GGUF's `attn_qkv` with `attn_gate` or the older fused `ssm_in`, `ssm_ba` or
`ssm_beta` with `ssm_alpha`.
Refuses: projections with biases; MLX folders that do not tell how their norms are kept.

Source values that are stored otherwise: norms of Hugging Face files are zero-centred (1 + w is stored; the gated norm is not), A_log
becomes -exp(A_log), which GGUF files hold already, and the convolution's taps come first. MLX (mlx-lm's `sanitize` of qwen3_next and
qwen3_5) keeps norms as they are multiplied, and the convolution as [channels, taps, 1].
"""

from __future__ import annotations

import numpy as np

from ..convert.source import ConvertError
from . import rope
from .binder import Binder
from .common import GGUFConfig, HFConfig, delta, gated, heads

MROPE = "mrope_section mrope_interleaved"     # positions of images; those of text are the same in all sections


def plus_one(w: np.ndarray) -> np.ndarray:
    """A zero-centred norm weight as it is multiplied."""
    return w + np.float32(1)


def rate(a_log: np.ndarray) -> np.ndarray:
    """-exp(A_log)"""
    return -np.exp(a_log.astype(np.float32))


def taps_first(w: np.ndarray) -> np.ndarray:
    """[channels, 1, taps], [channels, taps, 1] or [channels, taps] -> [taps, channels]"""
    return np.ascontiguousarray(w.reshape(w.shape[0], -1).T)


def of_mlx(t) -> bool:
    """Whether a convolution's weights are MLX's [channels, taps, 1]; with one tap both spellings look alike. t: None, or without a
    shape where only an index is at hand."""
    return t is not None and t.shape is not None and len(t.shape) == 3 and t.shape[2] == 1 < t.shape[1]


def norm_change(topology: dict, tensors: dict):
    """What is stored of a checkpoint's norms: plus_one, or None where MLX added the one. A folder tells by its convolutions."""
    taps = {n: layer["attn"]["taps"] for n, layer in enumerate(topology["layers"]) if layer["attn"]["kind"] == "delta"}
    if any(of_mlx(tensors.get(f"model.layers.{n}.linear_attn.conv1d.weight")) for n in taps):
        return None
    if any(".switch_mlp." in n for n in tensors) and max(taps.values(), default=1) == 1:
        raise ConvertError("the MLX folder has no convolution of two taps or more, so nothing tells whether its norms are kept less one; "
                           "convert the original checkpoint")
    return plus_one


def hf_layers(cfg: HFConfig, context: int) -> tuple[list[dict], tuple, int]:
    """(the layers' `attn` entries, (inverse frequencies, attention factor), rotated channels) of a config.json."""
    n, kv, hd = heads(cfg, 2, 256)
    layers = cfg.integer("num_hidden_layers")
    step = cfg.integer("full_attention_interval", 4)
    types = cfg.get("layer_types", ["linear_attention" if (i + 1) % step else "full_attention" for i in range(layers)])
    if not isinstance(types, list) or len(types) != layers or set(types) - {"linear_attention", "full_attention"}:
        cfg.fail("layer_types", types, f"an array of {layers} times linear_attention or full_attention")
    cfg.only("attention_bias", False)
    cfg.only("use_sliding_window", False)
    linear = delta(cfg.integer("linear_num_key_heads", 16), cfg.integer("linear_num_value_heads", 32),
                   cfg.integer("linear_key_head_dim", 128), cfg.integer("linear_value_head_dim", 128),
                   cfg.integer("linear_conv_kernel_dim", 4, high=64))
    share = rope.partial(cfg, 0.25)
    dim = int(hd * share)
    if dim < 2 or dim % 2:
        cfg.fail("partial_rotary_factor", share, f"a share of {hd} channels that is an even number")
    full = gated(n, kv, hd, "head")
    return ([dict(linear if t == "linear_attention" else full) for t in types],
            rope.from_hf(cfg, dim, context, partial=share, also=MROPE), dim)


def gguf_layers(cfg: GGUFConfig, context: int, tiled: bool) -> tuple[list[dict], tuple, int]:
    """The same of GGUF metadata. tiled: the order of value heads in files of this architecture."""
    n, kv = cfg.integer("attention.head_count"), cfg.integer("attention.head_count_kv")
    hd = cfg.integer("attention.key_length")
    cfg.only("attention.value_length", hd, "keys and values of different widths are not served")
    layers, step = cfg.integer("block_count"), cfg.integer("full_attention_interval", 4)
    values, inner = cfg.integer("ssm.time_step_rank"), cfg.integer("ssm.inner_size")
    if inner % values or n % kv or hd % 2:
        cfg.fail("ssm.inner_size", inner, f"a multiple of ssm.time_step_rank, {values}; heads {n}, key-value heads {kv}, channels {hd}")
    linear = delta(cfg.integer("ssm.group_count"), values, cfg.integer("ssm.state_size"), inner // values,
                   cfg.integer("ssm.conv_kernel", high=64), tiled)
    dim = cfg.integer("rope.dimension_count", hd // 4, high=hd)
    if dim % 2:
        cfg.fail("rope.dimension_count", dim, "an even number")
    cfg.get("rope.dimension_sections", None)
    full = gated(n, kv, hd, "head")
    return ([dict(full if (i + 1) % step == 0 else linear) for i in range(layers)], rope.from_gguf(cfg, dim, context), dim)


def sizes(a: dict) -> tuple[int, int, int]:
    """(rows of queries, rows of values, rows of queries, keys and values)"""
    q, v = a["key_heads"] * a["key_dim"], a["value_heads"] * a["value_dim"]
    return q, v, 2 * q + v


def by_key_head(a: dict, parts: tuple[int, ...]) -> list[np.ndarray]:
    """Where the rows of each part lie in a fused matrix whose rows run by key head; parts: rows of each within one key head."""
    ends = np.cumsum((0, *parts))
    start = np.arange(a["key_heads"])[:, None] * ends[-1]
    return [(start + np.arange(ends[i], ends[i + 1])).reshape(-1) for i in range(len(parts))]


def _input(b: Binder, p: str, a: dict, hidden: int, fused: str, qkv: str, z: str) -> dict:
    _, v, channels = sizes(a)
    if not b.has(fused):
        return {p + "qkv": b.rows(qkv, (channels, hidden), p + "qkv"), p + "z": b.rows(z, (v, hidden), p + "z")}
    each = v // a["key_heads"]
    rows = by_key_head(a, (a["key_dim"], a["key_dim"], each, each))
    return {p + "qkv": b.rows(fused, (channels + v, hidden), p + "qkv", np.concatenate(rows[:3])),
            p + "z": b.rows(fused, (channels + v, hidden), p + "z", rows[3])}


def _rates(b: Binder, p: str, a: dict, hidden: int, fused: str, beta: str, alpha: str) -> dict:
    heads_ = a["value_heads"]
    if not b.has(fused):
        return {p + "beta": b.rows(beta, (heads_, hidden), p + "beta"), p + "alpha": b.rows(alpha, (heads_, hidden), p + "alpha")}
    each = heads_ // a["key_heads"]
    rows = by_key_head(a, (each, each))
    return {p + x: b.rows(fused, (2 * heads_, hidden), p + x, order) for x, order in zip(("beta", "alpha"), rows, strict=True)}


def hf_delta(b: Binder, s: str, p: str, a: dict, hidden: int) -> dict:
    """Bindings of a gated delta rule layer, `p` + name. s: the layer's prefix in the checkpoint."""
    s += "linear_attn."
    _, v, channels = sizes(a)
    conv = (channels, a["taps"], 1) if of_mlx(b.tensors.get(s + "conv1d.weight")) else (channels, 1, a["taps"])
    out = _input(b, p, a, hidden, s + "in_proj_qkvz.weight", s + "in_proj_qkv.weight", s + "in_proj_z.weight")
    out |= _rates(b, p, a, hidden, s + "in_proj_ba.weight", s + "in_proj_b.weight", s + "in_proj_a.weight")
    return out | {
        p + "conv": b.rows(s + "conv1d.weight", conv, p + "conv", change=taps_first),
        p + "rate": b.rows(s + "A_log", (a["value_heads"],), p + "rate", change=rate),
        p + "dt_bias": b.rows(s + "dt_bias", (a["value_heads"],), p + "dt_bias"),
        p + "out_norm": b.rows(s + "norm.weight", (a["value_dim"],), p + "out_norm"),
        p + "o": b.rows(s + "out_proj.weight", (hidden, v), p + "o")}


def gguf_delta(b: Binder, s: str, p: str, a: dict, hidden: int) -> dict:
    """The same of a GGUF file."""
    _, v, channels = sizes(a)
    out = _input(b, p, a, hidden, s + "ssm_in.weight", s + "attn_qkv.weight", s + "attn_gate.weight")
    out |= _rates(b, p, a, hidden, s + "ssm_ba.weight", s + "ssm_beta.weight", s + "ssm_alpha.weight")
    return out | {
        p + "conv": b.rows(s + "ssm_conv1d.weight", (channels, a["taps"]), p + "conv", change=taps_first),
        p + "rate": b.rows([s + "ssm_a", s + "ssm_a.weight"], (a["value_heads"],), p + "rate"),
        p + "dt_bias": b.rows([s + "ssm_dt.bias", s + "ssm_dt"], (a["value_heads"],), p + "dt_bias"),
        p + "out_norm": b.rows(s + "ssm_norm.weight", (a["value_dim"],), p + "out_norm"),
        p + "o": b.rows(s + "ssm_out.weight", (hidden, v), p + "o")}


def query_and_gate(b: Binder, name: str, p: str, a: dict, hidden: int) -> dict:
    """Bindings of attn.q and attn.gate from one matrix whose rows run by head: queries, then gates."""
    n, hd = a["heads"], a["head_dim"]
    q = (np.arange(n)[:, None] * 2 * hd + np.arange(hd)).reshape(-1)
    return {p + x: b.rows(name, (2 * n * hd, hidden), p + x, order) for x, order in (("q", q), ("gate", q + hd))}


