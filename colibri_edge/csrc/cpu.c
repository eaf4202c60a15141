/* CPU detection: cpuid and xgetbv on x86-64, the auxiliary vector on AArch64 Linux. Refuses: guessing from model names. */
#include "cpu.h"

#if defined(__x86_64__) || defined(_M_X64)
#  if defined(_MSC_VER)
#    include <intrin.h>
static void cpuid(uint32_t leaf, uint32_t sub, uint32_t r[4]) { __cpuidex((int *)r, (int)leaf, (int)sub); }
static uint64_t xcr0(void) { return _xgetbv(0); }
#  else
#    include <cpuid.h>
static void cpuid(uint32_t leaf, uint32_t sub, uint32_t r[4]) {
    if (!__get_cpuid_count(leaf, sub, &r[0], &r[1], &r[2], &r[3])) r[0] = r[1] = r[2] = r[3] = 0;
}
static uint64_t xcr0(void) {
    uint32_t a, d;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (uint64_t)d << 32 | a;
}
#  endif
uint32_t cl_cpu_features(void) {
    uint32_t r[4], f = 0;
    cpuid(1, 0, r);
    uint32_t c1 = r[2];
    if (c1 & (1u << 20)) f |= CL_CPU_SSE42;
    int avx_os = (c1 & (1u << 27)) && (xcr0() & 6) == 6;
    cpuid(7, 0, r);
    if (avx_os && (c1 & (1u << 12)) && (c1 & (1u << 29)) && (r[1] & (1u << 5))) {
        f |= CL_CPU_AVX2; /* with FMA and F16C */
        int avx512_os = (xcr0() & 0xE6) == 0xE6;
        if (avx512_os && (r[1] & (1u << 16)) && (r[1] & (1u << 30)) && (r[1] & (1u << 31)) && (r[2] & (1u << 11))) f |= CL_CPU_VNNI;
    }
    return f;
}
#elif defined(__aarch64__) || defined(_M_ARM64)
#  if defined(__linux__)
#    include <sys/auxv.h>
#  endif
uint32_t cl_cpu_features(void) {
    uint32_t f = CL_CPU_NEON;
#  if defined(__linux__)
    uint64_t h = getauxval(AT_HWCAP), h2 = getauxval(AT_HWCAP2);
    if (h & (1u << 20)) f |= CL_CPU_DOTPROD;
    if (h & (1u << 7)) f |= CL_CPU_CRC;
    if (h2 & (1u << 13)) f |= CL_CPU_I8MM;
#  endif
    return f;
}
#else
uint32_t cl_cpu_features(void) { return 0; }
#endif
