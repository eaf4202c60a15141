/* The reading threads: a queue, whole records, checksums on request. Refuses: allocation per read, partial results. */
#include "colibri/reader.h"
#include "file_io.h"
#include "os.h"

#include <stdatomic.h>

enum { MAX_READERS = 16, QUEUE = 4096, SPINS = 2000 };

typedef struct {
    cl_read *at[QUEUE];
    uint32_t head, tail;
} ring;

struct cl_reader {
    cl_mutex lock, turn; /* turn: between begin and end */
    cl_cond work, done;
    atomic_uint generation, restarting; /* of the process that the threads run in: changes in a forked child, which has none */
    ring urgent, later; /* later: read when nothing urgent waits; a read that became urgent leaves a NULL there */
    int32_t threads, stop;
    cl_thread handles[MAX_READERS];
    cl_file *file;
    atomic_int direct, fault, fault_in;
    atomic_ullong bytes, reads;
    atomic_llong wait_ns;
};

/* the fault that this read shall suffer */
static int32_t next_fault(cl_reader *r) {
    if (atomic_load(&r->fault) == CL_FAULT_NONE || atomic_fetch_sub(&r->fault_in, 1) != 0) return CL_FAULT_NONE;
    return atomic_exchange(&r->fault, CL_FAULT_NONE);
}

static int32_t read_record(cl_reader *r, cl_read *q) {
    size_t done = 0;
    int32_t fault = next_fault(r), direct = atomic_load(&r->direct);
    if (fault == CL_FAULT_EIO) { q->error = 5; return CL_READ_EIO; }
    if (fault == CL_FAULT_CUT) return CL_READ_CUT;
    while (done < q->bytes) {
        size_t want = q->bytes - done;
        if (fault == CL_FAULT_SHORT && want > CL_READ_ALIGN) want = CL_READ_ALIGN;
        int32_t error = 0;
        int64_t n = fault == CL_FAULT_EINVAL && direct ? -1 : cl_file_read(r->file, direct, q->dst + done, want, q->offset + done, &error);
        if (n < 0 && direct) { /* this file system takes no direct reads, or not this one: buffered from here on */
            direct = 0;
            atomic_store(&r->direct, 0);
            continue;
        }
        if (n < 0) { q->error = error; return CL_READ_EIO; }
        if (n == 0) return CL_READ_CUT;
        done += (size_t)n;
        if (direct && done < q->bytes && done % CL_READ_ALIGN) direct = 0; /* an unaligned rest cannot be read directly */
    }
    if (!direct) cl_file_drop(r->file, q->offset, q->bytes);
    if (fault == CL_FAULT_FLIP) q->dst[q->bytes / 2] ^= 1;
    if (q->check && cl_crc32c(0, q->dst, q->bytes) != q->crc) return CL_READ_CRC;
    atomic_fetch_add(&r->bytes, q->bytes);
    atomic_fetch_add(&r->reads, 1);
    return CL_READ_DONE;
}

static atomic_int *state_of(const cl_read *q) { return (atomic_int *)(uintptr_t)&q->state; }
static atomic_uint *generation_of(const cl_read *q) { return (atomic_uint *)(uintptr_t)&q->generation; }

/* the next read, or NULL; the caller holds the lock */
static cl_read *take(cl_reader *r) {
    if (r->urgent.head != r->urgent.tail) return r->urgent.at[r->urgent.head++ % QUEUE];
    while (r->later.head != r->later.tail) {
        cl_read *q = r->later.at[r->later.head++ % QUEUE];
        if (q) return q;
    }
    return NULL;
}

static void reader_main(void *arg) {
    cl_reader *r = (cl_reader *)arg;
    for (;;) {
        cl_read *q = NULL;
        cl_mutex_lock(&r->lock);
        while (!r->stop && !(q = take(r))) cl_cond_wait(&r->work, &r->lock);
        cl_mutex_unlock(&r->lock);
        if (!q) return; /* closed: what still waits is not read */
        int32_t state = read_record(r, q);
        cl_mutex_lock(&r->lock);
        atomic_store_explicit(state_of(q), state, memory_order_release);
        cl_cond_broadcast(&r->done);
        cl_mutex_unlock(&r->lock);
    }
}

static void start_threads(cl_reader *r, int32_t threads) {
    cl_mutex_init(&r->lock);
    cl_mutex_init(&r->turn);
    cl_cond_init(&r->work);
    cl_cond_init(&r->done);
    r->urgent.head = r->urgent.tail = r->later.head = r->later.tail = 0;
    for (r->threads = 0; r->threads < threads; r->threads++)
        if (cl_thread_start(&r->handles[r->threads], reader_main, r)) break;
}

/* Before anything that needs the threads or the locks. Several threads may be the first in a child. */
static void awake(cl_reader *r) {
    uint32_t now = cl_fork_generation(), seen = atomic_load(&r->restarting);
    if (atomic_load_explicit(&r->generation, memory_order_acquire) == now) return;
    if (seen != now && atomic_compare_exchange_strong(&r->restarting, &seen, now)) {
        start_threads(r, r->threads);
        atomic_store_explicit(&r->generation, now, memory_order_release);
    }
    while (atomic_load_explicit(&r->generation, memory_order_acquire) != now) cl_thread_yield();
}

void cl_reader_begin(cl_reader *r) {
    awake(r);
    cl_mutex_lock(&r->turn);
}

