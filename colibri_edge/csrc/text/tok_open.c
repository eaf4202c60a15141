/* tok_open.c - opens a table blob and reads single tokens.
 *
 * Owns: the header check. Every section is placed and sized here once; entries inside sections are checked where they
 * are used. Refuses: blobs of another version, sections that leave the blob, sizes that disagree with the vocabulary.
 */
#include "colibri/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "tok_internal.h"

#define HEADER_BYTES (64u + 16u * CL_TOK_NSECTIONS)
#define MAX_PROBE 65536u

static int power_of_two(uint64_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

/* First-byte index of one sorted list of added tokens; checks each entry on the way. */
static int index_added(cl_tok *t, int list)
{
    const cl_tok_span e = t->sec[CL_SEC_ADDED_RAW + list], text = t->sec[CL_SEC_ADDED_TEXT];
    uint64_t n = e.n / 16;
    uint32_t b = 0;
    if (e.n % 16 || n > CL_TOK_MAX_VOCAB)
        return CL_TOK_EBLOB;
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *q = e.p + 16 * i;
        uint64_t off = tok_rd32(q + 8), len = tok_rd32(q + 12);
        if (tok_rd32(q) >= t->vocab || len == 0 || off + len > text.n || text.p[off] + 1u < b)
            return CL_TOK_EBLOB;
        while (b <= text.p[off])
            t->added_first[list][b++] = (uint32_t)i;
    }
    while (b <= 256)
        t->added_first[list][b++] = (uint32_t)n;
    return CL_TOK_OK;
}

static int check_tables(const cl_tok *t)
{
    const cl_tok_span *s = t->sec;
    uint64_t v = t->vocab;
    if (s[CL_SEC_OFFSETS].n != 4 * (v + 1) || s[CL_SEC_FLAGS].n != v || s[CL_SEC_BYTES].n > 0xFFFFFFFFu)
        return CL_TOK_EBLOB;
    if (t->unk != CL_TOK_NONE && t->unk >= v)
        return CL_TOK_EBLOB;
    if (t->kind == CL_TOK_HF)
        return s[CL_SEC_HF_JSON].n ? CL_TOK_OK : CL_TOK_EBLOB;
    if (t->kind > CL_TOK_UNIGRAM || s[CL_SEC_BYTE_IDS].n != 1024)
        return CL_TOK_EBLOB;
    if (s[CL_SEC_HASH].n % 4 || !power_of_two(s[CL_SEC_HASH].n / 4) || s[CL_SEC_HASH].n / 4 > (1u << 30))
        return CL_TOK_EBLOB;
    if (t->kind == CL_TOK_UNIGRAM)
        return s[CL_SEC_SCORES].n == 8 * v && t->unk != CL_TOK_NONE ? CL_TOK_OK : CL_TOK_EBLOB;
    if (s[CL_SEC_MERGES].n % 16 || !power_of_two(s[CL_SEC_MERGES].n / 16) || s[CL_SEC_MERGES].n / 16 > (1u << 30))
        return CL_TOK_EBLOB;
    return CL_TOK_OK;
}

int cl_tok_open(cl_tok *t, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    uint64_t bits;
    memset(t, 0, sizeof *t);
    if (!p || len < HEADER_BYTES || memcmp(p, "CLTOKEN\0", 8) != 0 || tok_rd32(p + 8) != 1)
        return CL_TOK_EBLOB;
    if (tok_rd64(p + 16) > len || tok_rd32(p + 12) != CL_TOK_NSECTIONS)
        return CL_TOK_EBLOB;
    len = (size_t)tok_rd64(p + 16);
    t->kind = tok_rd32(p + 24);
    t->flags = tok_rd32(p + 28);
    t->vocab = tok_rd32(p + 32);
    t->unk = tok_rd32(p + 36);
    t->max_len = tok_rd32(p + 40);
    t->hash_probe = tok_rd32(p + 44);
    t->merge_probe = tok_rd32(p + 48);
    bits = tok_rd64(p + 56);
    memcpy(&t->unk_score, &bits, 8);
    if (t->vocab > CL_TOK_MAX_VOCAB || t->hash_probe > MAX_PROBE || t->merge_probe > MAX_PROBE)
        return CL_TOK_EBLOB;
    for (int i = 0; i < CL_TOK_NSECTIONS; i++) {
        uint64_t off = tok_rd64(p + 64 + 16 * i), n = tok_rd64(p + 72 + 16 * i);
        if (off > len || n > len - off)
            return CL_TOK_EBLOB;
        t->sec[i].p = p + off;
        t->sec[i].n = n;
    }
    if (check_tables(t) != CL_TOK_OK || t->sec[CL_SEC_INERT].n % 8)
        return CL_TOK_EBLOB;
    if (cl_pretok_open(&t->pretok, t->sec[CL_SEC_PATTERNS].p, t->sec[CL_SEC_PATTERNS].n) != 0)
        return CL_TOK_EBLOB;
    t->hash_mask = (uint32_t)(t->sec[CL_SEC_HASH].n / 4) - 1;
    t->merge_mask = (uint32_t)(t->sec[CL_SEC_MERGES].n / 16) - 1;
    if (index_added(t, 0) != CL_TOK_OK)
        return CL_TOK_EBLOB;
    return index_added(t, 1);
}

int cl_tok_bytes(const cl_tok *t, uint32_t id, const uint8_t **p, uint32_t *n)
{
    uint32_t a, b;
    *n = 0;
    *p = t->sec[CL_SEC_BYTES].p;
    if (id >= t->vocab)
        return CL_TOK_EBLOB;
    a = tok_rd32(t->sec[CL_SEC_OFFSETS].p + 4 * (size_t)id);
    b = tok_rd32(t->sec[CL_SEC_OFFSETS].p + 4 * (size_t)id + 4);
    if (a > b || b > t->sec[CL_SEC_BYTES].n || !(t->sec[CL_SEC_FLAGS].p[id] & CL_TOKF_PRESENT))
        return CL_TOK_EBLOB;
    *p += a;
    *n = b - a;
    return CL_TOK_OK;
}

uint32_t cl_tok_flags(const cl_tok *t, uint32_t id)
{
    return id < t->vocab ? t->sec[CL_SEC_FLAGS].p[id] : 0;
}

int cl_tok_push(cl_tok_work *w, uint32_t id)
{
    if (w->n_ids == w->cap_ids) {
        size_t cap = w->cap_ids ? 2 * w->cap_ids : 256;
        uint32_t *q = realloc(w->ids, cap * sizeof *q);
        if (!q)
            return CL_TOK_EMEM;
        w->ids = q;
        w->cap_ids = cap;
    }
    w->ids[w->n_ids++] = id;
    return CL_TOK_OK;
}

void *cl_tok_scratch(cl_tok_work *w, size_t bytes)
{
    if (bytes > w->cap_scratch) {
        size_t cap = bytes + bytes / 2 + 4096;
        free(w->scratch);
        w->scratch = malloc(cap);
        w->cap_scratch = w->scratch ? cap : 0;
    }
    return w->scratch;
}

void cl_tok_work_free(cl_tok_work *w)
{
    free(w->ids);
    free(w->scratch);
    memset(w, 0, sizeof *w);
}
