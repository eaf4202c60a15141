/* Integer side of a row group in plain Advanced SIMD (no dotprod: Cortex-A72). 32 weight bytes = eight rows x four columns.
   i8x: eight int32 lanes, one a row. int8_span: the dot products of some chunks, in int16 lanes as long as they hold. */
#ifndef COLIBRI_INT8_H
#define COLIBRI_INT8_H
#include "v8__neon.h"
#include "rows8.h"

/* a tile keeps its sums in registers only where its loop over tokens is unrolled, which GCC leaves to us for long bodies */
#if defined(__GNUC__)
#  define INT8_UNROLL _Pragma("GCC unroll 8")
#else
#  define INT8_UNROLL
#endif

typedef struct { uint8x16_t a, b; } w32;
typedef struct { int32x4_t l, h; } i8x;
typedef struct { i8x a, b; int16x8_t na, nb; } sc16; /* a row's two factors, wide and narrow: what is not used costs nothing */

CL_INLINE w32 w32_mk(uint8x16_t a, uint8x16_t b) { w32 r; r.a = a; r.b = b; return r; }
CL_INLINE w32 w32_load(const uint8_t *p) { return w32_mk(vld1q_u8(p), vld1q_u8(p + 16)); }
CL_INLINE w32 w32_set1(uint8_t b) { return w32_mk(vdupq_n_u8(b), vdupq_n_u8(b)); }
CL_INLINE w32 w32_and(w32 x, w32 y) { return w32_mk(vandq_u8(x.a, y.a), vandq_u8(x.b, y.b)); }
CL_INLINE w32 w32_or(w32 x, w32 y) { return w32_mk(vorrq_u8(x.a, y.a), vorrq_u8(x.b, y.b)); }
#define w32_shr_and(x, n, m) w32_and(w32_mk(vshlq_u8((x).a, vdupq_n_s8(-(n))), vshlq_u8((x).b, vdupq_n_s8(-(n)))), m)
#define w32_top(x, n, m) w32_mk(vshrq_n_u8((x).a, n), vshrq_n_u8((x).b, n)) /* shifts stay inside a byte: no mask */
#define w32_shl(x, n) w32_mk(vshlq_n_u8((x).a, n), vshlq_n_u8((x).b, n))
CL_INLINE w32 w32_from_i8(w32 a) { return a; }
CL_INLINE w32 w32_table(const uint8_t *p) { return w32_load(p); }
CL_INLINE w32 w32_lookup(w32 table, w32 i) { return w32_mk(vqtbl1q_u8(table.a, i.a), vqtbl1q_u8(table.b, i.b)); } /* i < 16 */

CL_INLINE i8x i8x_mk(int32x4_t l, int32x4_t h) { i8x r; r.l = l; r.h = h; return r; }
CL_INLINE i8x i8x_add(i8x x, i8x y) { return i8x_mk(vaddq_s32(x.l, y.l), vaddq_s32(x.h, y.h)); }
CL_INLINE i8x i8x_sub(i8x x, i8x y) { return i8x_mk(vsubq_s32(x.l, y.l), vsubq_s32(x.h, y.h)); }
CL_INLINE i8x i8x_mul(i8x x, i8x y) { return i8x_mk(vmulq_s32(x.l, y.l), vmulq_s32(x.h, y.h)); }
CL_INLINE i8x i8x_set1(int32_t i) { return i8x_mk(vdupq_n_s32(i), vdupq_n_s32(i)); }
/* s[0] * a + s[1] * b in every row */
CL_INLINE i8x i8x_sums(const int16_t *s, int32_t a, int32_t b) { return i8x_set1(s[0] * a + s[1] * b); }
/* eight factors of a byte, one a row: taken apart as bytes, widened once (sc16_pair). Shifts drop what leaves the byte. */
typedef int8x8_t k8;
CL_INLINE k8 k8_load_u8(const uint8_t *p) { return vreinterpret_s8_u8(vld1_u8(p)); }
CL_INLINE k8 k8_load_i8(const uint8_t *p) { return k8_load_u8(p); }
CL_INLINE k8 k8_set1(int32_t i) { return vdup_n_s8((int8_t)i); }
CL_INLINE k8 k8_and(k8 x, k8 y) { return vand_s8(x, y); }
CL_INLINE k8 k8_or(k8 x, k8 y) { return vorr_s8(x, y); }
CL_INLINE k8 k8_sub(k8 x, k8 y) { return vsub_s8(x, y); }
#define k8_shr(x, n) vreinterpret_s8_u8(vshr_n_u8(vreinterpret_u8_s8(x), n))
#define k8_shl(x, n) vshl_n_s8(x, n)
CL_INLINE v8 i8x_float(i8x x) { return v8_mk(vcvtq_f32_s32(x.l), vcvtq_f32_s32(x.h)); }
CL_INLINE v8 k8_float(k8 a) {
    const int16x8_t w = vmovl_s8(a);
    return i8x_float(i8x_mk(vmovl_s16(vget_low_s16(w)), vmovl_high_s16(w)));
}
CL_INLINE sc16 sc16_pair(k8 a, k8 b) {
    sc16 r;
    r.na = vmovl_s8(a);
    r.nb = vmovl_s8(b);
    r.a = i8x_mk(vmovl_s16(vget_low_s16(r.na)), vmovl_high_s16(r.na));
    r.b = i8x_mk(vmovl_s16(vget_low_s16(r.nb)), vmovl_high_s16(r.nb));
    return r;
}
/* s[0] * a + s[1] * b; widening products take one slot of the multiplier where those of int32 take two */
CL_INLINE i8x sc16_dot(const int16_t *s, sc16 f) {
    return i8x_mk(vmlal_n_s16(vmull_n_s16(vget_low_s16(f.na), s[0]), vget_low_s16(f.nb), s[1]),
                  vmlal_high_n_s16(vmull_high_n_s16(f.na, s[0]), f.nb, s[1]));
}
CL_INLINE void rows_prefetch(rows_t b) { (void)b; }

