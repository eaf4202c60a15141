"""CRC-32C (Castagnoli, reflected 0x82F63B78) of any buffer: the compiled routine when it is built, else numpy.

Owns: `crc32c(data, crc=0)`, the checksum of every record of a `.colibri` file. Chaining works as with `zlib.crc32`:
`crc32c(b, crc32c(a)) == crc32c(a + b)`.
Refuses: nothing; every contiguous buffer has a checksum.

The numpy path treats the CRC as a linear map over GF(2). A buffer is cut into lanes of 256 bytes, all lanes take one
32-bit word per step through two tables of 65,536 entries, and neighbours are folded together with the operator
"append n zero bytes". Leading zeros do not change a CRC that starts from zero, so a short tail is padded in front.
Measured on one Zen 4 core: see tests/test_file.py::test_crc32c_rate.
"""

from __future__ import annotations

import numpy as np

_POLY = 0x82F63B78
_LANE = 256          # bytes a lane holds
_LANES = 4096        # lanes of a full block (1 MiB)

_tables: tuple[np.ndarray, np.ndarray] | None = None
_shift_cache: dict[int, np.ndarray] = {}


def _byte_table() -> np.ndarray:
    """uint32[256]: the CRC register after one byte, from zero."""
    t = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        t = np.where(t & 1, (t >> np.uint32(1)) ^ np.uint32(_POLY), t >> np.uint32(1)).astype(np.uint32)
    return t


def _word_tables() -> tuple[np.ndarray, np.ndarray]:
    """uint32[65536] twice: what the low and the high half of a 32-bit word leave in the register after four bytes."""
    global _tables
    if _tables is None:
        t = [_byte_table()]
        for _ in range(3):
            t.append(t[0][t[-1] & 255] ^ (t[-1] >> np.uint32(8)))
        x = np.arange(65536)
        _tables = (t[3][x & 255] ^ t[2][x >> 8], t[1][x & 255] ^ t[0][x >> 8])
    return _tables


def _apply(op: np.ndarray, v: np.ndarray) -> np.ndarray:
    """op uint32[4, 256] (byte tables of a linear map) applied to v uint32[n]."""
    return op[0][v & 255] ^ op[1][(v >> 8) & 255] ^ op[2][(v >> 16) & 255] ^ op[3][v >> 24]


def _columns_to_tables(col: np.ndarray) -> np.ndarray:
    """col uint32[32] (images of the 32 unit vectors) -> byte tables uint32[4, 256]."""
    out = np.zeros((4, 256), np.uint32)
    idx = np.arange(256)
    for bit in range(32):
        b, s = divmod(bit, 8)
        out[b] ^= np.where((idx >> s) & 1, col[bit], 0).astype(np.uint32)
    return out


def _shift(nbytes: int) -> np.ndarray:
    """Tables of the map "append nbytes zero bytes"; composed from powers of two, which are kept."""
    op = None
    power, rest = 1, nbytes
    while rest:
        if power not in _shift_cache:
            if power == 1:
                unit = np.uint32(1) << np.arange(32, dtype=np.uint32)
                col = _byte_table()[unit & 255] ^ (unit >> np.uint32(8))
            else:
                half = _shift_cache[power // 2]
                col = _apply(half, _apply(half, np.uint32(1) << np.arange(32, dtype=np.uint32)))
            _shift_cache[power] = _columns_to_tables(col)
        if rest & 1:
            step = _shift_cache[power]
            op = step if op is None else np.stack([_apply(step, row) for row in op])
        rest >>= 1
        power *= 2
    return op


def _raw_block(block: np.ndarray, lanes: int) -> int:
    """CRC register, started from zero, of block uint8[lanes * 256]; lanes is a power of two."""
    lo, hi = _word_tables()
    words = np.ascontiguousarray(block.view("<u4").reshape(lanes, _LANE // 4).T)
    state = np.zeros(lanes, np.uint32)
    for row in words:
        state = state ^ row
        state = lo.take(state & np.uint32(0xFFFF)) ^ hi.take(state >> np.uint32(16))
    size = _LANE
    while len(state) > 1:
        state = _apply(_shift(size), state[0::2]) ^ state[1::2]
        size *= 2
    return int(state[0])


def crc32c_numpy(data, crc: int = 0) -> int:
    """CRC-32C of a bytes-like object, going on from `crc`; numpy only (about 0.3 GB/s)."""
    buf = np.frombuffer(data, np.uint8)
    reg = np.array([crc ^ 0xFFFFFFFF], np.uint32)
    full = _LANES * _LANE
    pos = 0
    while pos < len(buf):
        block = buf[pos:pos + full]
        n = len(block)
        lanes = 1
        while lanes * _LANE < n:
            lanes *= 2
        if n < lanes * _LANE:
            block = np.concatenate([np.zeros(lanes * _LANE - n, np.uint8), block])
        elif block.ctypes.data % 4:
            block = block.copy()
        reg = _apply(_shift(n), reg) ^ np.uint32(_raw_block(block, lanes))
        pos += n
    return int(reg[0]) ^ 0xFFFFFFFF


def crc32c(data, crc: int = 0) -> int:
    """CRC-32C of a contiguous bytes-like object, going on from `crc` (0 to start); an int below 2**32."""
    return _impl(data, crc)


def _choose():
    try:
        from ._native import crc32c as compiled
    except ImportError:
        return crc32c_numpy
    return compiled


_impl = _choose()
