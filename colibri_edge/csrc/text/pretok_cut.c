/* pretok_cut.c - cuts text at the matches of patterns, step after step.
 *
 * Owns: what becomes of matches and of the gaps between them. A later step sees each piece of an earlier one as a text of its
 * own, lookahead included.
 */
#include "colibri/pretok.h"
#include "tok_internal.h"

typedef struct {
    const cl_pretok *p;
    int (*emit)(void *ctx, const uint8_t *piece, size_t length);
    void *ctx;
} job;

typedef struct {
    const job *j;
    uint32_t level;
    const uint8_t *s;   /* the text of this level */
    size_t start, end;  /* piece held back, empty if start == end */
    int held_match;
} cutter;

static int run_level(const job *j, uint32_t level, const uint8_t *s, size_t n);

static int flush(cutter *c)
{
    size_t start = c->start, n = c->end - c->start;
    c->start = c->end;
    return n ? run_level(c->j, c->level + 1, c->s + start, n) : 0;
}

/* Takes the next span, which lies right behind the last one. */
static int take(cutter *c, uint32_t cut, size_t start, size_t end, int is_match)
{
    int rc = 0, glue = 0;
    if (start == end)
        return 0;
    if (cut == CL_CUT_REMOVED && is_match)
        return 0;
    if (c->start < c->end) {
        if (cut == CL_CUT_PREVIOUS)
            glue = is_match && !c->held_match;
        else if (cut == CL_CUT_NEXT)
            glue = !is_match && c->held_match;
        else if (cut == CL_CUT_CONTIGUOUS)
            glue = is_match == c->held_match;
    }
    if (!glue) {
        rc = flush(c);
        c->start = start;
    }
    c->end = end;
    c->held_match = is_match;
    return rc;
}

static int run_level(const job *j, uint32_t level, const uint8_t *s, size_t n)
{
    const cl_pattern *p;
    cutter c = {j, level, s, 0, 0, 0};
    size_t gap = 0, at = 0;
    int rc;
    if (level == j->p->n_steps)
        return j->emit(j->ctx, s, n);
    p = j->p->step + level;
    while (at < n) {
        int64_t end = cl_pattern_match(p, s, n, at);
        if (end <= (int64_t)at) {
            at += tok_utf8_len(s + at, n - at);
            continue;
        }
        rc = take(&c, p->cut, gap, at, p->invert != 0);
        if (!rc)
            rc = take(&c, p->cut, at, (size_t)end, p->invert == 0);
        if (rc)
            return rc;
        gap = at = (size_t)end;
    }
    rc = take(&c, p->cut, gap, n, p->invert != 0);
    return rc ? rc : flush(&c);
}

int cl_pretok_run(const cl_pretok *p, const uint8_t *s, size_t n,
                  int (*emit)(void *ctx, const uint8_t *piece, size_t length), void *ctx)
{
    job j = {p, emit, ctx};
    return n ? run_level(&j, 0, s, n) : 0;
}
