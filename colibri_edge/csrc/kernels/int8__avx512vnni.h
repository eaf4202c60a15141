/* Integer side of two row groups with AVX-512 VNNI: 64 weight bytes = sixteen rows x four columns in one register, the lower half of the
   first group, the upper of the second. i8x: sixteen int32 lanes, one a row; a product of four bytes lands in its row's lane at once. */
#ifndef COLIBRI_INT8_H
#define COLIBRI_INT8_H
#include "k8__avx2.h"
#include "v16__avx512vnni.h"

#define INT8_UNROLL V16_UNROLL
#define INT8_SPAN 1
#define INT8_ROWS 16
#define INT8_TILE 8   /* tokens whose sums fit into the registers */
#define INT8_AHEAD 2048 /* bytes between a prefetch and its use, for one token (docs/decisions.md) */
#define INT8_BIAS 128 /* of int8 weights: the products take them unsigned */

/* A place in the blocks of the first group; the second group's lies `apart` bytes behind it, at the same place where there is none. */
typedef struct { const uint8_t *p; size_t apart; } rows_t;
CL_INLINE rows_t rows_mk(const uint8_t *p, size_t apart) { rows_t r; r.p = p; r.apart = apart; return r; }
CL_INLINE rows_t rows_at(rows_t b, int32_t n) { return rows_mk(b.p + n, b.apart); }
CL_INLINE void int8_prefetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
CL_INLINE void rows_prefetch(rows_t b) {
    int8_prefetch(b.p);
    int8_prefetch(b.p + b.apart);
}
/* The outputs of both groups for one token; apart = 0: those of the second are dropped. */
typedef struct { float *p; size_t apart; } outs_t;
CL_INLINE outs_t outs_mk(float *p, size_t apart) { outs_t y; y.p = p; y.apart = apart; return y; }
CL_INLINE outs_t outs_at(outs_t y, size_t n) { return outs_mk(y.p + n, y.apart); }

/* one float a row */
typedef v16 vr;
#define vr_set1 v16_set1
#define vr_sub v16_sub
#define vr_mul v16_mul
#define vr_fma v16_fma
CL_INLINE vr vr_load(outs_t y) { return v16_two((const uint8_t *)y.p, 4 * y.apart); }
CL_INLINE vr vr_load_f16(rows_t b) { return v16_two_f16(b.p, b.apart); }
CL_INLINE vr vr_load_bf16(rows_t b) { return v16_two_bf16(b.p, b.apart); }
CL_INLINE vr vr_load_e8m0_half(rows_t b) { /* as in v8__avx2.h */
    const __m512i one = _mm512_set1_epi32(1), e = _mm512_cvtepu8_epi32(two_8(b.p, b.apart));
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_slli_epi32(_mm512_sub_epi32(e, one), 23),
                                                _mm512_slli_epi32(_mm512_add_epi32(_mm512_min_epi32(e, one), one), 21)));
}
CL_INLINE void vr_store(outs_t y, vr x) {
    _mm256_storeu_ps(y.p, _mm512_castps512_ps256(x));
    if (y.apart) _mm256_storeu_ps(y.p + y.apart, _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)));
}

typedef __m512i w32; /* weights, unsigned */
typedef __m512i i8x;
CL_INLINE w32 w32_load(rows_t b) { return two_32(b.p, b.apart); }
CL_INLINE w32 w32_set1(uint8_t b) { return _mm512_set1_epi8((char)b); }
CL_INLINE w32 w32_and(w32 a, w32 b) { return _mm512_and_si512(a, b); }
CL_INLINE w32 w32_or(w32 a, w32 b) { return _mm512_or_si512(a, b); }
#define w32_shr_and(a, n, m) _mm512_and_si512(_mm512_srli_epi16(a, n), m) /* bits that cross bytes must be masked by m */
#define w32_top(a, n, m) w32_shr_and(a, n, m)                             /* the highest bits of every byte */
#define w32_shl(a, n) _mm512_slli_epi16(a, n)                             /* likewise masked before */
CL_INLINE w32 w32_from_i8(w32 a) { return _mm512_xor_si512(a, _mm512_set1_epi8((char)INT8_BIAS)); }
CL_INLINE w32 w32_table(const uint8_t *p) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p)); }
CL_INLINE w32 w32_lookup(w32 table, w32 i) { return _mm512_shuffle_epi8(table, i); } /* i < 16 */

CL_INLINE i8x i8x_add(i8x a, i8x b) { return _mm512_add_epi32(a, b); }
CL_INLINE i8x i8x_mul(i8x a, i8x b) { return _mm512_mullo_epi32(a, b); }
CL_INLINE vr i8x_float(i8x a) { return _mm512_cvtepi32_ps(a); }
CL_INLINE i8x int8_word(const void *p) { int32_t i; memcpy(&i, p, 4); return _mm512_set1_epi32(i); }
/* s[0] * a + s[1] * b in every row; a and b fit int16 */
CL_INLINE i8x i8x_sums(const int16_t *s, int32_t a, int32_t b) {
    if (!a && !b) return _mm512_setzero_si512();
    return _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_set1_epi32((int32_t)((uint32_t)b << 16 | ((uint32_t)a & 0xffffu))), int8_word(s));
}

CL_INLINE k8 k8_load_u8(rows_t b) { return two_8(b.p, b.apart); }
CL_INLINE k8 k8_load_i8(rows_t b) { return k8_load_u8(b); }
CL_INLINE vr k8_float(k8 a) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(a)); }
/* a row's two factors: the first as int32, both as a pair of int16; what is not used costs nothing */
typedef struct { i8x a, ab; } sc16;
CL_INLINE sc16 sc16_pair(k8 a, k8 b) {
    sc16 r;
    const __m256i ab = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi8(a, b)), _mm_unpackhi_epi8(a, b), 1);
    r.a = _mm512_cvtepi8_epi32(a);
    r.ab = _mm512_cvtepi8_epi16(ab);
    return r;
}
/* s[0] * a + s[1] * b for each row */
CL_INLINE i8x sc16_dot(const int16_t *s, sc16 f) { return _mm512_dpwssd_epi32(_mm512_setzero_si512(), f.ab, int8_word(s)); }
/* (s[0] + s[1]) * a, of pairs (a, a) */
CL_INLINE i8x sc16_times(sc16 f, const int16_t *s) { return sc16_dot(s, f); }

/* thirty-two activations of one token */
typedef const int8_t *x32;
CL_INLINE x32 x32_load(const int8_t *q) { return q; }
/* start + the dot products of chunks c0 .. c0 + n - 1 */
CL_INLINE i8x int8_span(const w32 *u, x32 x, int32_t c0, int32_t n, int32_t umax, i8x start) {
    (void)umax;
    INT8_UNROLL
    for (int32_t c = c0; c < c0 + n; c++) start = _mm512_dpbusd_epi32(start, u[c], int8_word(x + 4 * c));
    return start;
}
#endif
