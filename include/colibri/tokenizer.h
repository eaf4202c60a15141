/* colibri/tokenizer.h - reader of compiled tokenizer tables.
 *
 * Owns: the view of one table blob (docs/tokenizer-tables.md), lookups in it, the BPE merge loop, the unigram search,
 * the search for added tokens, and the two builders of hash tables that the converter calls.
 * Refuses: any offset, length or id that does not fit the blob (checked before use, so that a hostile file ends in
 * CL_TOK_EBLOB or in "no such token", never in a wild read). Knows nothing of Python, of files or of Unicode
 * normalisation; it sees bytes. One cl_tok may serve many threads; one cl_tok_work belongs to one thread.
 */
#ifndef COLIBRI_TOKENIZER_H
#define COLIBRI_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "colibri/base.h"
#include "colibri/pretok.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Status codes. */
enum {
    CL_TOK_OK = 0,
    CL_TOK_EBLOB = -1,  /* the blob is not a tokenizer, or a field of it does not fit its length */
    CL_TOK_EMEM = -2,   /* out of memory */
    CL_TOK_ELIMIT = -3  /* input larger than 2^31 - 16 bytes */
};

/* How text becomes ids. */
enum {
    CL_TOK_HF = 0,       /* tables hold ids and bytes only; the tokenizers library encodes */
    CL_TOK_BPE_BYTE = 1, /* BPE whose symbols start as single bytes (GPT-2 and later) */
    CL_TOK_BPE_CHAR = 2, /* BPE whose symbols start as characters (SentencePiece) */
    CL_TOK_UNIGRAM = 3   /* best path by log probability */
};

/* Header flags. */
enum { CL_TOK_IGNORE_MERGES = 1, CL_TOK_FUSE_UNK = 2, CL_TOK_BYTE_FALLBACK = 4 };

/* Flags of one token (section FLAGS). */
enum {
    CL_TOKF_PRESENT = 1, /* the id has a token */
    CL_TOKF_CONTROL = 2, /* special: never made from plain text */
    CL_TOKF_ADDED = 4,   /* matched in the text before the model runs */
    CL_TOKF_BYTE = 8,    /* stands for one byte (<0x41>) */
    CL_TOKF_UNK = 16,    /* the unknown token */
    CL_TOKF_UNUSED = 32, /* declared as never to be produced */
    CL_TOKF_MODEL = 64   /* the model itself can produce it */
};

/* Flags of one added token (sections ADDED_RAW and ADDED_NORM). */
enum { CL_ADD_CONTROL = 1, CL_ADD_LSTRIP = 2, CL_ADD_RSTRIP = 4, CL_ADD_SINGLE_WORD = 8 };

#define CL_TOK_NONE 0xFFFFFFFFu /* "no id" */
#define CL_TOK_MAX_VOCAB (1u << 24)
#define CL_TOK_NSECTIONS 16

/* Sections, in the order of the directory. */
enum {
    CL_SEC_CONFIG = 0,     /* JSON, UTF-8 */
    CL_SEC_OFFSETS = 1,    /* u32[vocab + 1], rising; token i is BYTES[OFFSETS[i] .. OFFSETS[i + 1]) */
    CL_SEC_BYTES = 2,      /* u8[] */
    CL_SEC_FLAGS = 3,      /* u8[vocab] of CL_TOKF_* */
    CL_SEC_HASH = 4,       /* u32[2^k] ids, CL_TOK_NONE where empty */
    CL_SEC_MERGES = 5,     /* {u32 left, right, rank, result}[2^k], left CL_TOK_NONE where empty */
    CL_SEC_BYTE_IDS = 6,   /* u32[256] id of each single byte, CL_TOK_NONE where absent */
    CL_SEC_SCORES = 7,     /* f64[vocab], unigram only */
    CL_SEC_ADDED_RAW = 8,  /* {u32 id, flags, offset, length}[] into ADDED_TEXT, sorted by bytes */
    CL_SEC_ADDED_NORM = 9, /* the same, for tokens matched in normalised text */
    CL_SEC_ADDED_TEXT = 10,
    CL_SEC_HF_JSON = 11,   /* tokenizer.json as it was, kind CL_TOK_HF only */
    CL_SEC_PATTERNS = 12,  /* compiled pre-tokenizer patterns, see pretok.h */
    CL_SEC_INERT = 13      /* {u32 low, high}[] code points that Unicode normalisation leaves alone, rising */
};

typedef struct {
    const uint8_t *p; /* n bytes, any alignment */
    uint64_t n;
} cl_tok_span;

