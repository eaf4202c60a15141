/* Mapped files that shrink while they are read. A page behind the file's new end faults (SIGBUS on POSIX); here the fault becomes a page
   of zeros and a note, so that the pass ends, the note is seen and the caller gets an error instead of a dead process.
   Owns: the handler, which leaves every other fault to whoever had it before. On Windows a mapped file cannot be cut: nothing to do. */
#ifndef COLIBRI_GUARD_H
#define COLIBRI_GUARD_H

#include "colibri/base.h"

/* Watches a mapping of n bytes at p, once more for each call. 0; -1: too many mappings, this one is not watched. */
CL_API int32_t cl_guard_add(const void *p, size_t n);
/* Undoes one cl_guard_add; call it before the mapping goes. */
CL_API void cl_guard_remove(const void *p);
/* Pages of the mapping at p that were not there when they were read. */
CL_API int32_t cl_guard_lost(const void *p);

#endif