void cl_reader_end(cl_reader *r) { cl_mutex_unlock(&r->turn); }

cl_reader *cl_reader_open(const char *path, int32_t threads, int32_t direct, int32_t *error) {
    cl_reader *r = (cl_reader *)cl_aligned_alloc(64, sizeof *r);
    if (!r) return NULL;
    r->file = cl_file_open(path, direct, error);
    if (!r->file) {
        cl_aligned_free(r);
        return NULL;
    }
    atomic_store(&r->direct, direct && cl_file_is_direct(r->file));
    start_threads(r, CL_MAX(1, CL_MIN(threads, (int32_t)MAX_READERS)));
    atomic_store(&r->generation, cl_fork_generation());
    atomic_store(&r->restarting, cl_fork_generation());
    if (!r->threads) {
        cl_reader_close(r);
        return NULL;
    }
    return r;
}

void cl_reader_close(cl_reader *r) {
    if (!r) return;
    if (atomic_load(&r->generation) == cl_fork_generation()) { /* else the threads are those of the parent */
        cl_mutex_lock(&r->lock);
        r->stop = 1;
        cl_cond_broadcast(&r->work);
        cl_mutex_unlock(&r->lock);
        for (int32_t i = 0; i < r->threads; i++) cl_thread_join(&r->handles[i]);
        cl_cond_destroy(&r->work);
        cl_cond_destroy(&r->done);
        cl_mutex_destroy(&r->lock);
        cl_mutex_destroy(&r->turn);
    }
    cl_file_close(r->file);
    cl_aligned_free(r);
}

static void put(cl_reader *r, ring *to, cl_read *q) {
    for (;;) {
        cl_mutex_lock(&r->lock);
        if (to->tail - to->head < QUEUE) {
            to->at[to->tail++ % QUEUE] = q;
            cl_cond_signal(&r->work);
            cl_mutex_unlock(&r->lock);
            return;
        }
        cl_mutex_unlock(&r->lock);
        cl_thread_yield(); /* thousands of reads ahead of the disk */
    }
}

static void submit(cl_reader *r, ring *to, cl_read *q) {
    awake(r);
    atomic_store_explicit(generation_of(q), cl_fork_generation(), memory_order_relaxed);
    atomic_store_explicit(state_of(q), CL_READ_QUEUED, memory_order_release);
    put(r, to, q);
}

void cl_reader_submit(cl_reader *r, cl_read *q) { submit(r, &r->urgent, q); }
void cl_reader_submit_later(cl_reader *r, cl_read *q) { submit(r, &r->later, q); }

/* Queues a read again that waited, or was being read, in the parent. */
static void adopt(cl_reader *r, cl_read *q) {
    uint32_t now = cl_fork_generation();
    int32_t orphan;
    if (atomic_load_explicit(generation_of(q), memory_order_relaxed) == now) return;
    awake(r);
    cl_mutex_lock(&r->lock);
    orphan = atomic_exchange(generation_of(q), now) != now && cl_reader_state(q) == CL_READ_QUEUED;
    cl_mutex_unlock(&r->lock);
    if (orphan) put(r, &r->urgent, q);
}

int32_t cl_reader_cancel(cl_reader *r, cl_read *q) {
    int32_t found = 0;
    if (cl_reader_state(q) != CL_READ_QUEUED) return 0;
    adopt(r, q);
    cl_mutex_lock(&r->lock);
    for (uint32_t i = r->later.head; i != r->later.tail && !found; i++)
        if (r->later.at[i % QUEUE] == q) {
            r->later.at[i % QUEUE] = NULL;
            atomic_store_explicit(state_of(q), CL_READ_IDLE, memory_order_release);
            found = 1;
        }
    cl_mutex_unlock(&r->lock);
    return found;
}

void cl_reader_hurry(cl_reader *r, cl_read *q) {
    if (cl_reader_cancel(r, q)) cl_reader_submit(r, q);
}

int32_t cl_reader_state(const cl_read *q) { return atomic_load_explicit(state_of(q), memory_order_acquire); }

int32_t cl_reader_wait(cl_reader *r, cl_read *q) {
    int32_t s = cl_reader_state(q);
    if (s != CL_READ_QUEUED) return s;
    int64_t start = cl_now_ns();
    adopt(r, q);
    for (int32_t i = 0; i < SPINS && s == CL_READ_QUEUED; i++) {
        cl_cpu_relax();
        s = cl_reader_state(q);
    }
    if (s == CL_READ_QUEUED) {
        cl_mutex_lock(&r->lock);
        if (!r->threads && cl_reader_state(q) == CL_READ_QUEUED) /* a child that could start none */
            atomic_store_explicit(state_of(q), read_record(r, q), memory_order_release);
        while ((s = cl_reader_state(q)) == CL_READ_QUEUED) cl_cond_wait(&r->done, &r->lock);
        cl_mutex_unlock(&r->lock);
    }
    atomic_fetch_add(&r->wait_ns, cl_now_ns() - start);
    return s;
}

void cl_reader_get_stats(cl_reader *r, cl_reader_stats *s) {
    s->bytes = atomic_load(&r->bytes);
    s->reads = atomic_load(&r->reads);
    s->wait_ns = atomic_load(&r->wait_ns);
    s->direct = atomic_load(&r->direct);
}

void cl_reader_inject(cl_reader *r, int32_t fault, int32_t nth) {
    atomic_store(&r->fault_in, nth);
    atomic_store(&r->fault, fault);
}
