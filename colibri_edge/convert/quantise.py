"""Float rows to codes and scales: q8_0, q4_0, q4_k, q6_k, mxfp4 and the affine formats.

Owns: the choice of scales. Each group of weights x is fitted with a few trial scales; every trial rounds, then solves
the weighted least squares problem for the scale (and the minimum, for q4_k) in closed form, and the trial with the
least error wins. Weights of the squares: mean(x^2) + x^2, so that large weights count more but small ones are not
forgotten (affine formats: all the same, or the `importance` of each column where the caller knows it). Codes are chosen
last, against the scales as they are stored (half precision, six or eight bits). The loops over weights are
csrc/formats/fit.c. Refuses: weights beyond bfloat16's range; formats.quantise() has checked that all are finite.

Shapes: R rows, nb blocks; results are planes as formats.py wants them, codes u1[R, nb, S, 32].
"""

from __future__ import annotations

import numpy as np

from ._fit import fit_affine, fit_biased, fit_codes, fit_symmetric

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


def _biased(rows: np.ndarray, k: int, bits: int, importance: np.ndarray | None) -> dict[str, np.ndarray]:
    """Groups of k columns: w = d q + m. importance: float32[columns], what an error in each column counts, or None."""
    n, nb = len(rows), rows.shape[1] // k
    d, m, q = np.empty((n, nb), "<u2"), np.empty((n, nb), "<u2"), np.empty((n, nb, k // 32, 32), np.uint8)
    # how much wider than the codes' span the weights' range is: 2 bits gain most by cutting their ends off
    trials = np.array([-0.5, 0, 0.4, 0.8, 1.2, 1.6, 2.0], F32) if bits == 2 else TRIALS
    fit_biased(rows.reshape(-1), importance, k, (1 << bits) - 1, trials, d.reshape(-1), m.reshape(-1), q.reshape(-1))
    if ((d & 0x7F80) == 0x7F80).any() or ((m & 0x7F80) == 0x7F80).any():
        raise ValueError("its weights are too large for bfloat16 scales")
    return {"d": d, "m": m, "q": q}


def _e2m1(a: np.ndarray) -> np.ndarray:
    """u1 codes of the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 to magnitudes a."""
    q = np.zeros(a.shape, np.uint8)
    for middle in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0):
        q += a > F32(middle)
    return q


def mxfp4(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Scale 2^e: the exponent of max |x|, less two, or one more where that has the smaller square error."""
    x = rows.reshape(len(rows), -1, 32)
    a, values = np.abs(x), np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], F32)
    low = np.clip(np.frexp(a.max(axis=-1))[1] - 3, -127, 126)
    best, e, q = None, None, None
    for more in (0, 1):
        scale = np.ldexp(F32(1), low + more)[..., None]
        code = _e2m1(a / scale)
        err = np.square(values[code] * scale - a).sum(axis=-1)
        if best is None:
            best, e, q = err, low, code
        else:
            better = err < best
            e, q = np.where(better, low + more, e), np.where(better[..., None], code, q)
    return {"d": (e + 127).astype(np.uint8), "q": (q | (x < 0).astype(np.uint8) << 3)[:, :, None]}


QUANTISERS = {"q8_0": q8_0, "q4_0": q4_0, "q4_k": q4_k, "q6_k": q6_k, "mxfp4": mxfp4}
BIASED = {"q4_a": (64, 4), "q2_a": (64, 2), "q4_a32": (32, 4), "q2_a32": (32, 2)}


def quantise(fmt: str, rows: np.ndarray, importance: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Planes of float rows. importance: float32[columns], for the affine formats only; others take none."""
    if fmt in BIASED:
        return _biased(rows, *BIASED[fmt], importance)
    return QUANTISERS[fmt](rows)
