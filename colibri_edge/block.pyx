# cython: language_level=3
"""The MoE feed-forward block of a version-1 `.colibri` file: router, dispatch and float32 experts, callable from C without Python.

    y_t = sum over the chosen experts r, in rank order, of w_r * f_r(x_t)
    f(x) = act(x W1) W2        or, gated,        f(x) = (act(x W1) * (x W3)) W2

Owns: opening a file (mapped or read), the pool of a block, one forward pass, the count of expert use. Refuses: other files than
version 1, experts of unequal shape, sizes over this build's constants. Experts with few tokens run on our own kernel, whose
results are the same on every CPU; larger groups on the BLAS of core/blas, whose results are not (docs/block.md).
One block belongs to one thread at a time. Nothing is allocated after opening, and no function here but the class needs Python.
"""
include "config.pxi"

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from colibri_edge._native cimport (
    CL_ACT_GELU_TANH, CL_ACT_RELU, CL_ACT_SILU, cl_default_threads, cl_fma, cl_get_kernels, cl_guard_add, cl_guard_lost, cl_guard_remove,
    cl_pool_free, cl_pool_new, cl_pool_run, cl_pool_threads, cl_rowmm_args,
)
from colibri_edge.core.blas cimport (
    CL_HOST_MAP, CL_HOST_READ, cl_affinity_known, cl_bind_thread, cl_blas_hold, cl_blas_load, cl_blas_release, cl_blas_sgemm,
    cl_blas_warm, cl_clear_error, cl_cpu_list, cl_cpu_mask, cl_fail, cl_host_close, cl_host_open, cl_host_peek, cl_last_error,
    cl_pool_bind, cl_pool_run_owned, cl_unbind_thread,
)
from colibri_edge.core.dispatch cimport group_by_expert, groups_bytes, groups_init, order_by_load
from colibri_edge.core.pool cimport arena_allocate, arena_at, arena_free, arena_init, arena_reserve
from colibri_edge.core.router cimport route

cdef extern from "colibri/base.h" nogil:
    int64_t cl_now_ns() noexcept

cdef enum:
    HEADER = 32
    MAX_SIDE = 1 << 20          # of hidden and intermediate: products stay inside 64 bits
    BLAS_FROM = 4               # measured: below, our kernel is up to twice as fast; from here on the BLAS is (docs/decisions.md)
    STRIP = 64                  # columns a strip is a multiple of
    SMALL = 1 << 15             # multiply-adds under which waking a thread costs more than it brings
    RANK_EVERY = 256            # forwards between two looks at which experts are used most
    MAX_CPUS = 1024

cdef struct header:
    int32_t flags
    int32_t experts
    int32_t top_k
    uint32_t hidden
    uint32_t inter
    uint64_t payload

cdef int32_t default_threads = 0    # what pays, with the CPU quota; found once, at import


cdef inline uint32_t _le(const uint8_t *p, int32_t n) noexcept nogil:
    cdef uint32_t v = 0
    cdef int32_t i
    for i in range(n):
        v |= <uint32_t>p[i] << (8 * i)
    return v


cdef int32_t _check_magic(const char *path, const uint8_t *p) noexcept nogil:
    cdef const uint8_t *magic = [0xC0, 0x4C, 0x31, 0x42, 0x52, 0x31, 0, 0]
    cdef const uint8_t *text = [0x43, 0x30, 0x4C, 0x31, 0x42, 0x52, 0x31, 0]
    cdef int32_t i, same = 1, same_text = 1
    for i in range(8):
        same &= p[i] == magic[i]
        same_text &= p[i] == text[i]
    if same or same_text:
        return 0
    return cl_fail(BLOCK_MEMORY, "%s: bad magic: found %02x %02x %02x %02x %02x %02x %02x %02x, wanted c0 4c 31 42 52 31 00 00 or "
                   "\"C0L1BR1\\0\"; is this a .colibri file?", path, <int>p[0], <int>p[1], <int>p[2], <int>p[3], <int>p[4], <int>p[5],
                   <int>p[6], <int>p[7])


