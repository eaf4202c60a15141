/* The specification of the quantised formats: one row's 32 columns taken out of an R8 block, in plain C.
   Owns: bit positions (docs/format.md). Refuses: speed. */
#ifndef COLIBRI_SUB32_H
#define COLIBRI_SUB32_H

#include "colibri/formats.h"
#include "colibri/kernels.h"

/* weight[k] = d * sc[k / 16] * q[k] + m * mn[k / 16] */
typedef struct {
    float d, m;
    int32_t sc[2], mn[2];
    int32_t has_min;
    int32_t q[32];
} cl_sub32;

CL_INLINE float cl_half_at(const uint8_t *p, int32_t i) { return cl_f16_f32(cl_load_u16(p + 2 * i)); }
CL_INLINE float cl_bf16_at(const uint8_t *p, int32_t i) { return cl_bf16_f32(cl_load_u16(p + 2 * i)); }

/* mxfp4 (OCP Microscaling Formats 1.0: e2m1 elements, e8m0 scale): twice the value of each code, and half the scale 2^(e - 127). */
static const int8_t cl_mxfp4_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
CL_INLINE float cl_e8m0_half(uint8_t e) { return cl_bits_f32(e < 2 ? (uint32_t)0x00200000u << e : (uint32_t)(e - 1) << 23); }

CL_INLINE void cl_nibbles(const uint8_t *n, int32_t r, int32_t *q) { /* N: [4][8][4] */
    for (int32_t k = 0; k < 16; k++) {
        uint8_t b = n[(k / 4) * 32 + r * 4 + k % 4];
        q[k] = b & 15;
        q[k + 16] = b >> 4;
    }
}

CL_INLINE void cl_high_bit(const uint8_t *h, int32_t r, int32_t bit, int32_t *q) { /* H: [8][4] */
    for (int32_t k = 0; k < 32; k++) q[k] |= ((h[r * 4 + k % 4] >> (k / 4)) & 1) << bit;
}

CL_INLINE void cl_two_bits(const uint8_t *t, int32_t r, int32_t bit, int32_t *q) { /* T: [2][8][4] */
    for (int32_t k = 0; k < 32; k++) {
        int32_t c = k / 4;
        q[k] |= ((t[(c / 4) * 32 + r * 4 + k % 4] >> (2 * (c % 4))) & 3) << bit;
    }
}

CL_INLINE int32_t cl_hi_nibble(const uint8_t *hi, int32_t s, int32_t r) { return (hi[(s >> 1) * 8 + r] >> (4 * (s & 1))) & 15; }

/* Sub-block s (0 for blocks of 32) of row r. */
CL_INLINE void cl_unpack_sub32(int32_t fmt, const uint8_t *b, int32_t s, int32_t r, cl_sub32 *o) {
    memset(o, 0, sizeof *o);
    o->sc[0] = o->sc[1] = o->mn[0] = o->mn[1] = 1;
    o->d = fmt >= CL_FMT_q4_a ? cl_bf16_at(b, r) : fmt == CL_FMT_mxfp4 ? cl_e8m0_half(b[r]) : cl_half_at(b, r);
    int32_t minus = 0;
    switch (fmt) {
    case CL_FMT_q8_0:
        for (int32_t k = 0; k < 32; k++) o->q[k] = (int8_t)b[16 + (k / 4) * 32 + r * 4 + k % 4];
        break;
    case CL_FMT_q4_0:
        cl_nibbles(b + 16, r, o->q);
        minus = 8;
        break;
    case CL_FMT_q4_1:
        cl_nibbles(b + 32, r, o->q);
        o->has_min = 1;
        o->m = cl_half_at(b + 16, r);
        break;
    case CL_FMT_q5_0:
        cl_nibbles(b + 48, r, o->q);
        cl_high_bit(b + 16, r, 4, o->q);
        minus = 16;
        break;
    case CL_FMT_q5_1:
        cl_nibbles(b + 64, r, o->q);
        cl_high_bit(b + 32, r, 4, o->q);
        o->has_min = 1;
        o->m = cl_half_at(b + 16, r);
        break;
    case CL_FMT_q4_k:
    case CL_FMT_q5_k: {
        uint8_t lo = b[32 + s * 8 + r];
        int32_t hi = cl_hi_nibble(b + 96, s, r);
        o->has_min = 1;
        o->m = -cl_half_at(b + 16, r);
        o->sc[0] = o->sc[1] = (lo & 15) | (hi & 3) << 4;
        o->mn[0] = o->mn[1] = (lo >> 4) | (hi >> 2) << 4;
        if (fmt == CL_FMT_q4_k) {
            cl_nibbles(b + 128 + s * 128, r, o->q);
        } else {
            cl_nibbles(b + 128 + s * 160 + 32, r, o->q);
            cl_high_bit(b + 128 + s * 160, r, 4, o->q);
        }
        break;
    }
    case CL_FMT_q6_k:
        o->sc[0] = (int8_t)b[16 + (2 * s) * 8 + r];
        o->sc[1] = (int8_t)b[16 + (2 * s + 1) * 8 + r];
        cl_nibbles(b + 144 + s * 192, r, o->q);
        cl_two_bits(b + 144 + s * 192 + 128, r, 4, o->q);
        minus = 32;
        break;
    case CL_FMT_q3_k: {
        uint8_t lo = b[16 + s * 8 + r];
        int32_t hi = cl_hi_nibble(b + 80, s, r);
        o->sc[0] = ((lo & 15) | (hi & 3) << 4) - 32;
        o->sc[1] = ((lo >> 4) | (hi >> 2) << 4) - 32;
        cl_two_bits(b + 112 + s * 96, r, 0, o->q);
        cl_high_bit(b + 112 + s * 96 + 64, r, 2, o->q);
        minus = 4;
        break;
    }
    case CL_FMT_q2_k:
        o->has_min = 1;
        o->m = -cl_half_at(b + 16, r);
        for (int32_t g = 0; g < 2; g++) {
            uint8_t sm = b[32 + (2 * s + g) * 8 + r];
            o->sc[g] = sm & 15;
            o->mn[g] = sm >> 4;
        }
        cl_two_bits(b + 160 + s * 64, r, 0, o->q);
        break;
    case CL_FMT_mxfp4:
        cl_nibbles(b + 8, r, o->q);
        for (int32_t k = 0; k < 32; k++) o->q[k] = cl_mxfp4_twice[o->q[k]];
        break;
    case CL_FMT_q4_a:
    case CL_FMT_q4_a32:
        cl_nibbles(b + 32 + s * 128, r, o->q);
        o->has_min = 1;
        o->m = cl_bf16_at(b + 16, r);
        break;
    case CL_FMT_q2_a:
    case CL_FMT_q2_a32:
        cl_two_bits(b + 32 + s * 64, r, 0, o->q);
        o->has_min = 1;
        o->m = cl_bf16_at(b + 16, r);
        break;
    default:
        assert(0);
    }
    for (int32_t k = 0; k < 32; k++) o->q[k] -= minus;
}

#endif
