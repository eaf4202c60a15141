from libc.stdint cimport int32_t

# What route() can answer besides 0.
cdef enum:
    ROUTE_OK = 0
    ROUTE_BAD_SCORE = -2    # a NaN or +inf score, or no finite score at all: there is no choice to make

cdef int32_t route(float *scores, int32_t ld, int32_t n_tokens, int32_t n_experts, int32_t top_k, bint renormalise,
                   int32_t *ids, float *weights) noexcept nogil
cdef float lut_exp(float x) noexcept nogil
