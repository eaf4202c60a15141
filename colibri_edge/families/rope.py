"""Inverse frequencies of rotary position embeddings, from a configuration.

Owns: the types default, linear, llama3 and yarn, in the old spelling (rope_theta beside rope_scaling, `type`) and the
new (rope_parameters, `rope_type`), and GGUF's rope.* keys with `rope_freqs.weight`. Computed in float64, stored as
float32.
Refuses: dynamic, longrope and unknown types, and parameters that a type does not know.

With theta the base and d the rotated channels, f_i = theta ** (-2 i / d).
linear: f / factor. llama3 (Llama 3.1 model card): wavelengths 2 pi / f beyond L / low_freq_factor are divided by
factor, those below L / high_freq_factor kept, blended between. yarn (Peng et al. 2023, arXiv 2309.00071): f and f /
factor are blended by a ramp over i between the channels that turn beta_fast and beta_slow times over L; cos and sin
times 0.1 ln(factor) + 1. proportional (Gemma 4, transformers): f_i of the first channels of each half, 0 for the rest.
"""

from __future__ import annotations

import math

import numpy as np

from ..convert.source import ConvertError
from .common import GGUFConfig, HFConfig, _Config, refuse_unknown

KEYS = {"default": "", "linear": "factor", "llama3": "factor low_freq_factor high_freq_factor",
        "proportional": "factor", "yarn": "factor attention_factor beta_fast beta_slow mscale mscale_all_dim truncate"}

STILL = 1e20     # divisors in rope_freqs.weight from here on mean a channel that is not rotated


def plain(theta: float, dim: int) -> np.ndarray:
    """float64[dim/2]"""
    return theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)


def llama3(f: np.ndarray, factor: float, low: float, high: float, length: float) -> np.ndarray:
    turns = length * f / (2 * math.pi)                   # turns over the original context
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return f * (blend + (1 - blend) / factor)


