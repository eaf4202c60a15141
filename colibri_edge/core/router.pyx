# cython: language_level=3, freethreading_compatible=True
"""The router: raw scores of a batch -> the chosen experts of each token and their weights.

Owns: the choice (bounded heap on raw scores, ties to the lower id), the softmax over all experts or over the chosen ones, the
look-up table of `-Drouter_exp=lut`. Refuses: a NaN or +inf score, and a token without any finite score (ROUTE_BAD_SCORE).

    softmax over all, then gather:   w_r = exp(s_r - max s) / sum over all e of exp(s_e - max s)
    renormalised:                    w_r = exp(s_r - s_0) / sum over the chosen, in rank order

The first is the routing of OLMoE and of Qwen MoE with `norm_topk_prob: false`, the second that of Mixtral and of
`norm_topk_prob: true`. Order of operations: docs/block.md; the bits are the same on every instruction set.
"""
include "../config.pxi"

from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from colibri_edge._native cimport cl_expf, cl_fma, cl_get_kernels

cdef extern from *:
    """
    static float cl_router_ninf(void) { uint32_t u = 0xFF800000u; float f; memcpy(&f, &u, 4); return f; }
    static float cl_router_max(void) { return 3.402823466e+38f; }
    """
    float ninf "cl_router_ninf"() noexcept nogil
    float float_max "cl_router_max"() noexcept nogil

cdef enum:
    LUT_STEPS = 128                    # cells per unit: the step is a power of two, so that x * 128 is exact
    LUT_CELLS = 20 * LUT_STEPS         # over [-10, 10]

# LUT_CELLS + 1 nodes, and one more so that x = 10 itself has a right neighbour
cdef float lut[LUT_CELLS + 2]


cdef void _fill_lut() noexcept nogil:
    cdef int32_t i
    for i in range(LUT_CELLS + 2):
        lut[i] = cl_expf(-10.0 + <float>i / LUT_STEPS)


cdef float lut_exp(float x) noexcept nogil:
    """e^x by linear interpolation on [-10, 10] (relative error under 9e-6, measured); outside, the polynomial."""
    cdef float u
    cdef int32_t i
    if not (x >= -10.0 and x <= 10.0):
        return cl_expf(x)
    u = (x + <float>10.0) * LUT_STEPS
    i = <int32_t>u
    return cl_fma(u - i, lut[i + 1] - lut[i], lut[i])


cdef inline float _exp(float x) noexcept nogil:
    return lut_exp(x) if CL_ROUTER_EXP_LUT else cl_expf(x)


cdef void _softmax(float *x, int32_t n) noexcept nogil:
    """x [n], n a multiple of 8 with -inf in the padding -> softmax in place."""
    cdef float lane[8]
    cdef float m = x[0], e, total
    cdef int32_t i
    if not CL_ROUTER_EXP_LUT:
        cl_get_kernels().softmax(x, x, n)
        return
    for i in range(1, n):
        m = x[i] if x[i] > m else m
    for i in range(8):
        lane[i] = 0.0
    for i in range(n):
        e = lut_exp(x[i] - m)
        x[i] = e
        lane[i & 7] += e
    total = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))
    for i in range(n):
        x[i] = x[i] / total


cdef inline bint _worse(float sa, int32_t ia, float sb, int32_t ib) noexcept nogil:
    return sa < sb or (sa == sb and ia > ib)


cdef inline void _sink(float *s, int32_t *id, int32_t i, int32_t n) noexcept nogil:
    """Restores the heap (worst at the root) below i."""
    cdef float sv = s[i]
    cdef int32_t iv = id[i], c
    while True:
        c = 2 * i + 1
        if c >= n:
            break
        if c + 1 < n and _worse(s[c + 1], id[c + 1], s[c], id[c]):
            c += 1
        if not _worse(s[c], id[c], sv, iv):
            break
        s[i] = s[c]
        id[i] = id[c]
        i = c
    s[i] = sv
    id[i] = iv


