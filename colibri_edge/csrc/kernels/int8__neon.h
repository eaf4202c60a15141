/* Integer side of a row group in plain Advanced SIMD (no dotprod: Cortex-A72). 32 weight bytes = eight rows x four columns.
   acc16: thirty-two int16 lanes, four a row. i8x: eight int32 lanes, one a row. */
#ifndef COLIBRI_INT8_H
#define COLIBRI_INT8_H
#include "v8__neon.h"

typedef struct { uint8x16_t a, b; } w32;
typedef struct { int32x4_t l, h; } i8x;
typedef struct { i8x a, b; } sc16;

CL_INLINE w32 w32_mk(uint8x16_t a, uint8x16_t b) { w32 r; r.a = a; r.b = b; return r; }
CL_INLINE w32 w32_load(const uint8_t *p) { return w32_mk(vld1q_u8(p), vld1q_u8(p + 16)); }
CL_INLINE w32 w32_set1(uint8_t b) { return w32_mk(vdupq_n_u8(b), vdupq_n_u8(b)); }
CL_INLINE w32 w32_and(w32 x, w32 y) { return w32_mk(vandq_u8(x.a, y.a), vandq_u8(x.b, y.b)); }
CL_INLINE w32 w32_or(w32 x, w32 y) { return w32_mk(vorrq_u8(x.a, y.a), vorrq_u8(x.b, y.b)); }
#define w32_shr_and(x, n, m) w32_and(w32_mk(vshlq_u8((x).a, vdupq_n_s8(-(n))), vshlq_u8((x).b, vdupq_n_s8(-(n)))), m)
#define w32_shl(x, n) w32_mk(vshlq_n_u8((x).a, n), vshlq_n_u8((x).b, n))

CL_INLINE i8x i8x_mk(int32x4_t l, int32x4_t h) { i8x r; r.l = l; r.h = h; return r; }
CL_INLINE i8x i8x_add(i8x x, i8x y) { return i8x_mk(vaddq_s32(x.l, y.l), vaddq_s32(x.h, y.h)); }
CL_INLINE i8x i8x_sub(i8x x, i8x y) { return i8x_mk(vsubq_s32(x.l, y.l), vsubq_s32(x.h, y.h)); }
CL_INLINE i8x i8x_load_u8(const uint8_t *p) {
    uint16x8_t w = vmovl_u8(vld1_u8(p));
    return i8x_mk(vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(w))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(w))));
}
CL_INLINE i8x i8x_load_i8(const uint8_t *p) {
    int16x8_t w = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
    return i8x_mk(vmovl_s16(vget_low_s16(w)), vmovl_s16(vget_high_s16(w)));
}
CL_INLINE i8x i8x_set1(int32_t i) { return i8x_mk(vdupq_n_s32(i), vdupq_n_s32(i)); }
CL_INLINE i8x i8x_and(i8x x, i8x y) { return i8x_mk(vandq_s32(x.l, y.l), vandq_s32(x.h, y.h)); }
CL_INLINE i8x i8x_or(i8x x, i8x y) { return i8x_mk(vorrq_s32(x.l, y.l), vorrq_s32(x.h, y.h)); }
#define i8x_shr(x, n) i8x_mk(vshlq_s32((x).l, vdupq_n_s32(-(n))), vshlq_s32((x).h, vdupq_n_s32(-(n))))
#define i8x_shl(x, n) i8x_mk(vshlq_n_s32((x).l, n), vshlq_n_s32((x).h, n))
CL_INLINE v8 i8x_float(i8x x) { return v8_mk(vcvtq_f32_s32(x.l), vcvtq_f32_s32(x.h)); }
CL_INLINE sc16 sc16_pair(i8x a, i8x b) { sc16 r; r.a = a; r.b = b; return r; }
CL_INLINE i8x sc16_dot(const int16_t *s, sc16 f) {
    return i8x_mk(vmlaq_n_s32(vmulq_n_s32(f.a.l, s[0]), f.b.l, s[1]), vmlaq_n_s32(vmulq_n_s32(f.a.h, s[0]), f.b.h, s[1]));
}
CL_INLINE void int8_prefetch(const uint8_t *p) { (void)p; }

#ifndef INT8_ACC_I8X /* without sdot: int16 lanes, four a row */
typedef struct { int16x8_t r[4]; } acc16; /* rows 0-1, 2-3, 4-5, 6-7 */
typedef int8x8_t xw;

CL_INLINE xw xw_load(const int8_t *q) { int32_t i; memcpy(&i, q, 4); return vreinterpret_s8_s32(vdup_n_s32(i)); }
CL_INLINE acc16 acc16_zero(void) {
    acc16 r;
    for (int32_t i = 0; i < 4; i++) r.r[i] = vdupq_n_s16(0);
    return r;
}
CL_INLINE acc16 acc16_mac(acc16 c, w32 u, xw x) {
    int8x16_t a = vreinterpretq_s8_u8(u.a), b = vreinterpretq_s8_u8(u.b);
    c.r[0] = vmlal_s8(c.r[0], vget_low_s8(a), x);
    c.r[1] = vmlal_s8(c.r[1], vget_high_s8(a), x);
    c.r[2] = vmlal_s8(c.r[2], vget_low_s8(b), x);
    c.r[3] = vmlal_s8(c.r[3], vget_high_s8(b), x);
    return c;
}
CL_INLINE acc16 acc16_first(w32 u, xw x) { return acc16_mac(acc16_zero(), u, x); }
CL_INLINE acc16 acc16_signed(w32 s, xw x) { return acc16_first(s, x); }
CL_INLINE i8x acc16_sum(acc16 c) {
    i8x r;
    r.l = vpaddq_s32(vpaddlq_s16(c.r[0]), vpaddlq_s16(c.r[1]));
    r.h = vpaddq_s32(vpaddlq_s16(c.r[2]), vpaddlq_s16(c.r[3]));
    return r;
}
CL_INLINE i8x acc16_scaled(acc16 c, sc16 s) {
    i8x r = acc16_sum(c);
    r.l = vmulq_s32(r.l, s.a.l);
    r.h = vmulq_s32(r.h, s.a.h);
    return r;
}
#endif
#endif
