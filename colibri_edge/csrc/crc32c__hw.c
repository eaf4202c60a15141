/* CRC-32C with the CPU's instruction, three streams at once: one crc32 has a latency of three cycles and a throughput of one. */
#include "colibri/base.h"

#if defined(__aarch64__) || defined(_M_ARM64)
#  include <arm_acle.h>
#  define STEP64(c, v) __crc32cd((uint32_t)(c), v)
#  define STEP8(c, v) __crc32cb((uint32_t)(c), v)
#else
#  include <nmmintrin.h>
#  define STEP64(c, v) _mm_crc32_u64(c, v)
#  define STEP8(c, v) _mm_crc32_u8((uint32_t)(c), v)
#endif

uint32_t cl_crc32c_wide(uint32_t crc, const uint8_t *p, size_t n);

enum { LANE = 4096 };
static uint32_t shift_table[4][256]; /* the effect of LANE zero bytes on a crc, by its four bytes */
static volatile int shift_ready;

static void shift_init(void) {
    for (uint32_t b = 0; b < 4; b++)
        for (uint32_t i = 0; i < 256; i++) {
            uint64_t c = i << (8 * b);
            for (int32_t k = 0; k < LANE; k += 8) c = STEP64(c, 0);
            shift_table[b][i] = (uint32_t)c;
        }
    shift_ready = 1;
}

static uint32_t shift(uint32_t c) {
    return shift_table[0][c & 255] ^ shift_table[1][(c >> 8) & 255] ^ shift_table[2][(c >> 16) & 255] ^ shift_table[3][c >> 24];
}

uint32_t cl_crc32c_wide(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t c = (uint32_t)~crc;
    if (n >= 3 * LANE && !shift_ready) shift_init();
    for (; n >= 3 * LANE; n -= 3 * LANE, p += 3 * LANE) {
        uint64_t a = c, b = 0, d = 0;
        for (int32_t i = 0; i < LANE; i += 8) {
            uint64_t x, y, z;
            memcpy(&x, p + i, 8);
            memcpy(&y, p + LANE + i, 8);
            memcpy(&z, p + 2 * LANE + i, 8);
            a = STEP64(a, x);
            b = STEP64(b, y);
            d = STEP64(d, z);
        }
        c = shift(shift((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)d;
    }
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        c = STEP64(c, v);
    }
    while (n--) c = STEP8(c, *p++);
    return ~(uint32_t)c;
}
