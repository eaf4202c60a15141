# The float32 BLAS and the system's side of a block, for cimport: colibri/host.h.
from libc.stdint cimport int32_t, uint8_t, uint64_t

from colibri_edge._native cimport cl_pool, cl_task_fn

cdef extern from "colibri/host.h" nogil:
    int32_t cl_fail(int32_t code, const char *format, ...) noexcept
    const char *cl_last_error() noexcept
    void cl_clear_error() noexcept
    ctypedef struct cl_host_file:
        const uint8_t *data
        uint64_t size
    enum:
        CL_HOST_MAP
        CL_HOST_READ
    int32_t cl_host_open(const char *path, int32_t how, size_t head, size_t skew, cl_host_file *f) noexcept
    int32_t cl_host_peek(const char *path, void *out, size_t n, uint64_t *size) noexcept
    void cl_host_close(cl_host_file *f) noexcept
    ctypedef struct cl_cpu_mask:
        uint64_t words[16]
    int32_t cl_affinity_known() noexcept
    int32_t cl_cpu_list(int32_t *cpus, int32_t most) noexcept
    int32_t cl_bind_thread(int32_t cpu, cl_cpu_mask *before) noexcept
    void cl_unbind_thread(const cl_cpu_mask *before) noexcept
    int32_t cl_pool_bind(cl_pool *p, const int32_t *cpus, int32_t n) noexcept
    void cl_pool_run_owned(cl_pool *p, cl_task_fn fn, void *ctx, int32_t nchunks, const int32_t *owner, int32_t *claims) noexcept
    void cl_blas_locate(const char *path, const char *hint) noexcept
    int32_t cl_blas_load() noexcept
    int32_t cl_blas_loaded() noexcept
    void cl_blas_hold() noexcept
    void cl_blas_release() noexcept
    int32_t cl_blas_threads() noexcept
    void cl_blas_set_threads(int32_t n) noexcept
    void cl_blas_sgemm(int32_t m, int32_t n, int32_t k, const float *a, int32_t lda, const float *b, int32_t ldb, float *c,
                       int32_t ldc) noexcept
    void cl_blas_warm(cl_pool *p) noexcept
