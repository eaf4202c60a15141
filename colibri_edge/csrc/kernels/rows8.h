/* The rows of a register are one row group: eight. Private to the int8 headers; int8__avx512vnni.h has sixteen, of two groups. */
#ifndef COLIBRI_ROWS8_H
#define COLIBRI_ROWS8_H

#define INT8_ROWS 8
#define INT8_TILE 4 /* tokens whose sums fit into the registers */
#define INT8_AHEAD 896 /* bytes between a prefetch and its use, for one token (docs/decisions.md) */
#define INT8_BIAS 0 /* of int8 weights, which are multiplied as they are */

typedef const uint8_t *rows_t; /* a place in the rows' blocks */
typedef float *outs_t;         /* the rows' outputs for one token */
CL_INLINE rows_t rows_at(rows_t b, int32_t n) { return b + n; }
CL_INLINE outs_t outs_at(outs_t y, size_t n) { return y + n; }

/* one float a row */
typedef v8 vr;
#define vr_set1 v8_set1
#define vr_sub v8_sub
#define vr_mul v8_mul
#define vr_fma v8_fma
#define vr_load v8_load
#define vr_store v8_store
#define vr_load_f16 v8_load_f16
#define vr_load_bf16 v8_load_bf16
#define vr_load_e8m0_half v8_load_e8m0_half

#endif
