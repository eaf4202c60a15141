/* colibri/pretok.h - pre-tokenizer patterns, compiled.
 *
 * Owns: matching of small regular expressions over UTF-8, and the cutting of text at their matches. A pattern is a program
 * made by colibri_edge/text/_patterns.py and stored in a table blob (docs/tokenizer-tables.md); its character classes are
 * lists of code points, so that the result depends on no library's edition of Unicode.
 * Refuses: programs that jump backwards, leave their bounds or run past their step limit (checked at open or on the way).
 */
#ifndef COLIBRI_PRETOK_H
#define COLIBRI_PRETOK_H

#include "colibri/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Instructions {u32 op, a, b, c}. */
enum {
    CL_PAT_MATCH = 0,
    CL_PAT_SET = 1,        /* one character of set a */
    CL_PAT_REP = 2,        /* b to c characters of set a, as many as let the rest match */
    CL_PAT_POSSESSIVE = 3, /* b to c characters of set a, as many as there are */
    CL_PAT_SPLIT = 4,      /* the next instruction, or else a */
    CL_PAT_JUMP = 5,       /* to a */
    CL_PAT_LOOK = 6,       /* the program at the next instruction matches here (a = 0) or does not (a = 1); then b */
    CL_PAT_BOL = 7,        /* start of the text or after a line feed */
    CL_PAT_EOL = 8         /* end of the text or before a line feed */
};

/* What becomes of the matches (as the Split step of Hugging Face tokenizers names it). */
enum { CL_CUT_ISOLATED = 0, CL_CUT_REMOVED = 1, CL_CUT_PREVIOUS = 2, CL_CUT_NEXT = 3, CL_CUT_CONTIGUOUS = 4 };

#define CL_PRETOK_MAX_STEPS 16

typedef struct {
    const uint8_t *ops; /* [16 * n_ops] */
    const uint8_t *sets; /* [24 * n_sets]: u8 bitmap[16] of ASCII, u32 first range, u32 number of ranges */
    const uint8_t *ranges; /* [8 * n_ranges]: u32 low, high of the code points from 128 on, rising */
    uint32_t n_ops, n_sets, n_ranges;
    uint32_t cut;    /* CL_CUT_* */
    uint32_t invert; /* 1: matches and gaps change places */
} cl_pattern;

typedef struct {
    cl_pattern step[CL_PRETOK_MAX_STEPS];
    uint32_t n_steps;
} cl_pretok;

/* Opens the section PATTERNS: [n] bytes; n = 0 gives no steps. Returns 0, or -1 when it does not check out. */
CL_API int cl_pretok_open(cl_pretok *p, const uint8_t *section, uint64_t n);

/* End of the match of p that begins at s[at], at most n; -1 if there is none. */
CL_API int64_t cl_pattern_match(const cl_pattern *p, const uint8_t *s, size_t n, size_t at);

/* Cuts s: [n] with every step in turn and hands each piece to emit(ctx, piece, length); stops at its first nonzero
   return and gives it back. */
CL_API int cl_pretok_run(const cl_pretok *p, const uint8_t *s, size_t n,
                         int (*emit)(void *ctx, const uint8_t *piece, size_t length), void *ctx);

#ifdef __cplusplus
}
#endif
#endif
