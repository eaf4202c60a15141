/* The gated delta rule against its BLAS form (sscal, sgemv, sger, sgemv per head and token), and against one pass that only scales the
   state, which is what memory allows. Shape of Qwen3.5-35B-A3B: 32 heads of 128 x 128, 30 layers: 63 MB of state.
   usage: bench_delta LIBRARY [threads]     LIBRARY: a shared OpenBLAS, such as that of the package scipy-openblas32 */
#include "colibri/kernels.h"
#include "colibri/threads.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 32, KEYS = 16, D = 128, LAYERS = 30, MANY = 256, ROWS = 128, ROW_MAJOR = 101, PLAIN = 111 };
static void (*sscal)(int n, float a, float *x, int incx);
static void (*sgemv)(int order, int trans, int m, int n, float alpha, const float *a, int lda, const float *x, int incx, float beta, float *y, int incy);
static void (*sger)(int order, int m, int n, float alpha, const float *x, int incx, const float *y, int incy, float *a, int lda);

typedef struct {
    float *s;              /* [layers][HEADS][D][D] */
    const float *q, *k, *v, *g; /* [KEYS][nt][D] twice, [nt][HEADS*D], [2][nt][HEADS] */
    float *o;              /* [nt][HEADS*D] */
    int32_t nt;
} job;

static void *symbol(void *lib, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "scipy_%s", name);
    void *p = dlsym(lib, full);
    if (!p) p = dlsym(lib, name);
    if (!p) {
        fprintf(stderr, "the library lacks %s\n", name);
        exit(2);
    }
    return p;
}

static void ours(void *ctx, int32_t chunk, int32_t worker) {
    job *j = (job *)ctx;
    int32_t blocks = D / ROWS, h = chunk / blocks % HEADS, v0 = chunk % blocks * ROWS;
    cl_delta_args a = {j->s + (size_t)chunk * ROWS * D, j->q + (size_t)(h / 2 * j->nt) * D, j->k + (size_t)(h / 2 * j->nt) * D, D,
                       j->v + h * D + v0, HEADS * D, j->g + h, j->g + (size_t)j->nt * HEADS + h, HEADS, j->o + h * D + v0, HEADS * D, j->nt, D, ROWS};
    cl_get_kernels()->delta(&a);
}

static void blas(void *ctx, int32_t chunk, int32_t worker) {
    job *j = (job *)ctx;
    float *s = j->s + (size_t)chunk * D * D, d[D];
    int32_t h = chunk % HEADS;
    for (int32_t t = 0; t < j->nt; t++) {
        const float *q = j->q + (size_t)(h / 2 * j->nt + t) * D, *k = j->k + (size_t)(h / 2 * j->nt + t) * D, *v = j->v + ((size_t)t * HEADS + h) * D;
        float g = j->g[t * HEADS + h], b = j->g[(j->nt + t) * HEADS + h];
        sscal(D * D, g, s, 1);
        sgemv(ROW_MAJOR, PLAIN, D, D, 1.0f, s, D, k, 1, 0.0f, d, 1);
        for (int32_t i = 0; i < D; i++) d[i] = (v[i] - d[i]) * b;
        sger(ROW_MAJOR, D, D, 1.0f, d, 1, k, 1, s, D);
        sgemv(ROW_MAJOR, PLAIN, D, D, 1.0f, s, D, q, 1, 0.0f, j->o + ((size_t)t * HEADS + h) * D, 1);
    }
}

static void scale(void *ctx, int32_t chunk, int32_t worker) { sscal(D * D, 0.99f, ((job *)ctx)->s + (size_t)chunk * D * D, 1); }

static double median(cl_pool *p, cl_task_fn fn, job *j, int32_t chunks) {
    double t[9];
    for (int32_t r = 0; r < 9; r++) {
        int64_t t0 = cl_now_ns();
        cl_pool_run(p, fn, j, chunks);
        t[r] = (double)(cl_now_ns() - t0) * 1e-6;
        for (int32_t i = r; i > 0 && t[i] < t[i - 1]; i--) {
            double x = t[i];
            t[i] = t[i - 1];
            t[i - 1] = x;
        }
    }
    return t[4];
}

