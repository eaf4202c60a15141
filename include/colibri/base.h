/* What every C file here needs: exports, assertions, aligned memory, half floats, exact fma.
   Refuses: Python, GNU extensions outside this file. */
#ifndef COLIBRI_BASE_H
#define COLIBRI_BASE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "colibri/config.h"

#if defined(_WIN32)
#  if defined(CL_BUILDING)
#    define CL_API __declspec(dllexport)
#  else
#    define CL_API __declspec(dllimport)
#  endif
#elif defined(__GNUC__)
#  define CL_API __attribute__((visibility("default")))
#else
#  define CL_API
#endif

#if defined(_MSC_VER)
#  define CL_INLINE static __forceinline
#  define CL_RESTRICT __restrict
#  define CL_NOINLINE __declspec(noinline)
#elif defined(__GNUC__)
#  define CL_INLINE static inline __attribute__((always_inline))
#  define CL_RESTRICT restrict
#  define CL_NOINLINE __attribute__((noinline))
#else
#  define CL_INLINE static inline
#  define CL_RESTRICT restrict
#  define CL_NOINLINE
#endif

#if defined(__GNUC__)
#  define CL_PREFETCH(p) __builtin_prefetch((p), 0, 2) /* for reading, into the second cache */
#else
#  define CL_PREFETCH(p) ((void)(p))
#endif

#define CL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CL_MAX(a, b) ((a) > (b) ? (a) : (b))
#define CL_ROUND_UP(n, m) (((n) + (m) - 1) / (m) * (m))

/* Memory aligned to `align` (a power of two); NULL when there is none. Zero-filled. Free with cl_aligned_free. */
CL_API void *cl_aligned_alloc(size_t align, size_t bytes);
CL_API void cl_aligned_free(void *p);

/* n bytes for weights or slots, zero, in huge pages where the system gives them; NULL when there is none. Free with the same n. */
CL_API uint8_t *cl_huge_alloc(size_t n);
CL_API void cl_huge_free(uint8_t *p, size_t n);
/* Puts anonymous memory in huge pages of `huge` bytes (a power of two) in the place of the read-only mapping p[n], piece by piece;
   addresses and contents stay, and other threads may read meanwhile. What lies before the first and behind the last whole huge page
   stays mapped. Returns the bytes replaced: 0 where the system has no such call or no memory, less than all where memory ran out. */
CL_API size_t cl_huge_settle(const uint8_t *p, size_t n, size_t huge);

/* A monotonic clock in nanoseconds. */
CL_API int64_t cl_now_ns(void);

/* CRC-32C (Castagnoli) of n bytes, continuing from crc (0 at the start). */
CL_API uint32_t cl_crc32c(uint32_t crc, const void *data, size_t n);

CL_INLINE uint32_t cl_f32_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
CL_INLINE float cl_bits_f32(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }

CL_INLINE uint16_t cl_load_u16(const void *p) { uint16_t u; memcpy(&u, p, 2); return u; }

/* IEEE half -> float, exact. */
CL_INLINE float cl_f16_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 0x3FFu;
    if (exp == 31) return cl_bits_f32(sign | 0x7F800000u | man << 13);
    if (exp) return cl_bits_f32(sign | (exp + 112) << 23 | man << 13);
    float v = (float)man * 5.9604644775390625e-8f; /* 2^-24 */
    return sign ? -v : v;
}

/* float -> IEEE half, round to nearest even, as F16C and fcvt do. */
CL_INLINE uint16_t cl_f32_f16(float f) {
    uint32_t u = cl_f32_bits(f), sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | ((a >> 13) & 0x3FFu));
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7C00u);
    if (a < 0x38800000u) { /* subnormal half: let the float adder round at the right bit */
        float t = cl_bits_f32(a) + 0.5f;
        return (uint16_t)(sign | (cl_f32_bits(t) - 0x3F000000u));
    }
    uint32_t r = a - 0x38000000u + 0xFFFu + ((a >> 13) & 1u);
    return (uint16_t)(sign | r >> 13);
}

CL_INLINE float cl_bf16_f32(uint16_t h) { return cl_bits_f32((uint32_t)h << 16); }

/* a*b+c with one rounding. Hardware where the target has it; elsewhere the double product is exact and the sum is rounded
   to odd before the last rounding, so that no double rounding happens (no libm: some get it wrong, and all are slow). */
#if defined(__FMA__) || defined(__aarch64__) || defined(_M_ARM64) || defined(__AVX2__)
#  include <math.h>
CL_INLINE float cl_fma(float a, float b, float c) { return fmaf(a, b, c); }
#else
CL_INLINE float cl_fma(float a, float b, float c) {
    double p = (double)a * (double)b, s = p + (double)c;
    double bb = s - p, err = (p - (s - bb)) + ((double)c - bb);
    uint64_t u;
    memcpy(&u, &s, 8);
    if (err != 0.0 && !(u & 1u) && err == err && (u & 0x7FF0000000000000ull) != 0x7FF0000000000000ull) {
        u = ((err > 0.0) == (s > 0.0)) ? u + 1 : u - 1;
        memcpy(&s, &u, 8);
    }
    return (float)s;
}
#endif

#endif
