/* tok_unigram.c - unigram segmentation of one pre-token: the path of highest summed log probability.
 *
 * Owns: the forward pass over byte positions. Formula: Kudo 2018 (arXiv:1804.10959), Viterbi; an unknown character costs
 * unk_score; at equal sums the path whose last piece is longer (starts earlier) stands. Neighbouring unknown
 * characters are one piece; with byte fallback it becomes its bytes.
 */
#include "colibri/tokenizer.h"

#include <string.h>

#include "tok_internal.h"

typedef struct {
    double score;  /* best sum up to here */
    int32_t start; /* where the last piece began, -1 if not reached */
    uint32_t id;   /* the last piece */
} node;

static double score_of(const cl_tok *t, uint32_t id)
{
    uint64_t bits = tok_rd64(t->sec[CL_SEC_SCORES].p + 8 * (size_t)id);
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

static uint32_t find_hashed(const cl_tok *t, uint32_t h, const uint8_t *s, size_t n)
{
    for (uint32_t k = 0; k <= t->hash_probe; k++) {
        uint32_t id = tok_rd32(t->sec[CL_SEC_HASH].p + 4 * (size_t)((h + k) & t->hash_mask)), len;
        const uint8_t *p;
        if (id == CL_TOK_NONE)
            break;
        if (cl_tok_bytes(t, id, &p, &len) == CL_TOK_OK && len == n && memcmp(p, s, n) == 0)
            return id;
    }
    return CL_TOK_NONE;
}

static void relax(node *to, double score, size_t start, uint32_t id)
{
    if (to->start < 0 || score > to->score) {
        to->score = score;
        to->start = (int32_t)start;
        to->id = id;
    }
}

/* at: [n + 1] */
static void forward(const cl_tok *t, const uint8_t *s, size_t n, node *at)
{
    size_t mb;
    for (size_t i = 0; i <= n; i++)
        at[i].start = -1;
    at[0].score = 0;
    for (size_t i = 0; i < n; i += mb) {
        uint32_t h = TOK_HASH_START;
        size_t end = n - i < t->max_len ? n : i + t->max_len;
        int single = 0;
        mb = tok_utf8_len(s + i, n - i);
        for (size_t j = i; j < end;) {
            size_t step = tok_utf8_len(s + j, n - j);
            uint32_t id;
            if (j + step > end)
                break;
            for (size_t k = 0; k < step; k++)
                h = tok_hash_step(h, s[j + k]);
            j += step;
            id = find_hashed(t, tok_hash_end(h), s + i, j - i);
            if (id == CL_TOK_NONE)
                continue;
            relax(at + j, at[i].score + score_of(t, id), i, id);
            single |= j - i == mb;
        }
        if (!single)
            relax(at + i + mb, at[i].score + t->unk_score, i, t->unk);
    }
}

/* Unknown text s: [n] as bytes if all of them have tokens, else as the unknown token. */
static int push_unknown(const cl_tok *t, cl_tok_work *w, const uint8_t *s, size_t n)
{
    const uint8_t *byte_ids = t->sec[CL_SEC_BYTE_IDS].p;
    size_t known = 0;
    int rc = CL_TOK_OK;
    if (t->flags & CL_TOK_BYTE_FALLBACK)
        while (known < n && tok_rd32(byte_ids + 4 * (size_t)s[known]) != CL_TOK_NONE)
            known++;
    if (known < n)
        return cl_tok_push(w, t->unk);
    for (size_t k = 0; k < n && !rc; k++)
        rc = cl_tok_push(w, tok_rd32(byte_ids + 4 * (size_t)s[k]));
    return rc;
}

int cl_tok_encode_unigram(const cl_tok *t, cl_tok_work *w, const uint8_t *s, size_t n)
{
    node *at = cl_tok_scratch(w, (n + 1) * sizeof *at);
    size_t i, next = n;
    int rc = CL_TOK_OK;
    if (!at)
        return CL_TOK_EMEM;
    forward(t, s, n, at);
    /* walk back and leave in each start node where its piece ends */
    for (i = n; i > 0;) {
        size_t start = (size_t)at[i].start;
        uint32_t id = at[i].id;
        int32_t end = (int32_t)i;
        i = start;
        at[i].score = (double)end; /* exact below 2^53 */
        next = i;
        at[end].id = id; /* id of the piece that ends here */
    }
    for (i = next; i < n && !rc;) {
        size_t end = (size_t)at[i].score;
        uint32_t id = at[end].id;
        if (id == t->unk) {
            while (t->flags & CL_TOK_FUSE_UNK && end < n && at[(size_t)at[end].score].id == t->unk)
                end = (size_t)at[end].score;
            rc = push_unknown(t, w, s + i, end - i);
        } else {
            rc = cl_tok_push(w, id);
        }
        i = end;
    }
    return rc;
}
