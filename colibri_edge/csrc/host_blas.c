/* A BLAS found at run time. Owns: the library, its one-thread hold. Refuses: linking to it, and any other routine than sgemm.
   Found at run time rather than linked: one code for every platform's wheel, no import library at build time, a program that never needs
   it never loads it, and a missing package is an error text instead of a failed import. */
#include "host.h"
#include <stdio.h>
#include <stdlib.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111 };
typedef void (*sgemm_fn)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                         float beta, float *c, int ldc);

static struct {
    char path[4096], hint[512];
    void *lib;
    sgemm_fn sgemm;
    int (*get)(void);
    void (*set)(int);
    int32_t holders;
    int before;
} blas;

#if defined(_WIN32)
static SRWLOCK lock = SRWLOCK_INIT;
#else
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#endif

void cl_blas_locate(const char *path, const char *hint) {
    cl_mutex_lock(&lock);
    snprintf(blas.path, sizeof blas.path, "%s", path ? path : "");
    snprintf(blas.hint, sizeof blas.hint, "%s", hint ? hint : "");
    cl_mutex_unlock(&lock);
}

static void *symbol(const char *name) { /* the package of the wheels prefixes its symbols; a system's library does not */
    char full[64];
    snprintf(full, sizeof full, "scipy_%s", name);
    void *p = cl_library_symbol(blas.lib, full);
    return p ? p : cl_library_symbol(blas.lib, name);
}

static int32_t load(void) {
    if (blas.sgemm) return 0;
    if (!blas.path[0]) return cl_fail(-1, "no BLAS for float32 experts: %s", blas.hint);
    blas.lib = cl_library_open(blas.path);
    if (!blas.lib) return cl_fail(-1, "cannot load the BLAS %s: %s. %s", blas.path, cl_library_error(), blas.hint);
    void *g = symbol("cblas_sgemm"), *n = symbol("openblas_get_num_threads"), *s = symbol("openblas_set_num_threads");
    if (!g || !n || !s) return cl_fail(-1, "%s lacks cblas_sgemm or openblas_set_num_threads. %s", blas.path, blas.hint);
    memcpy(&blas.get, &n, sizeof n);
    memcpy(&blas.set, &s, sizeof s);
    memcpy(&blas.sgemm, &g, sizeof g);
    return 0;
}

int32_t cl_blas_load(void) {
    cl_mutex_lock(&lock);
    int32_t rc = load();
    cl_mutex_unlock(&lock);
    return rc;
}

int32_t cl_blas_loaded(void) { return blas.sgemm != NULL; }

void cl_blas_hold(void) {
    cl_mutex_lock(&lock);
    if (blas.holders++ == 0) {
        blas.before = blas.get();
        if (blas.before != 1) blas.set(1);
    }
    cl_mutex_unlock(&lock);
}

void cl_blas_release(void) {
    cl_mutex_lock(&lock);
    if (--blas.holders == 0 && blas.before != 1) blas.set(blas.before);
    cl_mutex_unlock(&lock);
}

int32_t cl_blas_threads(void) { return blas.get ? (int32_t)blas.get() : 0; }
void cl_blas_set_threads(int32_t n) { if (blas.set) blas.set((int)n); }

void cl_blas_sgemm(int32_t m, int32_t n, int32_t k, const float *a, int32_t lda, const float *b, int32_t ldb, float *c, int32_t ldc) {
    blas.sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, m, n, k, 1.0f, a, lda, b, ldb, 0.0f, c, ldc);
}

static void warm(void *ctx, int32_t chunk, int32_t worker) {
    float *s = (float *)ctx + (size_t)chunk * 3 * 64 * 64;
    cl_blas_sgemm(64, 64, 64, s, 64, s + 64 * 64, 64, s + 2 * 64 * 64, 64);
}

void cl_blas_warm(cl_pool *p) {
    int32_t n = 4 * cl_pool_threads(p);
    float *s = (float *)cl_aligned_alloc(CL_CACHE_LINE, sizeof(float) * 3 * 64 * 64 * (size_t)n);
    if (!s) return;
    cl_blas_hold();
    cl_pool_run(p, warm, s, n);
    cl_blas_release();
    cl_aligned_free(s);
}
