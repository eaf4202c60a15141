/* Our own exp and sin/cos: the same bits on every CPU. Refuses: libm.
   cl_expf: Cephes-style range reduction and polynomial, error under 2 ulp on [-87, 88]; below -87.3 it is 0, above 88.7 inf. */
#ifndef COLIBRI_VMATH_H
#define COLIBRI_VMATH_H

#include "colibri/base.h"

#define CL_EXP_LO (-87.33654022216797f)
#define CL_EXP_HI 88.72283172607422f
#define CL_EXP_LOG2E 1.44269502162933349609375f
#define CL_EXP_LN2_HI 0.693359375f
#define CL_EXP_LN2_LO (-2.12194440e-4f)
#define CL_EXP_MAGIC 12582912.0f /* 1.5 * 2^23: adding and subtracting it rounds to the nearest integer, ties to even */
#define CL_EXP_P0 1.9875691500e-4f
#define CL_EXP_P1 1.3981999507e-3f
#define CL_EXP_P2 8.3334519073e-3f
#define CL_EXP_P3 4.1665795894e-2f
#define CL_EXP_P4 1.6666665459e-1f
#define CL_EXP_P5 5.0000001201e-1f

/* e^x. NaN gives NaN. The vector kernels do these very steps. */
CL_INLINE float cl_expf(float x) {
    if (x != x) return x;
    if (x < CL_EXP_LO) return 0.0f;
    if (x > CL_EXP_HI) return cl_bits_f32(0x7F800000u);
    float n = cl_fma(x, CL_EXP_LOG2E, CL_EXP_MAGIC) - CL_EXP_MAGIC;
    float r = cl_fma(n, -CL_EXP_LN2_HI, x);
    r = cl_fma(n, -CL_EXP_LN2_LO, r);
    float p = CL_EXP_P0;
    p = cl_fma(p, r, CL_EXP_P1);
    p = cl_fma(p, r, CL_EXP_P2);
    p = cl_fma(p, r, CL_EXP_P3);
    p = cl_fma(p, r, CL_EXP_P4);
    p = cl_fma(p, r, CL_EXP_P5);
    float r2 = r * r;
    p = cl_fma(p, r2, r) + 1.0f;
    int32_t i = (int32_t)n, h = i >> 1; /* two factors, so that n = 128 stays finite */
    return p * cl_bits_f32((uint32_t)(h + 127) << 23) * cl_bits_f32((uint32_t)(i - h + 127) << 23);
}

/* log(1 + e^x): max(x, 0) + log1p(u) with u = e^-|x| in (0, 1], and log1p(u) = 2 atanh(u / (2 + u)) by its series in double, whose
   argument is at most 1/3: error under 1e-8 beside that of cl_expf. */
CL_INLINE float cl_softplus(float x) {
    double u = (double)cl_expf(x > 0.0f ? 0.0f - x : x), s = u / (2.0 + u), z = s * s, p = 1.0 / 17.0;
    for (int32_t n = 15; n > 0; n -= 2) p = p * z + 1.0 / (double)n;
    return (float)((x > 0.0f ? (double)x : 0.0) + 2.0 * s * p);
}

/* Sine and cosine of x radians, |x| < 2^30, in double: two-step Cody-Waite reduction by pi/2, Taylor kernels; error under 1e-11. */
CL_INLINE void cl_sincos(double x, double *s, double *c) {
    const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
    double n = (x * 0.63661977236758134308 + magic) - magic;
    double r = x - n * 1.57079632673412561417e+00;
    r = r - n * 6.07710050650619224932e-11;
    double z = r * r;
    double ps = -7.6471637318198164759e-13;
    ps = ps * z + 1.6059043836821614599e-10;
    ps = ps * z - 2.5052108385441718775e-08;
    ps = ps * z + 2.7557319223985890653e-06;
    ps = ps * z - 1.9841269841269841270e-04;
    ps = ps * z + 8.3333333333333333333e-03;
    ps = ps * z - 1.6666666666666666667e-01;
    ps = r + r * z * ps;
    double pc = 4.7794773323873852974e-14;
    pc = pc * z - 1.1470745597729724714e-11;
    pc = pc * z + 2.0876756987868098979e-09;
    pc = pc * z - 2.7557319223985890653e-07;
    pc = pc * z + 2.4801587301587301587e-05;
    pc = pc * z - 1.3888888888888888889e-03;
    pc = pc * z + 4.1666666666666666667e-02;
    pc = pc * z - 0.5;
    pc = 1.0 + z * pc;
    int64_t q = (int64_t)n & 3;
    double ss = (q & 1) ? pc : ps, cc = (q & 1) ? ps : pc;
    *s = (q & 2) ? -ss : ss;
    *c = (q == 1 || q == 2) ? -cc : cc;
}

#endif
