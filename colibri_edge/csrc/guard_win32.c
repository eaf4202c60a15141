/* Windows refuses to cut a file that is mapped, so there is nothing to watch. */
#if defined(_WIN32)
#include "colibri/guard.h"

int32_t cl_guard_add(const void *p, size_t n) {
    (void)p;
    (void)n;
    return 0;
}

void cl_guard_remove(const void *p) { (void)p; }

int32_t cl_guard_lost(const void *p) {
    (void)p;
    return 0;
}
#else
typedef int cl_guard_win32_is_empty_here;
#endif
