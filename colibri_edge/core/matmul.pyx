# cython: language_level=3
"""Products of one set of activations with several matrices in one parallel pass over row blocks.

Owns: how rows are cut into chunks for threads. Refuses: cutting K (exactness), copying activations.
"""
from libc.stdint cimport int32_t, uint8_t
from colibri_edge._native cimport cl_act8, cl_mm_args, cl_pool_run_guided
from colibri_edge.core.runtime cimport activations, imax, imin, matrix, runtime

cdef enum:
    CHUNK_BYTES = 131072     # of weights: small enough to balance unequal cores, large against what a new stretch of memory costs
    FEW_BYTES = 65536        # for a few tokens, which take long runs of chunks first

ctypedef struct pass_t:
    runtime *rt
    const activations *a
    const mm_job *jobs
    int32_t njobs
    int32_t nt
    int32_t first[MAX_JOBS + 1]   # first chunk of each job
    int32_t step[MAX_JOBS]        # row groups of a chunk


cdef void mm_rows(runtime *rt, const matrix *m, const activations *a, const int32_t *rows, int32_t nt, int32_t g0, int32_t ng,
                  float *y, size_t ldy, const uint8_t *next) noexcept nogil:
    """Row groups g0 .. g0+ng-1 of W for nt tokens (token t reads activation row rows[t]) into y [nt][ldy]. next: see cl_mm_args."""
    cdef cl_mm_args s
    s.w = m.w + <size_t>g0 * m.group_stride
    s.group_stride = m.group_stride
    s.ngroups = ng
    s.nblk = m.nblk
    if m.int8_act:
        s.x = <const uint8_t *>a.q
        s.x_stride = a.ldx / 32 * sizeof(cl_act8)
    else:
        s.x = <const uint8_t *>a.x
        s.x_stride = a.ldx * sizeof(float)
    s.rows = rows
    s.nt = nt
    s.y = y
    s.ldy = ldy
    s.next = next
    rt.k.mm[m.fmt](&s)


cdef const uint8_t *row_groups(const matrix *m, int32_t g) noexcept nogil:
    """The weights from row group g on; NULL behind the last."""
    return m.w + <size_t>g * m.group_stride if g < m.ngroups else NULL


cdef int32_t chunk_groups(const runtime *rt, const matrix *m, int32_t nt) noexcept nogil:
    """Row groups of one chunk: about CHUNK_BYTES of weights, or FEW_BYTES, and at least four chunks a thread where there are enough rows. An
    even number, for products of many tokens take groups by twos."""
    cdef size_t n_bytes = FEW_BYTES if nt <= FEW_TOKENS else CHUNK_BYTES
    cdef int32_t by_bytes = <int32_t>(n_bytes / m.group_stride) if m.group_stride < n_bytes else 1
    cdef int32_t by_threads = (m.ngroups + 4 * rt.threads - 1) / (4 * rt.threads)
    cdef int32_t n = imax(1, imin(by_bytes, by_threads))
    return n + n % 2


cdef void job_rows(pass_t *p, const mm_job *job, int32_t g0, int32_t ng, const uint8_t *next, int32_t worker) noexcept nogil:
    """Row groups g0 .. g0+ng-1 of one product."""
    cdef int32_t n = 8 * ng, t
    cdef float *y = job.y + 8 * g0
    cdef float *tmp
    if not job.add:
        mm_rows(p.rt, job.m, p.a, NULL, p.nt, g0, ng, y, job.ldy, next)
        if job.bias != NULL:
            for t in range(p.nt):
                p.rt.k.add(y + <size_t>t * job.ldy, job.bias + 8 * g0, n)
        return
    tmp = <float *>p.rt.scratch[worker]
    cdef int32_t room = <int32_t>(p.rt.scratch_bytes / sizeof(float)) / n, t0 = 0, m
    cdef activations part = p.a[0]
    while t0 < p.nt:
        m = imin(room, p.nt - t0)
        part.x = p.a.x + <size_t>t0 * p.a.ldx
        part.q = p.a.q + <size_t>t0 * (p.a.ldx / 32)
        mm_rows(p.rt, job.m, &part, NULL, m, g0, ng, tmp, n, next)
        for t in range(m):
            if job.bias != NULL:
                p.rt.k.add(tmp + <size_t>t * n, job.bias + 8 * g0, n)
            p.rt.k.add(y + <size_t>(t0 + t) * job.ldy, tmp + <size_t>t * n, n)
        t0 += m


cdef void run_chunks(void *ctx, int32_t first, int32_t last, int32_t worker) noexcept nogil:
    """Neighbouring chunks of one product are computed as one stretch of rows, as far as scratch holds their outputs."""
    cdef pass_t *p = <pass_t *>ctx
    cdef const mm_job *job
    cdef const uint8_t *next
    cdef int32_t j = 0, n, g0, ng
    while first < last:
        while first >= p.first[j + 1]:
            j += 1
        job = &p.jobs[j]
        n = imin(last, p.first[j + 1]) - first
        n = imax(1, imin(n, <int32_t>(p.rt.scratch_bytes / (32 * <size_t>p.nt)) / p.step[j]))
        g0 = (first - p.first[j]) * p.step[j]
        ng = imin(n * p.step[j], job.m.ngroups - g0)
        first += n
        next = row_groups(job.m, g0 + ng * p.rt.threads)
        if first < last:
            next = row_groups(job.m, g0 + ng)
            if next == NULL and j + 1 < p.njobs:
                next = p.jobs[j + 1].m.w
        job_rows(p, job, g0, ng, next, worker)


cdef void matmul(runtime *rt, const activations *a, int32_t nt, const mm_job *jobs, int32_t njobs) noexcept nogil:
    """Runs up to MAX_JOBS products of the same activations; one barrier."""
    cdef pass_t p
    cdef int32_t j, total = 0
    p.rt = rt
    p.a = a
    p.jobs = jobs
    p.njobs = njobs
    p.nt = nt
    for j in range(njobs):
        p.first[j] = total
        p.step[j] = chunk_groups(rt, jobs[j].m, nt)
        total += (jobs[j].m.ngroups + p.step[j] - 1) / p.step[j]
    p.first[njobs] = total
    cl_pool_run_guided(rt.pool, run_chunks, &p, total, total if nt <= FEW_TOKENS else 1)
