from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t


cdef extern from "colibri/sampler.h" nogil:
    enum:
        CL_SAMPLER_EMEM
        CL_SAMPLER_EARG
        CL_SAMPLER_ENAN
        CL_SAMPLER_ENONE
    ctypedef struct cl_sampler_config:
        float temperature
        float top_p
        float min_p
        float repetition_penalty
        int32_t top_k
        int32_t window
        uint64_t seed
    ctypedef struct cl_sampler_item:
        float p
        int32_t id
    ctypedef struct cl_sampler:
        cl_sampler_config cfg
        int32_t vocab
        cl_sampler_item *items
    int cl_sampler_init(cl_sampler *, int32_t, const cl_sampler_config *, const uint8_t *) noexcept
    void cl_sampler_free(cl_sampler *) noexcept
    void cl_sampler_reset(cl_sampler *, uint64_t) noexcept
    void cl_sampler_accept(cl_sampler *, int32_t) noexcept
    int32_t cl_sampler_sample(cl_sampler *, const float *) noexcept
    int32_t cl_sampler_candidates(cl_sampler *, const float *, double *) noexcept


cdef class Sampler:
    cdef cl_sampler s
    # logits: [vocab]. The id taken; raises ValueError for NaN, +inf or nothing to take.
    cdef int32_t draw(self, const float *logits) except -1 nogil
    cdef void accept_one(self, int32_t id) noexcept nogil
    cdef int _check(self, Py_ssize_t n) except -1
