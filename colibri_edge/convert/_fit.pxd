from libc.stdint cimport uint8_t


cdef extern from "colibri/fit.h" nogil:
    void cl_fit_symmetric(const float *x, size_t n, size_t g, float top, const float *trials, size_t m,
                          float *scale) noexcept
    void cl_fit_affine(const float *x, size_t n, size_t g, float top, const float *trials, size_t m, float *scale,
                       float *minimum) noexcept
    void cl_fit_codes(const float *x, size_t n, size_t g, const float *shift, const float *inverse, float low,
                      float high, uint8_t *code) noexcept
