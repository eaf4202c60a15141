# cython: language_level=3
"""Feed-forward of one layer: router, experts grouped over the tokens of the chunk, shared expert, weighted sum.

Owns: the three parallel passes (scores; gate and up with the activation; down with the sum over experts).
Refuses: a [tokens, k, hidden] buffer, and any order of the sum other than rank order (docs/numerics.md).
A dense FFN is a shared expert without a gate and without routed ones.
"""
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy, memset

from colibri_edge._native cimport cl_expf, cl_pool_run_guided
from colibri_edge.core.dispatch cimport group_by_expert
from colibri_edge.core.matmul cimport FEW_TOKENS, matmul, mm_job, mm_rows, row_groups
from colibri_edge.core.router cimport route
from colibri_edge.core.runtime cimport ST_DISK, ST_DISPATCH, ST_EXPERTS, ST_ROUTER, activations, enter, imax, imin, matrix, pad, runtime

cdef enum:
    CHUNK_BYTES = 65536     # of weights in one chunk; a few tokens take long runs of them first
    DOWN_BYTES = 1048576    # of a down chunk, over all experts: each gives a stretch that memory streams well
    FEW_BYTES = 131072      # the same for a few tokens
    TILE_BYTES = 524288     # of outputs that wait for the sum over experts

ctypedef struct pass_t:
    runtime *rt
    const ffn_layer *l
    ffn_buffers *b
    int32_t nt
    int32_t nunits          # the shared expert, then expert groups, those in memory first: computing goes on while reads run
    int32_t routed0         # first unit of the routed ones: 1 with a shared expert
    int32_t step            # row groups of a down chunk
    int32_t pairs           # rows of routed outputs = nt * top_k
    int32_t failed          # a record could not be had


cdef size_t ffn_scratch(int32_t max_tokens, int32_t top_k) noexcept nogil:
    """Bytes of scratch that a thread needs: outputs of one row group for every (token, rank) and the sum, doubled for gate and up."""
    return <size_t>imax(TILE_BYTES, (max_tokens * (top_k + 2) + 8) * 2 * 32) + 65536


cdef void bind_expert(const expert_stack *s, const matrix *part, size_t at, int32_t e, matrix *out) noexcept nogil:
    """The matrix `part` of expert e."""
    out[0] = part[0]
    out.w = s.record[e] + at


cdef int32_t columns_of_chunk(const expert_stack *s) noexcept nogil:
    """Intermediate columns of one chunk of the up pass: a multiple of 32, so that a chunk quantises its own blocks."""
    cdef size_t two = s.gate.group_stride * 2
    return imax(32, <int32_t>(CHUNK_BYTES / imax(<int32_t>two, 1)) * 8 / 32 * 32)


cdef int32_t chunks_of(const expert_stack *s) noexcept nogil:
    cdef int32_t c = columns_of_chunk(s)
    return (s.intermediate + c - 1) / c


cdef inline const float *bias_of(const expert_stack *s, size_t at, int32_t e) noexcept nogil:
    return <const float *>(s.record[e] + at) if at else NULL


cdef void add_bias(float *y, int32_t stride, const float *bias, int32_t n) noexcept nogil:
    """y [n / 8 groups of 8, stride apart] += bias [n]; the padding stays as it is."""
    cdef int32_t i
    if bias != NULL:
        for i in range(n):
            y[i / 8 * stride + i % 8] += bias[i]


cdef void activate(const pass_t *p, const expert_stack *s, const float *gu, const float *up, int32_t ng, float *h) noexcept nogil:
    """One token: gu interleaved [ng][16], or gate gu [8*ng] and up [8*ng] apart (up may be NULL) -> h [8*ng]."""
    cdef int32_t g, i
    cdef float pair[16]
    if s.interleaved:
        glu(p, s, gu, h, ng)
        return
    if not s.gated:
        p.rt.k.act(s.activation, gu, h, 8 * ng)
        return
    for g in range(ng):
        for i in range(8):
            pair[i] = gu[8 * g + i]
            pair[8 + i] = up[8 * g + i]
        glu(p, s, pair, h + 8 * g, 1)


cdef inline void glu(const pass_t *p, const expert_stack *s, const float *gu, float *h, int32_t ng) noexcept nogil:
    if s.clamped:
        p.rt.k.glu_clamped(gu, h, ng, s.alpha, s.limit)
    else:
        p.rt.k.glu(s.activation, gu, h, ng)


