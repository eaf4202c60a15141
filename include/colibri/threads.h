/* A small thread pool for loops over chunks. Owns its threads; bounded spin, then sleep; survives fork.
   One caller at a time: a pool belongs to one model instance. */
#ifndef COLIBRI_THREADS_H
#define COLIBRI_THREADS_H

#include "colibri/base.h"

typedef struct cl_pool cl_pool;
/* chunk in [0, nchunks); worker in [0, threads), 0 = the caller */
typedef void (*cl_task_fn)(void *ctx, int32_t chunk, int32_t worker);
typedef void (*cl_range_fn)(void *ctx, int32_t first, int32_t last, int32_t worker);

/* threads >= 1 counts the caller. NULL when there is no memory; threads that cannot start are left out. */
CL_API cl_pool *cl_pool_new(int32_t threads);
/* Runs fn for every chunk and returns when all are done; workers take chunks as they come. */
CL_API void cl_pool_run(cl_pool *p, cl_task_fn fn, void *ctx, int32_t nchunks);
/* The same by runs of neighbouring chunks, first to last - 1: long ones to begin with, for memory streams a long stretch better, single chunks at
   the end, so that unequal cores finish together (guided self-scheduling: Polychronopoulos and Kuck 1987). longest: most chunks of a run. */
CL_API void cl_pool_run_guided(cl_pool *p, cl_range_fn fn, void *ctx, int32_t nchunks, int32_t longest);
CL_API int32_t cl_pool_threads(const cl_pool *p);
CL_API void cl_pool_free(cl_pool *p);

/* How many threads pay: the least of affinity mask, cgroup quota (0 = no quota known, in thousandths of a core) and the cores of
   the fastest cluster. Never below 1. */
CL_API int32_t cl_default_threads(int32_t quota_millicores);

#endif
