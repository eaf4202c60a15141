/* Integer side of a row group with sdot (Cortex-A76, A55): a dot product of four bytes lands in its row's int32 lane at once, and
   takes its activations straight from a lane. */
#define INT8_SDOT 1
#include "int8__neon.h"

#define SDOT(PART, LANE)                                                          \
    acc.l = vdotq_laneq_s32(acc.l, vreinterpretq_s8_u8(u.a), vreinterpretq_s8_s32(PART), LANE); \
    acc.h = vdotq_laneq_s32(acc.h, vreinterpretq_s8_u8(u.b), vreinterpretq_s8_s32(PART), LANE); \
    break
CL_INLINE i8x int8_chunk(i8x acc, w32 u, x32 x, int32_t c) {
    switch (c) {
    case 0: SDOT(x.lo, 0);
    case 1: SDOT(x.lo, 1);
    case 2: SDOT(x.lo, 2);
    case 3: SDOT(x.lo, 3);
    case 4: SDOT(x.hi, 0);
    case 5: SDOT(x.hi, 1);
    case 6: SDOT(x.hi, 2);
    default: SDOT(x.hi, 3);
    }
    return acc;
}
#undef SDOT
/* start + the dot products of chunks c0 .. c0 + n - 1 */
CL_INLINE i8x int8_span(const w32 *u, x32 x, int32_t c0, int32_t n, int32_t umax, i8x start) {
    (void)umax;
    INT8_UNROLL
    for (int32_t c = c0; c < c0 + n; c++) start = int8_chunk(start, u[c], x, c);
    return start;
}
