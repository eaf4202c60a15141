"""Reader of `.colibri` version 2: header, metadata, checks, checksums, mapping.

Owns: `ColibriFile(path)`, which believes nothing. Every number in the file is checked in Python's unbounded integers
against the file's length before it is used, every tensor the topology asks for must be there with its shape, records
may not overlap, and only then is the file mapped, read-only. `verify()` reads all of it and names what is damaged.
Refuses: files that are cut, extended or altered in header or metadata; unknown formats, names or settings; hostile JSON
(duplicate keys, NaN, deep nesting, too many values). A refusal costs at most the metadata in memory, and far less than
a second. Version 1 files (one MoE block) belong to `MoEBlock`.

docs/format.md is the specification.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import mmap
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .crc32c import crc32c
from .topology import FORMATS, PART_SETS, FileError, Want, _show, part_shapes, wanted

__all__ = ["MAGIC", "ColibriFile", "FileError", "Part", "Tensor", "format_version"]

MAGIC = bytes.fromhex("C04C314252310000")
MAGIC_ASCII = b"C0L1BR1\0"
HEADER = struct.Struct("<8sBBHIQII")       # magic, version, flags, zero, metadata length, file length, two CRCs
MAX_META = 16 << 20
MAX_VALUES = 1 << 19                       # commas, colons and brackets of the metadata: bounds what parsing allocates
SECTION, PAGE, LINE = 65536, 4096, 64
READ = 4 << 20
AGAIN = "convert the model again"
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")     # what `generation` may set beside its end ids


@dataclass(frozen=True, slots=True)
class Part:
    """One matrix or vector of an expert record. offset, length: bytes, from the record's start."""

    name: str
    format: str
    shape: tuple[int, ...]
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of the directory. offset, length: bytes, absolute in the file.

    kind "vector": shape (n,), raw float32. kind "matrix": shape (rows, cols), R8 in `format`. kind "experts":
    `count` records of `stride` bytes, each made of `parts`; shape (count, intermediate, hidden), format None.
    crc: one CRC-32C, or one per record.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    format: str | None
    offset: int
    length: int
    crc: tuple[int, ...]
    count: int = 1
    stride: int = 0
    parts: tuple[Part, ...] = field(default=())

    def part(self, name: str) -> Part | None:
        """The part of that name, or None."""
        return next((p for p in self.parts if p.name == name), None)


def format_version(path) -> int:
    """The version byte of a `.colibri` file (1: one MoE block, 2: a whole model); FileError for any other file."""
    with open(path, "rb") as f:
        head = f.read(9)
    if len(head) < 9 or head[:8] not in (MAGIC, MAGIC_ASCII):
        raise FileError(f"{path} is not a .colibri file: it begins with {head[:8].hex(' ') or 'nothing'}, wanted "
                        f"{MAGIC.hex(' ')}; GGUF files and Hugging Face folders go through `colibri-edge convert`")
    return head[8]


