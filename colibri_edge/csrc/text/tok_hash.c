/* tok_hash.c - the two open-addressing tables of a tokenizer: bytes -> id, and pair of ids -> merge.
 *
 * Owns: lookups and the builders, so that the hash is defined in one place. Linear probing; the header tells how far
 * the longest probe goes, which bounds a lookup even in a hostile table without an empty slot.
 */
#include <string.h>

#include "colibri/tokenizer.h"
#include "tok_internal.h"

uint32_t cl_tok_find(const cl_tok *t, const uint8_t *s, size_t n)
{
    uint32_t h = TOK_HASH_START;
    if (n > t->max_len || t->kind == CL_TOK_HF)
        return CL_TOK_NONE;
    for (size_t i = 0; i < n; i++)
        h = tok_hash_step(h, s[i]);
    h = tok_hash_end(h);
    for (uint32_t k = 0; k <= t->hash_probe; k++) {
        uint32_t id = tok_rd32(t->sec[CL_SEC_HASH].p + 4 * (size_t)((h + k) & t->hash_mask));
        const uint8_t *p;
        uint32_t len;
        if (id == CL_TOK_NONE)
            return CL_TOK_NONE;
        if (cl_tok_bytes(t, id, &p, &len) == CL_TOK_OK && len == n && memcmp(p, s, n) == 0)
            return id;
    }
    return CL_TOK_NONE;
}

uint32_t cl_tok_merge(const cl_tok *t, uint32_t left, uint32_t right, uint32_t *rank)
{
    uint32_t h = tok_hash_pair(left, right);
    for (uint32_t k = 0; k <= t->merge_probe; k++) {
        const uint8_t *e = t->sec[CL_SEC_MERGES].p + 16 * (size_t)((h + k) & t->merge_mask);
        uint32_t a = tok_rd32(e);
        if (a == CL_TOK_NONE)
            return CL_TOK_NONE;
        if (a == left && tok_rd32(e + 4) == right) {
            uint32_t id = tok_rd32(e + 12);
            *rank = tok_rd32(e + 8);
            return id < t->vocab ? id : CL_TOK_NONE;
        }
    }
    return CL_TOK_NONE;
}

uint32_t cl_tok_build_hash(uint8_t *table, uint32_t slots, const uint32_t *ids, size_t n, const uint32_t *offsets,
                           const uint8_t *bytes)
{
    uint32_t longest = 1;
    if (n >= slots)
        return 0;
    memset(table, 0xFF, 4 * (size_t)slots);
    for (size_t i = 0; i < n; i++) {
        uint32_t h = TOK_HASH_START, k = 0;
        for (uint32_t j = offsets[ids[i]]; j < offsets[ids[i] + 1]; j++)
            h = tok_hash_step(h, bytes[j]);
        h = tok_hash_end(h);
        while (tok_rd32(table + 4 * (size_t)((h + k) & (slots - 1))) != CL_TOK_NONE)
            k++;
        tok_wr32(table + 4 * (size_t)((h + k) & (slots - 1)), ids[i]);
        longest = k > longest ? k : longest;
    }
    return longest;
}

uint32_t cl_tok_build_merges(uint8_t *table, uint32_t slots, const uint32_t *merges, const uint32_t *ranks, size_t n)
{
    uint32_t longest = 1;
    if (n >= slots)
        return 0;
    memset(table, 0xFF, 16 * (size_t)slots);
    for (size_t i = 0; i < n; i++) {
        const uint32_t *m = merges + 3 * i;
        uint32_t h = tok_hash_pair(m[0], m[1]), k = 0;
        uint8_t *e = table + 16 * (size_t)(h & (slots - 1));
        while (tok_rd32(e) != CL_TOK_NONE && !(tok_rd32(e) == m[0] && tok_rd32(e + 4) == m[1])) {
            k++;
            e = table + 16 * (size_t)((h + k) & (slots - 1));
        }
        /* a pair given twice: the later rank stands, as in a map that is filled in order */
        tok_wr32(e, m[0]);
        tok_wr32(e + 4, m[1]);
        tok_wr32(e + 8, ranks[i]);
        tok_wr32(e + 12, m[2]);
        longest = k > longest ? k : longest;
    }
    return longest;
}
