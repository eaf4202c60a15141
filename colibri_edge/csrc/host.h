/* Between host_*.c: shared libraries and a lock. Private to csrc. */
#ifndef COLIBRI_HOST_PRIVATE_H
#define COLIBRI_HOST_PRIVATE_H
#include "colibri/host.h"
#include "os.h"

void *cl_library_open(const char *path);
void *cl_library_symbol(void *lib, const char *name);
const char *cl_library_error(void);
#endif