cdef void up_chunks(void *ctx, int32_t first, int32_t last, int32_t worker) noexcept nogil:
    """Neighbouring chunks of one unit are computed as one block of columns, as far as scratch holds their outputs."""
    cdef pass_t *p = <pass_t *>ctx
    cdef ffn_buffers *b = p.b
    cdef int32_t lo = 0, hi = p.nunits, mid, n, tokens, g, cols
    cdef const expert_stack *s
    while hi - lo > 1:
        mid = (lo + hi) / 2
        if first >= b.first[mid]:
            lo = mid
        else:
            hi = mid
    while first < last and not p.failed:
        while first >= b.first[lo + 1]:
            lo += 1
        s = &p.l.routed if lo >= p.routed0 else &p.l.shared
        tokens = p.nt
        if lo >= p.routed0:
            g = b.groups.order[lo - p.routed0]
            tokens = b.groups.start[g + 1] - b.groups.start[g]
        cols = columns_of_chunk(s)
        n = imin(last, b.first[lo + 1]) - first
        n = imax(1, imin(n, <int32_t>(p.rt.scratch_bytes / (8 * <size_t>tokens)) / cols))
        up_columns(p, lo, (first - b.first[lo]) * cols, n * cols, worker)
        first += n


cdef void up_columns(pass_t *p, int32_t unit, int32_t c0, int32_t cols, int32_t worker) noexcept nogil:
    """Intermediate columns c0 .. c0+cols-1 of one unit for all its tokens."""
    cdef ffn_buffers *b = p.b
    cdef bint routed = unit >= p.routed0
    cdef const expert_stack *s = &p.l.routed if routed else &p.l.shared
    cdef int32_t g = b.groups.order[unit - p.routed0] if routed else 0
    cdef int32_t start = b.groups.start[g] if routed else 0, n = b.groups.start[g + 1] - start if routed else p.nt
    cdef const int32_t *rows = b.groups.token + start if routed else NULL
    cdef const int32_t *pair = b.groups.pair + start if routed else NULL
    cdef int32_t e = b.groups.expert[g] if routed else 0
    cdef int32_t width = imin(cols, s.intermediate - c0), ng = (width + 7) / 8, end = width
    cdef bint last = c0 + cols >= s.intermediate
    if last:
        end = pad(s.intermediate) - c0
    cdef int32_t row = (16 if s.gated else 8) * ng
    cdef int32_t room = imax(1, <int32_t>(p.rt.scratch_bytes / sizeof(float)) / row), t0 = 0, m, t
    cdef float *tmp = <float *>p.rt.scratch[worker]
    cdef float *up
    cdef float *h
    cdef size_t at
    cdef matrix w, w2
    cdef const uint8_t *next
    cdef const float *gate_bias
    cdef const float *up_bias
    cdef activations part = b.routed if routed else b.input
    if routed and p.rt.wait(p.rt.store, s.slot, e):
        p.failed = 1
        return
    bind_expert(s, &s.gate, s.gate_at, e, &w)
    if s.gated and not s.interleaved:
        bind_expert(s, &s.up, s.up_at, e, &w2)
    next = row_groups(&w, (c0 + cols * p.rt.threads) / (4 if s.interleaved else 8))
    gate_bias = bias_of(s, s.gate_bias_at, e)
    up_bias = bias_of(s, s.up_bias_at, e)
    if gate_bias != NULL:
        gate_bias += c0
    if up_bias != NULL:
        up_bias += c0
    while t0 < n:
        m = imin(room, n - t0)
        if not routed:
            part.x = b.input.x + <size_t>t0 * b.input.ldx
            part.q = b.input.q + <size_t>t0 * (b.input.ldx / 32)
        up = tmp + <size_t>m * 8 * ng
        if s.interleaved:
            mm_rows(p.rt, &w, &part, rows + t0 if routed else NULL, m, c0 / 4, 2 * ng, tmp, row, next)
        else:
            mm_rows(p.rt, &w, &part, rows + t0 if routed else NULL, m, c0 / 8, ng, tmp, 8 * ng,
                    row_groups(&w2, c0 / 8) if s.gated else next)
            if s.gated:
                mm_rows(p.rt, &w2, &part, rows + t0 if routed else NULL, m, c0 / 8, ng, up, 8 * ng, next)
        for t in range(m):
            at = <size_t>(pair[t0 + t] if routed else p.pairs + t0 + t)
            h = b.hidden.x + at * b.hidden.ldx + c0
            if s.interleaved:
                add_bias(tmp + <size_t>t * row, 16, gate_bias, width)
                add_bias(tmp + <size_t>t * row + 8, 16, up_bias, width)
                activate(p, s, tmp + <size_t>t * row, NULL, ng, h)
            else:
                add_bias(tmp + <size_t>t * 8 * ng, 8, gate_bias, width)
                add_bias(up + <size_t>t * 8 * ng, 8, up_bias, width)
                activate(p, s, tmp + <size_t>t * 8 * ng, up + <size_t>t * 8 * ng, ng, h)
            if end > 8 * ng:
                memset(h + 8 * ng, 0, (end - 8 * ng) * sizeof(float))
            if s.down.int8_act:
                p.rt.k.quantize(h, b.hidden.q + at * (b.hidden.ldx / 32) + c0 / 32, end)
        t0 += m


