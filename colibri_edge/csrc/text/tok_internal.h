/* tok_internal.h - what the tokenizer's C files share: unaligned little-endian loads, the two hashes, UTF-8.
 * Owns nothing. Not installed. */
#ifndef COLIBRI_TOK_INTERNAL_H
#define COLIBRI_TOK_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t tok_rd32(const uint8_t *p) /* p: 4 bytes */
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t tok_rd64(const uint8_t *p) /* p: 8 bytes */
{
    return (uint64_t)tok_rd32(p) | (uint64_t)tok_rd32(p + 4) << 32;
}

static inline void tok_wr32(uint8_t *p, uint32_t v) /* p: 4 bytes */
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

/* FNV-1a, a byte at a time so that the unigram search can extend it, with a final mix. */
#define TOK_HASH_START 2166136261u

static inline uint32_t tok_hash_step(uint32_t h, uint8_t b)
{
    return (h ^ b) * 16777619u;
}

static inline uint32_t tok_hash_end(uint32_t h)
{
    h ^= h >> 15;
    h *= 0x85EBCA6Bu;
    return h ^ h >> 13;
}

static inline uint32_t tok_hash_pair(uint32_t a, uint32_t b)
{
    uint64_t x = ((uint64_t)a << 32 | b) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(x >> 32) ^ (uint32_t)(x >> 20);
}

/* Bytes of the UTF-8 character at s: [n], n >= 1; 1 where there is no valid one. */
static inline size_t tok_utf8_len(const uint8_t *s, size_t n)
{
    size_t k;
    if (s[0] < 0x80)
        return 1;
    k = s[0] >= 0xF0 && s[0] <= 0xF4 ? 4 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : 1;
    if (k == 1 || k > n)
        return 1;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
        (s[0] == 0xF4 && s[1] > 0x8F))
        return 1;
    for (size_t i = 1; i < k; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 1;
    return k;
}

/* Code point of the character at s: [n], n >= 1; a byte that is no UTF-8 counts as U+DC80 to U+DCFF. */
static inline uint32_t tok_decode(const uint8_t *s, size_t n, size_t *len)
{
    uint32_t c = s[0];
    if (c < 0x80) {
        *len = 1;
        return c;
    }
    *len = tok_utf8_len(s, n);
    switch (*len) {
    case 2: return (c & 0x1F) << 6 | (s[1] & 0x3Fu);
    case 3: return (c & 0x0F) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    case 4: return (c & 0x07) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
    default: return 0xDC00u | c;
    }
}

/* Whether c lies in one of r: [8 * n] u32 low, high, rising. */
static inline int tok_in_ranges(const uint8_t *r, uint32_t n, uint32_t c)
{
    uint32_t lo = 0, hi = n;
    while (lo < hi) { /* first range that ends at c or later */
        uint32_t mid = lo + (hi - lo) / 2;
        if (tok_rd32(r + 8 * (size_t)mid + 4) < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && tok_rd32(r + 8 * (size_t)lo) <= c;
}

#endif
