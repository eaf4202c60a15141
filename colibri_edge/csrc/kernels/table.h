/* Who fills which part of a kernel table. Private to csrc. */
#ifndef COLIBRI_TABLE_H
#define COLIBRI_TABLE_H

#include "colibri/kernels.h"

void cl_fill_mm_int__scalar(cl_kernels *t);
void cl_fill_float__scalar(cl_kernels *t);
void cl_fill_attention__scalar(cl_kernels *t);
void cl_fill_rowmm__scalar(cl_kernels *t);
void cl_fill_delta__scalar(cl_kernels *t);
void cl_fill_mm_int__avx2(cl_kernels *t);
void cl_fill_float__avx2(cl_kernels *t);
void cl_fill_attention__avx2(cl_kernels *t);
void cl_fill_rowmm__avx2(cl_kernels *t);
void cl_fill_delta__avx2(cl_kernels *t);
void cl_fill_attention__avx512vnni(cl_kernels *t);
void cl_fill_mm_int__avx512vnni(cl_kernels *t);
void cl_fill_mm_int__neon(cl_kernels *t);
void cl_fill_float__neon(cl_kernels *t);
void cl_fill_attention__neon(cl_kernels *t);
void cl_fill_mm_int__dotprod(cl_kernels *t);
void cl_fill_rowmm__neon(cl_kernels *t);
void cl_fill_delta__neon(cl_kernels *t);

/* Bytes of an R8 block; folds for a constant format. */
CL_INLINE int32_t cl_block_bytes_of(int32_t f) {
    switch (f) {
#define X(name, id, k, bytes, q8) case id: return bytes;
        CL_FORMATS(X)
#undef X
    default: return 0;
    }
}

/* Columns of a block; likewise. */
CL_INLINE int32_t cl_block_k_of(int32_t f) {
    switch (f) {
#define X(name, id, k, bytes, q8) case id: return k;
        CL_FORMATS(X)
#undef X
    default: return 0;
    }
}

#endif
