# What one forward pass works with: kernels, threads, scratch, buffers. Plain structs: built once, then only read.
from libc.stdint cimport int32_t, int64_t, uint8_t

from colibri_edge._native cimport cl_act8, cl_kernels, cl_pool

cdef enum stage:
    ST_OTHER, ST_EMBED, ST_NORM, ST_ATTN_PROJ, ST_ATTN, ST_ROUTER, ST_DISPATCH, ST_EXPERTS, ST_DISK, ST_HEAD, ST_COUNT

# A matrix y = W x, W [rows, cols] in R8. Row groups lie `group_stride` bytes apart.
ctypedef struct matrix:
    const uint8_t *w
    size_t group_stride
    int32_t fmt
    int32_t rows
    int32_t cols
    int32_t ngroups
    int32_t nblk
    int32_t int8_act

# One row of activations in both forms; a float matrix reads x, a quantised one q.
# x [tokens][ldx] float32, q [tokens][ldx / 32]
ctypedef struct activations:
    float *x
    cl_act8 *q
    size_t ldx

# How a pass gets at the records of routed experts (core/store). acquire: begins to bring in experts[n] of a stack and orders them,
# those present first (start[i + 1] - start[i]: tokens that chose experts[i]); wait: before one is used. 0, or -3 when a record cannot be had.
ctypedef int32_t (*acquire_fn)(void *store, int32_t stack, const int32_t *experts, const int32_t *start, int32_t n, int32_t *order) noexcept nogil
ctypedef int32_t (*wait_fn)(void *store, int32_t stack, int32_t expert) noexcept nogil

# guess: begins to bring in what a later layer will probably ask for; may do nothing.
ctypedef void (*guess_fn)(void *store, int32_t stack, const int32_t *experts, int32_t n) noexcept nogil

ctypedef struct runtime:
    acquire_fn acquire
    wait_fn wait
    guess_fn guess
    void *store
    int32_t max_union       # distinct experts of a layer that fit in memory at once
    const cl_kernels *k
    cl_pool *pool
    int32_t threads
    uint8_t **scratch       # [threads], each scratch_bytes
    size_t scratch_bytes
    int32_t *trace          # routing as it happens: stack, then its top_k experts, per token and layer; NULL: not recorded
    int64_t trace_len
    int64_t trace_room
    float **moments         # per routed stack [hidden + experts*intermediate]: sums of the squares of what the columns meet; or NULL
    int64_t *ns             # [ST_COUNT] time per stage of the running layer
    int64_t mark            # start of the running stage
    int32_t current

cdef inline int32_t imin(int32_t a, int32_t b) noexcept nogil:
    return a if a < b else b

cdef inline int32_t imax(int32_t a, int32_t b) noexcept nogil:
    return a if a > b else b

cdef inline int32_t round_up(int32_t n, int32_t m) noexcept nogil:
    return (n + m - 1) / m * m

cdef inline int32_t pad(int32_t n) noexcept nogil:  # activation rows hold whole blocks of every format
    return round_up(n, 256)

cdef extern from "colibri/base.h" nogil:
    int64_t cl_now_ns() noexcept

cdef inline void enter(runtime *rt, stage s) noexcept nogil:
    """Ends the running stage and starts s: the stages add up to the whole time."""
    cdef int64_t now = cl_now_ns()
    rt.ns[rt.current] += now - rt.mark
    rt.mark = now
    rt.current = s

cdef inline void enter_layer(runtime *rt, int64_t *ns) noexcept nogil:
    """Ends the running stage; what follows is counted in ns, [ST_COUNT]."""
    enter(rt, ST_OTHER)
    rt.ns = ns