cdef void _top_k(const float *x, int32_t n, int32_t k, int32_t *id, float *s) noexcept nogil:
    """The k best of x [n] into id, s [k]: score descending, ties to the lower id. The heap lives in the outputs."""
    cdef int32_t i, m, iv
    cdef float v
    for i in range(k):
        s[i] = x[i]
        id[i] = i
    for i in range(k // 2 - 1, -1, -1):
        _sink(s, id, i, k)
    for i in range(k, n):
        if x[i] > s[0]:        # an equal score has a higher id here, so it loses
            s[0] = x[i]
            id[0] = i
            _sink(s, id, 0, k)
    for m in range(k - 1, 0, -1):
        v = s[0]
        iv = id[0]
        s[0] = s[m]
        id[0] = id[m]
        s[m] = v
        id[m] = iv
        _sink(s, id, 0, m)


cdef inline int32_t _check(const float *x, int32_t n) noexcept nogil:
    """0, or ROUTE_BAD_SCORE where a score is NaN or +inf or none is finite."""
    cdef float top = float_max(), low = -top
    cdef int32_t bad = 0, finite = 0, i
    for i in range(n):
        bad |= not (x[i] <= top)
        finite |= x[i] >= low
    return ROUTE_BAD_SCORE if bad or not finite else ROUTE_OK


cdef int32_t route(float *scores, int32_t ld, int32_t n_tokens, int32_t n_experts, int32_t top_k, bint renormalise,
                   int32_t *ids, float *weights) noexcept nogil:
    """scores [n_tokens][ld] raw, ld >= n_experts rounded up to 8 (overwritten) -> ids, weights [n_tokens][top_k] in rank order.

    0, or ROUTE_BAD_SCORE at the first token that cannot be routed. 1 <= top_k <= n_experts is the caller's promise.
    """
    cdef int32_t t, r, n8 = (n_experts + 7) // 8 * 8
    cdef float *x
    cdef float *w
    cdef int32_t *id
    cdef float z, top
    for t in range(n_tokens):
        x = scores + <size_t>t * <size_t>ld
        w = weights + <size_t>t * <size_t>top_k
        id = ids + <size_t>t * <size_t>top_k
        if _check(x, n_experts):
            return ROUTE_BAD_SCORE
        for r in range(n_experts, n8):
            x[r] = ninf()
        if CL_ROUTER_SOFTMAX:
            _softmax(x, n8)
            _top_k(x, n_experts, top_k, id, w)
            if renormalise:
                z = w[0]
                for r in range(1, top_k):
                    z += w[r]
                for r in range(top_k):
                    w[r] = w[r] / z
            continue
        _top_k(x, n_experts, top_k, id, w)
        if renormalise:
            top = w[0]
            z = 0.0
            for r in range(top_k):
                w[r] = _exp(w[r] - top)
                z += w[r]
            for r in range(top_k):
                w[r] = w[r] / z
        else:
            _softmax(x, n8)
            for r in range(top_k):
                w[r] = x[id[r]]
    return ROUTE_OK


_fill_lut()


def route_scores(const float[:, ::1] scores not None, int top_k, bint renormalise, int32_t[:, ::1] ids not None,  # OUT
                 float[:, ::1] weights not None):  # OUT
    """Routes scores (T, E) float32 into ids (T, top_k) int32 and weights (T, top_k) float32; the face of `route` for tests.

    Raises FloatingPointError where a token has a NaN or +inf score or no finite one.
    """
    cdef int32_t n = <int32_t>scores.shape[0], e = <int32_t>scores.shape[1], ld = (e + 7) // 8 * 8, t, rc
    cdef float *x
    if not 1 <= top_k <= e or e > CL_MAX_EXPERTS or top_k > CL_MAX_TOP_K:
        raise ValueError(f"top_k={top_k} of {e} experts: want 1 <= top_k <= experts, at most top_k {CL_MAX_TOP_K} and "
                         f"{CL_MAX_EXPERTS} experts in this build")
    if ids.shape[0] != n or weights.shape[0] != n or ids.shape[1] != top_k or weights.shape[1] != top_k:
        raise ValueError(f"ids and weights have to be ({n}, {top_k})")
    if n == 0:
        return
    x = <float *>malloc(<size_t>n * <size_t>ld * sizeof(float))
    if x == NULL:
        raise MemoryError
    with nogil:
        for t in range(n):
            memcpy(x + <size_t>t * <size_t>ld, &scores[t, 0], <size_t>e * sizeof(float))
        rc = route(x, ld, n, e, top_k, renormalise, &ids[0, 0], &weights[0, 0])
    free(x)
    if rc:
        raise FloatingPointError("a router score is NaN or +inf, or a token has no finite score")


def exp_table(const float[::1] x not None, float[::1] out not None):
    """The look-up-table exponential of each x into out, whatever this build routes with."""
    cdef Py_ssize_t i
    for i in range(x.shape[0]):
        out[i] = lut_exp(x[i])


def exp_poly(const float[::1] x not None, float[::1] out not None):
    """The polynomial exponential of each x into out."""
    cdef Py_ssize_t i
    for i in range(x.shape[0]):
        out[i] = cl_expf(x[i])
