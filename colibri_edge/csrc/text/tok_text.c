/* tok_text.c - from a stretch of text to ids: pieces, then the model.
 *
 * Owns: the joining of pre-tokenizer and model, and the search for characters that normalisation leaves alone.
 */
#include "colibri/tokenizer.h"
#include "tok_internal.h"

int cl_tok_encode(const cl_tok *t, cl_tok_work *w, const uint8_t *s, size_t n)
{
    if (n > 0x7FFFFFF0u)
        return CL_TOK_ELIMIT;
    if (n == 0)
        return CL_TOK_OK;
    if (t->kind == CL_TOK_UNIGRAM)
        return cl_tok_encode_unigram(t, w, s, n);
    return t->kind == CL_TOK_HF ? CL_TOK_EBLOB : cl_tok_encode_bpe(t, w, s, n);
}

typedef struct {
    const cl_tok *t;
    cl_tok_work *w;
} target;

static int encode_piece(void *ctx, const uint8_t *s, size_t n)
{
    target *x = ctx;
    return cl_tok_encode(x->t, x->w, s, n);
}

int cl_tok_encode_text(const cl_tok *t, cl_tok_work *w, const uint8_t *s, size_t n)
{
    target x = {t, w};
    return cl_pretok_run(&t->pretok, s, n, encode_piece, &x);
}

int cl_tok_next_inert(const cl_tok *t, const uint8_t *s, size_t n, size_t from, size_t *start, size_t *end)
{
    const cl_tok_span r = t->sec[CL_SEC_INERT];
    size_t len;
    int found = 0;
    if (!r.n)
        return 0;
    for (size_t at = from; at < n; at += len) {
        uint32_t c = tok_decode(s + at, n - at, &len);
        if (c < 128 || !tok_in_ranges(r.p, (uint32_t)(r.n / 8), c)) {
            if (found)
                return 1;
            continue;
        }
        if (!found)
            *start = at;
        *end = at + len;
        found = 1;
    }
    return found;
}