/* thirty-two activations of one token, and a word of them for every row */
typedef struct { int32x4_t lo, hi; } x32;
CL_INLINE x32 x32_load(const int8_t *q) {
    x32 r;
    r.lo = vreinterpretq_s32_s8(vld1q_s8(q));
    r.hi = vreinterpretq_s32_s8(vld1q_s8(q + 16));
    return r;
}

/* (s[0] + s[1]) * a */
CL_INLINE i8x sc16_times(sc16 f, const int16_t *s) {
    const int16_t both = (int16_t)(s[0] + s[1]);
    return i8x_mk(vmull_n_s16(vget_low_s16(f.na), both), vmull_high_n_s16(f.na, both));
}

#ifndef INT8_SDOT
/* int16 lanes hold one product of each chunk (|x| <= 127): eight chunks of weights up to 31, four up to 63, two of int8 */
CL_INLINE int32_t int8_run(int32_t umax, int32_t n) {
    int32_t run = umax <= 31 ? 8 : umax <= 63 ? 4 : 2;
    return run < n ? run : n;
}
CL_INLINE int8x16_t x32_word(x32 x, int32_t c) {
    switch (c) {
    case 0: return vreinterpretq_s8_s32(vdupq_laneq_s32(x.lo, 0));
    case 1: return vreinterpretq_s8_s32(vdupq_laneq_s32(x.lo, 1));
    case 2: return vreinterpretq_s8_s32(vdupq_laneq_s32(x.lo, 2));
    case 3: return vreinterpretq_s8_s32(vdupq_laneq_s32(x.lo, 3));
    case 4: return vreinterpretq_s8_s32(vdupq_laneq_s32(x.hi, 0));
    case 5: return vreinterpretq_s8_s32(vdupq_laneq_s32(x.hi, 1));
    case 6: return vreinterpretq_s8_s32(vdupq_laneq_s32(x.hi, 2));
    default: return vreinterpretq_s8_s32(vdupq_laneq_s32(x.hi, 3));
    }
}
/* start + the dot products of chunks c0 .. c0 + n - 1. Rows 0-1, 2-3, 4-5, 6-7, four lanes a row, then two, then one. */
CL_INLINE i8x int8_span(const w32 *u, x32 x, int32_t c0, int32_t n, int32_t umax, i8x start) {
    const int32_t run = int8_run(umax, n);
    int32x4_t s[4];
    INT8_UNROLL
    for (int32_t c = c0; c < c0 + n; c += run) {
        int16x8_t r[4];
        INT8_UNROLL
        for (int32_t i = c; i < c + run; i++) {
            const int8x16_t a = vreinterpretq_s8_u8(u[i].a), b = vreinterpretq_s8_u8(u[i].b), w = x32_word(x, i);
            r[0] = i == c ? vmull_s8(vget_low_s8(a), vget_low_s8(w)) : vmlal_s8(r[0], vget_low_s8(a), vget_low_s8(w));
            r[1] = i == c ? vmull_high_s8(a, w) : vmlal_high_s8(r[1], a, w);
            r[2] = i == c ? vmull_s8(vget_low_s8(b), vget_low_s8(w)) : vmlal_s8(r[2], vget_low_s8(b), vget_low_s8(w));
            r[3] = i == c ? vmull_high_s8(b, w) : vmlal_high_s8(r[3], b, w);
        }
        INT8_UNROLL
        for (int32_t i = 0; i < 4; i++) s[i] = c == c0 ? vpaddlq_s16(r[i]) : vpadalq_s16(s[i], r[i]);
    }
    return i8x_add(start, i8x_mk(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3])));
}
#endif
#define INT8_SPAN 1
#endif
