/* Aligned memory, the clock and CRC-32C. Refuses: growing. */
#include "colibri/base.h"
#include "cpu.h"
#include <stdlib.h>
#if defined(_WIN32)
#  include <malloc.h>
#  ifndef WIN32_LEAN_AND_MEAN
#    define WIN32_LEAN_AND_MEAN
#  endif
#  include <windows.h>

int64_t cl_now_ns(void) {
    LARGE_INTEGER t, f;
    QueryPerformanceCounter(&t);
    QueryPerformanceFrequency(&f);
    return (int64_t)((double)t.QuadPart * 1e9 / (double)f.QuadPart);
}
#else
#  include <sys/mman.h>
#  include <time.h>

int64_t cl_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
#endif

void *cl_aligned_alloc(size_t align, size_t bytes) {
    void *p = NULL;
    size_t n = CL_ROUND_UP(CL_MAX(bytes, (size_t)1), align);
    if (n < bytes) return NULL;
#if defined(_WIN32)
    p = _aligned_malloc(n, align);
#else
    if (posix_memalign(&p, CL_MAX(align, sizeof(void *)), n)) return NULL;
#endif
    if (p) memset(p, 0, n);
    return p;
}

void cl_aligned_free(void *p) {
#if defined(_WIN32)
    _aligned_free(p);
#else
    free(p);
#endif
}

#if defined(_WIN32)
uint8_t *cl_huge_alloc(size_t n) { return (uint8_t *)VirtualAlloc(NULL, n, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE); }
void cl_huge_free(uint8_t *p, size_t n) {
    (void)n;
    if (p) VirtualFree(p, 0, MEM_RELEASE);
}
#else
enum { HUGE = 2 << 20 };
uint8_t *cl_huge_alloc(size_t n) {
    size_t all = CL_ROUND_UP(n, (size_t)HUGE) + HUGE;
    uint8_t *m = (uint8_t *)mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == (uint8_t *)MAP_FAILED) return NULL;
    uint8_t *p = (uint8_t *)CL_ROUND_UP((uintptr_t)m, (uintptr_t)HUGE);
    if (p > m) munmap(m, (size_t)(p - m));
    munmap(p + CL_ROUND_UP(n, (size_t)HUGE), (size_t)(m + HUGE - p)); /* what the rounding left behind the block */
#  if defined(MADV_HUGEPAGE)
    madvise(p, CL_ROUND_UP(n, (size_t)HUGE), MADV_HUGEPAGE);
#  endif
    return p;
}
void cl_huge_free(uint8_t *p, size_t n) {
    if (p) munmap(p, CL_ROUND_UP(n, (size_t)HUGE));
}
#endif

#if defined(__linux__) && defined(MADV_HUGEPAGE)
enum { SETTLE_PIECE = 64 << 20 }; /* memory taken beside the mapping at a time */

/* mremap moves whole page tables under the lock that page faults take: a reader finds the old pages or the new ones, never none. */
static int32_t settle_piece(uint8_t *to, size_t n, size_t huge) {
    size_t all = n + huge;
    uint8_t *m = (uint8_t *)mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == (uint8_t *)MAP_FAILED) return 0;
    uint8_t *p = (uint8_t *)CL_ROUND_UP((uintptr_t)m, (uintptr_t)huge);
    if (p > m) munmap(m, (size_t)(p - m));
    if (m + all > p + n) munmap(p + n, (size_t)(m + all - (p + n)));
    madvise(p, n, MADV_HUGEPAGE);
    memcpy(p, to, n);
    if (mprotect(p, n, PROT_READ) || mremap(p, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) {
        munmap(p, n);
        return 0;
    }
    return 1;
}

size_t cl_huge_settle(const uint8_t *p, size_t n, size_t huge) {
    uintptr_t at = CL_ROUND_UP((uintptr_t)p, (uintptr_t)huge), end = ((uintptr_t)p + n) / huge * huge, begin = at;
    size_t step = CL_ROUND_UP((size_t)SETTLE_PIECE, huge);
    while (at < end) {
        size_t piece = CL_MIN(step, (size_t)(end - at));
        if (!settle_piece((uint8_t *)at, piece, huge)) break;
        at += piece;
    }
    return at > begin ? (size_t)(at - begin) : 0;
}
#else
size_t cl_huge_settle(const uint8_t *p, size_t n, size_t huge) {
    (void)p;
    (void)n;
    (void)huge;
    return 0;
}
#endif

static uint32_t crc_table[8][256];
static volatile int crc_ready;

static void crc_init(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int32_t k = 0; k < 8; k++) c = (c & 1) ? (c >> 1) ^ 0x82F63B78u : c >> 1;
        crc_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int32_t t = 1; t < 8; t++) crc_table[t][i] = (crc_table[t - 1][i] >> 8) ^ crc_table[0][crc_table[t - 1][i] & 255];
    crc_ready = 1;
}

uint32_t cl_crc32c_wide(uint32_t crc, const uint8_t *p, size_t n); /* crc32c__*.c: with the CPU's instruction */

uint32_t cl_crc32c(uint32_t crc, const void *data, size_t n) {
    const uint8_t *p = (const uint8_t *)data;
#if CL_HAVE_CRC32C
    if (cl_cpu_features() & (CL_CPU_SSE42 | CL_CPU_CRC)) return cl_crc32c_wide(crc, p, n);
#endif
    if (!crc_ready) crc_init(); /* writes the same values from any thread */
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        v ^= crc;
        crc = crc_table[7][v & 255] ^ crc_table[6][(v >> 8) & 255] ^ crc_table[5][(v >> 16) & 255] ^ crc_table[4][(v >> 24) & 255] ^
              crc_table[3][(v >> 32) & 255] ^ crc_table[2][(v >> 40) & 255] ^ crc_table[1][(v >> 48) & 255] ^ crc_table[0][v >> 56];
    }
    while (n--) crc = (crc >> 8) ^ crc_table[0][(crc ^ *p++) & 255];
    return ~crc;
}
