# cython: language_level=3
"""The loops over weights that quantise.py spends its time in; C in csrc/formats/fit.c.

Owns: shapes at the border. Refuses: groups that are no multiple of eight or larger than 64, arrays of other lengths.
"""


def _check(bint right):
    if not right:
        raise ValueError("group size or array lengths do not fit; wanted groups of 8 to 64, one scale for each")


def fit_symmetric(const float[::1] x not None, size_t g, float top, const float[::1] trials not None,
                  float[::1] scale not None):
    """x (n g)  # IN, trials (m)  # IN, scale (n)  # OUT"""
    cdef size_t n = scale.shape[0]
    _check(n > 0 and g % 8 == 0 and 8 <= g <= 64 and n * g == <size_t>x.shape[0] and trials.shape[0] > 0)
    with nogil:
        cl_fit_symmetric(&x[0], n, g, top, &trials[0], trials.shape[0], &scale[0])


def fit_affine(const float[::1] x not None, size_t g, float top, const float[::1] trials not None,
               float[::1] scale not None, float[::1] minimum not None):
    """x (n g)  # IN, trials (m)  # IN, scale (n)  # OUT, minimum (n)  # OUT"""
    cdef size_t n = scale.shape[0]
    _check(n > 0 and g % 8 == 0 and 8 <= g <= 64 and n * g == <size_t>x.shape[0] and trials.shape[0] > 0
           and minimum.shape[0] == scale.shape[0])
    with nogil:
        cl_fit_affine(&x[0], n, g, top, &trials[0], trials.shape[0], &scale[0], &minimum[0])


def fit_biased(const float[::1] x not None, const float[::1] importance, size_t g, float top,
               const float[::1] trials not None, unsigned short[::1] scale not None, unsigned short[::1] bias not None,
               unsigned char[::1] code not None):
    """x (n g)  # IN, importance (period g) or None  # IN, trials (m)  # IN, scale, bias (n) bfloat16  # OUT, code (n g)  # OUT"""
    cdef size_t n = scale.shape[0], period = 1
    cdef const float *weights = NULL
    _check(n > 0 and g % 8 == 0 and 8 <= g <= 64 and n * g == <size_t>x.shape[0] and trials.shape[0] > 0
           and bias.shape[0] == scale.shape[0] and code.shape[0] == x.shape[0])
    if importance is not None:
        period = importance.shape[0] // g
        _check(period > 0 and period * g == <size_t>importance.shape[0] and n % period == 0)
        weights = &importance[0]
    with nogil:
        cl_fit_biased(&x[0], weights, period, n, g, top, &trials[0], trials.shape[0], &scale[0], &bias[0], &code[0])


def fit_codes(const float[::1] x not None, size_t g, const float[::1] shift not None,
              const float[::1] inverse not None, float low, float high, unsigned char[::1] code not None):
    """x (n g)  # IN, shift (n)  # IN, inverse (n)  # IN, code (n g)  # OUT"""
    cdef size_t n = shift.shape[0]
    _check(n > 0 and n * g == <size_t>x.shape[0] and inverse.shape[0] == shift.shape[0] and code.shape[0] == x.shape[0])
    with nogil:
        cl_fit_codes(&x[0], n, g, &shift[0], &inverse[0], low, high, &code[0])
