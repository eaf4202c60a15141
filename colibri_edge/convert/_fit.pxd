from libc.stdint cimport uint8_t, uint16_t


cdef extern from "colibri/fit.h" nogil:
    void cl_fit_symmetric(const float *x, size_t n, size_t g, float top, const float *trials, size_t m,
                          float *scale) noexcept
    void cl_fit_affine(const float *x, size_t n, size_t g, float top, const float *trials, size_t m, float *scale,
                       float *minimum) noexcept
    void cl_fit_biased(const float *x, const float *importance, size_t period, size_t n, size_t g, float top,
                       const float *trials, size_t m, uint16_t *scale, uint16_t *bias, uint8_t *code) noexcept
    void cl_fit_codes(const float *x, size_t n, size_t g, const float *shift, const float *inverse, float low,
                      float high, uint8_t *code) noexcept
