"""Weight formats in numpy: source blocks to R8 and back without loss, R8 to float32, float32 rows to R8.

Owns: the byte layouts of docs/format.md as numpy record types, and four primitives on packed bits (nibbles, single
bits, bit pairs, six-bit scales). A source block is GGUF's; the affine formats, which GGUF lacks, have one of our own
that readers put together from the source's tensors. Between a source block and an R8 block stand *planes*: the N, H and
T words of docs/format.md for one row, not yet interleaved. So a new format is two record types, a pair of functions and
a row in the tables below.
Refuses: formats without a row, row counts that are no multiple of eight, NaN and infinite weights.

Shapes: R rows (a multiple of 8), G = R/8 row groups, nb blocks in a row, S sub-blocks of 32 columns in a block.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ..topology import FORMATS
from . import quantise as quantisers

FLOATS = {"f32": np.dtype("<u4"), "f16": np.dtype("<u2"), "bf16": np.dtype("<u2")}

# The source block of each format: GGUF's, with field names of our own; u4 holds four consecutive code bytes. d of mxfp4 is
# the byte e of a scale 2^(e - 127). Affine blocks: bfloat16 scale d and bias m, and p, codes of consecutive columns from
# the lowest bits up, as MLX packs them.
GGML = {
    "q8_0": np.dtype([("d", "<u2"), ("q", "<u4", 8)]),
    "q4_0": np.dtype([("d", "<u2"), ("n", "<u4", 4)]),
    "q4_1": np.dtype([("d", "<u2"), ("m", "<u2"), ("n", "<u4", 4)]),
    "q5_0": np.dtype([("d", "<u2"), ("h", "<u4"), ("n", "<u4", 4)]),
    "q5_1": np.dtype([("d", "<u2"), ("m", "<u2"), ("h", "<u4"), ("n", "<u4", 4)]),
    "q4_k": np.dtype([("d", "<u2"), ("dmin", "<u2"), ("sc", "u1", 12), ("n", "u1", 128)]),
    "q5_k": np.dtype([("d", "<u2"), ("dmin", "<u2"), ("sc", "u1", 12), ("h", "u1", 32), ("n", "u1", 128)]),
    "q6_k": np.dtype([("n", "u1", 128), ("t", "u1", 64), ("sc", "u1", 16), ("d", "<u2")]),
    "q3_k": np.dtype([("h", "u1", 32), ("t", "u1", 64), ("sc", "u1", 12), ("d", "<u2")]),
    "q2_k": np.dtype([("sm", "u1", 16), ("t", "u1", 64), ("d", "<u2"), ("dmin", "<u2")]),
    "mxfp4": np.dtype([("d", "u1"), ("n", "<u4", 4)]),
    "q4_a": np.dtype([("d", "<u2"), ("m", "<u2"), ("p", "u1", 32)]),
    "q2_a": np.dtype([("d", "<u2"), ("m", "<u2"), ("p", "u1", 16)]),
    "q4_a32": np.dtype([("d", "<u2"), ("m", "<u2"), ("p", "u1", 16)]),
    "q2_a32": np.dtype([("d", "<u2"), ("m", "<u2"), ("p", "u1", 8)]),
}
# bits of a code
AFFINE = {"q4_a": 4, "q2_a": 2, "q4_a32": 4, "q2_a32": 2}
# mxfp4: value of each code (OCP Microscaling Formats 1.0, e2m1)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)

_N, _H, _T = ("n", "<u4", (4, 8)), ("h", "<u4", (8,)), ("t", "<u4", (2, 8))
_D, _DM = ("d", "<u2", (8,)), ("dmin", "<u2", (8,))
_M = ("m", "<u2", (8,))
_LO, _HI = ("lo", "u1", (8, 8)), ("hi", "u1", (4, 8))

# The R8 block of each format; the last axis of every field is the row in the group.
R8 = {
    "q8_0": np.dtype([_D, ("q", "<u4", (8, 8))]),
    "q4_0": np.dtype([_D, _N]),
    "q4_1": np.dtype([_D, ("m", "<u2", (8,)), _N]),
    "q5_0": np.dtype([_D, _H, _N]),
    "q5_1": np.dtype([_D, ("m", "<u2", (8,)), _H, _N]),
    "q4_k": np.dtype([_D, _DM, _LO, _HI, ("b", [_N], (8,))]),
    "q5_k": np.dtype([_D, _DM, _LO, _HI, ("b", [_H, _N], (8,))]),
    "q6_k": np.dtype([_D, ("sc", "u1", (16, 8)), ("b", [_N, _T], (8,))]),
    "q3_k": np.dtype([_D, _LO, _HI, ("b", [_T, _H], (8,))]),
    "q2_k": np.dtype([_D, _DM, ("sm", "u1", (16, 8)), ("b", [_T], (8,))]),
    "mxfp4": np.dtype([("d", "u1", (8,)), _N]),
    "q4_a": np.dtype([_D, _M, ("b", [_N], (2,))]),
    "q2_a": np.dtype([_D, _M, ("b", [_T], (2,))]),
    "q4_a32": np.dtype([_D, _M, ("b", [_N], (1,))]),
    "q2_a32": np.dtype([_D, _M, ("b", [_T], (1,))]),
}


# -- primitives on packed bits ----------------------------------------------------------------------------------------

def _swap_index_bits(x: np.ndarray, a: int, b: int) -> np.ndarray:
    """Exchange bits a and b (a < b) of every bit's position number in unsigned words x: one delta swap."""
    width = x.dtype.itemsize * 8
    shift = x.dtype.type((1 << b) - (1 << a))
    mask = x.dtype.type(sum(1 << i for i in range(width) if i >> a & 1 and not i >> b & 1))
    t = ((x >> shift) ^ x) & mask
    return x ^ t ^ (t << shift)


