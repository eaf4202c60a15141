# cython: language_level=3
"""Softmax attention of one layer: q/k/v norm, rotary embedding, cache write, attention per (token, kv head).

Owns: the layout of cached keys (interleaved by eight positions) and values. The order of sums is the kernel's
(docs/numerics.md): blocks of 64 absolute positions, merged in rising order, so any chunking gives the same bits.
Rotary embedding: Su et al. 2021 (arXiv:2104.09864) in the half-split form; grouped queries: Ainslie et al. 2023.
"""
from libc.stdint cimport int8_t, int32_t, uint16_t
from libc.string cimport memcpy

from colibri_edge._native cimport CL_KV_F16, CL_KV_Q8, cl_attn_args, cl_f32_f16, cl_kv_quantize, cl_pool_run
from colibri_edge.core.runtime cimport imax, imin, round_up, runtime

cdef enum:
    TOKENS = 16      # tokens of one chunk of the attention pass: the keys stay in cache over them

ctypedef struct pass_t:
    runtime *rt
    const attn_layer *l
    const kv_view *kv
    attn_buffers *b
    const float *cos   # [nt][rope_dim/2]
    const float *sin
    int32_t pos
    int32_t nt


cdef void store_key(const pass_t *p, int32_t head, int32_t pos, const float *k) noexcept nogil:
    cdef int32_t hd = p.l.head_dim, d
    cdef size_t at = <size_t>head * p.kv.k_head
    cdef uint16_t *h
    cdef float *f
    if p.kv.kv_type == CL_KV_F16:
        h = <uint16_t *>(p.kv.k + at) + (<size_t>(pos / 8) * hd) * 8 + pos % 8
        for d in range(hd):
            h[8 * d] = cl_f32_f16(k[d])
    elif p.kv.kv_type == CL_KV_Q8:
        h = <uint16_t *>(p.kv.k + at + p.kv.k_codes) + <size_t>(pos / 8) * ((hd + 31) / 32) * 8 + pos % 8
        cl_kv_quantize(k, hd, <int8_t *>(p.kv.k + at) + <size_t>(pos / 8) * hd * 8 + pos % 8, 8, h, 8)
    else:
        f = <float *>(p.kv.k + at) + (<size_t>(pos / 8) * hd) * 8 + pos % 8
        for d in range(hd):
            f[8 * d] = k[d]


cdef void store_value(const pass_t *p, int32_t head, int32_t pos, const float *v) noexcept nogil:
    cdef int32_t hd = p.l.head_dim, vs = round_up(p.l.head_dim, 8), d
    cdef size_t at = <size_t>head * p.kv.v_head
    cdef uint16_t *h
    if p.kv.kv_type == CL_KV_F16:
        h = <uint16_t *>(p.kv.v + at) + <size_t>pos * vs
        for d in range(hd):
            h[d] = cl_f32_f16(v[d])
    elif p.kv.kv_type == CL_KV_Q8:
        h = <uint16_t *>(p.kv.v + at + p.kv.v_codes) + <size_t>pos * ((hd + 31) / 32)
        cl_kv_quantize(v, hd, <int8_t *>(p.kv.v + at) + <size_t>pos * vs, 1, h, 1)
    else:
        memcpy(<float *>(p.kv.v + at) + <size_t>pos * vs, v, hd * sizeof(float))


cdef void norm_heads(const pass_t *p, float *x, const float *w, int32_t heads) noexcept nogil:
    cdef int32_t hd = p.l.head_dim, h
    if p.l.qk_norm_kind == QK_FULL:
        p.rt.k.rmsnorm(x, w, x, heads * hd, p.l.norm_eps)
    elif p.l.qk_norm_kind == QK_HEAD:
        for h in range(heads):
            p.rt.k.rmsnorm(x + h * hd, w, x + h * hd, hd, p.l.norm_eps)


cdef void rotate_heads(const pass_t *p, int32_t t, float *x, int32_t heads) noexcept nogil:
    cdef int32_t half = p.l.rope_dim / 2, h
    if p.l.rope < 0:
        return
    for h in range(heads):
        p.rt.k.rope(x + h * p.l.head_dim, p.cos + <size_t>t * half, p.sin + <size_t>t * half, half)


