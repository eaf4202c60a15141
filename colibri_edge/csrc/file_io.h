/* A file read at offsets, directly where that works. What differs between POSIX and Windows. */
#ifndef COLIBRI_FILE_IO_H
#define COLIBRI_FILE_IO_H
#include "colibri/base.h"

typedef struct cl_file cl_file;
cl_file *cl_file_open(const char *path, int32_t direct, int32_t *error);
int32_t cl_file_is_direct(const cl_file *f);
/* Bytes read (0 at the end of the file), or -1 with *error. direct: everything aligned. Any thread. */
int64_t cl_file_read(cl_file *f, int32_t direct, uint8_t *dst, size_t n, uint64_t offset, int32_t *error);
/* The page cache may forget that range. */
void cl_file_drop(cl_file *f, uint64_t offset, size_t n);
void cl_file_close(cl_file *f);
#endif
