/* Integer side of a row group with sdot (Cortex-A76, A55): a dot product of four bytes lands in its row's int32 lane at once. */
#define INT8_ACC_I8X 1
#include "int8__neon.h"

typedef i8x acc16;
typedef int8x16_t xw;

CL_INLINE xw xw_load(const int8_t *q) { int32_t i; memcpy(&i, q, 4); return vreinterpretq_s8_s32(vdupq_n_s32(i)); }
CL_INLINE acc16 acc16_mac(acc16 c, w32 u, xw x) {
    return i8x_mk(vdotq_s32(c.l, vreinterpretq_s8_u8(u.a), x), vdotq_s32(c.h, vreinterpretq_s8_u8(u.b), x));
}
CL_INLINE acc16 acc16_first(w32 u, xw x) { return acc16_mac(i8x_set1(0), u, x); }
CL_INLINE acc16 acc16_signed(w32 s, xw x) { return acc16_first(s, x); }
CL_INLINE i8x acc16_sum(acc16 c) { return c; }
CL_INLINE i8x acc16_scaled(acc16 c, sc16 s) { return i8x_mk(vmulq_s32(c.l, s.a.l), vmulq_s32(c.h, s.a.h)); }