cdef int32_t _read_header(const char *path, header *h, const block_options *o) noexcept nogil:
    """Checks every field before it is used."""
    cdef uint8_t p[HEADER]
    cdef uint64_t size = 0, want
    cdef int32_t rc = cl_host_peek(path, p, HEADER, &size)
    if rc == -2:
        return cl_fail(BLOCK_MEMORY, "%s: %llu bytes, shorter than a header of 32 bytes", path, <unsigned long long>size)
    if rc or _check_magic(path, p):
        return BLOCK_MEMORY
    if p[8] == 2:
        return cl_fail(BLOCK_MEMORY, "%s: a version 2 file, a whole model; open it with colibri_session_open or Model.load", path)
    if p[8] != 1:
        return cl_fail(BLOCK_MEMORY, "%s: version %d, this reader knows versions 1 (block) and 2 (model)", path, <int>p[8])
    h.flags = p[9]
    h.experts = <int32_t>_le(p + 10, 2)
    h.top_k = <int32_t>_le(p + 12, 2)
    h.hidden = _le(p + 16, 4)
    h.inter = _le(p + 20, 4)
    h.payload = <uint64_t>_le(p + 24, 4) | <uint64_t>_le(p + 28, 4) << 32
    if not h.flags & 1:
        return cl_fail(BLOCK_MEMORY, "%s: uniform_expert_shape is not set: experts of unequal size are refused, because the pool and the "
                       "dispatch are sized for one shape", path)
    if (h.flags >> 2 & 3) == 3 or h.flags >> 5 or _le(p + 14, 2):
        return cl_fail(BLOCK_MEMORY, "%s: flags 0x%02x and reserved 0x%04x hold values that version 1 does not define", path,
                       <int>h.flags, <int>_le(p + 14, 2))
    if not (1 <= h.hidden <= MAX_SIDE and 1 <= h.inter <= MAX_SIDE):
        return cl_fail(BLOCK_MEMORY, "%s: hidden %u, intermediate %u: both have to be 1 to %d", path, h.hidden, h.inter, <int>MAX_SIDE)
    if not 1 <= h.experts <= CL_MAX_EXPERTS:
        return cl_fail(BLOCK_MEMORY, "%s: %d experts; this build takes 1 to %d (build with -Dmax_experts=%d)", path, <int>h.experts,
                       <int>CL_MAX_EXPERTS, <int>h.experts)
    if not 1 <= h.top_k <= h.experts:
        return cl_fail(BLOCK_MEMORY, "%s: top_k %d, wanted 1 to %d, the number of experts", path, <int>h.top_k, <int>h.experts)
    if h.top_k > CL_MAX_TOP_K:
        return cl_fail(BLOCK_MEMORY, "%s: top_k %d; this build takes at most %d (build with -Dmax_top_k=%d)", path, <int>h.top_k,
                       <int>CL_MAX_TOP_K, <int>h.top_k)
    if not 1 <= o.max_batch <= CL_MAX_BATCH:
        return cl_fail(BLOCK_MEMORY, "max_batch %d; this build takes 1 to %d (build with -Dmax_batch=%d)", <int>o.max_batch,
                       <int>CL_MAX_BATCH, <int>o.max_batch)
    want = <uint64_t>h.hidden * <uint64_t>h.inter * (3 if h.flags & 2 else 2) * <uint64_t>h.experts
    want = 4 * (want + <uint64_t>h.hidden * <uint64_t>h.experts)
    if h.payload != want or size != want + HEADER:
        return cl_fail(BLOCK_MEMORY, "%s: header says %llu payload bytes, its sizes ask for %llu, the file holds %llu; it is cut or "
                       "damaged", path, <unsigned long long>h.payload, <unsigned long long>want, <unsigned long long>(size - HEADER))
    return BLOCK_OK


# ---- opening ----

cdef inline size_t _ld(size_t n) noexcept nogil:
    """Floats of a row: whole cache lines, and an odd number of them, so that rows do not share the same cache sets."""
    cdef size_t lines = (n + 15) // 16
    return 16 * (lines | 1)