def _h_word(x: np.ndarray, inverse: bool = False) -> np.ndarray:
    """u4[...] with bit 4c+j per column <-> the H word, byte j bit c."""
    steps = ((0, 2), (1, 3), (2, 4), (3, 4))         # position (c2 c1 c0 j1 j0) becomes (j1 j0 c2 c1 c0)
    for a, b in reversed(steps) if inverse else steps:
        x = _swap_index_bits(x, a, b)
    return x


def _h_words(h: np.ndarray) -> np.ndarray:
    """u1[..., 32], bit s of byte 4c+j -> u4[..., 8 s], byte j bit c. An 8 x 8 bit transpose per j."""
    x = np.ascontiguousarray(h.reshape(*h.shape[:-1], 8, 4).swapaxes(-1, -2)).view("<u8")
    for a in range(3):
        x = _swap_index_bits(x, a, a + 3)
    return np.ascontiguousarray(x.view("u1").swapaxes(-1, -2)).view("<u4")[..., 0]


def _h_bytes(w: np.ndarray) -> np.ndarray:
    """The inverse of _h_words: u4[..., 8 s] -> u1[..., 32]."""
    x = np.ascontiguousarray(w).view("u1").reshape(*w.shape[:-1], 8, 4)
    x = np.ascontiguousarray(x.swapaxes(-1, -2)).view("<u8")
    for a in range(3):
        x = _swap_index_bits(x, a, a + 3)
    x = np.ascontiguousarray(x.view("u1").swapaxes(-1, -2))
    return x.reshape(*w.shape[:-1], 32)


def _t_words(t: np.ndarray) -> np.ndarray:
    """u1[..., 64], bits 2f of byte 32h+4c+j = column 128h+32f+4c+j -> u4[..., 8 s, 2 i] with s = 4h+f, c = 4i+f'."""
    lead = t.shape[:-1]
    x = np.ascontiguousarray(t.reshape(*lead, 2, 2, 4, 4).swapaxes(-1, -2)).view("<u4")[..., 0]      # h i j (f' f)
    x = _swap_index_bits(_swap_index_bits(x, 1, 3), 2, 4)                                             # h i j (f f')
    x = np.ascontiguousarray(x).view("u1").reshape(*lead, 2, 2, 4, 4)                                 # h i j f
    x = np.ascontiguousarray(np.moveaxis(x, -1, -3))                                                  # h f i j
    return x.view("<u4").reshape(*lead, 8, 2)


