/* What this machine could do at most: read bandwidth and the integer rate of the matrix micro-kernel. Ceilings for benchmarks. */
#ifndef COLIBRI_PROBE_H
#define COLIBRI_PROBE_H

#include "colibri/threads.h"

/* Bytes a second of reading `data` (n bytes, far beyond the caches) with all threads of the pool; the best of `reps` passes. */
CL_API double cl_probe_read(cl_pool *p, const uint8_t *data, size_t n, int32_t reps);
/* Multiply-adds a second of a q4_0 product of one row group with four tokens, everything in the L1 cache, on all threads. */
CL_API double cl_probe_int8(cl_pool *p, int32_t reps);

#endif
