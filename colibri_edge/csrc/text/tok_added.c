/* tok_added.c - finds added tokens in text.
 *
 * Owns: the leftmost-longest search in a sorted list of byte strings. What to do with a match (skip, strip the space
 * around it) is the caller's business.
 */
#include <string.h>

#include "colibri/tokenizer.h"
#include "tok_internal.h"

/* Byte i of entry e, or -1 past its end. */
static int entry_byte(const cl_tok *t, int list, uint32_t e, size_t i)
{
    const uint8_t *q = t->sec[CL_SEC_ADDED_RAW + list].p + 16 * (size_t)e;
    return i < tok_rd32(q + 12) ? t->sec[CL_SEC_ADDED_TEXT].p[tok_rd32(q + 8) + i] : -1;
}

/* First entry in [lo, hi) whose byte i is >= b; the range shares its first i bytes. */
static uint32_t lower(const cl_tok *t, int list, uint32_t lo, uint32_t hi, size_t i, int b)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (entry_byte(t, list, mid, i) < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int cl_tok_next_added(const cl_tok *t, int list, const uint8_t *s, size_t n, size_t from, size_t *start, size_t *end,
                      uint32_t *id, uint32_t *flags)
{
    const uint32_t *first = t->added_first[list];
    if (first[256] == 0)
        return 0;
    for (size_t at = from; at < n; at++) {
        uint32_t lo = first[s[at]], hi = first[s[at] + 1], best = CL_TOK_NONE;
        for (size_t i = 1; lo < hi; i++) {
            if (entry_byte(t, list, lo, i) < 0) {
                best = lo; /* a whole entry; a longer one may follow */
                *end = at + i;
            }
            if (at + i >= n)
                break;
            lo = lower(t, list, lo, hi, i, s[at + i]);
            hi = lower(t, list, lo, hi, i, s[at + i] + 1);
        }
        if (best != CL_TOK_NONE) {
            const uint8_t *q = t->sec[CL_SEC_ADDED_RAW + list].p + 16 * (size_t)best;
            *start = at;
            *id = tok_rd32(q);
            *flags = tok_rd32(q + 4);
            return 1;
        }
    }
    return 0;
}