def _t_bytes(w: np.ndarray) -> np.ndarray:
    """The inverse of _t_words: u4[..., 8 s, 2 i] -> u1[..., 64]."""
    lead = w.shape[:-2]
    x = np.ascontiguousarray(w).view("u1").reshape(*lead, 2, 4, 2, 4)                                 # h f i j
    x = np.ascontiguousarray(np.moveaxis(x, -3, -1)).view("<u4")[..., 0]                              # h i j (f f')
    x = _swap_index_bits(_swap_index_bits(x, 1, 3), 2, 4)
    x = np.ascontiguousarray(x).view("u1").reshape(*lead, 2, 2, 4, 4)                                 # h i j f'
    return np.ascontiguousarray(x.swapaxes(-1, -2)).reshape(*lead, 64)


def _nibbles(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two byte arrays -> (their low nibbles, their high nibbles), `a` in the low half. Its own inverse."""
    lo, hi = a.dtype.type(0x0F), a.dtype.type(0xF0)
    four = a.dtype.type(4)
    return (a & lo) | ((b & lo) << four), (a >> four) | (b & hi)


def _n_words(n: np.ndarray, six: bool) -> np.ndarray:
    """u1[..., 128] nibbles of q4_k, q5_k (six: q6_k) -> N words u4[..., 8 s, 4 c]."""
    x = n.reshape(*n.shape[:-1], 2, 2, 2, 16) if six else n.reshape(*n.shape[:-1], 4, 2, 16)
    low, high = _nibbles(x[..., 0, :], x[..., 1, :])              # six: [h, a], else [pair]
    out = np.stack([low, high], axis=-3 if six else -2)           # six: [h, low/high, a], else [pair, low/high]
    return out.reshape(*n.shape[:-1], 8, 16).view("<u4")


def _n_bytes(w: np.ndarray, six: bool) -> np.ndarray:
    """The inverse of _n_words."""
    lead = w.shape[:-2]
    x = np.ascontiguousarray(w).view("u1")
    x = x.reshape(*lead, 2, 2, 2, 16) if six else x.reshape(*lead, 4, 2, 16)
    low, high = (x[..., 0, :, :], x[..., 1, :, :]) if six else (x[..., 0, :], x[..., 1, :])
    return np.stack(_nibbles(low, high), axis=-2).reshape(*lead, 128)


def _join6(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two six-bit numbers per sub-block u1[..., 8] -> lo u1[..., 8], hi u1[..., 4]."""
    nib = (a >> 4) | (b >> 4) << 2
    return (a & 15) | (b & 15) << 4, nib[..., 0::2] | nib[..., 1::2] << 4


def _split6(lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of _join6."""
    nib = np.stack([hi & 15, hi >> 4], axis=-1).reshape(*hi.shape[:-1], 8)
    return (lo & 15) | (nib & 3) << 4, lo >> 4 | (nib >> 2) << 4


# -- GGUF blocks <-> planes -------------------------------------------------------------------------------------------

def _planes_4k(b):
    s = b["sc"]
    sc = np.concatenate([s[..., 0:4] & 63, (s[..., 8:12] & 15) | (s[..., 0:4] >> 6) << 4], axis=-1)
    mn = np.concatenate([s[..., 4:8] & 63, (s[..., 8:12] >> 4) | (s[..., 4:8] >> 6) << 4], axis=-1)
    lo, hi = _join6(sc, mn)
    return {"d": b["d"], "dmin": b["dmin"], "lo": lo, "hi": hi, "n": _n_words(b["n"], False)}


def _blocks_4k(p, b):
    sc, mn = _split6(p["lo"], p["hi"])
    b["sc"][..., 0:4] = (sc[..., :4] & 63) | (sc[..., 4:] >> 4) << 6
    b["sc"][..., 4:8] = (mn[..., :4] & 63) | (mn[..., 4:] >> 4) << 6
    b["sc"][..., 8:12] = (sc[..., 4:] & 15) | (mn[..., 4:] & 15) << 4
    b["d"], b["dmin"], b["n"] = p["d"], p["dmin"], _n_bytes(p["n"], False)


def _planes_5k(b):
    return {**_planes_4k(b), "h": _h_words(b["h"])}


def _blocks_5k(p, b):
    _blocks_4k(p, b)
    b["h"] = _h_bytes(p["h"])


def _planes_6k(b):
    return {"d": b["d"], "sc": b["sc"], "n": _n_words(b["n"], True), "t": _t_words(b["t"])}


def _blocks_6k(p, b):
    b["d"], b["sc"], b["n"], b["t"] = p["d"], p["sc"], _n_bytes(p["n"], True), _t_bytes(p["t"])


def _planes_3k(b):
    s = b["sc"]
    high = np.concatenate([s[..., 8:12] >> 2 * f & 3 for f in range(4)], axis=-1)
    sc = np.concatenate([s[..., :8] & 15, s[..., :8] >> 4], axis=-1) | high << 4
    lo, hi = _join6(sc[..., 0::2], sc[..., 1::2])
    return {"d": b["d"], "lo": lo, "hi": hi, "t": _t_words(b["t"]), "h": _h_words(b["h"])}


def _blocks_3k(p, b):
    sc = np.stack(_split6(p["lo"], p["hi"]), axis=-1).reshape(*p["lo"].shape[:-1], 16)
    b["sc"][..., :8] = (sc[..., :8] & 15) | (sc[..., 8:] & 15) << 4
    b["sc"][..., 8:] = sum((sc[..., 4 * f:4 * f + 4] >> 4) << 2 * f for f in range(4))
    b["d"], b["t"], b["h"] = p["d"], _t_bytes(p["t"]), _h_bytes(p["h"])


def _planes_2k(b):
    return {"d": b["d"], "dmin": b["dmin"], "sm": b["sm"], "t": _t_words(b["t"])}


def _blocks_2k(p, b):
    b["d"], b["dmin"], b["sm"], b["t"] = p["d"], p["dmin"], p["sm"], _t_bytes(p["t"])


def _n_plane(q: np.ndarray) -> np.ndarray:
    """Low four bits of codes u1[..., 32] -> the N words u4[..., 4 c]."""
    return np.ascontiguousarray((q[..., :16] & 15) | (q[..., 16:] & 15) << 4).view("<u4")


def _t_plane(q: np.ndarray) -> np.ndarray:
    """Low two bits of codes u1[..., 32] -> the T words u4[..., 2 i]."""
    t = (q & 3).reshape(*q.shape[:-1], 2, 4, 4)
    t = t[..., 0, :] | t[..., 1, :] << 2 | t[..., 2, :] << 4 | t[..., 3, :] << 6
    return np.ascontiguousarray(t).view("<u4")[..., 0]


def unpack_codes(p: np.ndarray, bits: int) -> np.ndarray:
    """Bytes u1[..., n] of codes of 2 or 4 bits, the first column in the lowest bits -> u1[..., n * 8 / bits]."""
    x = np.stack([p >> s & (1 << bits) - 1 for s in range(0, 8, bits)], axis=-1)
    return x.reshape(*p.shape[:-1], -1)


def pack_codes(q: np.ndarray, bits: int) -> np.ndarray:
    """The inverse of unpack_codes."""
    x = q.reshape(*q.shape[:-1], -1, 8 // bits)
    out = x[..., 0].copy()
    for i in range(1, 8 // bits):
        out |= x[..., i] << bits * i
    return out


def _planes_affine(bits, b):
    q = unpack_codes(b["p"], bits).reshape(*b.shape, -1, 32)
    return {"d": b["d"], "m": b["m"], **({"n": _n_plane(q)} if bits == 4 else {"t": _t_plane(q)})}


def _blocks_affine(p, b):
    b["d"], b["m"] = p["d"], p["m"]
    b["p"] = pack_codes(_codes("", p).reshape(*b.shape, -1), 4 if "n" in p else 2)


def _planes_plain(b):
    return {k: _h_word(b[k]) if k == "h" else b[k] for k in b.dtype.names}


def _blocks_plain(p, b):
    for k in b.dtype.names:
        b[k] = _h_word(p[k], inverse=True) if k == "h" else p[k]


_FROM_GGML = {"q4_k": _planes_4k, "q5_k": _planes_5k, "q6_k": _planes_6k, "q3_k": _planes_3k, "q2_k": _planes_2k,
              **{f: partial(_planes_affine, bits) for f, bits in AFFINE.items()}}
_TO_GGML = {"q4_k": _blocks_4k, "q5_k": _blocks_5k, "q6_k": _blocks_6k, "q3_k": _blocks_3k, "q2_k": _blocks_2k,
            **dict.fromkeys(AFFINE, _blocks_affine)}


# -- planes <-> R8 ----------------------------------------------------------------------------------------------------

def _field(block: np.ndarray, name: str) -> np.ndarray:
    return block[name] if name in block.dtype.names else block["b"][name]


def _names(fmt: str) -> list[str]:
    names = list(R8[fmt].names)
    if "b" in names:
        names[-1:] = R8[fmt]["b"].base.names
    return names


def _interleave(fmt: str, planes: dict[str, np.ndarray], out: np.ndarray | None = None) -> np.ndarray:
    """planes [R, nb, ...] -> uint8[G, nb * block_bytes], into `out` when it is given."""
    rows, nb = planes["d"].shape
    out = np.empty((rows // 8, nb * R8[fmt].itemsize), np.uint8) if out is None else out
    blocks = out.view(R8[fmt])
    for name in _names(fmt):
        x = planes[name]
        _field(blocks, name)[...] = np.moveaxis(x.reshape(rows // 8, 8, *x.shape[1:]), 1, -1)
    return out


def _separate(fmt: str, r8: np.ndarray) -> dict[str, np.ndarray]:
    """The inverse of _interleave."""
    blocks = np.ascontiguousarray(r8).view(R8[fmt]).reshape(len(r8), -1)
    planes = {}
    for name in _names(fmt):
        x = np.ascontiguousarray(np.moveaxis(_field(blocks, name), -1, 1))
        planes[name] = x.reshape(8 * len(r8), *x.shape[2:])
    return planes


# -- planes -> numbers ------------------------------------------------------------------------------------------------

def _codes(fmt: str, p: dict[str, np.ndarray]) -> np.ndarray:
    """Unsigned codes u1[R, nb, S, 32] of every column."""
    lead = p["d"].shape
    q = None
    if "n" in p:
        n = np.ascontiguousarray(p["n"]).view("u1").reshape(*lead, -1, 16)
        q = np.concatenate([n & 15, n >> 4], axis=-1)
    if "t" in p:
        t = np.ascontiguousarray(p["t"]).view("u1").reshape(*lead, -1, 2, 1, 4)
        t = np.concatenate([t >> 2 * f & 3 for f in range(4)], axis=-2).reshape(*lead, -1, 32)
        q = t if q is None else q | t << 4
    if "h" in p:
        h = np.ascontiguousarray(p["h"]).view("u1").reshape(*lead, -1, 1, 4)
        h = np.concatenate([h >> c & 1 for c in range(8)], axis=-2).reshape(*lead, -1, 32)
        q = q | h << (2 if fmt == "q3_k" else 4)
    return q


def _half(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view("<f2").astype(np.float32)


def bf16_float(x: np.ndarray) -> np.ndarray:
    """float32 of bfloat16 bits u2."""
    return (x.astype(np.uint32) << 16).view(np.float32)


def e8m0_float(e: np.ndarray) -> np.ndarray:
    """float32 2^(e - 127) of bytes e; 255 means NaN."""
    return np.where(e == 255, np.float32(np.nan), np.ldexp(np.float32(1), e.astype(np.int32) - 127)).astype(np.float32)


def _floats(fmt: str, p: dict[str, np.ndarray]) -> np.ndarray:
    """float32[R, columns] of planes, in the order of operations of GGUF's reference."""
    rows = len(p["d"])
    if fmt == "mxfp4":
        return (e8m0_float(p["d"])[..., None, None] * E2M1[_codes(fmt, p)]).reshape(rows, -1)
    if fmt in AFFINE:
        q = _codes(fmt, p).astype(np.float32)
        return (bf16_float(p["d"])[..., None, None] * q + bf16_float(p["m"])[..., None, None]).reshape(rows, -1)
    d = _half(p["d"])[..., None, None]
    if fmt == "q8_0":
        return (d[..., 0] * np.ascontiguousarray(p["q"]).view("i1").astype(np.float32)).reshape(rows, -1)
    q = _codes(fmt, p)
    if fmt in ("q4_0", "q5_0"):
        w = d * (q.astype(np.int8) - (8 if fmt == "q4_0" else 16)).astype(np.float32)
    elif fmt in ("q4_1", "q5_1"):
        w = d * q.astype(np.float32) + _half(p["m"])[..., None, None]
    elif fmt in ("q4_k", "q5_k"):
        sc, mn = _split6(p["lo"], p["hi"])
        w = d * sc[..., None].astype(np.float32) * q.astype(np.float32)
        w -= _half(p["dmin"])[..., None, None] * mn[..., None].astype(np.float32)
    else:
        q = q.reshape(*q.shape[:2], 16, 16)
        if fmt == "q6_k":
            w = d * np.ascontiguousarray(p["sc"]).view("i1")[..., None].astype(np.float32)
            w = w * (q.astype(np.int8) - 32).astype(np.float32)
        elif fmt == "q3_k":
            sc = np.stack(_split6(p["lo"], p["hi"]), axis=-1).reshape(*q.shape[:2], 16, 1)
            w = d * (sc.astype(np.int8) - 32).astype(np.float32)
            w = w * (q.astype(np.int8) - 4).astype(np.float32)
        else:
            w = d * (p["sm"] & 15)[..., None].astype(np.float32) * q.astype(np.float32)
            w -= _half(p["dmin"])[..., None, None] * (p["sm"] >> 4)[..., None].astype(np.float32)
    return w.reshape(rows, -1)


def _codes_to_planes(fmt: str, p: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Planes of a quantiser's result: codes q u1[R, nb, S, 32] (q8_0: i1[R, nb, 32]) become words."""
    p = dict(p)
    q = p.pop("q")
    if fmt == "q8_0":
        return {**p, "q": q.view("<u4")}
    if AFFINE.get(fmt) == 2:
        return {**p, "t": _t_plane(q)}
    p["n"] = _n_plane(q)
    if fmt in ("q4_0", "mxfp4"):
        p["n"] = p["n"][:, :, 0]
    if fmt == "q6_k":
        p["t"] = _t_plane(q >> 4)
    return p


# -- the four services ------------------------------------------------------------------------------------------------

def source_row_bytes(fmt: str, cols: int) -> int:
    """Bytes of one row of `cols` weights in source blocks, or of floats."""
    return cols * FLOATS[fmt].itemsize if fmt in FLOATS else cols // FORMATS[fmt].k * GGML[fmt].itemsize


def finite(fmt: str, raw: np.ndarray) -> bool:
    """Whether source rows hold no NaN and no infinity: floats themselves, or the half-precision scales of blocks."""
    if fmt in FLOATS:
        x, mask = raw.view(FLOATS[fmt]), {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}[fmt]
        return not ((x & x.dtype.type(mask)) == mask).any()
    blocks = raw.view(GGML[fmt])
    if fmt == "mxfp4":
        return not (blocks["d"] == 255).any()
    mask = np.uint16(0x7F80 if fmt in AFFINE else 0x7C00)
    return not any(((blocks[n] & mask) == mask).any() for n in ("d", "m", "dmin")
                   if n in blocks.dtype.names)


def pack_r8(fmt: str, raw: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Source rows uint8[R, row bytes] (GGUF blocks or raw floats; R a multiple of 8) -> R8 uint8[G, group bytes].

    Lossless. Rows of floats are padded with zeros to a multiple of 32 columns. out: where to put it, rows may be apart.
    """
    rows = len(raw)
    if rows % 8:
        raise ValueError(f"pack_r8 got {rows} rows, wanted a multiple of 8; pad with zero rows")
    if fmt in FLOATS:
        x = np.ascontiguousarray(raw).view(FLOATS[fmt])
        if x.shape[1] % 32:
            x = np.pad(x, ((0, 0), (0, -x.shape[1] % 32)))
        x = x.reshape(rows // 8, 8, -1, 32).transpose(0, 2, 3, 1)
        out = np.empty((rows // 8, x[0].nbytes), np.uint8) if out is None else out
        out.view(FLOATS[fmt]).reshape(x.shape)[...] = x
        return out
    blocks = np.ascontiguousarray(raw).view(GGML[fmt])
    return _interleave(fmt, _FROM_GGML.get(fmt, _planes_plain)(blocks), out)


def unpack_r8(fmt: str, r8: np.ndarray, cols: int) -> np.ndarray:
    """The inverse of pack_r8: R8 uint8[G, group bytes] -> source rows uint8[8 G, row bytes] of `cols` columns."""
    rows = 8 * len(r8)
    if fmt in FLOATS:
        x = np.ascontiguousarray(r8).view(FLOATS[fmt]).reshape(len(r8), -1, 32, 8).transpose(0, 3, 1, 2)
        return np.ascontiguousarray(x.reshape(rows, -1)[:, :cols]).view("u1").reshape(rows, -1)
    planes = _separate(fmt, r8)
    blocks = np.zeros(planes["d"].shape, GGML[fmt])
    _TO_GGML.get(fmt, _blocks_plain)(planes, blocks)
    return blocks.view("u1").reshape(rows, -1)[:, :-(-cols // FORMATS[fmt].k) * GGML[fmt].itemsize]


def _widen(fmt: str, x: np.ndarray) -> np.ndarray:
    if fmt == "f32":
        return x.view("<f4")
    return x.view("<f2").astype(np.float32) if fmt == "f16" else bf16_float(x)


def rows_to_float(fmt: str, raw: np.ndarray) -> np.ndarray:
    """Source rows uint8[R, row bytes], any R -> float32[R, cols]."""
    raw = np.ascontiguousarray(raw)
    if fmt in FLOATS:
        return _widen(fmt, raw.view(FLOATS[fmt]))
    return _floats(fmt, _FROM_GGML.get(fmt, _planes_plain)(raw.view(GGML[fmt])))


def dequantise(fmt: str, r8: np.ndarray, cols: int) -> np.ndarray:
    """R8 uint8[G, group bytes] -> float32[8 G, cols]."""
    if fmt in FLOATS:
        x = np.ascontiguousarray(r8).view(FLOATS[fmt]).reshape(len(r8), -1, 32, 8).transpose(0, 3, 1, 2)
        return _widen(fmt, np.ascontiguousarray(x.reshape(8 * len(r8), -1)[:, :cols]))
    return np.ascontiguousarray(_floats(fmt, _separate(fmt, r8))[:, :cols])


def quantise(fmt: str, rows: np.ndarray, importance: np.ndarray | None = None) -> np.ndarray:
    """float32[R, cols] (R a multiple of 8) -> R8 uint8[G, group bytes]; columns are padded with zeros to whole blocks.

    f32 is exact, f16 and bf16 round to nearest even, the rest minimise a weighted square error (quantise.py).
    importance: float32[cols], what an error in each column counts; the affine formats heed it.
    Raises ValueError on NaN and infinity, and where f16 would overflow.
    """
    k = FORMATS[fmt].k
    if not np.isfinite(rows).all():
        raise ValueError("it holds NaN or infinite weights")
    if rows.shape[1] % k:
        rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % k)))
    rows = np.ascontiguousarray(rows, np.float32)
    if fmt == "f32":
        return pack_r8(fmt, rows.view("u1"))
    if fmt == "f16":
        if np.abs(rows).max(initial=0) > 65504:
            raise ValueError(f"its largest weight is {np.abs(rows).max():g}, f16 ends at 65504; use bf16 or f32")
        return pack_r8(fmt, rows.astype("<f2").view("u1"))
    if fmt == "bf16":
        u = rows.view("<u4")
        return pack_r8(fmt, ((u + (0x7FFF + (u >> 16 & 1))) >> 16).astype("<u2").view("u1"))
    known = (*quantisers.QUANTISERS, *quantisers.BIASED)
    if fmt not in known:
        raise ValueError(f"floats cannot be quantised to {fmt}; wanted one of f32, f16, bf16, {', '.join(known)}")
    if importance is not None and len(importance) < rows.shape[1]:
        importance = np.pad(importance, (0, rows.shape[1] - len(importance)))
    return _interleave(fmt, _codes_to_planes(fmt, quantisers.quantise(fmt, rows, importance)))