cdef void down_chunks(void *ctx, int32_t first, int32_t last, int32_t worker) noexcept nogil:
    """A block of output rows: every expert's product for its tokens, then each token's sum in rank order, added to the residual or
    put into y."""
    cdef pass_t *p = <pass_t *>ctx
    cdef ffn_buffers *b = p.b
    cdef const ffn_layer *l = p.l
    cdef const expert_stack *s = &l.routed if l.moe else &l.shared
    cdef int32_t g0 = first * p.step, ng = imin((last - first) * p.step, s.down.ngroups - g0), n = 8 * ng
    cdef int32_t width = imin(n, s.down.rows - 8 * g0), i, t, r
    cdef float *acc = <float *>p.rt.scratch[worker]
    cdef float *out = acc + n
    cdef float *x
    cdef const float *bias
    cdef const uint8_t *next
    cdef size_t at
    cdef float gate
    cdef matrix w, after
    cdef activations part = b.hidden
    if l.moe:
        bind_expert(s, &s.down, s.down_at, b.groups.expert[0], &after)
        for i in range(b.groups.n):
            w = after
            next = NULL
            if i + 1 < b.groups.n:
                bind_expert(s, &s.down, s.down_at, b.groups.expert[i + 1], &after)
                next = row_groups(&after, g0)
            # outputs stand in group order: row j of group i is pair[start + j]
            mm_rows(p.rt, &w, &part, b.groups.pair + b.groups.start[i], b.groups.start[i + 1] - b.groups.start[i], g0, ng,
                    out + <size_t>b.groups.start[i] * n, n, next)
            bias = bias_of(s, s.down_bias_at, b.groups.expert[i])
            if bias != NULL:
                for t in range(b.groups.start[i], b.groups.start[i + 1]):
                    add_bias(out + <size_t>t * n, 8, bias + 8 * g0, width)
    if l.has_shared:
        bind_expert(&l.shared, &l.shared.down, l.shared.down_at, 0, &w)
        part.x = b.hidden.x + <size_t>p.pairs * b.hidden.ldx
        part.q = b.hidden.q + <size_t>p.pairs * (b.hidden.ldx / 32)
        mm_rows(p.rt, &w, &part, NULL, p.nt, g0, ng, out + <size_t>p.pairs * n, n, NULL)
        bias = bias_of(&l.shared, l.shared.down_bias_at, 0)
        if bias != NULL:
            for t in range(p.nt):
                add_bias(out + <size_t>(p.pairs + t) * n, 8, bias + 8 * g0, width)
    for t in range(p.nt):
        memset(acc, 0, n * sizeof(float))
        at = <size_t>t * b.ldx + 8 * g0
        if l.moe:
            for r in range(l.top_k):
                p.rt.k.axpy(acc, b.weights[t * l.top_k + r], out + <size_t>b.groups.where[t * l.top_k + r] * n, n)
        if l.has_shared:
            gate = 1.0
            if l.has_shared_gate:
                gate = 1.0 / (1.0 + cl_expf(-b.gate[8 * t]))
            x = acc
            if l.branches:
                x = b.y_shared + at
                memset(x, 0, n * sizeof(float))
            p.rt.k.axpy(x, gate, out + <size_t>(p.pairs + t) * n, n)
        if apart(l):
            memcpy(b.y + at, acc, n * sizeof(float))
        else:
            p.rt.k.add(b.x + at, acc, n)