cdef int32_t _layout(block *b) noexcept nogil:
    """Reserves every buffer, takes the memory once, and sets the pointers."""
    cdef size_t t = b.o.max_batch, e = b.experts, pairs = t * b.top_k, f = sizeof(float), i4 = sizeof(int32_t)
    cdef size_t slots = pairs if b.o.no_groups and pairs > e else e
    cdef size_t tasks = slots * b.threads
    cdef int32_t s[13]
    b.ld_e = (e + 7) // 8 * 8
    b.ld_i = _ld(b.inter)
    b.ld_h = _ld(b.hidden)
    arena_init(&b.a)
    s[0] = arena_reserve(&b.a, "scores", t * b.ld_e * f)
    s[1] = arena_reserve(&b.a, "expert ids", pairs * i4)
    s[2] = arena_reserve(&b.a, "routing weights", pairs * f)
    s[3] = arena_reserve(&b.a, "groups", groups_bytes(b.o.max_batch, b.top_k, <int32_t>slots))
    s[4] = arena_reserve(&b.a, "h: act(x W1)", pairs * b.ld_i * f)
    s[5] = arena_reserve(&b.a, "up: x W3", pairs * b.ld_i * f if b.gated else 0)
    s[6] = arena_reserve(&b.a, "y: expert outputs", pairs * b.ld_h * f)
    s[7] = arena_reserve(&b.a, "gathered tokens", pairs * b.hidden * f if b.o.blas_from <= b.o.max_batch else 0)
    s[8] = arena_reserve(&b.a, "task owners", tasks * i4)
    s[9] = arena_reserve(&b.a, "task claims", tasks * i4)
    s[10] = arena_reserve(&b.a, "expert homes", e * i4)
    s[11] = arena_reserve(&b.a, "expert uses", e * sizeof(uint64_t))
    if arena_allocate(&b.a, <size_t>b.o.skew):
        return cl_fail(BLOCK_MEMORY, "no memory for a pool of %llu bytes (batch %d, top_k %d, hidden %d, intermediate %d)",
                       <unsigned long long>b.a.total, <int>b.o.max_batch, <int>b.top_k, <int>b.hidden, <int>b.inter)
    b.scores = <float *>arena_at(&b.a, s[0])
    b.ids = <int32_t *>arena_at(&b.a, s[1])
    b.shares = <float *>arena_at(&b.a, s[2])
    groups_init(&b.g, arena_at(&b.a, s[3]), b.o.max_batch, b.top_k, <int32_t>slots)
    b.h = <float *>arena_at(&b.a, s[4])
    b.up = <float *>arena_at(&b.a, s[5])
    b.y = <float *>arena_at(&b.a, s[6])
    b.rows = <float *>arena_at(&b.a, s[7])
    b.owner = <int32_t *>arena_at(&b.a, s[8])
    b.claims = <int32_t *>arena_at(&b.a, s[9])
    b.rank = <int32_t *>arena_at(&b.a, s[10])
    b.uses = <uint64_t *>arena_at(&b.a, s[11])
    return BLOCK_OK


cdef int32_t _bind(block *b) noexcept nogil:
    """Workers to cores of the inherited mask; where the system cannot, nothing happens and `bound` stays 0."""
    cdef int32_t cpus[MAX_CPUS]
    cdef int32_t n = cl_cpu_list(cpus, MAX_CPUS), e
    for e in range(b.experts):
        b.rank[e] = e % b.threads
    if n > 0 and cl_affinity_known() and cl_pool_bind(b.pool, cpus, n) == 0:
        b.bound = 1
        b.caller_cpu = cpus[0]
    return BLOCK_OK


cdef int32_t _open(block *b, const char *path) noexcept nogil:
    cdef header h
    cdef int32_t act[3]
    memset(&h, 0, sizeof(h))
    act[0] = CL_ACT_RELU
    act[1] = CL_ACT_GELU_TANH
    act[2] = CL_ACT_SILU
    if _read_header(path, &h, &b.o):
        return BLOCK_MEMORY
    b.hidden = <int32_t>h.hidden
    b.inter = <int32_t>h.inter
    b.experts = h.experts
    b.top_k = h.top_k
    b.gated = h.flags >> 1 & 1
    b.act = act[h.flags >> 2 & 3]
    b.renormalise = h.flags >> 4 & 1
    if cl_host_open(path, CL_HOST_READ if b.o.read else CL_HOST_MAP, HEADER, <size_t>b.o.skew, &b.file):
        return BLOCK_MEMORY
    if b.file.size != h.payload + HEADER:
        return cl_fail(BLOCK_MEMORY, "%s: changed while it was opened", path)
    if not b.o.read:
        cl_guard_add(b.file.data, b.file.size)
        b.watched = 1
    b.router = <const float *><const void *>(b.file.data + HEADER)
    b.weights = b.router + <size_t>b.hidden * <size_t>b.experts
    b.matrix_floats = <size_t>b.hidden * <size_t>b.inter
    b.expert_floats = b.matrix_floats * (3 if b.gated else 2)
    b.k = cl_get_kernels()
    b.pool = cl_pool_new(b.o.threads)
    if b.pool == NULL:
        return cl_fail(BLOCK_MEMORY, "no memory for %d threads", <int>b.o.threads)
    b.threads = cl_pool_threads(b.pool)
    if _layout(b):
        return BLOCK_MEMORY
    if b.o.blas_from <= b.o.max_batch:
        if cl_blas_load():
            return BLOCK_MEMORY
        cl_blas_warm(b.pool)
    return _bind(b) if b.o.pin else BLOCK_OK


