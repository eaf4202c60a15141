"""Float rows to codes and scales: q8_0, q4_0, q4_k, q6_k.

Owns: the choice of scales. Each group of weights x is fitted with a few trial scales; every trial rounds, then solves
the weighted least squares problem for the scale (and the minimum, for q4_k) in closed form, and the trial with the
least error wins. Weights of the squares: mean(x^2) + x^2, so that large weights count more but small ones are not
forgotten. Codes are chosen last, against the scales as they are stored (half precision, six or eight bits).
Refuses: nothing; formats.quantise() has checked that all weights are finite.

Shapes: R rows, nb blocks; results are planes as formats.py wants them, codes u1[R, nb, S, 32].
"""

from __future__ import annotations

import numpy as np

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


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("...g,...g->...", a, b)


def _weights(x: np.ndarray) -> np.ndarray:
    sq = x * x
    return sq + sq.mean(axis=-1, keepdims=True) + F32(1e-30)


def _fit_symmetric(x: np.ndarray, n: int, trials) -> np.ndarray:
    """Scale of each group x[..., g] for codes -n .. n-1; the weight of largest magnitude is aimed at -n."""
    w = _weights(x)
    peak = np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)
    best = np.full(x.shape[:-1], -1, F32)
    scale = np.zeros(x.shape[:-1], F32)
    for t in trials:
        q = np.clip(np.rint(x * _ratio(F32(-(n + t)), peak)), -n, n - 1)
        wq = w * q
        num, den = _dot(wq, x), _dot(wq, q)
        s = _ratio(num, den)
        gain = num * s                                   # what the fit takes off sum(w x^2)
        better = gain > best
        best, scale = np.where(better, gain, best), np.where(better, s, scale)
    return scale


def _fit_affine(x: np.ndarray, n: int, trials) -> tuple[np.ndarray, np.ndarray]:
    """(scale, minimum) >= 0 of each group x[..., g] for codes 0 .. n: x is about scale * q - minimum."""
    w = _weights(x)
    low = np.minimum(x.min(axis=-1), 0)
    span = x.max(axis=-1) - low
    sw, swx = w.sum(axis=-1), _dot(w, x)
    best = np.full(x.shape[:-1], np.inf, F32)
    scale, minimum = np.zeros_like(best), -low
    for t in trials:
        q = np.clip(np.rint((x - low[..., None]) * _ratio(F32(n + t), span)[..., None]), 0, n)
        wq = w * q
        sq, sqq, sqx = wq.sum(axis=-1), _dot(wq, q), _dot(wq, x)
        det = sw * sqq - sq * sq
        s = _ratio(sw * sqx - sq * swx, det)
        m = -_ratio(sqq * swx - sq * sqx, det)
        alone = (m < 0) | (det <= F32(1e-6) * sw * sqq)  # the minimum may not be negative; all codes are equal
        s, m = np.where(alone, _ratio(sqx, sqq), s), np.where(alone, F32(0), m)
        err = s * (s * sqq - 2 * (m * sq + sqx)) + m * (m * sw + 2 * swx)     # less sum(w x^2), the same for all
        better = (err < best) & (s > 0)
        best, scale, minimum = np.where(better, err, best), np.where(better, s, scale), np.where(better, m, minimum)
    return scale, minimum


def q8_0(rows: np.ndarray) -> dict[str, np.ndarray]:
    """q = round(x / d), d = max |x| / 127 in half precision."""
    x = rows.reshape(len(rows), -1, 32)
    bits, d = _half(np.abs(x).max(axis=-1) / F32(127))
    q = np.clip(np.rint(x * _ratio(F32(1), d)[..., None]), -127, 127).astype(np.int8)
    return {"d": bits, "q": q}


def q4_0(rows: np.ndarray) -> dict[str, np.ndarray]:
    x = rows.reshape(len(rows), -1, 32)
    bits, d = _half(_fit_symmetric(x, 8, TRIALS))
    q = np.clip(np.rint(x * _ratio(F32(1), d)[..., None]), -8, 7) + 8
    return {"d": bits, "q": q.astype(np.uint8)[:, :, None]}


def q4_k(rows: np.ndarray) -> dict[str, np.ndarray]:
    x = rows.reshape(len(rows), -1, 8, 32)
    scale, minimum = _fit_affine(x, 15, TRIALS[1:-1] * F32(0.7))
    dbits, d = _half(scale.max(axis=-1) / F32(63))
    mbits, dmin = _half(minimum.max(axis=-1) / F32(63))
    sc = np.clip(np.rint(_ratio(scale, d[..., None])), 0, 63).astype(np.uint8)
    mn = np.clip(np.rint(_ratio(minimum, dmin[..., None])), 0, 63).astype(np.uint8)
    step, low = d[..., None] * sc, dmin[..., None] * mn
    q = np.clip(np.rint((x + low[..., None]) * _ratio(F32(1), step)[..., None]), 0, 15).astype(np.uint8)
    nib = (sc >> 4) | (mn >> 4) << 2
    return {"d": dbits, "dmin": mbits, "lo": (sc & 15) | (mn & 15) << 4, "hi": nib[..., 0::2] | nib[..., 1::2] << 4,
            "q": q}


def q6_k(rows: np.ndarray) -> dict[str, np.ndarray]:
    x = rows.reshape(len(rows), -1, 16, 16)
    scale = _fit_symmetric(x, 32, TRIALS * F32(2))
    peak = np.take_along_axis(scale, np.abs(scale).argmax(axis=-1, keepdims=True), axis=-1)[..., 0]
    bits, d = _half(peak / F32(-128))
    sc = np.clip(np.rint(_ratio(scale, d[..., None])), -128, 127).astype(np.int8)
    step = d[..., None] * sc
    q = np.clip(np.rint(x * _ratio(F32(1), step)[..., None]), -32, 31) + 32
    return {"d": bits, "sc": sc.view(np.uint8), "q": q.astype(np.uint8).reshape(len(rows), -1, 8, 32)}


QUANTISERS = {"q8_0": q8_0, "q4_0": q4_0, "q4_k": q4_k, "q6_k": q6_k}
