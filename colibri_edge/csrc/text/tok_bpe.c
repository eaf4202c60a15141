/* tok_bpe.c - byte pair encoding of one pre-token.
 *
 * Owns: the merge loop. Symbols form a doubly linked list; candidate merges wait in a binary heap ordered by (rank,
 * position), so that a word of n symbols costs O(n log n). A candidate is stale when its pair no longer merges to the
 * same id, and is then dropped.
 * Formula: Sennrich et al. 2016 (arXiv:1508.07909), merges in rising rank, ties to the left; characters without a
 * token become bytes (byte fallback), else the unknown token, neighbours fused if the header says so, else nothing.
 */
#include "colibri/tokenizer.h"
#include "tok_internal.h"

typedef struct {
    uint32_t id;        /* CL_TOK_NONE once merged away */
    int32_t prev, next; /* -1 at the ends */
} symbol;

typedef struct {
    uint32_t rank, pos, result;
} candidate;

typedef struct {
    candidate *c; /* [n], smallest first */
    size_t n;
} heap;

static inline int before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->pos < b->pos;
}

static void heap_push(heap *h, candidate x)
{
    size_t i = h->n++;
    while (i) {
        size_t up = (i - 1) / 2;
        if (!before(&x, &h->c[up]))
            break;
        h->c[i] = h->c[up];
        i = up;
    }
    h->c[i] = x;
}

static candidate heap_pop(heap *h)
{
    candidate top = h->c[0], x = h->c[--h->n];
    size_t i = 0;
    for (;;) {
        size_t k = 2 * i + 1;
        if (k >= h->n)
            break;
        if (k + 1 < h->n && before(&h->c[k + 1], &h->c[k]))
            k++;
        if (!before(&h->c[k], &x))
            break;
        h->c[i] = h->c[k];
        i = k;
    }
    h->c[i] = x;
    return top;
}

static void offer(const cl_tok *t, heap *h, const symbol *s, int32_t left)
{
    candidate x;
    if (left < 0 || s[left].next < 0)
        return;
    x.result = cl_tok_merge(t, s[left].id, s[s[left].next].id, &x.rank);
    if (x.result == CL_TOK_NONE)
        return;
    x.pos = (uint32_t)left;
    heap_push(h, x);
}

/* First symbols of s: [n] bytes into sym: [n]; returns their number. */
static size_t split_symbols(const cl_tok *t, const uint8_t *s, size_t n, symbol *sym)
{
    const uint8_t *byte_ids = t->sec[CL_SEC_BYTE_IDS].p;
    size_t m = 0, len;
    int last_unk = 0;
    for (size_t i = 0; i < n; i += len) {
        uint32_t id = CL_TOK_NONE;
        size_t known = 0;
        if (t->kind == CL_TOK_BPE_BYTE) {
            len = 1;
            id = tok_rd32(byte_ids + 4 * (size_t)s[i]);
        } else {
            len = tok_utf8_len(s + i, n - i);
            id = cl_tok_find(t, s + i, len);
        }
        if (id == CL_TOK_NONE && t->flags & CL_TOK_BYTE_FALLBACK) {
            while (known < len && tok_rd32(byte_ids + 4 * (size_t)s[i + known]) != CL_TOK_NONE)
                known++;
            if (known == len) {
                for (size_t k = 0; k < len; k++)
                    sym[m++].id = tok_rd32(byte_ids + 4 * (size_t)s[i + k]);
                last_unk = 0;
                continue;
            }
        }
        if (id != CL_TOK_NONE) {
            sym[m++].id = id;
            last_unk = 0;
        } else if (t->unk != CL_TOK_NONE) {
            if (!(last_unk && t->flags & CL_TOK_FUSE_UNK))
                sym[m++].id = t->unk;
            last_unk = 1;
        }
    }
    for (size_t i = 0; i < m; i++) {
        sym[i].prev = (int32_t)i - 1;
        sym[i].next = i + 1 < m ? (int32_t)i + 1 : -1;
    }
    return m;
}

static void merge_all(const cl_tok *t, symbol *sym, size_t m, heap *h)
{
    for (size_t i = 0; i + 1 < m; i++)
        offer(t, h, sym, (int32_t)i);
    while (h->n) {
        candidate x = heap_pop(h);
        symbol *a = sym + x.pos, *b;
        uint32_t rank;
        if (a->id == CL_TOK_NONE || a->next < 0)
            continue;
        b = sym + a->next;
        if (cl_tok_merge(t, a->id, b->id, &rank) != x.result)
            continue;
        a->id = x.result;
        a->next = b->next;
        if (b->next >= 0)
            sym[b->next].prev = (int32_t)x.pos;
        b->id = CL_TOK_NONE;
        offer(t, h, sym, a->prev);
        offer(t, h, sym, (int32_t)x.pos);
    }
}

int cl_tok_encode_bpe(const cl_tok *t, cl_tok_work *w, const uint8_t *s, size_t n)
{
    symbol *sym;
    heap h;
    size_t m;
    if (t->flags & CL_TOK_IGNORE_MERGES) {
        uint32_t id = cl_tok_find(t, s, n);
        if (id != CL_TOK_NONE)
            return cl_tok_push(w, id);
    }
    /* each merge removes a symbol and offers at most two candidates, the start at most n: 3n entries in all */
    sym = cl_tok_scratch(w, n * sizeof *sym + 3 * n * sizeof *h.c);
    if (!sym)
        return CL_TOK_EMEM;
    h.c = (candidate *)(void *)(sym + n);
    h.n = 0;
    m = split_symbols(t, s, n, sym);
    merge_all(t, sym, m, &h);
    for (int32_t i = m ? 0 : -1; i >= 0; i = sym[i].next) {
        int rc = cl_tok_push(w, sym[i].id);
        if (rc)
            return rc;
    }
    return CL_TOK_OK;
}