cdef block *block_open(const char *path, const block_options *o) noexcept nogil:
    """Opens path; NULL with cl_last_error() where it cannot be."""
    cdef block *b = <block *>calloc(1, sizeof(block))
    if b == NULL:
        cl_fail(BLOCK_MEMORY, "no memory for a block")
        return NULL
    b.o = o[0]
    if b.o.threads <= 0:
        b.o.threads = default_threads
    if b.o.blas_from <= 0:
        b.o.blas_from = BLAS_FROM
    if _open(b, path):
        block_close(b)
        return NULL
    return b


cdef void block_close(block *b) noexcept nogil:
    if b == NULL:
        return
    cl_pool_free(b.pool)
    arena_free(&b.a)
    if b.watched:
        cl_guard_remove(b.file.data)
    cl_host_close(&b.file)
    free(b)


# ---- one forward ----

cdef inline void _strip(const block *b, int32_t n, int32_t s, int32_t *c0, int32_t *c1) noexcept nogil:
    """Columns [c0, c1) of strip s of n columns."""
    cdef int32_t w = (n + b.strips - 1) // b.strips
    w = (w + STRIP - 1) // STRIP * STRIP
    c0[0] = s * w if s * w < n else n
    c1[0] = c0[0] + w if c0[0] + w < n else n


cdef inline void _product(const block *b, const float *w, int32_t ldw, int32_t k, int32_t c0, int32_t c1, const float *x, size_t ldx,
                          const int32_t *rows, int32_t nt, float *y, size_t ldy) noexcept nogil:
    """y [nt][ldy], columns c0 .. c1-1, = x [rows][ldx] W [k][ldw] on our kernel."""
    cdef cl_rowmm_args a
    a.w = w + c0
    a.ldw = ldw
    a.k = k
    a.n = c1 - c0
    a.x = x
    a.ldx = ldx
    a.rows = rows
    a.nt = nt
    a.y = y + c0
    a.ldy = ldy
    b.k.rowmm(&a)


cdef inline bint _in_place(const block *b, int32_t p0, int32_t nt) noexcept nogil:
    """Whether the tokens at positions p0 .. p0+nt-1 are neighbours, so that the BLAS can read them where they are."""
    return b.g.token[p0 + nt - 1] - b.g.token[p0] == nt - 1