def yarn(f: np.ndarray, theta: float, factor: float, length: float, fast: float, slow: float, truncate: bool):
    d = 2 * len(f)

    def channel(turns):
        return d * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = channel(fast), channel(slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, d - 1)
    if first == last:
        last += 0.001
    ramp = np.clip((np.arange(d // 2) - first) / (last - first), 0, 1)      # 0: keep, 1: interpolate
    return f * (1 - ramp) + f / factor * ramp


def proportional(theta: float, dim: int, share: float, factor: float) -> np.ndarray:
    """The first share of the channels turns as in a plain RoPE of the whole head, the others stand still."""
    f = plain(theta, dim) / factor
    f[int(share * dim // 2):] = 0
    return f


def mscale(factor: float, m: float = 1.0) -> float:
    """The attention temperature of yarn as a factor on cos and sin."""
    return 1.0 if factor <= 1 else 0.1 * m * math.log(factor) + 1.0


def from_hf(cfg: HFConfig, dim: int, context: int, theta: float = 10000.0, partial: float = 1.0,
            also: str = "") -> tuple[np.ndarray, float]:
    """(inverse frequencies float64[dim/2], attention factor) of a config.json; theta: the family's default base.

    partial: the share of a head that is rotated (dim is what comes of it). also: parameters that change nothing for this family.
    """
    theta = cfg.number("rope_theta", theta, low=1.0)
    params = cfg.get(("rope_parameters", "rope_scaling"), {})
    if not isinstance(params, dict) or any(isinstance(v, dict) for v in params.values()):
        cfg.fail("rope_parameters", params, "one flat object; different RoPEs per layer are not served for this family")
    p = _Config(params, "config.json rope_parameters")
    kind = p.get(("rope_type", "type"), "default")
    if kind not in KEYS:
        p.fail("rope_type", kind, f"one of {', '.join(KEYS)}")
    theta = p.number("rope_theta", theta, low=1.0)
    if kind == "proportional":
        refuse_unknown(p.where, params, p.read | {"partial_rotary_factor", "factor"})
        return proportional(theta, dim, p.number("partial_rotary_factor", 1.0, high=1.0), p.number("factor", 1.0, low=1e-3)), 1.0
    p.only("partial_rotary_factor", partial)
    length = p.number("original_max_position_embeddings", float(context))
    length = cfg.number("original_max_position_embeddings", length)
    refuse_unknown(p.where, params, p.read | set(KEYS[kind].split()) | set(also.split()))
    f = plain(theta, dim)
    if kind == "default":
        return f, 1.0
    factor = p.number("factor", None, low=1e-3) if kind == "yarn" else p.number("factor", low=1e-3)
    if kind == "linear":
        return f / factor, 1.0
    if kind == "llama3":
        return llama3(f, factor, p.number("low_freq_factor"), p.number("high_freq_factor"), length), 1.0
    factor = factor or context / length
    m, m_all = p.number("mscale", 0.0), p.number("mscale_all_dim", 0.0)
    scale = mscale(factor, m) / mscale(factor, m_all) if m and m_all else mscale(factor)
    f = yarn(f, theta, factor, length, p.number("beta_fast", 0.0) or 32.0, p.number("beta_slow", 0.0) or 1.0,
             p.boolean("truncate", True))
    return f, p.number("attention_factor", scale)


def partial(cfg: HFConfig, default: float) -> float:
    """partial_rotary_factor, where either spelling has it: the share of a head's channels that is rotated."""
    share = cfg.number("partial_rotary_factor", None, high=1.0)
    params = cfg.data.get("rope_parameters") or cfg.data.get("rope_scaling") or {}
    inner = params.get("partial_rotary_factor") if isinstance(params, dict) else None
    if share is not None and inner is not None and share != inner:
        cfg.fail("partial_rotary_factor", share, f"{inner}, as in rope_parameters")
    share = next((v for v in (inner, share) if v is not None), default)
    if type(share) not in (int, float) or not 0 < share <= 1:
        cfg.fail("partial_rotary_factor", share, "a number above 0, at most 1")
    return float(share)


def from_gguf(cfg: GGUFConfig, dim: int, context: int, truncate: bool = True) -> tuple[np.ndarray, float]:
    """(inverse frequencies float64[dim/2], attention factor) of GGUF metadata and rope_freqs.weight, if it is there."""
    theta = cfg.number("rope.freq_base", 10000.0, low=1.0)
    kind = cfg.get("rope.scaling.type", "linear")
    factor = cfg.number("rope.scaling.factor", cfg.number("rope.scale_linear", 1.0)) or 1.0
    length = cfg.number("rope.scaling.original_context_length", float(context))
    attn = cfg.number("rope.scaling.attn_factor", 1.0) * cfg.number("rope.scaling.yarn_attn_factor", 1.0)
    fast, slow = cfg.number("rope.scaling.yarn_beta_fast", 32.0), cfg.number("rope.scaling.yarn_beta_slow", 1.0)
    cfg.only("rope.scaling.yarn_log_multiplier", 0.0)
    cfg.only("rope.scaling.yarn_ext_factor", 1.0)
    cfg.get("rope.scaling.finetuned", None)
    f = plain(theta, dim)
    table = cfg.tensors.get("rope_freqs.weight")
    if table is not None:
        if table.shape != (dim // 2,):
            raise ConvertError(f"rope_freqs.weight has shape {list(table.shape)}, wanted [{dim // 2}]")
        divisor = table.all().floats()[0].astype(np.float64)
        if not (np.isfinite(divisor).all() and (divisor > 0).all()):
            raise ConvertError("rope_freqs.weight holds zeros, negative numbers or NaN; download the file again")
        f = np.where(divisor < STILL, f / divisor, 0)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return f, attn
    if kind == "linear":
        return f / factor, attn
    if kind == "yarn":
        return yarn(f, theta, factor, length, fast, slow, truncate), attn * mscale(factor)
    cfg.fail("rope.scaling.type", kind, "none, linear or yarn")
