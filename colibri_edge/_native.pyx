# cython: language_level=3
"""The C library as Python sees it: which kernels run, which formats exist, CRC-32C.

Owns: the choice of the instruction set at import. Refuses: anything on the token path.
"""
include "config.pxi"

import os

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


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


_choose()
