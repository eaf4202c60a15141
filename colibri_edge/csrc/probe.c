/* Rates of this machine: memory, integer peak, products of one token, disk. Owns: plain loops and calls of what the engine calls.
   Refuses: to be part of any result. */
#include "colibri/probe.h"
#include "colibri/kernels.h"
#include "colibri/reader.h"

enum { CHUNK = 1 << 20, PEAK_BLOCKS = 16, PEAK_TOKENS = 8, PEAK_CALLS = 2000, MAX_WORKERS = 256 };

typedef struct {
    const uint8_t *data;
    size_t n;
    uint64_t sum[MAX_WORKERS * 8]; /* a cache line a worker */
} read_pass;

static void read_chunk(void *ctx, int32_t chunk, int32_t worker) {
    read_pass *r = (read_pass *)ctx;
    size_t from = (size_t)chunk * CHUNK, to = CL_MIN(from + CHUNK, r->n);
    uint64_t s[8] = {0};
    for (size_t i = from; i + 64 <= to; i += 64) {
        uint64_t v[8];
        memcpy(v, r->data + i, 64);
        for (int32_t j = 0; j < 8; j++) s[j] += v[j];
    }
    for (int32_t j = 0; j < 8; j++) r->sum[8 * worker] += s[j];
}

double cl_probe_read(cl_pool *p, const uint8_t *data, size_t n, int32_t reps) {
    static read_pass r;
    double best = 0.0;
    r.data = data;
    r.n = n;
    for (int32_t i = 0; i < reps; i++) {
        int64_t t = cl_now_ns();
        cl_pool_run(p, read_chunk, &r, (int32_t)((n + CHUNK - 1) / CHUNK));
        best = CL_MAX(best, (double)n * 1e9 / (double)(cl_now_ns() - t));
    }
    return best + (double)(r.sum[0] & 1) * 1e-9; /* the sums are used, so that the loop stays */
}

typedef struct { int32_t groups, tokens; } peak_pass;

static void peak_chunk(void *ctx, int32_t chunk, int32_t worker) {
    const peak_pass *p = (const peak_pass *)ctx;
    uint8_t w[2 * PEAK_BLOCKS * 144];
    cl_act8 x[PEAK_TOKENS * PEAK_BLOCKS];
    float y[PEAK_TOKENS * 16];
    (void)worker;
    memset(w, 0x21, sizeof w);
    memset(x, 0, sizeof x);
    for (int32_t i = 0; i < PEAK_TOKENS * PEAK_BLOCKS; i++) {
        x[i].d = 0.01f;
        memset(x[i].q, chunk + 1, sizeof x[i].q);
    }
    cl_mm_args a = {w, sizeof w / 2, p->groups, PEAK_BLOCKS, (const uint8_t *)x, sizeof(cl_act8) * PEAK_BLOCKS, NULL, p->tokens, y, 16, NULL};
    void (*mm)(const cl_mm_args *) = cl_get_kernels()->mm[CL_FMT_q4_0];
    for (int32_t i = 0; i < PEAK_CALLS; i++) mm(&a);
}

double cl_probe_int8(cl_pool *p, int32_t plain, int32_t reps) {
    double best = 0.0;
    peak_pass one = {2, PEAK_TOKENS};
    if (plain) {
        one.groups = cl_get_kernels()->int8_rows / 8;
        one.tokens = 4;
    }
    int32_t n = cl_pool_threads(p) * 4;
    for (int32_t i = 0; i < reps; i++) {
        int64_t t = cl_now_ns();
        cl_pool_run(p, peak_chunk, &one, n);
        best = CL_MAX(best, (double)n * PEAK_CALLS * PEAK_BLOCKS * 32 * 8 * one.groups * one.tokens * 1e9 / (double)(cl_now_ns() - t));
    }
    return best;
}

typedef struct {
    const uint8_t *data;
    const uint8_t *x;
    size_t stride;
    int32_t nblk, groups, step, fmt;
} matvec_pass;

enum { MATVEC_CHUNK = 65536, MATVEC_ROWS = 2048 };

