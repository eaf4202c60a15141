/* The thread pool. Owns: start, wake-up, sleep, end of workers. Refuses: work stealing, nesting, allocation per run.
   A run is published by one release store of `ticket`; workers spin a bounded time on it, then sleep on a condition variable,
   so that an idle pool costs nothing. */
#include "colibri/threads.h"
#include "os.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { MAX_THREADS = 256, SPINS = 4000 }; /* some 40 microseconds: longer than a barrier, shorter than a scheduler tick */

struct cl_pool {
    _Alignas(64) atomic_uint ticket;   /* number of the run; odd bit-free, only counts */
    _Alignas(64) atomic_int next;      /* next chunk to take */
    _Alignas(64) atomic_int busy;      /* workers that have not finished this run */
    _Alignas(64) atomic_int sleepers;
    cl_task_fn fn;
    cl_range_fn range;                 /* in place of fn, where it is not NULL */
    void *ctx;
    int32_t nchunks;
    int32_t longest;                   /* chunks of a run */
    int32_t threads;                   /* with the caller */
    int32_t started;                   /* workers that run */
    atomic_int stop;
    uint32_t generation;               /* of the process: changes in a forked child, which has no workers */
    cl_mutex lock;
    cl_cond wake;
    cl_thread handles[MAX_THREADS];
    struct worker { cl_pool *pool; int32_t id; uint32_t seen; } workers[MAX_THREADS];
};

static void take_runs(cl_pool *p, int32_t worker) {
    int first = atomic_load_explicit(&p->next, memory_order_relaxed);
    while (first < p->nchunks) {
        const int32_t share = CL_MIN((p->nchunks - first) / (2 * (p->started + 1)), p->longest), last = first + CL_MAX(1, share);
        if (!atomic_compare_exchange_weak_explicit(&p->next, &first, last, memory_order_relaxed, memory_order_relaxed)) continue;
        p->range(p->ctx, first, last, worker);
        first = atomic_load_explicit(&p->next, memory_order_relaxed);
    }
}

static void take_chunks(cl_pool *p, int32_t worker) {
    if (p->range) {
        take_runs(p, worker);
        return;
    }
    for (;;) {
        int32_t c = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (c >= p->nchunks) return;
        p->fn(p->ctx, c, worker);
    }
}

static unsigned wait_ticket(cl_pool *p, unsigned seen) {
    unsigned t;
    for (int32_t i = 0; i < SPINS; i++) {
        t = atomic_load_explicit(&p->ticket, memory_order_acquire);
        if (t != seen) return t;
        cl_cpu_relax();
    }
    cl_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while ((t = atomic_load(&p->ticket)) == seen) cl_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    cl_mutex_unlock(&p->lock);
    return t;
}

static void worker_main(void *arg) {
    struct worker *w = (struct worker *)arg;
    cl_pool *p = w->pool;
    unsigned seen = w->seen;
    for (;;) {
        seen = wait_ticket(p, seen);
        if (atomic_load_explicit(&p->stop, memory_order_acquire)) return;
        take_chunks(p, w->id);
        atomic_fetch_sub_explicit(&p->busy, 1, memory_order_release);
    }
}

static void publish(cl_pool *p) {
    atomic_fetch_add(&p->ticket, 1);
    if (atomic_load(&p->sleepers)) {
        cl_mutex_lock(&p->lock);
        cl_cond_broadcast(&p->wake);
        cl_mutex_unlock(&p->lock);
    }
}

static void start_workers(cl_pool *p) {
    cl_mutex_init(&p->lock);
    cl_cond_init(&p->wake);
    atomic_store(&p->sleepers, 0);
    atomic_store(&p->stop, 0);
    p->generation = cl_fork_generation();
    p->started = 0;
    for (int32_t i = 1; i < p->threads; i++) {
        struct worker *w = &p->workers[p->started];
        w->pool = p;
        w->id = p->started + 1;
        w->seen = atomic_load(&p->ticket);
        if (cl_thread_start(&p->handles[p->started], worker_main, w)) break;
        p->started++;
    }
}

cl_pool *cl_pool_new(int32_t threads) {
    cl_pool *p = (cl_pool *)cl_aligned_alloc(64, sizeof *p);
    if (!p) return NULL;
    p->threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    start_workers(p);
    return p;
}

/* One run of p->fn or p->range, of which the caller does its share. */
static void run(cl_pool *p, void *ctx, int32_t nchunks) {
    p->ctx = ctx;
    p->nchunks = nchunks;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->busy, p->started, memory_order_relaxed);
    publish(p);
    take_chunks(p, 0);
    for (int32_t i = 0; atomic_load_explicit(&p->busy, memory_order_acquire) > 0; i++) {
        if (i < SPINS) cl_cpu_relax();
        else cl_thread_yield(); /* more threads than cores: let the worker run */
    }
}

void cl_pool_run(cl_pool *p, cl_task_fn fn, void *ctx, int32_t nchunks) {
    if (p->generation != cl_fork_generation()) start_workers(p); /* in a forked child the threads are gone */
    if (nchunks <= 1 || p->started == 0) {
        for (int32_t c = 0; c < nchunks; c++) fn(ctx, c, 0);
        return;
    }
    p->fn = fn;
    p->range = NULL;
    run(p, ctx, nchunks);
}

void cl_pool_run_guided(cl_pool *p, cl_range_fn fn, void *ctx, int32_t nchunks, int32_t longest) {
    if (p->generation != cl_fork_generation()) start_workers(p);
    p->range = fn;
    p->longest = longest;
    if (nchunks > 1 && p->started) {
        run(p, ctx, nchunks);
        return;
    }
    for (int32_t c = 0; c < nchunks; c += longest) fn(ctx, c, CL_MIN(c + longest, nchunks), 0);
}

int32_t cl_pool_threads(const cl_pool *p) { return p->started + 1; }

void cl_pool_free(cl_pool *p) {
    if (!p) return;
    if (p->generation == cl_fork_generation()) {
        atomic_store(&p->stop, 1);
        publish(p);
        for (int32_t i = 0; i < p->started; i++) cl_thread_join(&p->handles[i]);
        cl_cond_destroy(&p->wake);
        cl_mutex_destroy(&p->lock);
    }
    cl_aligned_free(p);
}

int32_t cl_default_threads(int32_t quota_millicores) {
    int32_t n = cl_fast_cores();
    if (quota_millicores > 0) n = CL_MIN(n, CL_MAX(1, quota_millicores / 1000));
    return CL_MAX(1, CL_MIN(n, MAX_THREADS));
}
