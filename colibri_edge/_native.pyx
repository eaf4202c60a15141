# cython: language_level=3
"""The C library as Python sees it: which kernels run, which formats exist, CRC-32C.

Owns: the choice of the instruction set at import. Refuses: anything on the token path.
"""
include "config.pxi"

import os

from libc.string cimport memset
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t


def _choose():
    name = os.environ.get("COLIBRI_EDGE_ISA", "")
    rc = cl_init(name.encode())
    if rc:
        have = ", ".join(available_isas())
        why = "is not an instruction set of colibri-edge" if rc == -1 else "cannot run on this CPU or is not in this build"
        cl_init(NULL)
        raise ImportError(f"COLIBRI_EDGE_ISA={name!r} {why}; this machine can run: {have}. Unset it to take the best.")


def available_isas() -> list:
    """Names of the kernel tables that this CPU can run, rising; the last one is the default."""
    cdef int32_t i = 0
    names = []
    while cl_kernels_at(i) != NULL:
        names.append(cl_kernels_at(i).name.decode())
        i += 1
    return names


def isa() -> str:
    """Name of the kernel table in use."""
    return cl_get_kernels().name.decode()


def constants() -> dict:
    """Compile-time constants of this build (meson.options)."""
    return {
        "max_batch": CL_MAX_BATCH, "max_top_k": CL_MAX_TOP_K, "max_experts": CL_MAX_EXPERTS, "cache_line": CL_CACHE_LINE,
        "router_exp": "lut" if CL_ROUTER_EXP_LUT else "poly", "router_softmax": bool(CL_ROUTER_SOFTMAX),
    }


def formats() -> dict:
    """Weight formats: name -> (id, columns of a block, bytes of an R8 block, activations are int8)."""
    cdef int32_t i
    out = {}
    for i in range(CL_FMT_COUNT):
        f = cl_get_format(i)
        out[f.name.decode()] = (i, f.block_k, f.block_bytes, bool(f.int8_act))
    return out


def matrix_bytes(int fmt, long long rows, long long cols) -> int:
    """Bytes of a matrix [rows, cols] stored in R8; 0 when the arguments are not sensible."""
    return cl_matrix_bytes(fmt, rows, cols)


def crc32c(const uint8_t[::1] data not None, uint32_t crc=0) -> int:
    """CRC-32C (Castagnoli) of bytes, continuing from crc."""
    cdef size_t n = data.shape[0]
    cdef uint32_t r
    if n == 0:
        return crc
    with nogil:
        r = cl_crc32c(crc, &data[0], n)
    return r


def default_threads(int quota_millicores=0) -> int:
    """Threads that pay here: physical cores of the fastest cluster inside the affinity mask and the quota (0: none)."""
    return cl_default_threads(quota_millicores)


def probe(int threads, long long n_bytes=1 << 30, int reps=5) -> dict:
    """This machine's ceilings with that many threads: read_gb_s (a buffer of n_bytes in huge pages where the system gives them)
    and, out of the L1 cache, the q4_0 product of eight tokens, int8_gmac_s, and the plain tile of one register of rows (8, with
    AVX-512 16) x 4 tokens, tile_gmac_s; each the best of `reps`. Raises MemoryError."""
    cdef cl_pool *pool = cl_pool_new(threads)
    cdef uint8_t *data = cl_huge_alloc(n_bytes)
    cdef double read = 0, int8 = 0, tile = 0
    if pool == NULL or data == NULL:
        cl_pool_free(pool)
        cl_huge_free(data, n_bytes)
        raise MemoryError(f"no memory for a probe of {n_bytes} bytes; take a smaller one")
    with nogil:
        memset(data, 1, n_bytes)
        read = cl_probe_read(pool, data, n_bytes, reps)
        int8 = cl_probe_int8(pool, False, reps)
        tile = cl_probe_int8(pool, True, reps)
        cl_pool_free(pool)
        cl_huge_free(data, n_bytes)
    return {"read_gb_s": read / 1e9, "int8_gmac_s": int8 / 1e9, "tile_gmac_s": tile / 1e9}


cdef void _free(uint8_t *data, long long n_bytes, bint huge) noexcept:
    if huge:
        cl_huge_free(data, n_bytes)
    else:
        cl_aligned_free(data)


def probe_decode(int threads, formats, bint huge=True, long long n_bytes=192 << 20, int reps=2) -> dict:
    """What one token's work costs here: for each (format id, columns) of `formats` the weight bytes a second of a matrix-vector
    product over n_bytes (huge: in huge pages, as streamed weights lie; else in plain ones, as mapped files do), and under
    "dispatch_s" the seconds of an empty pass through the pool. Raises MemoryError."""
    cdef cl_pool *pool = cl_pool_new(threads)
    cdef uint8_t *data = cl_huge_alloc(n_bytes) if huge else <uint8_t *>cl_aligned_alloc(4096, n_bytes)
    cdef double rate
    cdef int32_t fmt, cols
    if pool == NULL or data == NULL:
        cl_pool_free(pool)
        _free(data, n_bytes, huge)
        raise MemoryError(f"no memory for a probe of {n_bytes} bytes; take a smaller one")
    with nogil:
        memset(data, 0x21, n_bytes)     # scales of 0.01, floats near zero
    out = {}
    for fmt, cols in formats:
        with nogil:
            rate = cl_probe_matvec(pool, fmt, cols, data, n_bytes, reps)
        out[fmt, cols] = rate
    with nogil:
        cl_probe_dispatch(pool, 200)
        rate = cl_probe_dispatch(pool, 2000)
        cl_pool_free(pool)
    _free(data, n_bytes, huge)
    return out | {"dispatch_s": rate}


def probe_disk(path, uint64_t start, uint64_t end, size_t record, int reads, int ahead) -> float:
    """Bytes a second of `reads` random reads of `record` bytes within a file's [start, end), `ahead` in flight, as experts are read:
    start and record multiples of 4096. Raises OSError; ValueError where the span holds no record."""
    cdef bytes name = os.fsencode(path)
    cdef const char *c = name
    cdef int32_t error = 0
    cdef double rate
    if not record or end < start + record:
        raise ValueError(f"bytes {start} to {end} hold no record of {record}")
    with nogil:
        rate = cl_probe_disk(c, start, end, record, reads, ahead, &error)
    if error:
        raise OSError(error, os.strerror(error), str(path))
    return rate


_choose()
