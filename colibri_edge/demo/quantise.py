"""Fake quantisation: round float32 weights to what a format can store, and stay in float32.

Owns: q4_0, q8_0 (as GGUF defines them, blocks of 32) and a2 (2-bit affine, groups of 64, as MLX defines it), and which
weights of the demo model take which.  Refuses: packing, files.  Blocks run along the last axis, which is K.
"""

from __future__ import annotations

import torch


def q4_0(w: torch.Tensor) -> torch.Tensor:
    """w (..., K) -> (..., K).  d = (value of largest magnitude) / -8, as float16; q = trunc(w / d + 8.5) up to 15."""
    x = w.reshape(-1, 32)
    d = x.gather(1, x.abs().argmax(1, keepdim=True)) / -8
    inverse = torch.where(d == 0, 0.0, 1 / d)
    q = (x * inverse + 8.5).clamp(0, 15).trunc()
    return ((q - 8) * d.half().float()).reshape(w.shape)


def q8_0(w: torch.Tensor) -> torch.Tensor:
    """w (..., K) -> (..., K).  d = max |w| / 127, as float16; q = round(w / d)."""
    x = w.reshape(-1, 32)
    d = x.abs().amax(1, keepdim=True) / 127
    inverse = torch.where(d == 0, 0.0, 1 / d)
    return ((x * inverse).round() * d.half().float()).reshape(w.shape)


def a2(w: torch.Tensor) -> torch.Tensor:
    """w (..., K) -> (..., K).  Per group of 64: scale (max - min) / 3, bias min; q = round((w - bias) / scale)."""
    x = w.reshape(-1, 64)
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    scale = ((high - low) / 3).clamp(min=1e-8).half().float()
    low = low.half().float()
    return (((x - low) / scale).round().clamp(0, 3) * scale + low).reshape(w.shape)


FORMATS = {"q4_0": q4_0, "q8_0": q8_0, "a2": a2}


def fake(w: torch.Tensor, kind: str) -> torch.Tensor:
    with torch.no_grad():
        return FORMATS[kind](w)


def shares(model, kind: str = "q4_0", embedding: str = "q8_0"):
    """Yield (parameter, format): matrices take `kind`, the tied embedding `embedding`; router and norms float32."""
    for name, p in model.named_parameters():
        if "embed_tokens" in name or "lm_head" in name:
            yield p, embedding
        elif p.dim() >= 2 and not name.endswith("mlp.gate.weight"):
            yield p, kind
