/* Threads and cores by pthreads, sched_getaffinity and sysfs. */
#if !defined(_WIN32)
#include "os.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct start { void (*fn)(void *); void *arg; };

static void *trampoline(void *p) {
    struct start s = *(struct start *)p;
    free(p);
    s.fn(s.arg);
    return NULL;
}

int32_t cl_thread_start(cl_thread *t, void (*fn)(void *), void *arg) {
    struct start *s = (struct start *)malloc(sizeof *s);
    if (!s) return -1;
    s->fn = fn;
    s->arg = arg;
    int rc = pthread_create(t, NULL, trampoline, s);
    if (rc) free(s);
    return rc;
}
void cl_thread_join(cl_thread *t) { pthread_join(*t, NULL); }
void cl_thread_yield(void) { sched_yield(); }
void cl_mutex_init(cl_mutex *m) { pthread_mutex_init(m, NULL); }
void cl_mutex_destroy(cl_mutex *m) { pthread_mutex_destroy(m); }
void cl_mutex_lock(cl_mutex *m) { pthread_mutex_lock(m); }
void cl_mutex_unlock(cl_mutex *m) { pthread_mutex_unlock(m); }
void cl_cond_init(cl_cond *c) { pthread_cond_init(c, NULL); }
void cl_cond_destroy(cl_cond *c) { pthread_cond_destroy(c); }
void cl_cond_wait(cl_cond *c, cl_mutex *m) { pthread_cond_wait(c, m); }
void cl_cond_broadcast(cl_cond *c) { pthread_cond_broadcast(c); }
void cl_cond_signal(cl_cond *c) { pthread_cond_signal(c); }

static atomic_uint generation;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void in_child(void) { atomic_fetch_add(&generation, 1); }
static void watch_fork(void) { pthread_atfork(NULL, NULL, in_child); }
uint32_t cl_fork_generation(void) {
    pthread_once(&once, watch_fork);
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

#if defined(__linux__)
static int64_t read_number(const char *format, int32_t cpu) { /* -1 where the file is not there */
    char path[128];
    long long v = -1; /* scanf's widest portable type */
    snprintf(path, sizeof path, format, (int)cpu);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    if (fscanf(f, "%lld", &v) != 1) v = -1;
    fclose(f);
    return (int64_t)v;
}

/* Cores inside the mask whose capacity (big.LITTLE) or, without one, maximum frequency is within a tenth of the best;
   SMT siblings count once. */
int32_t cl_fast_cores(void) {
    enum { MAX_CPUS = 1024 };
    static const char *const capacity = "/sys/devices/system/cpu/cpu%d/cpu_capacity";
    static const char *const khz = "/sys/devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq";
    static const char *const core = "/sys/devices/system/cpu/cpu%d/topology/core_id";
    static const char *const package = "/sys/devices/system/cpu/cpu%d/topology/physical_package_id";
    cpu_set_t set;
    int64_t speed[MAX_CPUS], best = -1, ids[MAX_CPUS];
    int32_t n = 0;
    if (sched_getaffinity(0, sizeof set, &set)) return (int32_t)CL_MAX(1, sysconf(_SC_NPROCESSORS_ONLN));
    int32_t count = CL_MIN((int32_t)CPU_SETSIZE, (int32_t)MAX_CPUS);
    for (int32_t c = 0; c < count; c++) {
        speed[c] = -2;
        if (!CPU_ISSET((size_t)c, &set)) continue;
        speed[c] = read_number(capacity, c);
        if (speed[c] < 0) speed[c] = read_number(khz, c);
        best = CL_MAX(best, speed[c]);
    }
    for (int32_t c = 0; c < count; c++) {
        if (speed[c] == -2 || (best > 0 && speed[c] * 10 < best * 9)) continue;
        int64_t id = read_number(core, c), dup = 0;
        id = id < 0 ? -1 - c : (read_number(package, c) + 1) * 100000 + id;
        for (int32_t i = 0; i < n; i++) dup |= ids[i] == id;
        if (!dup) ids[n++] = id;
    }
    return CL_MAX(1, n);
}
#else
int32_t cl_fast_cores(void) { return (int32_t)CL_MAX(1, sysconf(_SC_NPROCESSORS_ONLN)); }
#endif
#else
typedef int cl_os_posix_is_empty_here;
#endif
