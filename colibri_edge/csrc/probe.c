/* Read bandwidth and integer peak of this machine. Owns: plain loops the compiler can vectorise. Refuses: to be part of any result. */
#include "colibri/probe.h"
#include "colibri/kernels.h"

enum { CHUNK = 1 << 20, PEAK_BLOCKS = 16, PEAK_CALLS = 2000, MAX_WORKERS = 256 };

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

static void peak_chunk(void *ctx, int32_t chunk, int32_t worker) {
    uint8_t w[PEAK_BLOCKS * 144];
    cl_act8 x[4 * PEAK_BLOCKS];
    float y[4 * 8];
    (void)ctx;
    (void)worker;
    memset(w, 0x21, sizeof w);
    memset(x, 0, sizeof x);
    for (int32_t i = 0; i < 4 * PEAK_BLOCKS; i++) {
        x[i].d = 0.01f;
        memset(x[i].q, chunk + 1, sizeof x[i].q);
    }
    cl_mm_args a = {w, sizeof w, 1, PEAK_BLOCKS, (const uint8_t *)x, sizeof(cl_act8) * PEAK_BLOCKS, NULL, 4, y, 8};
    void (*mm)(const cl_mm_args *) = cl_get_kernels()->mm[CL_FMT_q4_0];
    for (int32_t i = 0; i < PEAK_CALLS; i++) mm(&a);
}

double cl_probe_int8(cl_pool *p, int32_t reps) {
    double best = 0.0;
    int32_t n = cl_pool_threads(p) * 4;
    for (int32_t i = 0; i < reps; i++) {
        int64_t t = cl_now_ns();
        cl_pool_run(p, peak_chunk, NULL, n);
        best = CL_MAX(best, (double)n * PEAK_CALLS * PEAK_BLOCKS * 32 * 8 * 4 * 1e9 / (double)(cl_now_ns() - t));
    }
    return best;
}
