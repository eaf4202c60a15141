/* Sixteen float lanes in one AVX-512 register; v16_two_*: eight and the eight that lie `other` bytes behind them. */
#ifndef COLIBRI_V16_H
#define COLIBRI_V16_H
#include "v8__avx2.h"

#if defined(__GNUC__)
#  define V16_UNROLL _Pragma("GCC unroll 8")
#else
#  define V16_UNROLL
#endif

typedef __m512 v16;
CL_INLINE v16 v16_set1(float f) { return _mm512_set1_ps(f); }
CL_INLINE v16 v16_sub(v16 x, v16 y) { return _mm512_sub_ps(x, y); }
CL_INLINE v16 v16_mul(v16 x, v16 y) { return _mm512_mul_ps(x, y); }
CL_INLINE v16 v16_fma(v16 x, v16 y, v16 z) { return _mm512_fmadd_ps(x, y, z); }
CL_INLINE void v16_store(float *p, v16 x) { _mm512_storeu_ps(p, x); }

CL_INLINE __m128i two_8(const uint8_t *p, size_t other) {
    const __m128d lo = _mm_castsi128_pd(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return _mm_castpd_si128(_mm_loadh_pd(lo, (const double *)(const void *)(p + other)));
}
CL_INLINE __m256i two_16(const uint8_t *p, size_t other) {
    const __m256i lo = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_inserti128_si256(lo, _mm_loadu_si128((const __m128i *)(const void *)(p + other)), 1);
}
CL_INLINE __m512i two_32(const uint8_t *p, size_t other) {
    const __m512i lo = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_inserti64x4(lo, _mm256_loadu_si256((const __m256i *)(const void *)(p + other)), 1);
}
CL_INLINE v16 v16_two(const uint8_t *p, size_t other) { return _mm512_castsi512_ps(two_32(p, other)); }
CL_INLINE v16 v16_two_f16(const uint8_t *p, size_t other) { return _mm512_cvtph_ps(two_16(p, other)); }
CL_INLINE v16 v16_two_bf16(const uint8_t *p, size_t other) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(two_16(p, other)), 16));
}
CL_INLINE v16 v16_two_i8(const uint8_t *p, size_t other) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(two_8(p, other))); }
#endif
