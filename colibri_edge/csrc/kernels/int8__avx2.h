/* Integer side of a row group in AVX2: 32 weight bytes = eight rows x four columns in one register.
   acc16: sixteen int16 lanes, two a row. i8x: eight int32 lanes, one a row. sc16: a row's two int16 factors in one int32 lane. */
#ifndef COLIBRI_INT8_H
#define COLIBRI_INT8_H
#include "k8__avx2.h"
#include "rows8.h"

#if defined(__GNUC__)
#  define INT8_UNROLL _Pragma("GCC unroll 8")
/* A sum stands where it is written: GCC would collect all products first, which takes more registers than there are. */
#  define INT8_KEEP(a) __asm__("" : "+x"(a))
#else
#  define INT8_UNROLL
#  define INT8_KEEP(a) (void)0
#endif
#define INT8_PAIRS 1 /* many tokens: row groups by twos (pair_tile) */

typedef __m256i w32;   /* weights, unsigned unless said otherwise */
typedef __m256i acc16;
typedef __m256i i8x;
typedef __m256i sc16;
typedef __m256i xw;    /* four activations, broadcast */

CL_INLINE w32 w32_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
CL_INLINE w32 w32_set1(uint8_t b) { return _mm256_set1_epi8((char)b); }
CL_INLINE w32 w32_and(w32 a, w32 b) { return _mm256_and_si256(a, b); }
CL_INLINE w32 w32_or(w32 a, w32 b) { return _mm256_or_si256(a, b); }
#define w32_shr_and(a, n, m) _mm256_and_si256(_mm256_srli_epi16(a, n), m) /* bits that cross bytes must be masked by m */
#define w32_top(a, n, m) w32_shr_and(a, n, m)                             /* the highest bits of every byte */
#define w32_shl(a, n) _mm256_slli_epi16(a, n)                             /* likewise masked before */
CL_INLINE w32 w32_from_i8(w32 a) { return a; }
CL_INLINE w32 w32_table(const uint8_t *p) { return w32_load(p); }
CL_INLINE w32 w32_lookup(w32 table, w32 i) { return _mm256_shuffle_epi8(table, i); } /* i < 16; the table twice */

CL_INLINE xw xw_load(const int8_t *q) { int32_t i; memcpy(&i, q, 4); return _mm256_set1_epi32(i); }
CL_INLINE acc16 acc16_zero(void) { return _mm256_setzero_si256(); }
CL_INLINE acc16 acc16_mac(acc16 a, w32 u, xw x) {
    a = _mm256_add_epi16(a, _mm256_maddubs_epi16(u, x));
    INT8_KEEP(a);
    return a;
}
CL_INLINE acc16 acc16_first(w32 u, xw x) {
    acc16 a = _mm256_maddubs_epi16(u, x);
    INT8_KEEP(a);
    return a;
}
/* both signed; a single product pair fits int16 because |x| <= 127 */
CL_INLINE acc16 acc16_signed(w32 s, xw x) { return _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(x, s)); }
CL_INLINE i8x acc16_sum(acc16 a) { return _mm256_madd_epi16(a, _mm256_set1_epi16(1)); }
CL_INLINE i8x acc16_scaled(acc16 a, sc16 s) { return _mm256_madd_epi16(a, s); }

CL_INLINE i8x i8x_add(i8x a, i8x b) { return _mm256_add_epi32(a, b); }
CL_INLINE i8x i8x_sub(i8x a, i8x b) { return _mm256_sub_epi32(a, b); }
CL_INLINE k8 k8_load_u8(const uint8_t *p) { return _mm_loadl_epi64((const __m128i *)(const void *)p); }
CL_INLINE k8 k8_load_i8(const uint8_t *p) { return k8_load_u8(p); }
CL_INLINE v8 i8x_float(i8x a) { return _mm256_cvtepi32_ps(a); }
CL_INLINE v8 k8_float(k8 a) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(a)); }
/* factors for both halves of a 16-bit pair */
CL_INLINE sc16 sc16_pair(k8 a, k8 b) { return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)); }
CL_INLINE sc16 sc16_set1(int16_t i) { return _mm256_set1_epi16(i); }
/* n times (a, b), of pairs (a, a) and (b, b) */
CL_INLINE sc16 sc16_scaled(sc16 a, sc16 b, int16_t n) { return _mm256_mullo_epi16(_mm256_blend_epi16(a, b, 0xAA), _mm256_set1_epi16(n)); }
/* s[0] * a + s[1] * b for each row */
CL_INLINE i8x sc16_dot(const int16_t *s, sc16 ab) { int32_t i; memcpy(&i, s, 4); return _mm256_madd_epi16(_mm256_set1_epi32(i), ab); }
CL_INLINE void int8_prefetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
CL_INLINE void rows_prefetch(rows_t b) { int8_prefetch(b); }
#endif