cdef void prepare_token(void *ctx, int32_t chunk, int32_t worker) noexcept nogil:
    """Norm and rotary embedding of a token's queries (even chunks), or of its keys with the cache write."""
    cdef pass_t *p = <pass_t *>ctx
    cdef const attn_layer *l = p.l
    cdef int32_t hd = l.head_dim, t = chunk / 2, h
    cdef float *q = p.b.q + <size_t>t * p.b.ldq
    cdef float *k = p.b.k + <size_t>t * p.b.ldk
    cdef float *v = p.b.v + <size_t>t * p.b.ldk
    if chunk % 2 == 0:
        norm_heads(p, q, l.q_norm, l.heads)
        rotate_heads(p, t, q, l.heads)
        return
    if l.k_eq_v:
        memcpy(v, k, l.kv_heads * hd * sizeof(float))
    if l.v_norm:
        for h in range(l.kv_heads):
            p.rt.k.rmsnorm(v + h * hd, NULL, v + h * hd, hd, l.norm_eps)
    norm_heads(p, k, l.k_norm, l.kv_heads)
    rotate_heads(p, t, k, l.kv_heads)
    for h in range(l.kv_heads):
        store_key(p, h, p.pos + t, k + h * hd)
        store_value(p, h, p.pos + t, v + h * hd)


cdef void attend_chunk(void *ctx, int32_t chunk, int32_t worker) noexcept nogil:
    """Up to TOKENS tokens of one kv head."""
    cdef pass_t *p = <pass_t *>ctx
    cdef const attn_layer *l = p.l
    cdef int32_t head = chunk % l.kv_heads, t0 = chunk / l.kv_heads * TOKENS, t, nrep = l.heads / l.kv_heads
    cdef int32_t after = head + p.rt.threads   # the other threads take those between
    cdef cl_attn_args a
    a.k = p.kv.k + <size_t>head * p.kv.k_head
    a.v = p.kv.v + <size_t>head * p.kv.v_head
    a.k_scale = a.k + p.kv.k_codes
    a.v_scale = a.v + p.kv.v_codes
    a.scratch = <float *>p.rt.scratch[worker]
    a.nrep = nrep
    a.head_dim = l.head_dim
    a.kv_type = p.kv.kv_type
    a.scale = l.scale
    a.softcap = l.softcap
    a.next_k = p.kv.k + <size_t>after * p.kv.k_head if p.nt == 1 and after < l.kv_heads else NULL
    a.sinks = l.sinks + head * nrep if l.sinks != NULL else NULL
    for t in range(t0, imin(t0 + TOKENS, p.nt)):
        a.q = p.b.q + <size_t>t * p.b.ldq + head * nrep * l.head_dim
        a.o = p.b.out.x + <size_t>t * p.b.out.ldx + head * nrep * l.head_dim
        a.hi = p.pos + t + 1
        a.lo = imax(0, a.hi - l.window) if l.window > 0 else 0
        p.rt.k.attention(&a)


cdef void gate_token(void *ctx, int32_t t, int32_t worker) noexcept nogil:
    cdef pass_t *p = <pass_t *>ctx
    p.rt.k.sigmoid_mul(p.b.out.x + <size_t>t * p.b.out.ldx, p.b.gate + <size_t>t * p.b.ldq, round_up(p.l.heads * p.l.head_dim, 8))


cdef void attend(runtime *rt, const attn_layer *l, const kv_view *kv, attn_buffers *b, const float *cos, const float *sin,
                 int32_t pos, int32_t nt) noexcept nogil:
    """Positions pos .. pos+nt-1; b.q, b.k, b.v hold their projections (biases added), b.out.x takes the heads' outputs."""
    cdef pass_t p
    p.rt = rt
    p.l = l
    p.kv = kv
    p.b = b
    p.cos = cos
    p.sin = sin
    p.pos = pos
    p.nt = nt
    cl_pool_run(rt.pool, prepare_token, &p, 2 * nt)
    cl_pool_run(rt.pool, attend_chunk, &p, l.kv_heads * ((nt + TOKENS - 1) / TOKENS))
    if l.gated:
        cl_pool_run(rt.pool, gate_token, &p, nt)
