/* tok_internal.h - what the tokenizer's C files share: unaligned little-endian loads and the two hashes.
 * Owns nothing. Not installed. */
#ifndef COLIBRI_TOK_INTERNAL_H
#define COLIBRI_TOK_INTERNAL_H

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

#endif
