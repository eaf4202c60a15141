# cython: language_level=3, freethreading_compatible=True
"""The pool: every buffer of a forward pass in one block of memory, sized at init, never grown.

Owns: the block. Slots begin on cache lines and are found by pointer arithmetic. Refuses: growing and giving back single slots.

    total = sum over the slots of their bytes rounded up to the cache line (docs/block.md lists the slots of a block)
"""
include "../config.pxi"

from libc.stdint cimport int32_t
from libc.string cimport memset

from colibri_edge._native cimport cl_aligned_alloc, cl_aligned_free


cdef void arena_init(arena *a) noexcept nogil:
    memset(a, 0, sizeof(arena))


cdef int32_t arena_reserve(arena *a, const char *name, size_t n_bytes) noexcept nogil:
    """Plans a slot; -1 when the arena is already allocated, the slots are used up, or the sum overflows."""
    cdef size_t line = CL_CACHE_LINE, rounded = (n_bytes + line - 1) // line * line
    cdef int32_t i = a.n
    if a.base != NULL or i >= ARENA_SLOTS or rounded < n_bytes or a.total + rounded < rounded:
        return -1
    a.offset[i] = a.total
    a.bytes[i] = n_bytes
    a.name[i] = name
    a.total += rounded
    a.n = i + 1
    return i


cdef int32_t arena_allocate(arena *a, size_t skew) noexcept nogil:
    """One zero-filled block for all slots. `skew` shifts it off the cache line: only the benchmark of alignment asks for that."""
    if a.base != NULL:
        return 0
    a.raw = cl_aligned_alloc(CL_CACHE_LINE, a.total + CL_CACHE_LINE)
    if a.raw == NULL:
        return -1
    a.base = <char *>a.raw + skew
    return 0


cdef void arena_free(arena *a) noexcept nogil:
    if a.raw != NULL:
        cl_aligned_free(a.raw)
    a.raw = NULL
    a.base = NULL


cdef class Arena:
    """Named slots in one aligned block: reserve each, allocate once, then `at(slot)` is an addition."""

    def __cinit__(self):
        arena_init(&self.a)
        self.names = []

    def __dealloc__(self):
        arena_free(&self.a)

    cpdef int32_t reserve(self, str name, size_t n_bytes) except -1:
        """Plans n_bytes under a name; the slot's number."""
        cdef int32_t i = arena_reserve(&self.a, NULL, n_bytes)
        if i < 0:
            raise RuntimeError(f"pool: no slot for {name!r} of {n_bytes} bytes (allocated already, over {ARENA_SLOTS} slots, or too big)")
        self.names.append(name)
        return i

    cpdef int32_t allocate(self) except -1:
        """Takes the memory, once."""
        if arena_allocate(&self.a, 0):
            raise MemoryError(f"pool: no memory for {self.a.total} bytes: {self.table()}")
        return 0

    cdef void *at(self, int32_t i) noexcept nogil:
        return self.a.base + self.a.offset[i]

    @property
    def nbytes(self) -> int:
        """Bytes of the block."""
        return self.a.total

    def table(self) -> list:
        """[(name, offset, bytes)] for `info`."""
        return [(self.names[i], self.a.offset[i], self.a.bytes[i]) for i in range(self.a.n)]