typedef struct {
    cl_tok_span sec[CL_TOK_NSECTIONS];
    uint32_t kind;        /* CL_TOK_HF .. CL_TOK_UNIGRAM */
    uint32_t flags;       /* CL_TOK_IGNORE_MERGES | ... */
    uint32_t vocab;       /* ids are 0 .. vocab - 1 */
    uint32_t unk;         /* id or CL_TOK_NONE */
    uint32_t max_len;     /* bytes of the longest token in HASH */
    uint32_t hash_mask;   /* slots of HASH - 1 */
    uint32_t merge_mask;  /* slots of MERGES - 1 */
    uint32_t hash_probe;  /* longest probe sequence in HASH */
    uint32_t merge_probe; /* the same of MERGES */
    cl_pretok pretok;     /* steps of PATTERNS */
    double unk_score;     /* unigram: log probability of one unknown character */
    uint32_t added_first[2][257]; /* [raw, norm][b]: first added token whose first byte is >= b */
} cl_tok;

/* Growing scratch of the encoders. Zero it before first use. */
typedef struct {
    uint32_t *ids;   /* [n_ids] what has been encoded so far */
    size_t n_ids, cap_ids;
    void *scratch;   /* [cap_scratch] bytes */
    size_t cap_scratch;
} cl_tok_work;

/* Checks the header and every section's place and size; keeps pointers into buf (len bytes), which must outlive t.
   Touches the header page and the two lists of added tokens only. */
CL_API int cl_tok_open(cl_tok *t, const void *buf, size_t len);

/* Token bytes in the form of the vocabulary. Returns 0, or CL_TOK_EBLOB for an id without a token (then *n = 0). */
CL_API int cl_tok_bytes(const cl_tok *t, uint32_t id, const uint8_t **p, uint32_t *n);

/* Flags of a token; 0 for ids outside the table. */
CL_API uint32_t cl_tok_flags(const cl_tok *t, uint32_t id);

/* Id of the model token with exactly these bytes, or CL_TOK_NONE. s: [n] */
CL_API uint32_t cl_tok_find(const cl_tok *t, const uint8_t *s, size_t n);

/* Result of merging (left, right), or CL_TOK_NONE; *rank says how early it happens. */
CL_API uint32_t cl_tok_merge(const cl_tok *t, uint32_t left, uint32_t right, uint32_t *rank);

/* Encodes one pre-token s: [n] bytes, and appends its ids to w->ids. Returns a status code. */
CL_API int cl_tok_encode(const cl_tok *t, cl_tok_work *w, const uint8_t *s, size_t n);
CL_API int cl_tok_encode_bpe(const cl_tok *t, cl_tok_work *w, const uint8_t *s, size_t n);
CL_API int cl_tok_encode_unigram(const cl_tok *t, cl_tok_work *w, const uint8_t *s, size_t n);

/* Cuts s: [n] with the steps of PATTERNS and encodes each piece. */
CL_API int cl_tok_encode_text(const cl_tok *t, cl_tok_work *w, const uint8_t *s, size_t n);

/* First run of inert characters in s[from .. n): 1 and its bytes [*start, *end), or 0. */
CL_API int cl_tok_next_inert(const cl_tok *t, const uint8_t *s, size_t n, size_t from, size_t *start, size_t *end);

/* One id at the end of w->ids. */
CL_API int cl_tok_push(cl_tok_work *w, uint32_t id);
/* At least `bytes` bytes of scratch; the old content is lost. NULL when out of memory. */
CL_API void *cl_tok_scratch(cl_tok_work *w, size_t bytes);
CL_API void cl_tok_work_free(cl_tok_work *w);

/* Leftmost, then longest added token in s[from .. n). list: 0 raw, 1 normalised. Returns 1 and fills the four outputs,
   or 0 when there is none. */
CL_API int cl_tok_next_added(const cl_tok *t, int list, const uint8_t *s, size_t n, size_t from, size_t *start,
                             size_t *end, uint32_t *id, uint32_t *flags);

/* Builders. table: [slots] u32 (hash) or [4 * slots] u32 (merges), slots a power of two, written little-endian.
   ids: [n] of the tokens to enter, offsets: [vocab + 1], bytes: [offsets[vocab]], merges: [3 * n] left, right, result
   in rank order with ranks [n]. Return the longest probe sequence, or 0 when the table is full. */
CL_API uint32_t cl_tok_build_hash(uint8_t *table, uint32_t slots, const uint32_t *ids, size_t n, const uint32_t *offsets,
                           const uint8_t *bytes);
CL_API uint32_t cl_tok_build_merges(uint8_t *table, uint32_t slots, const uint32_t *merges, const uint32_t *ranks, size_t n);

#ifdef __cplusplus
}
#endif
#endif
