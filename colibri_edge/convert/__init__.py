"""Models of other formats to `.colibri`.

    Hugging Face folder --safetensors.py--\\                       /-- families/<type>.py: topology
                                           >-- SourceTensor rows --
    GGUF file, parts ----gguf.py----------/                       \\-- families/names.py: bindings
    MLX, gpt-oss: packed.py; flash-moe: flashmoe.py; .colibri: colibri.py, which knows its topology and places already
                                                                        |
                        writer.py  <-- bytes of records, streamed -- plan.py -- formats.py, quantise.py

Owns: `convert(src, dst, quant)` and its report. Peak memory is a few chunks of some megabytes and the tokenizer's
tables, whatever the model's size. Refuses: sources of other kinds, source and target the same file; see the modules
for the rest.
"""

from __future__ import annotations

import os
import sys
import time
import types
from dataclasses import dataclass
from pathlib import Path

from .source import ConvertError

__all__ = ["ConvertError", "Report", "convert"]

VERSION = "0.1.0"


@dataclass(frozen=True, slots=True)
class Report:
    """What a conversion did. became: {source format: {stored format: tensors}}; classes: {kind of tensor:
    (weights, bits per weight)}; seconds of wall time."""

    path: Path
    model_type: str
    became: dict[str, dict[str, int]]
    classes: dict[str, tuple[int, float]]
    weights: int
    bits_per_weight: float
    bytes_read: int
    bytes_written: int
    seconds: float
    tokenizer: bool

    def __str__(self) -> str:
        kept = "; ".join(f"{s} became {', '.join(f'{d} ({n} tensors)' for d, n in to.items())}"
                         for s, to in self.became.items())
        return (f"{self.path}: {self.model_type}, {self.weights / 1e6:.1f} M weights at {self.bits_per_weight:.2f} "
                f"bits, {self.bytes_written / 1e6:.1f} MB in {self.seconds:.1f} s. {kept}."
                + ("" if self.tokenizer else " The source has no tokenizer."))


def convert(src, dst, quant: str | None = None, progress=None, head_quant: str | None = None, importance: dict | None = None) -> Report:
    """Convert a Hugging Face, MLX or flash-moe folder, a .gguf file (any part of a split one) or a .colibri file to `dst`.

    quant: f32, f16, bf16, q8_0, q4_0, q4_k, q6_k, q4_a or mxfp4 for matrices stored as floats; None keeps their type.
    Matrices that are quantised already keep their blocks. q2: routed experts in 2 bits whatever they were, q8_0 for other
    floats. head_quant: likewise for embedding and output matrix (default: quant, but q6_k or q8_0 from q4_0 on down).
    importance: weights of the experts' columns (calibrate.py). progress(bytes done, bytes in all, what) is called as it goes.
    Raises ConvertError for anything that is wrong with the source, OSError when the disk fails.
    """
    from .. import families
    from . import plan, writer

    start = time.monotonic()
    src, dst = Path(src), Path(dst)
    if quant is not None and quant not in plan.QUANTS:
        raise ConvertError(f"quant is {quant!r}, wanted one of {', '.join(plan.QUANTS)}")
    if not src.exists():
        raise ConvertError(f"{src} does not exist")
    if not (src.is_file() or src.is_dir()):
        raise ConvertError(f"{src} is neither a file nor a folder; wanted a folder with config.json and safetensors, "
                           "or a GGUF file")
    if src.is_dir():
        model = _open_hf(src, families)
    elif src.suffix == ".gguf" or _magic(src) == b"GGUF":
        model = _open_gguf(src, families)
    elif src.suffix == ".colibri" or _magic(src) == b"\xc0L1B":
        model = _open_colibri(src)
    else:
        raise ConvertError(f"{src} begins with {_magic(src)!r}; wanted a folder with config.json and safetensors, a "
                           "GGUF file, or a .colibri file")
    spec, bindings, extras, tensors, name = model
    files = set().union(*(t.files for t in tensors.values()))
    if dst.exists() and any(os.path.samefile(dst, f.path) for f in files):
        raise ConvertError(f"source and target are the same file, {dst}; choose another target")
    if dst.is_file() and not _replaceable(dst):
        raise ConvertError(f"{dst} exists and is no .colibri file; choose another target, or remove it first")
    topology = spec.topology
    p = plan.make(topology, bindings, spec.ropes, quant, head_quant, extras.pop("tokenizer"), importance)
    became = {s: dict(c) for s, c in p.became.items()}
    bits = round(p.weight_bytes * 8 / p.weights, 3)
    kind = "hf" if src.is_dir() else "colibri" if src.suffix == ".colibri" else "gguf"
    info = {"format": "colibri", "version": 2, "topology": topology, **extras,
            "source": {"kind": kind, "name": name, "model_type": topology["model_type"], "converter": f"colibri-edge {VERSION}"},
            "quantisation": {"requested": quant, "became": became, "bits_per_weight": bits}}
    try:
        length = writer.write(dst, p, info, progress)
    finally:
        for f in files:
            f.close()
    classes = {c: (n, round(8 * b / n, 3)) for c, (n, b) in p.classes.items()}
    return Report(dst, topology["model_type"], became, classes, p.weights, bits, sum(x.read_bytes for x in p.pieces), length,
                  time.monotonic() - start, any(x.name == "tokenizer" for x in p.pieces))


def _replaceable(path: Path) -> bool:
    """Whether an existing target is a model of ours (or empty): nothing else is ever overwritten."""
    from ..file import FileError, format_version

    try:
        return path.stat().st_size == 0 or format_version(path) > 0
    except FileError:
        return False


def _magic(path: Path) -> bytes:
    with open(path, "rb") as f:
        return f.read(4)


def _open_hf(src: Path, families):
    from ..families.common import HFConfig
    from . import flashmoe, meta, packed, safetensors

    if not (src / "config.json").is_file():
        raise ConvertError(f"{src} has no config.json; wanted a Hugging Face model folder")
    config = safetensors.load_json_file(src / "config.json")
    family = families.for_hf(config.get("model_type"))
    spec = family.from_hf(HFConfig(packed.plain(config)))
    if flashmoe.is_folder(src):
        tensors = flashmoe.read_folder(src, config)
    else:
        tensors = packed.join(safetensors.read_folder(src), config)
    bindings = family.hf_tensors(spec, tensors)
    extras = meta.from_hf(src, config, spec.topology["vocab_size"])
    extras["tokenizer"] = meta.tokenizer_hf(src)
    return spec, bindings, extras, tensors, src.resolve().name


def _open_gguf(src: Path, families):
    from ..families.common import GGUFConfig
    from . import gguf, meta

    fields, tensors = gguf.read(src)
    family = families.for_gguf(fields)
    spec = family.from_gguf(GGUFConfig(fields, tensors))
    bindings = family.gguf_tensors(spec, tensors)
    extras = meta.from_gguf(fields, spec.topology["vocab_size"])
    extras["tokenizer"] = meta.tokenizer_gguf(fields)
    name = fields.get("general.name")
    return spec, bindings, extras, tensors, name if isinstance(name, str) else src.stem


def _open_colibri(src: Path):
    from .colibri import read

    return read(src)


class _Callable(types.ModuleType):
    """This package, callable: `from colibri_edge import convert` gives the package, and convert(src, dst) must work."""

    def __call__(self, *args, **kw) -> Report:
        return convert(*args, **kw)


sys.modules[__name__].__class__ = _Callable