class ColibriFile:
    """An open, checked, mapped `.colibri` file. Use it as a context manager, or call close().

    Attributes: path (Path), size (bytes), meta (dict), topology (dict), tensors (dict name -> Tensor),
    tokenizer ((offset, length, crc) or None), fingerprint (SHA-256 of the metadata, in which all checksums stand).
    Raises FileError for any fault, OSError when the file cannot be read.
    """

    def __init__(self, path):
        self.path = Path(path)
        self._map: mmap.mmap | None = None
        self._tokenizer_checked = False
        version = format_version(path)
        if version == 1:
            raise FileError(f"{path} is a version 1 file, one MoE block and no whole model; open it with "
                            "colibri_edge.MoEBlock")
        if version != 2:
            raise FileError(f"{path} has version {version}, wanted 2; use a newer colibri-edge")
        with open(path, "rb") as f:
            self.size = os.fstat(f.fileno()).st_size
            raw = self._read_header(f)
            self.meta = _parse(raw, str(path))
            self._data_start = HEADER.size + len(raw)
            self.fingerprint = hashlib.sha256(raw.rstrip(b" ")).hexdigest()
            del raw
            self._check_meta()
            self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            if len(self._map) != self.size:
                self._fail(f"{len(self._map)} bytes were mapped of {self.size}; the file was changed while it was opened: try again")

    # -- header and metadata ------------------------------------------------------------------------------------

    def _fail(self, text: str):
        raise FileError(f"{self.path}: {text}")

    def _read_header(self, f) -> bytes:
        """Check the 32 bytes and return the raw metadata."""
        head = f.read(HEADER.size)
        if len(head) < HEADER.size:
            self._fail(f"the file has {self.size} bytes, wanted at least {HEADER.size}; it was cut: copy it again")
        _, _, flags, zero, mlen, flen, meta_crc, head_crc = HEADER.unpack(head)
        if flags & 1 and crc32c(head[:28]) != head_crc:
            self._fail(f"header checksum is {head_crc:08x}, wanted {crc32c(head[:28]):08x}; the file is damaged: "
                       f"copy it again or {AGAIN}")
        if flags & ~1 or zero:
            self._fail(f"header flags are {flags} and {zero}, wanted 0 or 1 and 0; the file is damaged or newer than "
                       "this colibri-edge")
        if not flags & 1 and (meta_crc or head_crc):
            self._fail("header has checksums but its flag says that it has none; the file is damaged: copy it again")
        if flen != self.size:
            how = "cut" if self.size < flen else "extended"
            self._fail(f"the file has {self.size} bytes, its header says {flen}; it was {how}: copy it again")
        if not 2 <= mlen <= MAX_META or HEADER.size + mlen > self.size:
            self._fail(f"metadata length is {mlen}, wanted 2 to {min(MAX_META, self.size - HEADER.size)}; {AGAIN}")
        raw = f.read(mlen)
        if len(raw) != mlen:
            self._fail(f"only {len(raw)} of {mlen} metadata bytes could be read; copy the file again")
        if flags & 1 and crc32c(raw) != meta_crc:
            self._fail(f"metadata checksum is {meta_crc:08x}, wanted {crc32c(raw):08x}; the file is damaged: "
                       f"copy it again or {AGAIN}")
        return raw

    def _check_meta(self) -> None:
        m = self.meta
        if m.get("format") != "colibri" or m.get("version") != 2 or type(m.get("version")) is not int:
            self._fail(f"metadata says format {_show(m.get('format'))} version {_show(m.get('version'))}, wanted "
                       f"'colibri' 2; {AGAIN}")
        unknown = set(m) - {"format", "version", "topology", "tensors", "tokenizer", "chat_template", "generation",
                            "source", "quantisation"}
        if unknown:
            self._fail(f"metadata has the unknown entry {min(unknown)!r}; use a newer colibri-edge")
        if not (m.get("chat_template") is None or isinstance(m["chat_template"], str)):
            self._fail(f"chat_template is {_show(m['chat_template'])}, wanted text or null; {AGAIN}")
        for key in ("generation", "source", "quantisation"):
            if not isinstance(m.get(key, {}), dict):
                self._fail(f"{key} is {_show(m[key])}, wanted an object; {AGAIN}")
        self._check_generation(m.get("generation", {}))
        try:
            want = wanted(m.get("topology"))
        except FileError as e:
            self._fail(str(e))
        self.topology: dict = m["topology"]
        entries = m.get("tensors")
        if not isinstance(entries, dict):
            self._fail(f"tensors is {_show(entries)}, wanted an object; {AGAIN}")
        missing = [n for n, w in want.items() if n not in entries and not w.optional]
        if missing:
            self._fail(f"tensor {missing[0]} is missing ({len(missing)} in all), the topology asks for it; {AGAIN}")
        extra = [n for n in entries if n not in want]
        if extra:
            self._fail(f"tensor {_show(extra[0])} is in the directory but not in the topology "
                       f"({len(extra)} in all); {AGAIN}")
        self.tensors: dict[str, Tensor] = {n: self._entry(n, e, want[n]) for n, e in entries.items()}
        self.tokenizer = None
        if m.get("tokenizer") is not None:
            self.tokenizer = self._tokenizer(m["tokenizer"])
        self._check_overlap()

    def _check_generation(self, gen: dict) -> None:
        ids = gen.get("eos_token_ids", [])
        if not isinstance(ids, list) or any(type(i) is not int or not 0 <= i < 1 << 31 for i in ids):
            self._fail(f"generation eos_token_ids is {_show(ids)}, wanted an array of token ids; {AGAIN}")
        for key, v in gen.items():
            if key == "eos_token_ids":
                continue
            if key not in SAMPLING:
                self._fail(f"generation has an entry {_show(key)}, wanted only eos_token_ids, {', '.join(SAMPLING)}; {AGAIN}")
            if type(v) not in (int, float) or not math.isfinite(v):
                self._fail(f"generation {_show(key)} is {_show(v)}, wanted a number; {AGAIN}")

    # -- the directory ------------------------------------------------------------------------------------------

    def _int(self, name: str, key: str, v, low: int, high: int) -> int:
        if type(v) is not int or not low <= v <= high:
            self._fail(f"{name}: {key} is {_show(v)}, wanted a whole number from {low} to {high}; {AGAIN}")
        return v

    def _span(self, name: str, e: dict, align: int) -> tuple[int, int]:
        """Checked (offset, length) of an entry: aligned, behind the metadata, inside the file."""
        off = self._int(name, "offset", e.get("offset"), self._data_start, self.size)
        length = self._int(name, "length", e.get("length"), 1, self.size)
        if off % align:
            self._fail(f"{name}: offset is {off}, wanted a multiple of {align}; {AGAIN}")
        if off + length > self.size:
            self._fail(f"{name}: bytes {off} to {off + length} end behind the file's {self.size}; {AGAIN}")
        return off, length

    def _keys(self, name: str, e, keys: set[str]) -> dict:
        if not isinstance(e, dict) or set(e) != keys:
            self._fail(f"{name}: entry is {_show(e if not isinstance(e, dict) else sorted(map(str, e)))}, wanted the "
                       f"keys {', '.join(sorted(keys))}; {AGAIN}")
        return e

    def _shape(self, name: str, v, want: tuple[int, ...]) -> None:
        if not isinstance(v, list) or any(type(i) is not int for i in v) or tuple(v) != want:
            self._fail(f"{name}: shape is {v if isinstance(v, list) and len(v) < 5 else _show(v)}, wanted "
                       f"{list(want)}; {AGAIN}")

    def _format(self, name: str, v) -> str:
        if not isinstance(v, str) or v not in FORMATS:
            self._fail(f"{name}: format is {_show(v)}, wanted one of {', '.join(FORMATS)}; a newer colibri-edge may "
                       "know it")
        return v

    def _length(self, name: str, length: int, want: int) -> None:
        if length != want:
            self._fail(f"{name}: length is {length}, format and shape ask for {want}; {AGAIN}")

    def _entry(self, name: str, e, want: Want) -> Tensor:
        if want.kind == "experts":
            return self._stack(name, e, want)
        e = self._keys(name, e, {"shape", "format", "offset", "length", "crc32c"})
        self._shape(name, e["shape"], want.shape)
        fmt = self._format(name, e["format"])
        if (want.kind == "vector" or want.f32) and fmt != "f32":
            self._fail(f"{name}: format is {fmt}, wanted f32; {AGAIN}")
        off, length = self._span(name, e, LINE if want.kind == "vector" else PAGE)
        self._length(name, length, 4 * want.shape[0] if want.kind == "vector" else FORMATS[fmt].nbytes(*want.shape))
        crc = self._int(name, "crc32c", e["crc32c"], 0, 0xFFFFFFFF)
        return Tensor(name, want.kind, want.shape, fmt, off, length, (crc,))

    def _stack(self, name: str, e, want: Want) -> Tensor:
        e = self._keys(name, e, {"kind", "count", "stride", "offset", "length", "parts", "crc32c"})
        count, inter, hidden = want.shape
        if e["kind"] != "experts" or e["count"] != count or type(e["count"]) is not int:
            self._fail(f"{name}: is {_show(e['kind'])} of {_show(e['count'])}, wanted 'experts' of {count}; {AGAIN}")
        off, length = self._span(name, e, SECTION)
        stride = self._int(name, "stride", e["stride"], PAGE, self.size)
        if stride % PAGE:
            self._fail(f"{name}: stride is {stride}, wanted a multiple of {PAGE}; {AGAIN}")
        self._length(name, length, count * stride)
        crcs = e["crc32c"]
        if not isinstance(crcs, list) or len(crcs) != count:
            self._fail(f"{name}: crc32c is {_show(crcs)}, wanted an array of {count}; {AGAIN}")
        crcs = tuple(self._int(name, "crc32c", c, 0, 0xFFFFFFFF) for c in crcs)
        parts = self._parts(name, e["parts"], stride, part_shapes(inter, hidden))
        return Tensor(name, "experts", want.shape, None, off, length, crcs, count, stride, parts)

    def _parts(self, name: str, parts, stride: int, shapes: dict[str, tuple[int, ...]]) -> tuple[Part, ...]:
        if not isinstance(parts, list) or len(parts) > len(shapes):
            self._fail(f"{name}: parts is {_show(parts)}, wanted an array of at most {len(shapes)}; {AGAIN}")
        out: list[Part] = []
        end = 0
        for i, p in enumerate(parts):
            p = self._keys(f"{name} part {i}", p, {"name", "format", "shape", "offset", "length"})
            pname = p["name"]
            if not isinstance(pname, str) or pname not in shapes or any(o.name == pname for o in out):
                self._fail(f"{name}: part {i} is called {_show(pname)}, wanted each of {', '.join(shapes)} at most "
                           f"once; {AGAIN}")
            label = f"{name} part {pname}"
            self._shape(label, p["shape"], shapes[pname])
            fmt = self._format(label, p["format"])
            vector = len(shapes[pname]) == 1
            if vector and fmt != "f32":
                self._fail(f"{label}: format is {fmt}, wanted f32; {AGAIN}")
            off = self._int(label, "offset", p["offset"], end, stride)
            length = self._int(label, "length", p["length"], 1, stride)
            if off % LINE or off + length > stride:
                self._fail(f"{label}: bytes {off} to {off + length}, wanted a multiple of {LINE} and an end within "
                           f"the record's {stride}; {AGAIN}")
            self._length(label, length, 4 * shapes[pname][0] if vector else FORMATS[fmt].nbytes(*shapes[pname]))
            out.append(Part(pname, fmt, shapes[pname], off, length))
            end = off + length
        if {p.name for p in out if len(p.shape) == 2} not in PART_SETS:
            self._fail(f"{name}: parts are {', '.join(p.name for p in out) or 'none'}, wanted gate_up and down, or "
                       f"gate, up and down, or up and down; {AGAIN}")
        names = [p.name for p in out]
        if names != [n for n in shapes if n in names]:
            self._fail(f"{name}: parts stand in the order {', '.join(names)}, wanted that of {', '.join(shapes)}; {AGAIN}")
        if "gate_bias" in names and not {"gate", "gate_up"} & set(names):
            self._fail(f"{name}: has a gate_bias and no gate; {AGAIN}")
        return tuple(out)

    def _tokenizer(self, e) -> tuple[int, int, int]:
        e = self._keys("tokenizer", e, {"offset", "length", "crc32c"})
        off, length = self._span("tokenizer", e, SECTION)
        return off, length, self._int("tokenizer", "crc32c", e["crc32c"], 0, 0xFFFFFFFF)

    def _spans(self) -> list[tuple[int, int, str]]:
        """(offset, length, name) of everything behind the metadata, in file order."""
        spans = [(t.offset, t.length, t.name) for t in self.tensors.values()]
        if self.tokenizer:
            spans.append((*self.tokenizer[:2], "tokenizer"))
        return sorted(spans)

    def _check_overlap(self) -> None:
        end, last = self._data_start, "the metadata"
        for off, length, name in self._spans():
            if off < end:
                self._fail(f"{name} begins at {off}, inside {last}, which ends at {end}; {AGAIN}")
            end, last = off + length, name

    # -- use ----------------------------------------------------------------------------------------------------

    def tensor(self, name: str) -> Tensor:
        """The directory entry of that name; KeyError with a hint when there is none."""
        try:
            return self.tensors[name]
        except KeyError:
            raise KeyError(f"{self.path} has no tensor {name!r}; `colibri-edge info` lists them") from None

    def view(self, tensor: str | Tensor, record: int | None = None) -> memoryview:
        """The mapped bytes of a tensor, or of one expert record; read-only, without a copy."""
        t = self.tensor(tensor) if isinstance(tensor, str) else tensor
        if record is None:
            return memoryview(self._map)[t.offset:t.offset + t.length]
        if not 0 <= record < t.count:
            raise IndexError(f"{t.name} has {t.count} records, no record {record}")
        off = t.offset + record * t.stride
        return memoryview(self._map)[off:off + t.stride]

    def mapping(self) -> memoryview:
        """The whole mapped file, read-only."""
        return memoryview(self._map)

    def tokenizer_view(self) -> memoryview | None:
        """The mapped tokenizer tables, or None when the file has none. FileError where their checksum is wrong."""
        if self.tokenizer is None:
            return None
        off, length, crc = self.tokenizer
        view = memoryview(self._map)[off:off + length]
        if not self._tokenizer_checked and crc32c(view) != crc:
            self._fail(f"the tokenizer is damaged (its CRC-32C differs from the directory's); copy the file again or {AGAIN}")
        self._tokenizer_checked = True
        return view

    def verify(self, progress: Callable[[int, int, str], None] | None = None) -> int:
        """Read the whole file and check every CRC and all padding; returns the number of records checked.

        progress(bytes done, bytes in all, name) is called as it goes. Raises FileError that names the damaged
        tensors, with layer and expert. Memory stays at one 4 MiB buffer.
        """
        bad: list[str] = []
        records = 0
        with open(self.path, "rb", buffering=0) as f:
            end = self._data_start
            for off, length, name in self._spans():
                if not self._zeros(f, end, off - end):
                    bad.append(f"the padding before {name}")
                t = self.tensors.get(name)
                crcs = t.crc if t else (self.tokenizer[2],)
                step = length // len(crcs)
                for i, want in enumerate(crcs):
                    records += 1
                    if self._crc(f, off + i * step, step, name, progress) != want:
                        bad.append(f"{name} expert {i}" if len(crcs) > 1 else name)
                end = off + length
            if not self._zeros(f, end, self.size - end):
                bad.append("the padding at the end")
        if bad:
            names = ", ".join(bad[:8]) + (f" and {len(bad) - 8} more" if len(bad) > 8 else "")
            self._fail(f"damaged: {names} (checksums differ); copy the file again or {AGAIN}")
        return records

    def _chunks(self, f, off: int, length: int):
        f.seek(off)
        buf = bytearray(min(READ, length)) if length else bytearray()
        view = memoryview(buf)
        while length:
            n = f.readinto(view[:min(length, len(buf))])
            if not n:
                self._fail(f"the file ended at {off} while it was read; it was cut meanwhile")
            yield view[:n]
            off, length = off + n, length - n

    def _crc(self, f, off: int, length: int, name: str, progress) -> int:
        crc, done = 0, off
        for chunk in self._chunks(f, off, length):
            crc = crc32c(chunk, crc)
            done += len(chunk)
            if progress:
                progress(done, self.size, name)
        return crc

    def _zeros(self, f, off: int, length: int) -> bool:
        return all(not any(bytes(c).strip(b"\0")) for c in self._chunks(f, off, length))

    def close(self) -> None:
        """Unmap. Views handed out keep the mapping alive until they are dropped."""
        if self._map is not None:
            with contextlib.suppress(BufferError):
                self._map.close()
            self._map = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def _parse(raw: bytes, path: str) -> dict:
    """JSON with bounded cost: UTF-8, no duplicate keys, no NaN, a limit on values and on nesting."""
    values = sum(raw.count(c) for c in (b",", b":", b"[", b"{"))
    if values > MAX_VALUES:
        raise FileError(f"{path}: metadata holds about {values} values, wanted at most {MAX_VALUES}; {AGAIN}")

    def pairs(items):
        obj = dict(items)
        if len(obj) != len(items):
            seen: set[str] = set()
            twice = next(k for k, _ in items if k in seen or seen.add(k))
            raise FileError(f"{path}: metadata has {_show(twice)} twice; {AGAIN}")
        return obj

    def constant(text):
        raise FileError(f"{path}: metadata holds {text}, which JSON does not know; {AGAIN}")

    try:
        meta = json.loads(raw.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except FileError:
        raise
    except RecursionError:
        raise FileError(f"{path}: metadata is nested too deeply; {AGAIN}") from None
    except (ValueError, UnicodeDecodeError) as e:
        raise FileError(f"{path}: metadata is not JSON ({str(e)[:100]}); the file is damaged: copy it again or "
                        f"{AGAIN}") from None
    if not isinstance(meta, dict):
        raise FileError(f"{path}: metadata is {_show(meta)}, wanted an object; {AGAIN}")
    return meta
