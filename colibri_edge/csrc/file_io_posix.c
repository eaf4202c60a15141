/* Reads at offsets by pread; O_DIRECT through a second descriptor. */
#if !defined(_WIN32)
#include "file_io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct cl_file { int plain, direct; };

cl_file *cl_file_open(const char *path, int32_t direct, int32_t *error) {
    cl_file *f = (cl_file *)malloc(sizeof *f);
    if (!f) {
        *error = ENOMEM;
        return NULL;
    }
    f->direct = -1;
    f->plain = open(path, O_RDONLY | O_CLOEXEC);
    if (f->plain < 0) {
        *error = errno;
        free(f);
        return NULL;
    }
#  if defined(O_DIRECT)
    if (direct) f->direct = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT); /* tmpfs and some cards refuse: then buffered */
#  else
    (void)direct;
#  endif
    return f;
}

int32_t cl_file_is_direct(const cl_file *f) { return f->direct >= 0; }

int64_t cl_file_read(cl_file *f, int32_t direct, uint8_t *dst, size_t n, uint64_t offset, int32_t *error) {
    for (;;) {
        ssize_t got = pread(direct ? f->direct : f->plain, dst, n, (off_t)offset);
        if (got >= 0) return (int64_t)got;
        if (errno == EINTR) continue;
        *error = errno;
        return -1;
    }
}

void cl_file_drop(cl_file *f, uint64_t offset, size_t n) {
#  if defined(POSIX_FADV_DONTNEED)
    posix_fadvise(f->plain, (off_t)offset, (off_t)n, POSIX_FADV_DONTNEED);
#  else
    (void)f; (void)offset; (void)n;
#  endif
}

void cl_file_close(cl_file *f) {
    if (f->direct >= 0) close(f->direct);
    close(f->plain);
    free(f);
}
#else
typedef int cl_file_io_posix_is_empty_here;
#endif
