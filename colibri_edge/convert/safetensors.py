"""Reader of safetensors: one file, or shards with `model.safetensors.index.json`.

Owns: the header's checks and the directory of tensors as `SourceTensor`. The file is 8 bytes of header length
(little-endian), a JSON object {name: {dtype, shape, data_offsets}}, then the data.
Refuses: headers over 100 MB or with too many values, duplicate names, offsets outside the file or of the wrong length,
shards that are missing, and index files that disagree with the shards. Integers, F64 and 8-bit floats are listed, and
refused by name as soon as one is used.
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

from .source import ConvertError, SourceFile, SourceTensor

DTYPES = {"F32": ("f32", 4), "F16": ("f16", 2), "BF16": ("bf16", 2), "F64": ("F64", 8), "I64": ("I64", 8),
          "I32": ("I32", 4), "I16": ("I16", 2), "I8": ("I8", 1), "U8": ("U8", 1), "BOOL": ("BOOL", 1),
          "U16": ("U16", 2), "U32": ("U32", 4), "U64": ("U64", 8), "F8_E4M3": ("F8_E4M3", 1), "F8_E5M2": ("F8_E5M2", 1)}
MAX_HEADER = 100 << 20
MAX_VALUES = 4 << 20
AGAIN = "download the file again"


def load_json(data: bytes, where: str, limit: int = MAX_VALUES) -> dict:
    """A JSON object without duplicate keys and with a bounded number of values."""
    if sum(data.count(c) for c in (b",", b":", b"[", b"{")) > limit:
        raise ConvertError(f"{where} holds more than {limit} values; {AGAIN}")

    def pairs(items):
        obj = dict(items)
        if len(obj) != len(items):
            raise ConvertError(f"{where} names one key twice; {AGAIN}")
        return obj

    try:
        obj = json.loads(data.decode("utf-8"), object_pairs_hook=pairs)
    except ConvertError:
        raise
    except (ValueError, RecursionError) as e:
        raise ConvertError(f"{where} is not JSON ({str(e)[:80]}); {AGAIN}") from None
    if not isinstance(obj, dict):
        raise ConvertError(f"{where} is no JSON object; {AGAIN}")
    return obj


def load_json_file(path: Path) -> dict:
    """The JSON object in a file of the model's folder, at most 100 MB."""
    if path.stat().st_size > MAX_HEADER:
        raise ConvertError(f"{path} has {path.stat().st_size} bytes, wanted at most {MAX_HEADER}")
    return load_json(path.read_bytes(), str(path))


def read_file(path: Path, headers: bool = False) -> dict[str, SourceTensor]:
    """The tensors of one .safetensors file. headers: the weights may be missing."""
    file = SourceFile(path)
    if file.size < 8:
        raise ConvertError(f"{path} has {file.size} bytes, wanted at least 8; {AGAIN}")
    (n,) = struct.unpack("<Q", file.read(0, 8).tobytes())
    if n > min(MAX_HEADER, file.size - 8):
        raise ConvertError(f"{path}: header length is {n}, wanted at most {min(MAX_HEADER, file.size - 8)}; {AGAIN}")
    head = load_json(file.read(8, n).tobytes(), f"{path} header")
    head.pop("__metadata__", None)
    out = {}
    spans = []
    for name, e in head.items():
        where = f"{path}: tensor {name[:200]!r}"
        if not isinstance(e, dict):
            raise ConvertError(f"{where} has no entry of dtype, shape and data_offsets; {AGAIN}")
        dtype, shape, span = e.get("dtype"), e.get("shape"), e.get("data_offsets")
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise ConvertError(f"{where} has dtype {str(dtype)[:40]!r}, wanted one of {', '.join(DTYPES)}")
        if (not isinstance(shape, list) or len(shape) > 8
                or any(type(s) is not int or not 0 <= s < 1 << 48 for s in shape)):
            raise ConvertError(f"{where} has shape {str(shape)[:80]}, wanted a list of sizes; {AGAIN}")
        fmt, size = DTYPES[dtype]
        for s in shape:
            size *= s
        if (not isinstance(span, list) or len(span) != 2 or any(type(s) is not int for s in span)
                or not 0 <= span[0] <= span[1] or (span[1] > file.size - 8 - n and not headers) or span[1] - span[0] != size):
            raise ConvertError(f"{where} has data_offsets {str(span)[:80]}, wanted {size} bytes within "
                               f"{file.size - 8 - n}; the file is cut or damaged: {AGAIN}")
        if size:
            spans.append((span[0], span[1], name))
        out[name] = SourceTensor(name, fmt, tuple(shape), file, 8 + n + span[0])
    spans.sort()
    for (_, end, a), (start, _, b) in zip(spans, spans[1:], strict=False):
        if start < end:
            raise ConvertError(f"{path}: tensors {a!r} and {b!r} overlap; {AGAIN}")
    return out


def read_folder(folder: Path, headers: bool = False) -> dict[str, SourceTensor]:
    """All tensors of a Hugging Face folder, by name. headers: the weights may be missing."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        single = folder / "model.safetensors"
        files = [single] if single.exists() else sorted(folder.glob("*.safetensors"))
        if len(files) == 1:
            return read_file(files[0], headers)
        if files:
            raise ConvertError(f"{folder} has {len(files)} .safetensors files and no {index.name}; download it as well")
        raise ConvertError(f"{folder} has no .safetensors file; wanted model.safetensors, or shards with {index.name} "
                           "(PyTorch .bin files are not read: save the model with safetensors)")
    names = load_json_file(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ConvertError(f"{index} has no weight_map; download it again")
    out: dict[str, SourceTensor] = {}
    for shard in sorted({str(s) for s in names.values()}):
        if not re.fullmatch(r"[A-Za-z0-9._-]+\.safetensors", shard):
            raise ConvertError(f"{index} names the shard {shard[:100]!r}, wanted a plain file name")
        if not (folder / shard).exists():
            raise ConvertError(f"{folder / shard} is missing, {index.name} names it; download it")
        for name, t in read_file(folder / shard, headers).items():
            if name in out:
                raise ConvertError(f"tensor {name!r} is in {out[name].file.path} and in {t.file.path}; remove one")
            out[name] = t
    lost = [n for n, s in names.items() if n not in out or Path(out[n].file.path).name != s]
    if lost:
        raise ConvertError(f"{index} says that {lost[0]!r} is in {str(names[lost[0]])[:100]}, it is not "
                           f"({len(lost)} such tensors); {AGAIN}")
    return out