cdef int32_t down_room(const pass_t *p) noexcept nogil:
    """Row groups of a down chunk whose outputs for all pairs fit TILE_BYTES; at least one."""
    return imax(1, TILE_BYTES / (32 * (p.pairs + (p.nt if p.l.has_shared else 0) + 1)))


cdef int32_t down_step(const pass_t *p, const expert_stack *s) noexcept nogil:
    """Row groups of a down chunk: what down_room gives, weights about DOWN_BYTES or FEW_BYTES, four chunks a thread; an even number, for
    products of many tokens take groups by twos."""
    cdef int32_t by_tile = down_room(p)
    cdef int32_t units = imax(1, p.b.groups.n if p.l.moe else 1)
    cdef int32_t n_bytes = FEW_BYTES if p.nt <= FEW_TOKENS else DOWN_BYTES
    cdef int32_t by_bytes = <int32_t>(n_bytes / (s.down.group_stride * <size_t>imin(units, 16)))
    cdef int32_t by_threads = s.down.ngroups / (4 * p.rt.threads)
    cdef int32_t n = imax(1, imin(imin(by_tile, by_threads), by_bytes))
    return n - n % 2 if n > 1 else 1


cdef void record(runtime *rt, const ffn_layer *l, const int32_t *ids, int32_t nt) noexcept nogil:
    """Appends the routing of nt tokens to the trace; what no longer fits is left out."""
    cdef int32_t t
    for t in range(nt):
        if rt.trace_len + 1 + l.top_k > rt.trace_room:
            return
        rt.trace[rt.trace_len] = l.routed.slot
        memcpy(rt.trace + rt.trace_len + 1, ids + t * l.top_k, l.top_k * sizeof(int32_t))
        rt.trace_len += 1 + l.top_k


cdef int32_t tokens_that_fit(const runtime *rt, const ffn_layer *l, const ffn_buffers *b, int32_t t0, int32_t nt) noexcept nogil:
    """How many tokens from t0 on ask for no more distinct experts than fit in memory at once; at least one."""
    cdef int32_t t, r, distinct = 0, e
    if l.experts <= rt.max_union:
        return nt - t0
    memset(b.mark, 0, l.experts * sizeof(int32_t))
    for t in range(t0, nt):
        for r in range(l.top_k):
            e = b.ids[t * l.top_k + r]
            distinct += not b.mark[e]
            b.mark[e] = 1
        if distinct > rt.max_union:
            return imax(1, t - t0)
    return nt - t0


cdef void add_moments(runtime *rt, const ffn_layer *l, const ffn_buffers *b, int32_t nt) noexcept nogil:
    """Adds the squares of the experts' inputs (one sum for all of them) and of each expert's activated rows."""
    cdef float *sums = rt.moments[l.routed.slot]
    cdef int32_t hidden = l.router.cols, inter = l.routed.intermediate, i, j, c
    cdef const float *x
    for i in range(nt):
        x = b.routed.x + <size_t>i * b.routed.ldx
        for c in range(hidden):
            sums[c] += x[c] * x[c]
    for i in range(b.groups.n):
        sums = rt.moments[l.routed.slot] + hidden + <size_t>b.groups.expert[i] * inter
        for j in range(b.groups.start[i], b.groups.start[i + 1]):
            x = b.hidden.x + <size_t>b.groups.pair[j] * b.hidden.ldx
            for c in range(inter):
                sums[c] += x[c] * x[c]


cdef void guess_next(runtime *rt, const ffn_layer *next, ffn_buffers *b) noexcept nogil:
    """Which experts the next sparse layer will probably choose for one token: its norm and its router on the residual stream before this
    layer's FFN is added (Eliseev and Mazur 2023, arXiv:2312.17238, section 3.2). What is right is in memory, or on its way, by then."""
    cdef mm_job job
    rt.k.rmsnorm(b.x, next.router_norm if next.branches else next.norm, b.ahead.x, b.hidden_size, next.norm_eps)
    memset(&job, 0, sizeof(job))
    job.m = &next.router
    job.bias = next.router_bias
    job.y = b.ahead_scores
    job.ldy = b.ld_scores
    matmul(rt, &b.ahead, 1, &job, 1)
    if route(b.ahead_scores, <int32_t>b.ld_scores, 1, next.experts, next.top_k, False, b.ahead_ids, b.ahead_weights) == 0:
        rt.guess(rt.store, next.routed.slot, b.ahead_ids, next.top_k)


