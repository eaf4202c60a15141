/* Eight float lanes in two AArch64 Advanced SIMD registers. */
#ifndef COLIBRI_V8_H
#define COLIBRI_V8_H
#include "colibri/vmath.h"
#include <arm_neon.h>

typedef struct { float32x4_t l, h; } v8;
CL_INLINE v8 v8_mk(float32x4_t l, float32x4_t h) { v8 r; r.l = l; r.h = h; return r; }
CL_INLINE v8 v8_load(const float *p) { return v8_mk(vld1q_f32(p), vld1q_f32(p + 4)); }
CL_INLINE void v8_store(float *p, v8 x) { vst1q_f32(p, x.l); vst1q_f32(p + 4, x.h); }
CL_INLINE v8 v8_set1(float f) { return v8_mk(vdupq_n_f32(f), vdupq_n_f32(f)); }
CL_INLINE v8 v8_load_f16(const void *p) {
    uint16x8_t u = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)p));
    float16x8_t f = vreinterpretq_f16_u16(u);
    return v8_mk(vcvt_f32_f16(vget_low_f16(f)), vcvt_f32_f16(vget_high_f16(f)));
}
CL_INLINE v8 v8_load_bf16(const void *p) {
    uint16x8_t u = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)p));
    return v8_mk(vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(u), 16)), vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(u), 16)));
}
/* 2^(e - 128) of eight bytes e: e = 0 and 1 give subnormals, so the exponent field alone will not do */
CL_INLINE float32x4_t v8_e8m0_half4(int32x4_t e) {
    const int32x4_t one = vdupq_n_s32(1);
    return vreinterpretq_f32_s32(vmaxq_s32(vshlq_n_s32(vsubq_s32(e, one), 23), vshlq_n_s32(vaddq_s32(vminq_s32(e, one), one), 21)));
}
CL_INLINE v8 v8_load_e8m0_half(const void *p) {
    const int16x8_t e = vreinterpretq_s16_u16(vmovl_u8(vld1_u8((const uint8_t *)p)));
    return v8_mk(v8_e8m0_half4(vmovl_s16(vget_low_s16(e))), v8_e8m0_half4(vmovl_high_s16(e)));
}
CL_INLINE v8 v8_load_i8(const void *p) {
    const int16x8_t i = vmovl_s8(vld1_s8((const int8_t *)p));
    return v8_mk(vcvtq_f32_s32(vmovl_s16(vget_low_s16(i))), vcvtq_f32_s32(vmovl_high_s16(i)));
}
CL_INLINE v8 v8_add(v8 x, v8 y) { return v8_mk(vaddq_f32(x.l, y.l), vaddq_f32(x.h, y.h)); }
CL_INLINE v8 v8_sub(v8 x, v8 y) { return v8_mk(vsubq_f32(x.l, y.l), vsubq_f32(x.h, y.h)); }
CL_INLINE v8 v8_mul(v8 x, v8 y) { return v8_mk(vmulq_f32(x.l, y.l), vmulq_f32(x.h, y.h)); }
CL_INLINE v8 v8_div(v8 x, v8 y) { return v8_mk(vdivq_f32(x.l, y.l), vdivq_f32(x.h, y.h)); }
CL_INLINE v8 v8_fma(v8 x, v8 y, v8 z) { return v8_mk(vfmaq_f32(z.l, x.l, y.l), vfmaq_f32(z.h, x.h, y.h)); }
CL_INLINE v8 v8_max(v8 x, v8 y) {
    return v8_mk(vbslq_f32(vcgtq_f32(x.l, y.l), x.l, y.l), vbslq_f32(vcgtq_f32(x.h, y.h), x.h, y.h));
}
CL_INLINE v8 v8_min(v8 x, v8 y) {
    return v8_mk(vbslq_f32(vcltq_f32(x.l, y.l), x.l, y.l), vbslq_f32(vcltq_f32(x.h, y.h), x.h, y.h));
}
CL_INLINE v8 v8_abs(v8 x) { return v8_mk(vabsq_f32(x.l), vabsq_f32(x.h)); }
CL_INLINE float32x4_t v8_scale2(float32x4_t p, int32x4_t i) {
    int32x4_t h = vshrq_n_s32(i, 1), bias = vdupq_n_s32(127);
    p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(h, bias), 23)));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(i, h), bias), 23)));
}
CL_INLINE float32x4_t v8_exp_limits(float32x4_t x, float32x4_t p) {
    p = vbslq_f32(vcltq_f32(x, vdupq_n_f32(CL_EXP_LO)), vdupq_n_f32(0.0f), p);
    p = vbslq_f32(vcgtq_f32(x, vdupq_n_f32(CL_EXP_HI)), vreinterpretq_f32_u32(vdupq_n_u32(0x7F800000u)), p);
    return vbslq_f32(vceqq_f32(x, x), p, x);
}
CL_INLINE v8 v8_exp(v8 x) {
    v8 n = v8_sub(v8_fma(x, v8_set1(CL_EXP_LOG2E), v8_set1(CL_EXP_MAGIC)), v8_set1(CL_EXP_MAGIC));
    v8 r = v8_fma(n, v8_set1(-CL_EXP_LN2_HI), x);
    r = v8_fma(n, v8_set1(-CL_EXP_LN2_LO), r);
    v8 p = v8_set1(CL_EXP_P0);
    p = v8_fma(p, r, v8_set1(CL_EXP_P1));
    p = v8_fma(p, r, v8_set1(CL_EXP_P2));
    p = v8_fma(p, r, v8_set1(CL_EXP_P3));
    p = v8_fma(p, r, v8_set1(CL_EXP_P4));
    p = v8_fma(p, r, v8_set1(CL_EXP_P5));
    p = v8_add(v8_fma(p, v8_mul(r, r), r), v8_set1(1.0f));
    p = v8_mk(v8_scale2(p.l, vcvtq_s32_f32(n.l)), v8_scale2(p.h, vcvtq_s32_f32(n.h)));
    return v8_mk(v8_exp_limits(x.l, p.l), v8_exp_limits(x.h, p.h));
}
CL_INLINE float v8_sum(v8 x) {
    float32x4_t s = vaddq_f32(x.l, x.h);
    float32x2_t t = vadd_f32(vget_low_f32(s), vget_high_f32(s));
    return vget_lane_f32(t, 0) + vget_lane_f32(t, 1);
}
CL_INLINE float v8_hmax(v8 x) {
    v8 m = v8_max(x, v8_mk(x.h, x.l));
    float a[4], r;
    vst1q_f32(a, m.l);
    r = a[0];
    for (int32_t i = 1; i < 4; i++) r = a[i] > r ? a[i] : r;
    return r;
}
CL_INLINE float v8_sqrt1(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }
CL_INLINE int16x8_t v8_round_i16(v8 x) { return vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(x.l)), vqmovn_s32(vcvtnq_s32_f32(x.h))); }
CL_INLINE void v8_round_i8(const v8 *x, int8_t *q, int16_t *s) {
    for (int32_t i = 0; i < 2; i++) {
        const int8x16_t w = vcombine_s8(vqmovn_s16(v8_round_i16(x[2 * i])), vqmovn_s16(v8_round_i16(x[2 * i + 1])));
        vst1q_s8(q + 16 * i, w);
        s[i] = vaddlvq_s8(w);
    }
}
#endif