static void matvec_chunk(void *ctx, int32_t chunk, int32_t worker) {
    const matvec_pass *m = (const matvec_pass *)ctx;
    float y[MATVEC_ROWS];
    (void)worker;
    int32_t g = chunk * m->step, n = CL_MIN(m->step, m->groups - g);
    cl_mm_args a = {m->data + (size_t)g * m->stride, m->stride, n, m->nblk, m->x, 0, NULL, 1, y, MATVEC_ROWS, NULL};
    cl_get_kernels()->mm[m->fmt](&a);
}

double cl_probe_matvec(cl_pool *p, int32_t fmt, int32_t cols, const uint8_t *data, size_t n, int32_t reps) {
    const cl_format *f = cl_get_format(fmt);
    matvec_pass m = {data, NULL, 0, (cols + f->block_k - 1) / f->block_k, 0, 0, fmt};
    size_t x = (size_t)m.nblk * (size_t)f->block_k / 32 * CL_MAX(sizeof(cl_act8), 32 * sizeof(float));
    uint8_t *row = (uint8_t *)cl_aligned_alloc(64, x);
    int64_t spent = 0;
    if (!row) return 0.0;
    m.x = row;
    m.stride = (size_t)m.nblk * (size_t)f->block_bytes;
    m.groups = (int32_t)CL_MIN(n / m.stride, (size_t)1 << 24);
    m.step = CL_MAX(1, CL_MIN(MATVEC_ROWS / 8, (int32_t)(MATVEC_CHUNK / m.stride)));
    for (int32_t i = 0; i < reps && m.groups; i++) {
        int64_t t = cl_now_ns();
        cl_pool_run(p, matvec_chunk, &m, (m.groups + m.step - 1) / m.step);
        spent += cl_now_ns() - t;
    }
    cl_aligned_free(row);
    return spent ? (double)reps * (double)m.groups * (double)m.stride * 1e9 / (double)spent : 0.0;
}

static void empty_chunk(void *ctx, int32_t chunk, int32_t worker) {
    (void)ctx;
    (void)chunk;
    (void)worker;
}

double cl_probe_dispatch(cl_pool *p, int32_t runs) {
    int64_t t = cl_now_ns();
    for (int32_t i = 0; i < runs; i++) cl_pool_run(p, empty_chunk, NULL, cl_pool_threads(p));
    return (double)(cl_now_ns() - t) * 1e-9 / (double)runs;
}

double cl_probe_disk(const char *path, uint64_t from, uint64_t to, size_t record, int32_t reads, int32_t ahead, int32_t *error) {
    enum { MAX_AHEAD = 64 };
    cl_read q[MAX_AHEAD];
    static uint64_t at = 0x9E3779B97F4A7C15u; /* goes on from call to call: a record read a moment ago may come from a cache */
    uint64_t slots = record ? (to - from) / record : 0;
    double seconds = 0.0;
    ahead = CL_MAX(1, CL_MIN(ahead, (int32_t)MAX_AHEAD));
    *error = 0;
    if (!slots) return 0.0;
    uint8_t *slab = cl_huge_alloc(record * (size_t)ahead);
    cl_reader *r = slab ? cl_reader_open(path, CL_READERS, 1, error) : NULL;
    if (!r) {
        cl_huge_free(slab, record * (size_t)ahead);
        return 0.0;
    }
    memset(slab, 0, record * (size_t)ahead); /* the pages are there before the clock runs */
    memset(q, 0, sizeof q);
    int64_t t = cl_now_ns();
    for (int32_t i = 0; i < reads + ahead && !*error; i++) {
        cl_read *one = &q[i % ahead];
        if (i >= ahead && cl_reader_wait(r, one) != CL_READ_DONE) *error = one->error ? one->error : 5;
        if (i >= reads) continue;
        at = at * 6364136223846793005u + 1442695040888963407u;
        one->offset = from + (at >> 33) % slots * record;
        one->dst = slab + (size_t)(i % ahead) * record;
        one->bytes = record;
        cl_reader_submit(r, one);
    }
    seconds = (double)(cl_now_ns() - t) * 1e-9;
    cl_reader_close(r);
    cl_huge_free(slab, record * (size_t)ahead);
    return *error ? 0.0 : (double)reads * (double)record / seconds;
}
