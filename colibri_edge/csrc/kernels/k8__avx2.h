/* Factors of a byte, one a row, for eight rows or sixteen: taken apart as bytes, widened once (sc16_pair). Shifts drop what leaves the byte. */
#ifndef COLIBRI_K8_H
#define COLIBRI_K8_H
#include "v8__avx2.h"

typedef __m128i k8;
CL_INLINE k8 k8_set1(int32_t i) { return _mm_set1_epi8((char)i); }
CL_INLINE k8 k8_and(k8 a, k8 b) { return _mm_and_si128(a, b); }
CL_INLINE k8 k8_or(k8 a, k8 b) { return _mm_or_si128(a, b); }
CL_INLINE k8 k8_sub(k8 a, k8 b) { return _mm_sub_epi8(a, b); }
#define k8_shr(a, n) _mm_and_si128(_mm_srli_epi16(a, n), _mm_set1_epi8((char)(0xff >> (n))))
#define k8_shl(a, n) _mm_and_si128(_mm_slli_epi16(a, n), _mm_set1_epi8((char)(0xff << (n))))
#endif
