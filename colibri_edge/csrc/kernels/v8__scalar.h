/* Eight float lanes in plain C: the meaning that every other v8 header has to give. */
#ifndef COLIBRI_V8_H
#define COLIBRI_V8_H
#include "colibri/vmath.h"
#include <math.h>

typedef struct { float a[8]; } v8;
#define V8_MAP(expr) do { for (int32_t i_ = 0; i_ < 8; i_++) r.a[i_] = (expr); } while (0)

CL_INLINE v8 v8_load(const float *p) { v8 r; memcpy(&r, p, 32); return r; }
CL_INLINE void v8_store(float *p, v8 x) { memcpy(p, &x, 32); }
CL_INLINE v8 v8_set1(float f) { v8 r; V8_MAP(f); return r; }
CL_INLINE v8 v8_load_f16(const void *p) { v8 r; const uint8_t *b = (const uint8_t *)p; V8_MAP(cl_f16_f32(cl_load_u16(b + 2 * i_))); return r; }
CL_INLINE v8 v8_load_bf16(const void *p) { v8 r; const uint8_t *b = (const uint8_t *)p; V8_MAP(cl_bf16_f32(cl_load_u16(b + 2 * i_))); return r; }
CL_INLINE v8 v8_load_i8(const void *p) { v8 r; const int8_t *b = (const int8_t *)p; V8_MAP((float)b[i_]); return r; }
CL_INLINE v8 v8_add(v8 x, v8 y) { v8 r; V8_MAP(x.a[i_] + y.a[i_]); return r; }
CL_INLINE v8 v8_sub(v8 x, v8 y) { v8 r; V8_MAP(x.a[i_] - y.a[i_]); return r; }
CL_INLINE v8 v8_mul(v8 x, v8 y) { v8 r; V8_MAP(x.a[i_] * y.a[i_]); return r; }
CL_INLINE v8 v8_div(v8 x, v8 y) { v8 r; V8_MAP(x.a[i_] / y.a[i_]); return r; }
CL_INLINE v8 v8_fma(v8 x, v8 y, v8 z) { v8 r; V8_MAP(cl_fma(x.a[i_], y.a[i_], z.a[i_])); return r; }
CL_INLINE v8 v8_max(v8 x, v8 y) { v8 r; V8_MAP(x.a[i_] > y.a[i_] ? x.a[i_] : y.a[i_]); return r; }
CL_INLINE v8 v8_min(v8 x, v8 y) { v8 r; V8_MAP(x.a[i_] < y.a[i_] ? x.a[i_] : y.a[i_]); return r; }
CL_INLINE v8 v8_abs(v8 x) { v8 r; V8_MAP(cl_bits_f32(cl_f32_bits(x.a[i_]) & 0x7FFFFFFFu)); return r; }
CL_INLINE v8 v8_exp(v8 x) { v8 r; V8_MAP(cl_expf(x.a[i_])); return r; }
/* ((0+4)+(2+6)) + ((1+5)+(3+7)) */
CL_INLINE float v8_sum(v8 x) {
    const float *a = x.a;
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}
CL_INLINE float v8_hmax(v8 x) {
    float m = x.a[0];
    for (int32_t i = 1; i < 8; i++) m = x.a[i] > m ? x.a[i] : m;
    return m;
}
CL_INLINE float v8_sqrt1(float x) { return sqrtf(x); }
/* q[32] = x[4] rounded to the nearest integers, ties to even, |x| < 128; s[2]: their sums over the first and last sixteen */
CL_INLINE void v8_round_i8(const v8 *x, int8_t *q, int16_t *s) {
    s[0] = s[1] = 0;
    for (int32_t i = 0; i < 32; i++) {
        float y = x[i / 8].a[i % 8] + CL_EXP_MAGIC;
        q[i] = (int8_t)(int32_t)(y - CL_EXP_MAGIC);
        s[i / 16] = (int16_t)(s[i / 16] + q[i]);
    }
}
#endif
