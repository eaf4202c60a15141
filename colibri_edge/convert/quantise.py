"""Float rows to codes and scales: q8_0, q4_0, q4_k, q6_k.

Owns: the choice of scales. Each group of weights x is fitted with a few trial scales; every trial rounds, then solves
the weighted least squares problem for the scale (and the minimum, for q4_k) in closed form, and the trial with the
least error wins. Weights of the squares: mean(x^2) + x^2, so that large weights count more but small ones are not
forgotten. Codes are chosen last, against the scales as they are stored (half precision, six or eight bits).
The loops over weights are csrc/formats/fit.c. Refuses: nothing; formats.quantise() has checked that all are finite.

Shapes: R rows, nb blocks; results are planes as formats.py wants them, codes u1[R, nb, S, 32].
"""

from __future__ import annotations

import numpy as np

from ._fit import fit_affine, fit_codes, fit_symmetric

F32 = np.float32
# Added to the largest code before rounding. 13 trials gain 0.1 % in error over these and take twice the time.
TRIALS = np.array([-1.2, -0.8, -0.4, 0.0, 0.4, 0.8, 1.2], F32)


def _half(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(bits u2, float32 value) of x rounded to half precision, held below overflow."""
    h = np.clip(x, -65504, 65504).astype("<f2")
    return h.view("<u2"), h.astype(F32)


def _ratio(a, b):
    """a / b, zero where b is zero."""
    return np.divide(a, b, out=np.zeros(np.broadcast(a, b).shape, F32), where=b != 0)


def _symmetric(x: np.ndarray, n: int, trials: np.ndarray) -> np.ndarray:
    """Scale of each group x[..., g] for codes -n .. n-1; the weight of largest magnitude is aimed at -n."""
    scale = np.empty(x.shape[:-1], F32)
    fit_symmetric(x.reshape(-1), x.shape[-1], n, trials, scale.reshape(-1))
    return scale


def _affine(x: np.ndarray, n: int, trials: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(scale, minimum) >= 0 of each group x[..., g] for codes 0 .. n: x is about scale * q - minimum."""
    scale, minimum = np.empty(x.shape[:-1], F32), np.empty(x.shape[:-1], F32)
    fit_affine(x.reshape(-1), x.shape[-1], n, trials, scale.reshape(-1), minimum.reshape(-1))
    return scale, minimum


def _codes(x: np.ndarray, scale: np.ndarray, low: int, high: int, shift: np.ndarray | None = None) -> np.ndarray:
    """u1 of x's shape: round((x + shift) / scale) held in low .. high, less low."""
    code = np.empty(x.shape, np.uint8)
    inverse = _ratio(F32(1), scale)
    shift = np.zeros_like(inverse) if shift is None else shift
    fit_codes(x.reshape(-1), x.shape[-1], shift.reshape(-1), inverse.reshape(-1), low, high, code.reshape(-1))
    return code


def q8_0(rows: np.ndarray) -> dict[str, np.ndarray]:
    """q = round(x / d), d = max |x| / 127 in half precision."""
    x = rows.reshape(len(rows), -1, 32)
    bits, d = _half(np.abs(x).max(axis=-1) / F32(127))
    q = np.clip(np.rint(x * _ratio(F32(1), d)[..., None]), -127, 127).astype(np.int8)
    return {"d": bits, "q": q}


def q4_0(rows: np.ndarray) -> dict[str, np.ndarray]:
    x = rows.reshape(len(rows), -1, 32)
    bits, d = _half(_symmetric(x, 8, TRIALS))
    return {"d": bits, "q": _codes(x, d, -8, 7)[:, :, None]}


def q4_k(rows: np.ndarray) -> dict[str, np.ndarray]:
    x = rows.reshape(len(rows), -1, 8, 32)
    scale, minimum = _affine(x, 15, TRIALS[1:-1] * F32(0.7))
    dbits, d = _half(scale.max(axis=-1) / F32(63))
    mbits, dmin = _half(minimum.max(axis=-1) / F32(63))
    sc = np.clip(np.rint(_ratio(scale, d[..., None])), 0, 63).astype(np.uint8)
    mn = np.clip(np.rint(_ratio(minimum, dmin[..., None])), 0, 63).astype(np.uint8)
    nib = (sc >> 4) | (mn >> 4) << 2
    return {"d": dbits, "dmin": mbits, "lo": (sc & 15) | (mn & 15) << 4, "hi": nib[..., 0::2] | nib[..., 1::2] << 4,
            "q": _codes(x, d[..., None] * sc, 0, 15, dmin[..., None] * mn)}


def q6_k(rows: np.ndarray) -> dict[str, np.ndarray]:
    x = rows.reshape(len(rows), -1, 16, 16)
    scale = _symmetric(x, 32, TRIALS * F32(2))
    peak = np.take_along_axis(scale, np.abs(scale).argmax(axis=-1, keepdims=True), axis=-1)[..., 0]
    bits, d = _half(peak / F32(-128))
    sc = np.clip(np.rint(_ratio(scale, d[..., None])), -128, 127).astype(np.int8)
    q = _codes(x, d[..., None] * sc, -32, 31)
    return {"d": bits, "sc": sc.view(np.uint8), "q": q.reshape(len(rows), -1, 8, 32)}


QUANTISERS = {"q8_0": q8_0, "q4_0": q4_0, "q4_k": q4_k, "q6_k": q6_k}
