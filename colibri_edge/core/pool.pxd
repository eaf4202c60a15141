from libc.stdint cimport int32_t

cdef enum:
    ARENA_SLOTS = 64

# Sizes first, then one block. `name` is a string literal or NULL; nothing here needs Python.
ctypedef struct arena:
    int32_t n
    size_t total                    # bytes of all slots, each rounded up to the alignment
    size_t offset[ARENA_SLOTS]
    size_t bytes[ARENA_SLOTS]
    const char *name[ARENA_SLOTS]
    void *raw
    char *base

cdef void arena_init(arena *a) noexcept nogil
cdef int32_t arena_reserve(arena *a, const char *name, size_t n_bytes) noexcept nogil      # slot, or -1
cdef int32_t arena_allocate(arena *a, size_t skew) noexcept nogil                        # 0, or -1 without memory
cdef void arena_free(arena *a) noexcept nogil

cdef inline void *arena_at(const arena *a, int32_t i) noexcept nogil:
    return a.base + a.offset[i]


cdef class Arena:
    cdef arena a
    cdef list names
    cpdef int32_t reserve(self, str name, size_t n_bytes) except -1
    cpdef int32_t allocate(self) except -1
    cdef void *at(self, int32_t i) noexcept nogil
