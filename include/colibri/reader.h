/* Reads of expert records from disk by a few threads. Owns the file handle, the queue and its threads.
   Direct reads where the file system takes them; else buffered ones whose pages are dropped afterwards, so that the page cache does
   not count against a memory ceiling. Addresses, offsets and lengths are multiples of CL_READ_ALIGN. A forked child starts threads of its
   own at its first call, and reads anew what its parent's threads had not finished. */
#ifndef COLIBRI_READER_H
#define COLIBRI_READER_H

#include "colibri/base.h"

enum { CL_READ_ALIGN = 4096, CL_READERS = 4 /* threads that bring in experts */ };

enum cl_read_state {
    CL_READ_IDLE = 0,
    CL_READ_QUEUED = 1,
    CL_READ_DONE = 2,
    CL_READ_EIO = -1,   /* the disk failed */
    CL_READ_CUT = -2,   /* the file ended before the record did */
    CL_READ_CRC = -3    /* the bytes are not those that were written */
};

typedef struct {
    uint64_t offset;
    uint8_t *dst;       /* [bytes] */
    size_t bytes;
    uint32_t crc;       /* wanted CRC-32C */
    int32_t check;      /* compare it */
    int32_t state;      /* cl_read_state; read it through cl_reader_state */
    int32_t error;      /* errno of CL_READ_EIO */
    uint32_t generation; /* of the process that queued it */
} cl_read;

typedef struct {
    uint64_t bytes, reads; /* that reached their end */
    int64_t wait_ns;    /* callers stood still for so long, summed over threads */
    int32_t direct;     /* 1 while reads are direct */
} cl_reader_stats;

/* What a test may ask a reader to do to its n-th read from now on: fail, come in small pieces, be refused as unaligned, end early. */
enum cl_read_fault { CL_FAULT_NONE, CL_FAULT_EIO, CL_FAULT_SHORT, CL_FAULT_EINVAL, CL_FAULT_CUT, CL_FAULT_FLIP };

typedef struct cl_reader cl_reader;
/* One user at a time between begin and end: sequences in several threads that share what is read. */
CL_API void cl_reader_begin(cl_reader *r);
CL_API void cl_reader_end(cl_reader *r);
/* path in UTF-8. NULL when the file cannot be opened (*error: errno) or memory is short. */
CL_API cl_reader *cl_reader_open(const char *path, int32_t threads, int32_t direct, int32_t *error);
CL_API void cl_reader_close(cl_reader *r);
/* Queues a read; the request and its target stay the caller's and must live until its state is not QUEUED. */
CL_API void cl_reader_submit(cl_reader *r, cl_read *q);
/* The same for a guess: read when nothing submitted waits. cancel: takes a guess out again that no thread has begun (1; it is IDLE then),
   else does nothing (0). hurry: the guess was right, it goes before the other guesses. One thread submits, cancels and hurries. */
CL_API void cl_reader_submit_later(cl_reader *r, cl_read *q);
CL_API int32_t cl_reader_cancel(cl_reader *r, cl_read *q);
CL_API void cl_reader_hurry(cl_reader *r, cl_read *q);
CL_API int32_t cl_reader_state(const cl_read *q);
/* Waits until the read is over and returns its state. Any thread. */
CL_API int32_t cl_reader_wait(cl_reader *r, cl_read *q);
CL_API void cl_reader_get_stats(cl_reader *r, cl_reader_stats *s);
CL_API void cl_reader_inject(cl_reader *r, int32_t fault, int32_t nth);

#endif