cdef int32_t run_experts(runtime *rt, const ffn_layer *l, const ffn_layer *next, ffn_buffers *b, int32_t nt) noexcept nogil:
    """The up and down passes of nt tokens whose routing stands in b.ids and b.weights; next: the sparse layer to read ahead for, or
    NULL. 0 or -3."""
    cdef pass_t p
    cdef int32_t total = 0
    memset(&p, 0, sizeof(p))
    p.rt = rt
    p.l = l
    p.b = b
    p.nt = nt
    if l.has_shared:
        b.first[0] = 0
        total = chunks_of(&l.shared)
        p.nunits = p.routed0 = 1
    if l.moe:
        enter(rt, ST_DISPATCH)
        group_by_expert(b.ids, nt, l.top_k, l.experts, &b.groups)
        enter(rt, ST_DISK)
        if rt.acquire(rt.store, l.routed.slot, b.groups.expert, b.groups.start, b.groups.n, b.groups.order):
            return -3
        p.pairs = nt * l.top_k
        for _ in range(b.groups.n):
            b.first[p.nunits] = total
            total += chunks_of(&l.routed)
            p.nunits += 1
    if next != NULL:    # behind the reads that this layer waits for
        enter(rt, ST_ROUTER)
        guess_next(rt, next, b)
    enter(rt, ST_EXPERTS)
    b.first[p.nunits] = total
    cdef bint few = nt <= FEW_TOKENS
    cl_pool_run_guided(rt.pool, up_chunks, &p, total, (chunks_of(&l.routed) if l.moe else total) if few else 1)
    if p.failed:
        return -3
    if rt.moments != NULL and l.moe:
        add_moments(rt, l, b, nt)
    cdef const expert_stack *s = &l.routed if l.moe else &l.shared
    p.step = down_step(&p, s)
    cl_pool_run_guided(rt.pool, down_chunks, &p, (s.down.ngroups + p.step - 1) / p.step, imax(1, down_room(&p) / p.step) if few else 1)
    return 0


cdef int32_t ffn(runtime *rt, const ffn_layer *l, const ffn_layer *next, ffn_buffers *b, int32_t nt) noexcept nogil:
    """x += FFN(input), or y = FFN(input) where apart(l), for nt tokens; b.input, b.routed and b.router hold the normalised states in both
    forms. next: as in run_experts. 0; -2: a NaN in the router; -3: a record cannot be had."""
    cdef mm_job jobs[2]
    cdef ffn_buffers part
    cdef int32_t njobs = 1, t = 0, n, rc, i
    if not l.moe:
        return run_experts(rt, l, next if nt == 1 else NULL, b, nt)
    enter(rt, ST_ROUTER)
    memset(jobs, 0, sizeof(jobs))
    jobs[0].m = &l.router
    jobs[0].bias = l.router_bias
    jobs[0].y = b.scores
    jobs[0].ldy = b.ld_scores
    if l.has_shared_gate:
        jobs[1].m = &l.shared_gate
        jobs[1].y = b.gate
        jobs[1].ldy = 8
        njobs = 2
    matmul(rt, &b.router, nt, jobs, njobs)
    if route(b.scores, <int32_t>b.ld_scores, nt, l.experts, l.top_k, l.renormalise, b.ids, b.weights):
        return -2
    if l.expert_scale != NULL:
        for i in range(nt * l.top_k):
            b.weights[i] = b.weights[i] * l.expert_scale[b.ids[i]]
    if rt.trace != NULL:
        record(rt, l, b.ids, nt)
    while t < nt:  # one round, unless the experts of all tokens do not fit in memory at once
        n = tokens_that_fit(rt, l, b, t, nt)
        part = b[0]
        part.input.x += <size_t>t * b.input.ldx
        part.input.q += <size_t>t * (b.input.ldx / 32)
        part.routed.x += <size_t>t * b.routed.ldx
        part.routed.q += <size_t>t * (b.routed.ldx / 32)
        part.y += <size_t>t * b.ldx
        part.y_shared += <size_t>t * b.ldx
        part.gate += 8 * t
        part.ids += t * l.top_k
        part.weights += t * l.top_k
        part.x += <size_t>t * b.ldx
        rc = run_experts(rt, l, next if nt == 1 else NULL, &part, n)
        if rc:
            return rc
        t += n
    return 0
