/* Workers with homes: binding a pool's threads to cores, and chunks that prefer one worker. */
#include "host.h"
#include <stdatomic.h>

struct bind { const int32_t *cpus; int32_t n, threads; atomic_int arrived, failed; };

/* Each worker stays in its chunk until all have one, so that nobody takes two. */
static void bind_chunk(void *ctx, int32_t chunk, int32_t worker) {
    struct bind *b = (struct bind *)ctx;
    if (worker > 0 && cl_bind_thread(b->cpus[worker % b->n], NULL)) atomic_store(&b->failed, 1);
    atomic_fetch_add(&b->arrived, 1);
    while (atomic_load(&b->arrived) < b->threads) cl_thread_yield();
}

int32_t cl_pool_bind(cl_pool *p, const int32_t *cpus, int32_t n) {
    struct bind b = {cpus, n, cl_pool_threads(p), 0, 0};
    if (n < 1 || !cl_affinity_known()) return -1;
    if (b.threads > 1) cl_pool_run(p, bind_chunk, &b, b.threads);
    return atomic_load(&b.failed) ? -1 : 0;
}

struct owned { cl_task_fn fn; void *ctx; int32_t nchunks; const int32_t *owner; atomic_int *claims; };

static void owned_chunk(void *ctx, int32_t chunk, int32_t worker) {
    struct owned *o = (struct owned *)ctx;
    for (int32_t pass = 0; pass < 2; pass++)
        for (int32_t c = 0; c < o->nchunks; c++)
            if ((pass || o->owner[c] == worker) && !atomic_exchange_explicit(&o->claims[c], 1, memory_order_relaxed)) o->fn(o->ctx, c, worker);
}

void cl_pool_run_owned(cl_pool *p, cl_task_fn fn, void *ctx, int32_t nchunks, const int32_t *owner, int32_t *claims) {
    struct owned o = {fn, ctx, nchunks, owner, (atomic_int *)(void *)claims};
    for (int32_t c = 0; c < nchunks; c++) atomic_init(&o.claims[c], 0);
    cl_pool_run(p, owned_chunk, &o, cl_pool_threads(p));
}
