# The C library, for cimport: kernels.h, threads.h, base.h.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "colibri/base.h" nogil:
    void *cl_aligned_alloc(size_t align, size_t n) noexcept
    void cl_aligned_free(void *p) noexcept
    uint8_t *cl_huge_alloc(size_t n) noexcept
    void cl_huge_free(uint8_t *p, size_t n) noexcept
    size_t cl_huge_settle(const uint8_t *p, size_t n, size_t huge) noexcept
    uint32_t cl_crc32c(uint32_t crc, const void *data, size_t n) noexcept
    float cl_f16_f32(unsigned short h) noexcept
    unsigned short cl_f32_f16(float f) noexcept
    float cl_fma(float a, float b, float c) noexcept

cdef extern from "colibri/vmath.h" nogil:
    float cl_expf(float x) noexcept
    void cl_sincos(double x, double *s, double *c) noexcept
    float cl_softplus(float x) noexcept

cdef extern from "colibri/threads.h" nogil:
    ctypedef struct cl_pool:
        pass
    ctypedef void (*cl_task_fn)(void *ctx, int32_t chunk, int32_t worker) noexcept nogil
    ctypedef void (*cl_range_fn)(void *ctx, int32_t first, int32_t last, int32_t worker) noexcept nogil
    cl_pool *cl_pool_new(int32_t threads) noexcept
    void cl_pool_run_guided(cl_pool *p, cl_range_fn fn, void *ctx, int32_t nchunks, int32_t longest) noexcept
    void cl_pool_run(cl_pool *p, cl_task_fn fn, void *ctx, int32_t nchunks) noexcept
    int32_t cl_pool_threads(const cl_pool *p) noexcept
    void cl_pool_free(cl_pool *p) noexcept
    int32_t cl_default_threads(int32_t quota_millicores) noexcept

