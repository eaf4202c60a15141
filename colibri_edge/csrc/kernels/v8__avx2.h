/* Eight float lanes in one AVX register (AVX2, FMA, F16C). */
#ifndef COLIBRI_V8_H
#define COLIBRI_V8_H
#include "colibri/vmath.h"
#include <immintrin.h>

typedef __m256 v8;
CL_INLINE v8 v8_load(const float *p) { return _mm256_loadu_ps(p); }
CL_INLINE void v8_store(float *p, v8 x) { _mm256_storeu_ps(p, x); }
CL_INLINE v8 v8_set1(float f) { return _mm256_set1_ps(f); }
CL_INLINE v8 v8_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
CL_INLINE v8 v8_load_bf16(const void *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
/* 2^(e - 128) of eight bytes e: e = 0 and 1 give subnormals, so the exponent field alone will not do */
CL_INLINE v8 v8_load_e8m0_half(const void *p) {
    const __m256i one = _mm256_set1_epi32(1), e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_slli_epi32(_mm256_sub_epi32(e, one), 23),
                                                _mm256_slli_epi32(_mm256_add_epi32(_mm256_min_epi32(e, one), one), 21)));
}
CL_INLINE v8 v8_load_i8(const void *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))); }
CL_INLINE v8 v8_add(v8 x, v8 y) { return _mm256_add_ps(x, y); }
CL_INLINE v8 v8_sub(v8 x, v8 y) { return _mm256_sub_ps(x, y); }
CL_INLINE v8 v8_mul(v8 x, v8 y) { return _mm256_mul_ps(x, y); }
CL_INLINE v8 v8_div(v8 x, v8 y) { return _mm256_div_ps(x, y); }
CL_INLINE v8 v8_fma(v8 x, v8 y, v8 z) { return _mm256_fmadd_ps(x, y, z); }
CL_INLINE v8 v8_max(v8 x, v8 y) { return _mm256_max_ps(x, y); }
CL_INLINE v8 v8_min(v8 x, v8 y) { return _mm256_min_ps(x, y); }
CL_INLINE v8 v8_abs(v8 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
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
    __m256i i = _mm256_cvttps_epi32(n), h = _mm256_srai_epi32(i, 1), bias = _mm256_set1_epi32(127);
    v8 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(h, bias), 23));
    v8 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, h), bias), 23));
    p = v8_mul(v8_mul(p, a), b);
    p = _mm256_blendv_ps(p, _mm256_setzero_ps(), _mm256_cmp_ps(x, v8_set1(CL_EXP_LO), _CMP_LT_OQ));
    p = _mm256_blendv_ps(p, _mm256_castsi256_ps(_mm256_set1_epi32(0x7F800000)), _mm256_cmp_ps(x, v8_set1(CL_EXP_HI), _CMP_GT_OQ));
    return _mm256_blendv_ps(p, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
CL_INLINE float v8_sum(v8 x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
CL_INLINE float v8_hmax(v8 x) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}
CL_INLINE float v8_sqrt1(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
CL_INLINE void v8_round_i8(const v8 *x, int8_t *q, int16_t *s) {
    const __m256i a = _mm256_packs_epi32(_mm256_cvtps_epi32(x[0]), _mm256_cvtps_epi32(x[1]));
    const __m256i b = _mm256_packs_epi32(_mm256_cvtps_epi32(x[2]), _mm256_cvtps_epi32(x[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), one = _mm256_set1_epi16(1); /* packing goes by 128-bit halves */
    _mm256_storeu_si256((__m256i *)(void *)q, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order));
    const __m256i pairs = _mm256_hadd_epi32(_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    sum = _mm_hadd_epi32(sum, sum);
    const int32_t both = _mm_cvtsi128_si32(_mm_packs_epi32(sum, sum));
    memcpy(s, &both, 4);
}
#endif
