# Products of one set of activations with several matrices in one parallel pass.
from libc.stdint cimport int32_t, uint8_t

from colibri_edge.core.runtime cimport activations, matrix, runtime

cdef enum:
    MAX_JOBS = 8
    FEW_TOKENS = 8     # up to so many a product waits for memory, not for arithmetic: long stretches of weights

# y [tokens][ldy] = W x, or y += W x (+ bias) where `add` is set. ldy >= rows rounded up to 8.
ctypedef struct mm_job:
    const matrix *m
    float *y
    size_t ldy
    const float *bias      # [rows] padded to 8, or NULL
    bint add

cdef void matmul(runtime *rt, const activations *a, int32_t nt, const mm_job *jobs, int32_t njobs) noexcept nogil
cdef void mm_rows(runtime *rt, const matrix *m, const activations *a, const int32_t *rows, int32_t nt, int32_t g0, int32_t ng,
                  float *y, size_t ldy, const uint8_t *next) noexcept nogil
cdef const uint8_t *row_groups(const matrix *m, int32_t g) noexcept nogil
cdef int32_t chunk_groups(const runtime *rt, const matrix *m, int32_t nt) noexcept nogil
