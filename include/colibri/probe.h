/* What this machine could do at most: read bandwidth and the integer rate of the matrix micro-kernel (ceilings
   for benchmarks); rates of what a token does (for plans). */
#ifndef COLIBRI_PROBE_H
#define COLIBRI_PROBE_H

#include "colibri/threads.h"

/* Bytes a second of reading `data` (n bytes, far beyond the caches) with all threads of the pool; the best of `reps` passes. */
CL_API double cl_probe_read(cl_pool *p, const uint8_t *data, size_t n, int32_t reps);
/* Multiply-adds a second of a q4_0 product, everything in the L1 cache, on all threads: of eight tokens with two row groups or, plain, of four
   tokens with one register of rows (eight or sixteen). */
CL_API double cl_probe_int8(cl_pool *p, int32_t plain, int32_t reps);
/* Weight bytes a second of a matrix-vector product in that format: data holds n bytes as matrices of `cols` columns (any bytes that
   are no NaN), far beyond the caches. All threads; the mean of `reps`. 0 when memory is short. */
CL_API double cl_probe_matvec(cl_pool *p, int32_t fmt, int32_t cols, const uint8_t *data, size_t n, int32_t reps);
/* Seconds that one pass through the pool takes when there is nothing to do. */
CL_API double cl_probe_dispatch(cl_pool *p, int32_t runs);
/* Bytes a second of `reads` reads of `record` bytes at random places of a file's [from, to), `ahead` of them in flight, by the reader
   that brings in experts (whole records, past the page cache where possible). from and record: multiples of CL_READ_ALIGN.
   0 when the file cannot be read (*error: errno) or holds no record. */
CL_API double cl_probe_disk(const char *path, uint64_t from, uint64_t to, size_t record, int32_t reads, int32_t ahead, int32_t *error);

#endif