/* Numbers in -1 .. 1, each from the one before. */
static float next(uint32_t *r) {
    *r = *r * 1664525u + 1013904223u;
    return (float)(int32_t)*r * 0x1p-31f;
}

static double larger(double a, double b) { return b > a || b != b ? b : a; } /* a NaN stays */

int main(int argc, char **argv) {
    void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL, *set;
    if (!lib) {
        fprintf(stderr, "usage: bench_delta LIBRARY [threads]; %s\n", argc > 1 ? dlerror() : "no library given");
        return 2;
    }
    void *f[3] = {symbol(lib, "cblas_sscal"), symbol(lib, "cblas_sgemv"), symbol(lib, "cblas_sger")};
    memcpy(&sscal, &f[0], sizeof f[0]);
    memcpy(&sgemv, &f[1], sizeof f[1]);
    memcpy(&sger, &f[2], sizeof f[2]);
    void (*threads)(int);
    set = symbol(lib, "openblas_set_num_threads");
    memcpy(&threads, &set, sizeof set);
    threads(1);
    cl_pool *pool = cl_pool_new(argc > 2 ? atoi(argv[2]) : 2);
    size_t ns = (size_t)LAYERS * HEADS * D * D, nx = (size_t)MANY * HEADS * D;
    float *s = (float *)cl_aligned_alloc(64, 4 * ns), *x = (float *)cl_aligned_alloc(64, 4 * 3 * nx), *o = (float *)cl_aligned_alloc(64, 4 * nx),
          *g = (float *)cl_aligned_alloc(64, 4 * 2 * MANY * HEADS), *o2 = (float *)cl_aligned_alloc(64, 4 * nx);
    if (!pool || !s || !x || !o || !g || !o2) return 2;
    uint32_t r = 1;
    for (size_t i = 0; i < 3 * nx; i++) x[i] = next(&r) * (i < 2 * nx ? 0.1f : 1.0f);
    for (int32_t i = 0; i < 2 * MANY * HEADS; i++) g[i] = i < MANY * HEADS ? 0.97f : 0.4f;
    memset(s, 0, 4 * ns);
    job j = {s, x, x + nx, x + 2 * nx, g, o, MANY}, k = j;
    k.o = o2;
    cl_pool_run(pool, ours, &j, HEADS * D / ROWS); /* the two agree: from an empty state their layouts do not matter */
    memset(s, 0, 4 * ns);
    cl_pool_run(pool, blas, &k, HEADS);
    double worst = 0, most = 0;
    for (size_t i = 0; i < nx; i++) {
        worst = larger(worst, fabs((double)o[i] - o2[i]));
        most = larger(most, fabs((double)o2[i]));
    }
    printf("largest difference %.1e of %.1e\n", worst, most);
    if (!(worst <= 1e-4 * most)) return 1;
    j.nt = k.nt = 1;
    double bytes = 8e-6 * (double)ns;
    for (int32_t round = 0; round < 2; round++) {
        double a = median(pool, ours, &j, LAYERS * HEADS * D / ROWS), b = median(pool, blas, &k, LAYERS * HEADS), c = median(pool, scale, &j, LAYERS * HEADS);
        printf("one token, %d layers: ours %.2f ms (%.1f GB/s), BLAS %.2f ms, one pass over the state %.2f ms (%.1f GB/s): ours at %.0f %% of it, "
               "BLAS at %.0f %%\n", LAYERS, a, bytes / a, b, c, bytes / c, 100 * c / a, 100 * c / b);
    }
    j.nt = k.nt = MANY;
    double a = median(pool, ours, &j, HEADS * D / ROWS), b = median(pool, blas, &k, HEADS);
    printf("%d tokens, one layer: ours %.2f ms, BLAS %.2f ms: %.1f times\n", MANY, a, b, b / a);
    cl_pool_free(pool);
    return 0;
}
