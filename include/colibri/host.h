/* What a MoE block needs from the system: whole files by UTF-8 path, the last error's text, cores to pin to, a BLAS found at run time.
   Refuses: Python, and knowledge of any file format. */
#ifndef COLIBRI_HOST_H
#define COLIBRI_HOST_H

#include "colibri/base.h"
#include "colibri/threads.h"

/* ---- errors: one text per thread ---- */
/* printf-like; returns `code`, so that a failing function can end with `return cl_fail(code, ...)`. */
CL_API int32_t cl_fail(int32_t code, const char *format, ...);
CL_API const char *cl_last_error(void); /* of this thread; "" when nothing has failed */
CL_API void cl_clear_error(void);

/* ---- files ---- */
typedef struct {
    const uint8_t *data;
    uint64_t size;
    void *handle; /* what cl_host_close gives back */
    int32_t kind;
} cl_host_file;
enum { CL_HOST_MAP = 0, CL_HOST_READ = 1 };

/* Opens a whole file: mapped read-only, or read into memory in which byte `head` begins a cache line shifted by `skew` bytes, on huge
   pages where the system has them. Path: UTF-8, either separator. 0; -1 with a text. */
CL_API int32_t cl_host_open(const char *path, int32_t how, size_t head, size_t skew, cl_host_file *f);
/* The first n bytes of a file, or -1 with a text; -2 when the file is shorter. *size is its whole length. */
CL_API int32_t cl_host_peek(const char *path, void *out, size_t n, uint64_t *size);
CL_API void cl_host_close(cl_host_file *f);

/* ---- cores ---- */
typedef struct { uint64_t words[16]; } cl_cpu_mask;
CL_API int32_t cl_affinity_known(void);                    /* 1 where threads can be bound: Linux and Windows */
CL_API int32_t cl_cpu_list(int32_t *cpus, int32_t max);    /* cores of the calling thread's mask, rising; how many */
CL_API int32_t cl_bind_thread(int32_t cpu, cl_cpu_mask *before); /* binds the caller; 0 or -1 */
CL_API void cl_unbind_thread(const cl_cpu_mask *before);
/* Binds worker w of the pool to cpus[w % n], without the caller. 0 or -1. */
CL_API int32_t cl_pool_bind(cl_pool *p, const int32_t *cpus, int32_t n);
/* Like cl_pool_run, but chunk c is first offered to worker owner[c]; who has nothing of his own left takes the rest in order.
   claims [nchunks]: scratch. */
CL_API void cl_pool_run_owned(cl_pool *p, cl_task_fn fn, void *ctx, int32_t nchunks, const int32_t *owner, int32_t *claims);

/* ---- BLAS ---- */
/* Where the library lies; NULL or "" = there is none. Called once, before cl_blas_load. `hint` is told when loading fails. */
CL_API void cl_blas_locate(const char *path, const char *hint);
/* Loads it, once. 0; -1 with a text that names the package. */
CL_API int32_t cl_blas_load(void);
CL_API int32_t cl_blas_loaded(void);
/* Between these the BLAS keeps to the calling thread; the last release restores what was set before. Counted: instances may overlap. */
CL_API void cl_blas_hold(void);
CL_API void cl_blas_release(void);
CL_API int32_t cl_blas_threads(void); /* its present setting; 0 when not loaded */
CL_API void cl_blas_set_threads(int32_t n);
/* c [m][ldc] = a [m][lda] b [k][ldb], row-major, n columns. Only after cl_blas_load. */
CL_API void cl_blas_sgemm(int32_t m, int32_t n, int32_t k, const float *a, int32_t lda, const float *b, int32_t ldb, float *c, int32_t ldc);
/* Makes every worker of the pool call the BLAS at once, so that its buffers are there before the first forward. */
CL_API void cl_blas_warm(cl_pool *p);

#endif
