/* Files, cores and shared libraries by POSIX (and Linux's affinity calls). */
#if !defined(_WIN32)
#include "host.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens path; when there is no such file and the name has backslashes, once more with slashes. */
static int open_either(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT || !strchr(path, '\\')) return fd;
    size_t n = strlen(path) + 1;
    char *p = (char *)malloc(n);
    if (!p) return -1;
    for (size_t i = 0; i < n; i++) p[i] = path[i] == '\\' ? '/' : path[i];
    fd = open(p, O_RDONLY | O_CLOEXEC);
    free(p);
    return fd;
}

static int32_t open_file(const char *path, int *fd, uint64_t *size) {
    struct stat st;
    *fd = open_either(path);
    if (*fd < 0) return cl_fail(-1, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(*fd, &st) || !S_ISREG(st.st_mode)) {
        close(*fd);
        return cl_fail(-1, "%s: not a regular file", path);
    }
    *size = (uint64_t)st.st_size;
    return 0;
}

static int32_t read_all(int fd, uint8_t *p, uint64_t n) {
    uint64_t at = 0;
    while (at < n) {
        ssize_t got = pread(fd, p + at, (size_t)CL_MIN(n - at, (uint64_t)1 << 30), (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return -1;
        at += (uint64_t)got;
    }
    return 0;
}

int32_t cl_host_peek(const char *path, void *out, size_t n, uint64_t *size) {
    int fd;
    if (open_file(path, &fd, size)) return -1;
    int32_t rc = *size < n ? -2 : read_all(fd, (uint8_t *)out, n) ? cl_fail(-1, "%s: cannot read: %s", path, strerror(errno)) : 0;
    close(fd);
    return rc;
}

int32_t cl_host_open(const char *path, int32_t how, size_t head, size_t skew, cl_host_file *f) {
    int fd;
    memset(f, 0, sizeof *f);
    if (open_file(path, &fd, &f->size)) return -1;
    if (f->size == 0 || f->size > (uint64_t)PTRDIFF_MAX - (1 << 22)) {
        close(fd);
        return cl_fail(-1, "%s: %llu bytes cannot be mapped", path, (unsigned long long)f->size);
    }
    f->kind = how;
    if (how == CL_HOST_MAP) {
        void *p = mmap(NULL, (size_t)f->size, PROT_READ, MAP_PRIVATE, fd, 0);
        close(fd);
        if (p == MAP_FAILED) return cl_fail(-1, "%s: cannot map %llu bytes: %s", path, (unsigned long long)f->size, strerror(errno));
        f->handle = p;
        f->data = (const uint8_t *)p;
        return 0;
    }
    enum { HUGE = 1 << 21 };
    size_t room = (size_t)f->size + 2 * CL_CACHE_LINE + skew;
    void *p = NULL;
    if (posix_memalign(&p, room >= HUGE ? HUGE : CL_CACHE_LINE, room)) {
        close(fd);
        return cl_fail(-1, "%s: no memory for %llu bytes", path, (unsigned long long)f->size);
    }
#if defined(MADV_HUGEPAGE)
    if (room >= HUGE) madvise(p, room / HUGE * HUGE, MADV_HUGEPAGE);
#endif
    f->handle = p;
    uint8_t *data = (uint8_t *)p + CL_ROUND_UP(head, (size_t)CL_CACHE_LINE) - head + skew;
    f->data = data;
    int32_t rc = read_all(fd, data, f->size);
    close(fd);
    if (!rc) return 0;
    cl_host_close(f);
    return cl_fail(-1, "%s: cannot read %llu bytes: the file shrank or the disk failed", path, (unsigned long long)f->size);
}

void cl_host_close(cl_host_file *f) {
    if (f->handle && f->kind == CL_HOST_MAP) munmap(f->handle, (size_t)f->size);
    else free(f->handle);
    memset(f, 0, sizeof *f);
}

#if defined(__linux__)
int32_t cl_affinity_known(void) { return 1; }
int32_t cl_cpu_list(int32_t *cpus, int32_t max) {
    cpu_set_t set;
    int32_t n = 0;
    if (sched_getaffinity(0, sizeof set, &set)) return 0;
    for (int32_t c = 0; c < CPU_SETSIZE && n < max; c++)
        if (CPU_ISSET((size_t)c, &set)) cpus[n++] = c;
    return n;
}
int32_t cl_bind_thread(int32_t cpu, cl_cpu_mask *before) {
    cpu_set_t set;
    if (before && sched_getaffinity(0, sizeof *before, (cpu_set_t *)(void *)before)) return -1;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) ? -1 : 0;
}
void cl_unbind_thread(const cl_cpu_mask *before) { sched_setaffinity(0, sizeof *before, (const cpu_set_t *)(const void *)before); }
#else
int32_t cl_affinity_known(void) { return 0; }
int32_t cl_cpu_list(int32_t *cpus, int32_t max) { return 0; }
int32_t cl_bind_thread(int32_t cpu, cl_cpu_mask *before) { return -1; }
void cl_unbind_thread(const cl_cpu_mask *before) { (void)before; }
#endif

void *cl_library_open(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
void *cl_library_symbol(void *lib, const char *name) { return dlsym(lib, name); }
const char *cl_library_error(void) {
    const char *e = dlerror();
    return e ? e : "unknown reason";
}
#else
typedef int cl_host_posix_is_empty_here;
#endif
