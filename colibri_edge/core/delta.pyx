# cython: language_level=3
"""Linear attention of one layer: causal convolution, gated delta rule, gated RMS norm.

Owns: the layout of a layer's recurrent state and how it is cut for threads.
Refuses: the chunked matrix form of the rule (its sums depend on where a chunk begins), 16-bit states.

    q, k, v = silu(conv(W x)); q, k to unit length, q / sqrt(key_dim)
    g = exp(-exp(A_log) softplus(alpha + dt_bias)), b = sigmoid(beta)
    S = g S;  S = S + k (b (v - S k));  o = S q          per value head, S [value_dim][key_dim]
    y = W_o (RMSNorm(o) * silu(z))

Gated delta rule: Yang, Kautz, Hatamizadeh 2024 (arXiv:2412.06464), as in transformers' qwen3_next.
State of a layer, float32: S of each value head [value_dim/8 rounded up][key_dim][8], then the last taps-1 inputs of the
convolution [taps-1][channels].
"""
from libc.stdint cimport int32_t
from libc.string cimport memcpy, memset

from colibri_edge._native cimport (
    CL_ACT_SILU, cl_conv_args, cl_delta_args, cl_expf, cl_pool_run, cl_softplus,
)
from colibri_edge.core.runtime cimport imin, round_up, runtime

cdef enum:
    # values of one chunk of the recurrence; the kernel takes 32 at a time, 16 KiB of state at 128 channels, and fetches the next 32 meanwhile
    ROWS = 128
    SLACK = 8        # floats behind the state: kernels load whole lanes

cdef float L2_EPS = 1e-6

ctypedef struct pass_t:
    runtime *rt
    const delta_layer *l
    delta_buffers *b
    float *state
    float *inputs    # [taps-1][channels]: the state of the convolution
    int32_t nt


cdef size_t head_floats(const delta_layer *l) noexcept nogil:
    return <size_t>round_up(l.value_dim, 8) * l.key_dim


cdef size_t delta_state_floats(const delta_layer *l) noexcept nogil:
    """Floats of one layer's state, a multiple of 16."""
    cdef size_t n = l.value_heads * head_floats(l) + <size_t>(l.taps - 1) * l.channels + SLACK
    return (n + 15) / 16 * 16


cdef float *keys(const pass_t *p, int32_t head) noexcept nogil:
    """A head's queries (then keys) of unit length, one after the other: rows of the projection lie so far apart that they would
    push each other and the state out of the first cache."""
    return p.b.keys + <size_t>head * p.nt * p.l.key_dim


cdef void prepare_head(void *ctx, int32_t head, int32_t worker) noexcept nogil:
    """Convolution of one head's channels over all tokens (query, key, then value heads); unit length, or decay and rate of learning."""
    cdef pass_t *p = <pass_t *>ctx
    cdef const delta_layer *l = p.l
    cdef delta_buffers *b = p.b
    cdef int32_t t, at, i, keep = l.taps - 1, h = head - 2 * l.key_heads
    cdef float *x
    cdef float scale
    cdef cl_conv_args a
    cdef bint value = h >= 0
    a.n = l.value_dim if value else l.key_dim
    at = 2 * l.key_heads * l.key_dim + h * l.value_dim if value else head * l.key_dim
    for i in range(keep):
        memcpy(b.qkv + i * b.ldc + at, p.inputs + <size_t>i * l.channels + at, a.n * sizeof(float))
    for i in range(keep):
        memcpy(p.inputs + <size_t>i * l.channels + at, b.qkv + (i + p.nt) * b.ldc + at, a.n * sizeof(float))
    a.x = b.qkv + at
    a.ldx = b.ldc
    a.w = l.conv + at
    a.ldw = l.ldw
    a.taps = l.taps
    a.nt = p.nt
    p.rt.k.conv(&a)
    if not value:
        scale = l.q_scale if head < l.key_heads else 1.0
        for t in range(p.nt):
            p.rt.k.l2norm(b.qkv + <size_t>(keep + t) * b.ldc + at, keys(p, head) + <size_t>t * l.key_dim, l.key_dim, L2_EPS, scale)
        return
    for t in range(p.nt):
        x = b.beta + <size_t>t * b.ldh + h
        x[0] = 1.0 / (1.0 + cl_expf(-x[0]))
        x = b.decay + <size_t>t * b.ldh + h
        x[0] = cl_expf(l.rate[h] * cl_softplus(x[0] + l.dt_bias[h]))


cdef void recur_rows(void *ctx, int32_t chunk, int32_t worker) noexcept nogil:
    """A block of values of one head over all tokens: its part of the state is read and written once while it stays in cache."""
    cdef pass_t *p = <pass_t *>ctx
    cdef const delta_layer *l = p.l
    cdef delta_buffers *b = p.b
    cdef int32_t blocks = (l.value_dim + ROWS - 1) / ROWS, h = chunk / blocks, v0 = chunk % blocks * ROWS
    cdef int32_t kh = h % l.key_heads if l.tiled else h / (l.value_heads / l.key_heads)
    cdef cl_delta_args a
    a.s = p.state + h * head_floats(l) + <size_t>v0 * l.key_dim
    a.q = keys(p, kh)
    a.k = keys(p, l.key_heads + kh)
    a.ldk = l.key_dim
    a.v = b.qkv + (l.taps - 1) * b.ldc + 2 * l.key_heads * l.key_dim + h * l.value_dim + v0
    a.ldv = b.ldc
    a.decay = b.decay + h
    a.beta = b.beta + h
    a.ldg = b.ldh
    a.o = b.out.x + h * l.value_dim + v0
    a.ldo = b.out.ldx
    a.nt = p.nt
    a.dk = l.key_dim
    a.n = imin(ROWS, l.value_dim - v0)
    p.rt.k.delta(&a)


cdef void finish_token(void *ctx, int32_t t, int32_t worker) noexcept nogil:
    """Gated norm of one token's heads; zeros behind the last one; both forms of the result."""
    cdef pass_t *p = <pass_t *>ctx
    cdef const delta_layer *l = p.l
    cdef delta_buffers *b = p.b
    cdef int32_t h, n = l.value_heads * l.value_dim, n8 = round_up(n, 8)
    cdef float *y = b.out.x + <size_t>t * b.out.ldx
    cdef float *z = b.z + <size_t>t * b.ldz
    for h in range(l.value_heads):
        p.rt.k.rmsnorm(y + h * l.value_dim, l.out_norm, y + h * l.value_dim, l.value_dim, l.norm_eps)
    memset(y + n, 0, (b.out.ldx - n) * sizeof(float))
    p.rt.k.act(CL_ACT_SILU, z, z, n8)
    p.rt.k.mul(y, z, n8)
    if l.o.int8_act:
        p.rt.k.quantize(y, b.out.q + <size_t>t * (b.out.ldx / 32), <int32_t>b.out.ldx)


cdef void delta_rule(runtime *rt, const delta_layer *l, float *state, delta_buffers *b, int32_t nt) noexcept nogil:
    """nt tokens in order. b holds their projections (qkv from row taps-1 on; alpha in b.decay); b.out takes the result in both forms."""
    cdef pass_t p
    p.rt = rt
    p.l = l
    p.b = b
    p.state = state
    p.inputs = state + l.value_heads * head_floats(l)
    p.nt = nt
    cl_pool_run(rt.pool, prepare_head, &p, 2 * l.key_heads + l.value_heads)
    cl_pool_run(rt.pool, recur_rows, &p, l.value_heads * ((l.value_dim + ROWS - 1) / ROWS))
    cl_pool_run(rt.pool, finish_token, &p, nt)
