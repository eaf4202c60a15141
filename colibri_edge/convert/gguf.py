"""Reader of GGUF versions 2 and 3, little-endian, in one file or in parts `-00001-of-0000N.gguf`.

Owns: the header, the metadata (arrays are decoded when asked for) and the directory of tensors as `SourceTensor`, with
every count, length and offset checked against the file before it is used.
Refuses: other versions and big-endian files, counts that the file cannot hold, nested arrays, duplicate keys and names,
tensors outside the file or over one another, missing parts.

Layout: "GGUF", u32 version, u64 tensors, u64 keys; per key: string, u32 type, value; per tensor: string, u32 axes,
u64 per axis (the first is the row length), u32 type, u64 offset into the data, which begins at the next multiple of
general.alignment. A string is u64 length and UTF-8; an array is u32 type, u64 count, values.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..topology import FORMATS
from .formats import GGML
from .source import ConvertError, SourceFile, SourceTensor

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
TYPES = {0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 10: "q2_k", 11: "q3_k", 12: "q4_k",
         13: "q5_k", 14: "q6_k", 30: "bf16", 39: "mxfp4"}
FOREIGN = {9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
           22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0",
           35: "TQ2_0", 40: "NVFP4"}
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 20
MAX_STRING = 64 << 20
MAX_STRINGS = 4 << 20
PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf$")
AGAIN = "download the file again"


class Fields(Mapping):
    """The metadata: key -> Python value. Arrays become lists when they are first asked for, and are not kept."""

    def __init__(self):
        self._values: dict[str, object] = {}

    def __getitem__(self, key):
        v = self._values[key]
        return v.decode() if isinstance(v, _Array) else v

    def __iter__(self):
        return iter(self._values)

    def __len__(self):
        return len(self._values)

    def length(self, key: str) -> int | None:
        """Number of values of an array, without decoding it; None for other values."""
        v = self._values.get(key)
        return v.count if isinstance(v, _Array) else None


class _Array:
    """An array still in the file: its bytes are read again when it is wanted."""

    def __init__(self, file: SourceFile, kind: int, count: int, start: int, end: int):
        self.file, self.kind, self.count, self.start, self.end = file, kind, count, start, end

    def decode(self) -> list:
        raw = self.file.read(self.start, self.end - self.start).tobytes()
        if self.kind != STRING:
            return np.frombuffer(raw, np.dtype("<" + SCALARS[self.kind])).tolist()
        out, pos = [], 0
        for _ in range(self.count):
            n = int.from_bytes(raw[pos:pos + 8], "little")
            out.append(raw[pos + 8:pos + 8 + n].decode("utf-8", "surrogateescape"))
            pos += 8 + n
        return out


class _Cursor:
    """Reads numbers and strings from a mapping and never past its end."""

    def __init__(self, data, file: SourceFile):
        self.data, self.file, self.pos = data, file, 0

    def fail(self, text: str):
        raise ConvertError(f"{self.file.path}: {text}; {AGAIN}")

    def need(self, n: int, what: str) -> int:
        """Position of the next n bytes; moves behind them."""
        at = self.pos
        if n > len(self.data) - at:
            self.fail(f"{what} at byte {at} needs {n} bytes, the file has {len(self.data) - at} left")
        self.pos = at + n
        return at

    def number(self, code: str, what: str):
        size = struct.calcsize("<" + code)
        return struct.unpack_from("<" + code, self.data, self.need(size, what))[0]

    def string(self, what: str) -> str:
        n = self.number("Q", f"length of {what}")
        if n > MAX_STRING:
            self.fail(f"{what} is {n} bytes long, wanted at most {MAX_STRING}")
        at = self.need(n, what)
        return self.data[at:at + n].decode("utf-8", "surrogateescape")

    def value(self, key: str):
        kind = self.number("I", f"type of {key}")
        if kind == STRING:
            return self.string(key)
        if kind in SCALARS:
            v = self.number(SCALARS[kind], key)
            return float(str(np.float32(v))) if SCALARS[kind] == "f" else v      # 1e-06, not 9.99999997e-07
        if kind != ARRAY:
            self.fail(f"{key} has the unknown type {kind}")
        kind, count = self.number("I", f"type of {key}"), self.number("Q", f"count of {key}")
        if kind in SCALARS:
            start = self.need(count * struct.calcsize("<" + SCALARS[kind]), key)
        elif kind == STRING:
            start = self.strings(key, count)
        else:
            self.fail(f"{key} is an array of type {kind}, wanted numbers or strings")
        return _Array(self.file, kind, count, start, self.pos)

    def strings(self, key: str, count: int) -> int:
        """Step over `count` strings; returns where they began."""
        start, size, data = self.pos, len(self.data), self.data
        if count > min((size - start) // 8, MAX_STRINGS):
            self.fail(f"{key} has {count} strings, wanted at most {min((size - start) // 8, MAX_STRINGS)}")
        pos = start
        for _ in range(count):
            pos += 8 + int.from_bytes(data[pos:pos + 8], "little")
            if pos > size:
                self.fail(f"{key} holds a string that ends behind the file")
        self.pos = pos
        return start


def read_one(path: Path, headers: bool = False) -> tuple[Fields, dict[str, SourceTensor]]:
    """Metadata and tensors of one file. headers: the weights may be missing."""
    file = SourceFile(path)
    if file.size < 24:
        raise ConvertError(f"{path} has {file.size} bytes, wanted at least 24; {AGAIN}")
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        c = _Cursor(data, file)
        magic, version = bytes(data[:4]), struct.unpack_from("<I", data, 4)[0]
        if magic != b"GGUF":
            raise ConvertError(f"{path} begins with {magic!r}, wanted b'GGUF'; is it the right file?")
        if version not in (2, 3):
            big = version and not version & 0xFFFFFF
            raise ConvertError(f"{path} is {'a big-endian file' if big else f'GGUF version {version}'}, wanted version "
                               "2 or 3, little-endian; convert it with a current tool")
        c.pos = 8
        tensors, keys = c.number("Q", "tensor count"), c.number("Q", "key count")
        if tensors > min(MAX_TENSORS, file.size // 24) or keys > min(MAX_KEYS, file.size // 13):
            raise ConvertError(f"{path} announces {tensors} tensors and {keys} keys, more than its {file.size} bytes "
                               f"can hold; {AGAIN}")
        fields = Fields()
        for i in range(keys):
            key = c.string(f"key {i}")
            if key in fields._values:
                c.fail(f"metadata has {key[:80]!r} twice")
            fields._values[key] = c.value(key[:80])
        infos = [_tensor_info(c, i) for i in range(tensors)]
        align = fields._values.get("general.alignment", 32)
        if type(align) is not int or not 1 <= align <= 1 << 20 or align & (align - 1):
            c.fail(f"general.alignment is {str(align)[:40]}, wanted a power of two up to {1 << 20}")
        start = -(-c.pos // align) * align
    return fields, _place(file, infos, start, align, headers)


def _tensor_info(c: _Cursor, i: int):
    name = c.string(f"name of tensor {i}")
    axes = c.number("I", f"axes of {name[:80]}")
    if not 1 <= axes <= 4:
        c.fail(f"tensor {name[:80]!r} has {axes} axes, wanted 1 to 4")
    dims = [c.number("Q", f"shape of {name[:80]}") for _ in range(axes)]
    if any(not 1 <= d < 1 << 40 for d in dims):
        c.fail(f"tensor {name[:80]!r} has shape {dims}, wanted sizes of at least 1")
    return name, tuple(reversed(dims)), c.number("I", f"type of {name[:80]}"), c.number("Q", f"offset of {name[:80]}")


def _place(file: SourceFile, infos, start: int, align: int, headers: bool) -> dict[str, SourceTensor]:
    out: dict[str, SourceTensor] = {}
    spans = []
    for name, shape, kind, offset in infos:
        where = f"{file.path}: tensor {name[:80]!r}"
        if name in out:
            raise ConvertError(f"{where} is there twice; {AGAIN}")
        fmt = TYPES.get(kind) or FOREIGN.get(kind) or f"type {kind}"
        t = SourceTensor(name, fmt, shape, file, start + offset)
        if offset % align:
            raise ConvertError(f"{where} begins at {offset}, wanted a multiple of {align}; {AGAIN}")
        if kind in TYPES:
            k = FORMATS[fmt].k if fmt in GGML else 1
            if shape[-1] % k:
                raise ConvertError(f"{where} has rows of {shape[-1]} weights, {fmt} wants a multiple of {k}; {AGAIN}")
            size = t.rows * t.row_bytes
            if start + offset + size > file.size and not headers:
                raise ConvertError(f"{where} ends at byte {start + offset + size}, the file has {file.size}; it "
                                   f"was cut: {AGAIN}")
            spans.append((offset, offset + size, name))
        out[name] = t
    spans.sort()
    for (_, end, a), (begin, _, b) in zip(spans, spans[1:], strict=False):
        if begin < end:
            raise ConvertError(f"{file.path}: tensors {a[:80]!r} and {b[:80]!r} overlap; {AGAIN}")
    return out


def parts_of(path: Path) -> list[Path]:
    """All parts of a split file, in order, whichever part is named; [path] when it is not split."""
    m = PART.match(path.name)
    if not m or int(m[3]) < 1:
        return [path]
    return [path.with_name(f"{m[1]}-{i:05d}-of-{m[3]}.gguf") for i in range(1, int(m[3]) + 1)]


def read(path: Path, headers: bool = False) -> tuple[Fields, dict[str, SourceTensor]]:
    """Metadata (of the first part) and all tensors of a GGUF model. headers: the weights may be missing."""
    parts = parts_of(Path(path))
    for p in parts:
        if not p.exists():
            raise ConvertError(f"{p} is missing; the model has {len(parts)} parts: put them all into one folder")
    fields, tensors = read_one(parts[0], headers)
    count = fields.get("split.count", 1 if len(parts) > 1 else len(parts))
    if "split.count" in fields and count not in (0, len(parts)):
        raise ConvertError(f"{parts[0]} says that the model has {str(count)[:20]} parts, its name says {len(parts)}; "
                           "keep the names of the download")
    for i, p in enumerate(parts[1:], 1):
        more, extra = read_one(p, headers)
        if more.get("split.no", i) != i:
            raise ConvertError(f"{p} is part {str(more['split.no'])[:20]}, wanted part {i}; keep the names of the "
                               "download")
        for name, t in extra.items():
            if name in tensors:
                raise ConvertError(f"tensor {name!r} is in {tensors[name].file.path} and in {p}; remove one")
            tensors[name] = t
    total = fields.get("split.tensors.count")
    if total is not None and len(parts) > 1 and total != len(tensors):
        raise ConvertError(f"{parts[0]} announces {str(total)[:20]} tensors, the parts hold {len(tensors)}; {AGAIN}")
    return fields, tensors
