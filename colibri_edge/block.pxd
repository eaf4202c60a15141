# The MoE block for cimport (C API, benchmarks): one struct, functions that need no Python.
from libc.stdint cimport int32_t, int64_t, uint64_t

from colibri_edge._native cimport cl_kernels, cl_pool
from colibri_edge.core.blas cimport cl_host_file
from colibri_edge.core.dispatch cimport expert_groups
from colibri_edge.core.pool cimport arena

cdef enum:
    BLOCK_OK = 0
    BLOCK_MEMORY = -1       # memory, file or batch
    BLOCK_ROUTING = -2
    BLOCK_EXPERT = -3

# Parts of a forward's time.
cdef enum:
    T_ROUTE, T_DISPATCH, T_EXPERTS, T_COMBINE, T_COUNT

# How to open a block. Zero means: all threads that pay, mapped, grouped, not pinned.
ctypedef struct block_options:
    int32_t max_batch
    int32_t threads
    int32_t pin             # bind workers to cores and give the most used experts a worker each
    int32_t read            # read into memory instead of mapping
    int32_t no_groups       # one product per (token, expert) instead of per expert: only to measure what grouping brings
    int32_t skew            # bytes off the cache line for weights and pool: only to measure what alignment brings
    int32_t blas_from       # tokens of one expert from which a BLAS is called; 0: the measured default

ctypedef struct block:
    # the file
    cl_host_file file
    int32_t watched         # mapped, and known to the guard (colibri/guard.h)
    int32_t hidden
    int32_t inter
    int32_t experts
    int32_t top_k
    int32_t act             # CL_ACT_*
    bint gated
    bint renormalise
    const float *router     # [hidden][experts]
    const float *weights    # [experts]: w1 [hidden][inter], if gated w3 [hidden][inter], w2 [inter][hidden]
    size_t expert_floats
    size_t matrix_floats    # hidden * inter
    # what serves it
    block_options o
    const cl_kernels *k
    cl_pool *pool
    int32_t threads
    int32_t bound           # pin asked for and granted
    int32_t caller_cpu
    # the pool (docs/block.md)
    arena a
    size_t ld_e             # floats of a row of scores
    size_t ld_i             # of a row of h and up
    size_t ld_h             # of a row of y
    float *scores           # [max_batch][ld_e]
    int32_t *ids            # [max_batch][top_k]
    float *shares           # [max_batch][top_k]
    float *h                # [max_batch * top_k][ld_i]
    float *up               # [max_batch * top_k][ld_i], gated only
    float *y                # [max_batch * top_k][ld_h]
    float *rows             # [max_batch * top_k][hidden]: gathered tokens for the BLAS
    int32_t *owner          # [tasks]
    int32_t *claims         # [tasks]
    int32_t *rank           # [experts]: worker that keeps the expert
    uint64_t *uses          # [experts]: how often each was chosen
    expert_groups g
    # the running forward
    const float *x          # [batch][hidden]
    float *out              # [batch][hidden]
    int32_t batch
    int32_t strips          # column strips of a matrix
    int64_t forwards
    int64_t ns[4]

cdef block *block_open(const char *path, const block_options *o) noexcept nogil     # NULL: cl_last_error()
cdef int32_t block_forward(block *b, const float *x, float *out, int32_t batch) noexcept nogil
cdef void block_close(block *b) noexcept nogil