cdef void _task_up(void *ctx, int32_t chunk, int32_t worker) noexcept nogil:
    """One strip of h = act(x W1) (* x W3) for one expert's tokens."""
    cdef block *b = <block *>ctx
    cdef int32_t gi = b.g.order[chunk // b.strips], p0 = b.g.start[gi], nt = b.g.start[gi + 1] - p0, c0, c1, t, n8
    cdef const float *w1 = b.weights + <size_t>b.g.expert[gi] * b.expert_floats
    cdef const float *x
    cdef float *h = b.h + <size_t>p0 * b.ld_i
    cdef float *up = b.up + <size_t>p0 * b.ld_i
    _strip(b, b.inter, chunk % b.strips, &c0, &c1)
    if c0 == c1:
        return
    if nt < b.o.blas_from:
        _product(b, w1, b.inter, b.hidden, c0, c1, b.x, b.hidden, b.g.token + p0, nt, h, b.ld_i)
        if b.gated:
            _product(b, w1 + b.matrix_floats, b.inter, b.hidden, c0, c1, b.x, b.hidden, b.g.token + p0, nt, up, b.ld_i)
    else:
        x = b.x + <size_t>b.g.token[p0] * b.hidden if _in_place(b, p0, nt) else b.rows + <size_t>p0 * b.hidden
        cl_blas_sgemm(nt, c1 - c0, b.hidden, x, b.hidden, w1 + c0, b.inter, h + c0, <int32_t>b.ld_i)
        if b.gated:
            cl_blas_sgemm(nt, c1 - c0, b.hidden, x, b.hidden, w1 + b.matrix_floats + c0, b.inter, up + c0, <int32_t>b.ld_i)
    n8 = (c1 - c0 + 7) // 8 * 8
    for t in range(nt):
        b.k.act(b.act, h + <size_t>t * b.ld_i + c0, h + <size_t>t * b.ld_i + c0, n8)
        if b.gated:
            b.k.mul(h + <size_t>t * b.ld_i + c0, up + <size_t>t * b.ld_i + c0, n8)


cdef void _task_down(void *ctx, int32_t chunk, int32_t worker) noexcept nogil:
    """One strip of y = h W2 for one expert's tokens."""
    cdef block *b = <block *>ctx
    cdef int32_t gi = b.g.order[chunk // b.strips], p0 = b.g.start[gi], nt = b.g.start[gi + 1] - p0, c0, c1
    cdef const float *w2 = b.weights + <size_t>b.g.expert[gi] * b.expert_floats + (b.expert_floats - b.matrix_floats)
    cdef const float *h = b.h + <size_t>p0 * b.ld_i
    cdef float *y = b.y + <size_t>p0 * b.ld_h
    _strip(b, b.hidden, chunk % b.strips, &c0, &c1)
    if c0 == c1:
        return
    if nt < b.o.blas_from:
        _product(b, w2, b.hidden, b.inter, c0, c1, h, b.ld_i, NULL, nt, y, b.ld_h)
    else:
        cl_blas_sgemm(nt, c1 - c0, b.inter, h, <int32_t>b.ld_i, w2 + c0, b.hidden, y + c0, <int32_t>b.ld_h)


cdef void _task_scores(void *ctx, int32_t chunk, int32_t worker) noexcept nogil:
    """Scores of up to eight tokens."""
    cdef block *b = <block *>ctx
    cdef int32_t t = 8 * chunk, n = b.batch - t
    _product(b, b.router, b.experts, b.hidden, 0, b.experts, b.x + <size_t>t * b.hidden, b.hidden, NULL, n if n < 8 else 8,
             b.scores + <size_t>t * b.ld_e, b.ld_e)


cdef void _task_combine(void *ctx, int32_t t, int32_t worker) noexcept nogil:
    """out_t = sum in rank order of w_r y_r."""
    cdef block *b = <block *>ctx
    cdef int32_t r, i, n8 = b.hidden // 8 * 8
    cdef float *out = b.out + <size_t>t * b.hidden
    cdef const float *y
    cdef float w
    memset(out, 0, <size_t>b.hidden * sizeof(float))
    for r in range(b.top_k):
        w = b.shares[t * b.top_k + r]
        y = b.y + <size_t>b.g.where[t * b.top_k + r] * b.ld_h
        b.k.axpy(out, w, y, n8)
        for i in range(n8, b.hidden):
            out[i] = cl_fma(w, y[i], out[i])


cdef inline void _run(block *b, void (*fn)(void *, int32_t, int32_t) noexcept nogil, int32_t n, bint small) noexcept nogil:
    """All n chunks: alone when the work is small."""
    cdef int32_t c
    if small:
        for c in range(n):
            fn(b, c, 0)
    else:
        cl_pool_run(b.pool, fn, b, n)


cdef int32_t _first_bad(const float *x, int32_t n) noexcept nogil:
    """Index of the first NaN or infinity, or -1."""
    cdef int32_t i, bad = 0
    for i in range(n):
        bad |= not (x[i] - x[i] == 0.0)
    if bad:
        for i in range(n):
            if not (x[i] - x[i] == 0.0):
                return i
    return -1


cdef int32_t _routing_failed(const block *b) noexcept nogil:
    cdef int32_t t, i
    for t in range(b.batch):
        i = _first_bad(b.x + <size_t>t * b.hidden, b.hidden)
        if i >= 0:
            return cl_fail(BLOCK_ROUTING, "routing: input token %d holds a NaN or an infinity at %d, so that its scores are no numbers",
                           <int>t, <int>i)
    return cl_fail(BLOCK_ROUTING, "routing: a score is NaN or infinite though the input is finite: the router's weights are damaged, or the "
                   "scores overflow")


cdef int32_t _check_out(const block *b) noexcept nogil:
    """-3 naming the expert whose output is not finite."""
    cdef int32_t t, r, i
    for t in range(b.batch):
        i = _first_bad(b.out + <size_t>t * b.hidden, b.hidden)
        if i < 0:
            continue
        for r in range(b.top_k):
            if _first_bad(b.y + <size_t>b.g.where[t * b.top_k + r] * b.ld_h, b.hidden) >= 0:
                return cl_fail(BLOCK_EXPERT, "expert %d: its output for token %d is not finite: its weights are damaged, or the token "
                               "overflows float32", <int>b.ids[t * b.top_k + r], <int>t)
        return cl_fail(BLOCK_EXPERT, "the sum of the experts for token %d overflows float32 at %d", <int>t, <int>i)
    return BLOCK_OK


cdef void _group(block *b) noexcept nogil:
    cdef int32_t p, n = b.batch * b.top_k, gi, p0, nt, i
    for p in range(n):
        b.uses[b.ids[p]] += 1
    if b.o.no_groups:
        for p in range(n):
            b.g.expert[p] = b.ids[p]
            b.g.start[p] = b.g.pair[p] = b.g.where[p] = b.g.order[p] = p
            b.g.token[p] = p // b.top_k
        b.g.start[n] = n
        b.g.n = n
        return
    group_by_expert(b.ids, b.batch, b.top_k, b.experts, &b.g)
    order_by_load(&b.g)
    if b.batch < b.o.blas_from:
        return
    for gi in range(b.g.n):
        p0 = b.g.start[gi]
        nt = b.g.start[gi + 1] - p0
        if nt >= b.o.blas_from and not _in_place(b, p0, nt):
            for i in range(p0, p0 + nt):
                memcpy(b.rows + <size_t>i * b.hidden, b.x + <size_t>b.g.token[i] * b.hidden, <size_t>b.hidden * sizeof(float))


cdef void _rank(block *b) noexcept nogil:
    """Deals the experts out to the workers, the most used first; counts are small in number, so a plain selection will do."""
    cdef int32_t r, e, best
    for e in range(b.experts):
        b.rank[e] = -1
    for r in range(b.experts):
        best = -1
        for e in range(b.experts):
            if b.rank[e] < 0 and (best < 0 or b.uses[e] > b.uses[best]):
                best = e
        b.rank[best] = r % b.threads


cdef void _experts(block *b, bint small) noexcept nogil:
    cdef int32_t n = b.g.n * b.strips, c
    if b.bound and not small:
        for c in range(n):
            b.owner[c] = b.rank[b.g.expert[b.g.order[c // b.strips]]]
        cl_pool_run_owned(b.pool, _task_up, b, n, b.owner, b.claims)
        cl_pool_run_owned(b.pool, _task_down, b, n, b.owner, b.claims)
        return
    _run(b, _task_up, n, small)
    _run(b, _task_down, n, small)


cdef int32_t _forward(block *b) noexcept nogil:
    cdef int64_t t0 = cl_now_ns(), t1
    cdef size_t work = <size_t>b.batch * b.top_k * b.matrix_floats
    cdef bint small = b.threads == 1 or work < SMALL, blas = False
    cdef int32_t gi
    _run(b, _task_scores, (b.batch + 7) // 8, b.threads == 1 or b.batch <= 8 or <size_t>b.batch * b.hidden * b.experts < 8 * SMALL)
    if route(b.scores, <int32_t>b.ld_e, b.batch, b.experts, b.top_k, b.renormalise, b.ids, b.shares):
        return _routing_failed(b)
    t1 = cl_now_ns()
    b.ns[T_ROUTE] += t1 - t0
    _group(b)
    b.strips = 1 if small or b.bound else b.threads
    if b.o.pin and b.forwards % RANK_EVERY == 0:
        _rank(b)
    for gi in range(b.g.n):
        blas |= b.g.start[gi + 1] - b.g.start[gi] >= b.o.blas_from
    t0 = cl_now_ns()
    b.ns[T_DISPATCH] += t0 - t1
    if blas:
        cl_blas_hold()
    _experts(b, small)
    if blas:
        cl_blas_release()
    t1 = cl_now_ns()
    b.ns[T_EXPERTS] += t1 - t0
    _run(b, _task_combine, b.batch, b.threads == 1 or b.batch <= 8)
    b.ns[T_COMBINE] += cl_now_ns() - t1
    b.forwards += 1
    return _check_out(b)


cdef int32_t block_forward(block *b, const float *x, float *out, int32_t batch) noexcept nogil:
    """x [batch][hidden] -> out [batch][hidden]; they may not overlap. batch 0 is the dry run: checks the block, computes nothing."""
    cdef cl_cpu_mask mask
    cdef int32_t rc
    if b == NULL:
        return cl_fail(BLOCK_MEMORY, "no model: the pointer is NULL; did colibri_init_model fail?")
    if batch == 0:
        if b.file.data == NULL or b.a.base == NULL or b.pool == NULL or b.k == NULL:
            return cl_fail(BLOCK_MEMORY, "dry run: the model is not whole")
        cl_clear_error()
        return BLOCK_OK
    if batch < 0 or batch > b.o.max_batch:
        return cl_fail(BLOCK_MEMORY, "batch %d; this model was opened for 0 to %d", <int>batch, <int>b.o.max_batch)
    if x == NULL or out == NULL:
        return cl_fail(BLOCK_MEMORY, "batch %d with a NULL %s", <int>batch, b"input" if x == NULL else b"output")
    b.x = x
    b.out = out
    b.batch = batch
    if b.bound:
        cl_bind_thread(b.caller_cpu, &mask)
    rc = _forward(b)
    if b.bound:
        cl_unbind_thread(&mask)
    if b.watched and cl_guard_lost(b.file.data):
        return cl_fail(BLOCK_MEMORY, "the file was cut while it was in use: pages of it are gone; copy it again and open it anew")
    return rc


# ---- Python ----

import colibri_edge.core.blas  # no-cython-lint (imported for its effect: it says where the BLAS lies)


class BlockError(RuntimeError):
    """A forward that could not be done. code: -1 memory, file or batch; -2 routing; -3 an expert."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


def _find_default_threads() -> int:
    import os

    from colibri_edge.limits import cpu_quota_millicores

    named = os.environ.get("COLIBRI_EDGE_THREADS", "")
    if named:
        if not (named.isdecimal() and 1 <= int(named) <= 256):
            raise ImportError(f"COLIBRI_EDGE_THREADS={named!r}, wanted 1 to 256")
        return int(named)
    return cl_default_threads(cpu_quota_millicores() or 0)


cdef class MoEBlock:
    """A version-1 `.colibri` file, open.

    path: the file. max_batch: most tokens of one forward (default: 64, or what this build allows). threads: default what pays here.
    pin: "auto" binds the workers to cores of the inherited mask and keeps each often used expert on one; where the system
    cannot bind threads, `pinned` says False. load: "map" (instant, memory shared between processes) or "read" (own memory).
    """
    cdef block *b
    cdef readonly str path

    def __cinit__(self, path, *, max_batch=None, threads=None, pin=None, str load="map", bint _grouped=True, int _skew=0, int _blas_from=0):
        import os

        cdef block_options o
        cdef bytes name = os.fsencode(path)
        memset(&o, 0, sizeof(o))
        if pin not in (None, "auto"):
            raise ValueError(f"pin={pin!r}, wanted None or 'auto'")
        if load not in ("map", "read"):
            raise ValueError(f"load={load!r}, wanted 'map' or 'read'")
        if threads is not None and not 1 <= threads <= 256:
            raise ValueError(f"threads={threads}, wanted 1 to 256")
        if max_batch is not None and not 1 <= max_batch <= CL_MAX_BATCH:
            raise ValueError(f"max_batch {max_batch}; this build takes 1 to {CL_MAX_BATCH} (build with -Dmax_batch={max_batch})")
        o.max_batch = min(64, <int>CL_MAX_BATCH) if max_batch is None else max_batch
        o.threads = threads or 0
        o.pin = pin == "auto"
        o.read = load == "read"
        o.no_groups = not _grouped
        o.skew = _skew
        o.blas_from = _blas_from
        self.path = os.fsdecode(path)
        cdef const char *p = name
        cdef block *b
        with nogil:
            b = block_open(p, &o)
        if b == NULL:
            raise _error(BLOCK_MEMORY, self.path)
        self.b = b

    def __dealloc__(self):
        block_close(self.b)

    def forward(self, x, out=None):
        """x (T, hidden) -> (T, hidden), float32; T is 0 to max_batch. out: where to write, float32, C-contiguous.

        Raises ValueError for wrong shapes or too many tokens, BlockError with code -2 (NaN scores) or -3 (an expert's output
        is not finite).
        """
        import numpy as np

        cdef const float[:, ::1] xv
        cdef float[:, ::1] ov
        cdef int32_t rc, n
        x = np.ascontiguousarray(x, dtype=np.float32)
        if x.ndim != 2 or x.shape[1] != self.b.hidden:
            raise ValueError(f"x has shape {x.shape}, wanted (tokens, {self.b.hidden})")
        if x.shape[0] > self.b.o.max_batch:
            raise ValueError(f"batch {x.shape[0]}; this model was opened for 0 to {self.b.o.max_batch}")
        if out is None:
            out = np.empty_like(x)
        elif out.shape != x.shape or np.shares_memory(out, x):
            raise ValueError(f"out has shape {out.shape}, wanted {x.shape} in memory of its own")
        if x.shape[0] == 0:
            return out
        xv = x
        ov = out
        n = <int32_t>x.shape[0]
        with nogil:
            rc = block_forward(self.b, &xv[0, 0], &ov[0, 0], n)
        if rc:
            raise BlockError(rc, cl_last_error().decode("utf-8", "replace"))
        return out

    @property
    def hidden_size(self) -> int:
        return self.b.hidden

    @property
    def intermediate_size(self) -> int:
        return self.b.inter

    @property
    def num_experts(self) -> int:
        return self.b.experts

    @property
    def top_k(self) -> int:
        return self.b.top_k

    @property
    def gated(self) -> bool:
        return bool(self.b.gated)

    @property
    def activation(self) -> str:
        """"relu", "gelu_tanh" or "silu"."""
        return {CL_ACT_RELU: "relu", CL_ACT_GELU_TANH: "gelu_tanh", CL_ACT_SILU: "silu"}[self.b.act]

    @property
    def renormalise(self) -> bool:
        return bool(self.b.renormalise)

    @property
    def max_batch(self) -> int:
        return self.b.o.max_batch

    @property
    def threads(self) -> int:
        return self.b.threads

    @property
    def pinned(self) -> bool:
        """Whether threads are bound: pin="auto" was asked for and the system can."""
        return bool(self.b.bound)

    @property
    def expert_uses(self) -> list:
        """How often each expert was chosen since the block was opened."""
        return [self.b.uses[e] for e in range(self.b.experts)]

    def last_routing(self):
        """(ids, weights) of the last forward: int32 and float32 (T, top_k), in rank order."""
        import numpy as np

        cdef int32_t n = self.b.batch * self.b.top_k, i
        ids = np.array([self.b.ids[i] for i in range(n)], np.int32).reshape(-1, self.b.top_k)
        return ids, np.array([self.b.shares[i] for i in range(n)], np.float32).reshape(-1, self.b.top_k)

    def timing(self) -> dict:
        """Seconds spent in routing, dispatch, experts and combine, and the number of forwards."""
        names = ("routing", "dispatch", "experts", "combine")
        return {**{name: self.b.ns[i] * 1e-9 for i, name in enumerate(names)}, "forwards": self.b.forwards}

    def pool(self) -> list:
        """[(slot, offset, bytes)] of the one block of memory that a forward works in."""
        return [(self.b.a.name[i].decode(), self.b.a.offset[i], self.b.a.bytes[i]) for i in range(self.b.a.n)]

    def info(self) -> dict:
        """What the file says and what it takes in memory."""
        return {
            "path": self.path, "version": 1, "hidden_size": self.hidden_size, "intermediate_size": self.intermediate_size,
            "num_experts": self.num_experts, "top_k": self.top_k, "gated": self.gated, "activation": self.activation,
            "renormalise": self.renormalise, "file_bytes": self.b.file.size, "max_batch": self.max_batch, "threads": self.threads,
            "pinned": self.pinned, "pool_bytes": self.b.a.total, "pool": self.pool(),
        }


def _error(code: int, path: str) -> Exception:
    import os

    text = cl_last_error().decode("utf-8", "replace")
    if not os.path.exists(path):
        return FileNotFoundError(text)
    return BlockError(code, text)


default_threads = _find_default_threads()
