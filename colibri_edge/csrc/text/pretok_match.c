/* pretok_match.c - runs one compiled pattern.
 *
 * Owns: opening of the section and the matcher: backtracking over a program that only goes forward, so that recursion is no
 * deeper than the program is long, whatever the text. Loops exist over single characters only.
 * Refuses: sections with anything out of bounds. A match that takes more steps than STEPS_PER_BYTE allows fails.
 */
#include "colibri/pretok.h"
#include "tok_internal.h"

#define MAX_OPS 1024u
#define STEPS_PER_BYTE 64u
#define NO_LIMIT 0xFFFFFFFFu

typedef struct {
    const cl_pattern *p;
    const uint8_t *s; /* [n] */
    size_t n;
    uint64_t steps; /* left */
} run;

static int check_program(const cl_pattern *p)
{
    for (uint32_t i = 0; i < p->n_sets; i++) {
        const uint8_t *q = p->sets + 24 * (size_t)i;
        if ((uint64_t)tok_rd32(q + 16) + tok_rd32(q + 20) > p->n_ranges)
            return -1;
    }
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const uint8_t *q = p->ops + 16 * (size_t)i;
        uint32_t op = tok_rd32(q), a = tok_rd32(q + 4), b = tok_rd32(q + 8);
        if (op > CL_PAT_EOL || (op != CL_PAT_MATCH && i + 1 >= p->n_ops))
            return -1;
        if ((op == CL_PAT_SET || op == CL_PAT_REP || op == CL_PAT_POSSESSIVE) && a >= p->n_sets)
            return -1;
        if ((op == CL_PAT_SPLIT || op == CL_PAT_JUMP) && (a <= i || a >= p->n_ops))
            return -1;
        if (op == CL_PAT_LOOK && (b <= i || b >= p->n_ops))
            return -1;
    }
    return 0;
}

/* One step at s: [n], section header {u32 cut, invert, n_ops, n_sets, n_ranges}; bytes used, or 0. */
static uint64_t open_step(cl_pattern *p, const uint8_t *s, uint64_t n)
{
    uint64_t used;
    if (n < 20)
        return 0;
    p->cut = tok_rd32(s);
    p->invert = tok_rd32(s + 4);
    p->n_ops = tok_rd32(s + 8);
    p->n_sets = tok_rd32(s + 12);
    p->n_ranges = tok_rd32(s + 16);
    used = 20 + 16 * (uint64_t)p->n_ops + 24 * (uint64_t)p->n_sets + 8 * (uint64_t)p->n_ranges;
    if (p->cut > CL_CUT_CONTIGUOUS || p->invert > 1 || !p->n_ops || p->n_ops > MAX_OPS || used > n)
        return 0;
    p->ops = s + 20;
    p->sets = p->ops + 16 * (size_t)p->n_ops;
    p->ranges = p->sets + 24 * (size_t)p->n_sets;
    return check_program(p) ? 0 : used;
}

int cl_pretok_open(cl_pretok *p, const uint8_t *section, uint64_t n)
{
    memset(p, 0, sizeof *p);
    if (n == 0)
        return 0;
    if (n < 4 || tok_rd32(section) > CL_PRETOK_MAX_STEPS)
        return -1;
    p->n_steps = tok_rd32(section);
    section += 4;
    n -= 4;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        uint64_t used = open_step(p->step + i, section, n);
        if (!used)
            return -1;
        section += used;
        n -= used;
    }
    return 0;
}

static int in_set(const cl_pattern *p, uint32_t set, uint32_t c)
{
    const uint8_t *q = p->sets + 24 * (size_t)set;
    if (c < 128)
        return q[c >> 3] >> (c & 7) & 1;
    return tok_in_ranges(p->ranges + 8 * (size_t)tok_rd32(q + 16), tok_rd32(q + 20), c);
}

static size_t step_back(const uint8_t *s, size_t at)
{
    size_t k = 1;
    while (k < 4 && k < at && (s[at - k] & 0xC0) == 0x80)
        k++;
    return tok_utf8_len(s + at - k, k) == k ? at - k : at - 1;
}

/* Runs the program from instruction pc at s[at]; the end of the match or -1. */
static int64_t match(run *r, uint32_t pc, size_t at)
{
    for (;;) {
        const uint8_t *q = r->p->ops + 16 * (size_t)pc;
        uint32_t op = tok_rd32(q), a = tok_rd32(q + 4), b = tok_rd32(q + 8), c = tok_rd32(q + 12), k = 0;
        size_t len = 0, from = at;
        int64_t end;
        if (r->steps-- == 0) {
            r->steps = 0;
            return -1;
        }
        pc++;
        switch (op) {
        case CL_PAT_SET:
            if (at >= r->n || !in_set(r->p, a, tok_decode(r->s + at, r->n - at, &len)))
                return -1;
            at += len;
            break;
        case CL_PAT_REP:
        case CL_PAT_POSSESSIVE:
            while (k < c && at < r->n && in_set(r->p, a, tok_decode(r->s + at, r->n - at, &len))) {
                at += len;
                k += k < NO_LIMIT - 1;
            }
            if (k < b)
                return -1;
            if (op == CL_PAT_POSSESSIVE || tok_rd32(r->p->ops + 16 * (size_t)pc) == CL_PAT_MATCH)
                break;
            for (; k > b && at > from; k--) {
                end = match(r, pc, at);
                if (end >= 0 || r->steps == 0)
                    return end;
                at = step_back(r->s, at);
            }
            break;
        case CL_PAT_SPLIT:
            end = match(r, pc, at);
            if (end >= 0 || r->steps == 0)
                return end;
            pc = a;
            break;
        case CL_PAT_JUMP:
            pc = a;
            break;
        case CL_PAT_LOOK:
            if ((match(r, pc, at) < 0) != (a != 0))
                return -1;
            pc = b;
            break;
        case CL_PAT_BOL:
            if (at && r->s[at - 1] != '\n')
                return -1;
            break;
        case CL_PAT_EOL:
            if (at < r->n && r->s[at] != '\n')
                return -1;
            break;
        default: /* CL_PAT_MATCH */
            return (int64_t)at;
        }
    }
}

int64_t cl_pattern_match(const cl_pattern *p, const uint8_t *s, size_t n, size_t at)
{
    run r = {p, s, n, 0};
    r.steps = 4096 + STEPS_PER_BYTE * (uint64_t)(n - at);
    return match(&r, 0, at);
}
