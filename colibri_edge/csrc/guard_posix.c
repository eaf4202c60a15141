/* The handler of SIGBUS: zeros for a page that a file no longer has. */
#if !defined(_WIN32)
#include "colibri/guard.h"
#include "os.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAPPINGS = 64 };

typedef struct {
    atomic_uintptr_t from; /* 0: free */
    atomic_size_t bytes;
    atomic_int lost;
    int32_t users; /* under the lock */
} mapping;

static mapping watched[MAPPINGS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static int32_t installed;
static uintptr_t page;

/* Only async-signal-safe work: atomics and two system calls. */
static void on_bus(int sig, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr;
    for (int32_t i = 0; i < MAPPINGS; i++) {
        uintptr_t from = atomic_load(&watched[i].from);
        if (!from || at < from || at - from >= atomic_load(&watched[i].bytes)) continue;
        if (mmap((void *)(at / page * page), page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) break;
        atomic_fetch_add(&watched[i].lost, 1);
        return; /* the read is done again and finds zeros */
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(sig, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(sig);
    } else {
        sigaction(SIGBUS, &before, NULL); /* the fault comes again and ends the process as it would have */
    }
}

static void install(void) {
    struct sigaction now;
    memset(&now, 0, sizeof now);
    now.sa_sigaction = on_bus;
    now.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&now.sa_mask);
    page = (uintptr_t)sysconf(_SC_PAGESIZE);
    installed = !sigaction(SIGBUS, &now, &before);
}

static mapping *find(uintptr_t from) {
    for (int32_t i = 0; i < MAPPINGS; i++)
        if (atomic_load(&watched[i].from) == from) return &watched[i];
    return NULL;
}

int32_t cl_guard_add(const void *p, size_t n) {
    pthread_mutex_lock(&lock);
    if (!installed) install();
    mapping *m = find((uintptr_t)p);
    if (!m && (m = find(0)) != NULL) {
        m->users = 0;
        atomic_store(&m->lost, 0);
        atomic_store(&m->bytes, n);
        atomic_store(&m->from, (uintptr_t)p);
    }
    if (m) m->users++;
    pthread_mutex_unlock(&lock);
    return m && installed ? 0 : -1;
}

void cl_guard_remove(const void *p) {
    pthread_mutex_lock(&lock);
    mapping *m = p ? find((uintptr_t)p) : NULL;
    if (m && !--m->users) atomic_store(&m->from, (uintptr_t)0);
    pthread_mutex_unlock(&lock);
}

int32_t cl_guard_lost(const void *p) {
    mapping *m = p ? find((uintptr_t)p) : NULL;
    return m ? atomic_load(&m->lost) : 0;
}
#else
typedef int cl_guard_posix_is_empty_here;
#endif