cdef extern from "colibri/kernels.h" nogil:
    enum:
        CL_FMT_COUNT
        CL_FMT_f32
        CL_KV_F32
        CL_KV_F16
        CL_KV_Q8
        CL_KV_BLOCK
        CL_ACT_SILU
        CL_ACT_GELU_TANH
        CL_ACT_RELU
    ctypedef struct cl_act8:
        float d
        float sum
        int16_t s[2]
        int8_t q[32]
    ctypedef struct cl_mm_args:
        const uint8_t *w
        size_t group_stride
        int32_t ngroups
        int32_t nblk
        const uint8_t *x
        size_t x_stride
        const int32_t *rows
        int32_t nt
        float *y
        size_t ldy
        const uint8_t *next
    ctypedef struct cl_attn_args:
        const float *q
        const uint8_t *k
        const uint8_t *v
        const uint8_t *k_scale
        const uint8_t *v_scale
        float *o
        float *scratch
        int32_t nrep
        int32_t head_dim
        int32_t lo
        int32_t hi
        int32_t kv_type
        float scale
        float softcap
        const float *sinks
        const uint8_t *next_k
    ctypedef struct cl_rowmm_args:
        const float *w
        size_t ldw
        int32_t k
        int32_t n
        const float *x
        size_t ldx
        const int32_t *rows
        int32_t nt
        float *y
        size_t ldy
    ctypedef struct cl_delta_args:
        float *s
        const float *q
        const float *k
        size_t ldk
        const float *v
        size_t ldv
        const float *decay
        const float *beta
        size_t ldg
        float *o
        size_t ldo
        int32_t nt
        int32_t dk
        int32_t n
    ctypedef struct cl_conv_args:
        float *x
        size_t ldx
        const float *w
        size_t ldw
        int32_t taps
        int32_t nt
        int32_t n
    ctypedef void (*cl_delta_fn)(const cl_delta_args *a) noexcept nogil
    ctypedef void (*cl_conv_fn)(const cl_conv_args *a) noexcept nogil
    ctypedef void (*cl_l2norm_fn)(const float *x, float *y, int32_t n, float eps, float scale) noexcept nogil
    ctypedef void (*cl_sigmoid_mul_fn)(float *y, const float *g, int32_t n) noexcept nogil
    ctypedef void (*cl_rowmm_fn)(const cl_rowmm_args *a) noexcept nogil
    ctypedef void (*cl_mul_fn)(float *y, const float *x, int32_t n) noexcept nogil
    ctypedef void (*cl_mm_fn)(const cl_mm_args *a) noexcept nogil
    ctypedef void (*cl_quantize_fn)(const float *x, cl_act8 *q, int32_t n) noexcept nogil
    ctypedef void (*cl_rmsnorm_fn)(const float *x, const float *w, float *y, int32_t n, float eps) noexcept nogil
    ctypedef void (*cl_glu_fn)(int32_t act, const float *gu, float *h, int32_t ngroups) noexcept nogil
    ctypedef void (*cl_glu_clamped_fn)(const float *gu, float *h, int32_t ngroups, float alpha, float limit) noexcept nogil
    ctypedef void (*cl_act_fn)(int32_t act, const float *x, float *h, int32_t n) noexcept nogil
    ctypedef void (*cl_add_fn)(float *y, const float *x, int32_t n) noexcept nogil
    ctypedef void (*cl_axpy_fn)(float *y, float s, const float *x, int32_t n) noexcept nogil
    ctypedef void (*cl_rope_fn)(float *x, const float *cos, const float *sin, int32_t half) noexcept nogil
    ctypedef void (*cl_softmax_fn)(const float *x, float *p, int32_t n) noexcept nogil
    ctypedef void (*cl_attention_fn)(const cl_attn_args *a) noexcept nogil
    ctypedef struct cl_kernels:
        const char *name
        cl_mm_fn mm[18]
        cl_quantize_fn quantize
        cl_rmsnorm_fn rmsnorm
        cl_glu_fn glu
        cl_glu_clamped_fn glu_clamped
        cl_act_fn act
        cl_add_fn add
        cl_axpy_fn axpy
        cl_rope_fn rope
        cl_softmax_fn softmax
        cl_attention_fn attention
        cl_rowmm_fn rowmm
        cl_mul_fn mul
        cl_delta_fn delta
        cl_conv_fn conv
        cl_l2norm_fn l2norm
        cl_sigmoid_mul_fn sigmoid_mul
    ctypedef struct cl_format:
        const char *name
        int32_t block_k
        int32_t block_bytes
        int32_t int8_act
    void cl_kv_quantize(const float *x, int32_t n, int8_t *q, size_t step, uint16_t *scale, size_t scale_step) noexcept
    size_t cl_attn_scratch(int32_t nrep, int32_t head_dim) noexcept
    const cl_kernels *cl_get_kernels() noexcept
    const cl_kernels *cl_kernels_at(int32_t i) noexcept
    int32_t cl_init(const char *isa) noexcept
    const cl_format *cl_get_format(int32_t i) noexcept
    uint64_t cl_matrix_bytes(int32_t format, int64_t rows, int64_t cols) noexcept
    void cl_dequant_row(int32_t format, const uint8_t *w, int64_t row, int64_t cols, float *out) noexcept

cdef extern from "colibri/probe.h" nogil:
    double cl_probe_read(cl_pool *p, const uint8_t *data, size_t n, int32_t reps) noexcept
    double cl_probe_int8(cl_pool *p, bint plain, int32_t reps) noexcept
    double cl_probe_matvec(cl_pool *p, int32_t fmt, int32_t cols, const uint8_t *data, size_t n, int32_t reps) noexcept
    double cl_probe_dispatch(cl_pool *p, int32_t runs) noexcept
    double cl_probe_disk(const char *path, uint64_t start, uint64_t end, size_t record, int32_t reads, int32_t ahead, int32_t *error) noexcept

cdef extern from "colibri/guard.h" nogil:
    int32_t cl_guard_add(const void *p, size_t n) noexcept
    void cl_guard_remove(const void *p) noexcept
    int32_t cl_guard_lost(const void *p) noexcept
