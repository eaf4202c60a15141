# Where the records of routed experts lie: in the file's mapping or image, or streamed through a slab of slots.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "colibri/reader.h" nogil:
    enum:
        CL_READ_ALIGN
        CL_READERS
        CL_READ_IDLE
        CL_READ_QUEUED
        CL_READ_DONE
        CL_READ_EIO
        CL_READ_CUT
        CL_READ_CRC
    ctypedef struct cl_read:
        uint64_t offset
        uint8_t *dst
        size_t bytes
        uint32_t crc
        int32_t check
        int32_t state
        int32_t error
        uint32_t generation
    ctypedef struct cl_reader_stats:
        uint64_t bytes
        uint64_t reads
        int64_t wait_ns
        int32_t direct
    ctypedef struct cl_reader:
        pass
    cl_reader *cl_reader_open(const char *path, int32_t threads, int32_t direct, int32_t *error) noexcept
    void cl_reader_close(cl_reader *r) noexcept
    void cl_reader_begin(cl_reader *r) noexcept
    void cl_reader_end(cl_reader *r) noexcept
    void cl_reader_submit(cl_reader *r, cl_read *q) noexcept
    void cl_reader_submit_later(cl_reader *r, cl_read *q) noexcept
    int32_t cl_reader_cancel(cl_reader *r, cl_read *q) noexcept
    void cl_reader_hurry(cl_reader *r, cl_read *q) noexcept
    int32_t cl_reader_state(const cl_read *q) noexcept
    int32_t cl_reader_wait(cl_reader *r, cl_read *q) noexcept
    void cl_reader_get_stats(cl_reader *r, cl_reader_stats *s) noexcept
    void cl_reader_inject(cl_reader *r, int32_t fault, int32_t nth) noexcept

cdef enum policy:
    LRU, LFU, NEXT

# One stack of routed experts: what the file says of it, and where its records are now.
ctypedef struct stack_records:
    const uint8_t **at        # [count]: address of a record, NULL while it is not in memory
    int32_t *slot             # [count]: its slot, -1
    double *use               # [count]: how often it was asked for, older uses count less
    int64_t *asked            # [count]: by how many tokens, plainly
    int64_t *last             # [count]: number of the acquire that asked for it last, 0
    double *gap               # [count]: acquires between two that ask for it, newer ones count more
    uint8_t *verified         # [count]: its checksum was compared
    const uint32_t *crc       # [count]
    uint64_t offset           # of record 0 in the file
    size_t stride
    int32_t count

ctypedef struct slot_state:
    int32_t stack             # -1: empty
    int32_t expert
    int64_t used              # number of the acquire that used it last
    bint guessed              # brought in before it was asked for, and not asked for yet
    cl_read read

cdef class Store:
    cdef stack_records *stacks
    cdef readonly int32_t n_stacks, n_slots
    cdef readonly bint streamed
    cdef readonly int64_t hits, misses, guesses, right, tokens, slab_bytes
    cdef int32_t lately, lately_right, held_back     # guesses of late, how many were right; calls of guess() that did nothing
    cdef size_t slot_bytes
    cdef slot_state *slots
    cdef uint8_t *slab
    cdef cl_reader *reader
    cdef int64_t clock
    cdef double weight, growth
    cdef int32_t kind
    cdef int32_t failed_stack, failed_expert, failed_state, failed_errno
    cdef list names
    cdef object path
    cdef list keep
    cdef void begin(self) noexcept nogil
    cdef void end(self) noexcept nogil
    cdef int32_t acquire(self, int32_t stack, const int32_t *experts, const int32_t *start, int32_t n, int32_t *order) noexcept nogil
    cdef int32_t wait(self, int32_t stack, int32_t expert) noexcept nogil
    cdef int32_t _victim(self) noexcept nogil
    cdef void guess(self, int32_t stack, const int32_t *experts, int32_t n) noexcept nogil
    cdef void _load(self, int32_t v, int32_t stack, int32_t expert) noexcept nogil
    cdef int32_t _check(self, stack_records *s, int32_t stack, int32_t expert) noexcept nogil
    cdef double _worth(self, const slot_state *slot) noexcept nogil
    cdef void age(self, int32_t tokens) noexcept nogil
