"""What a model would be as a `.colibri` file, from its headers alone: before a download, before a conversion.

Owns: `outline(model, quant)`, and `Outline`, which has of `ColibriFile` what planning asks for (path, size, topology, tensors, view of
zeros) and no weights. Sources: a `.colibri` file (opened as it is); a `.gguf` file or only its first megabytes (of each part); a folder
with config.json and safetensors files, their first megabytes, or only `model.safetensors.index.json`.
Refuses: headers that are cut, and what convert() refuses by configuration or shapes.
An index names tensors and tells no shapes: those of the configuration are taken, and its dtype.
"""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .. import families
from ..file import ColibriFile, Part, Tensor
from ..topology import wanted
from . import flashmoe, gguf, packed, plan, safetensors
from .cache import resolve
from .source import ConvertError, SourceTensor

TOKENIZER_BYTES = 66        # a token of the compiled tables: 63 to 65 in those of SmolLM2 and of the demo
DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
WIDTHS = {"U32": 4, "U8": 1, "bf16": 2, "f16": 2, "f32": 4}      # bytes of what a quantised matrix is joined of
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Absent:
    """Stands for a file of weights that is not here."""

    path: Path
    size: int = 0


class Outline:
    """A planned file. complete: the source's weights are all here (it could be converted now)."""

    def __init__(self, path: Path, planned: plan.Plan, complete: bool):
        want = wanted(planned.topology)
        self.path, self.complete, self.topology, self.meta = path, complete, planned.topology, {}
        self.size = planned.place(1 << 16)
        self.tensors = {p.name: _tensor(p, want[p.name]) for p in planned.pieces if p.name != "tokenizer"}

    def tensor(self, name: str) -> Tensor:
        """The directory entry of that name."""
        return self.tensors[name]

    def view(self, tensor: str, record: int | None = None) -> memoryview:
        """Zeros: all of a vector, which an engine copies; of other tensors only an address to point at."""
        t = self.tensors[tensor]
        return memoryview(bytes(t.length if t.kind == "vector" else 64))


def _tensor(piece: plan.Piece, want) -> Tensor:
    e = piece.entry
    if want.kind != "experts":
        return Tensor(piece.name, want.kind, want.shape, e["format"], e["offset"], e["length"], (0,))
    parts = tuple(Part(p["name"], p["format"], tuple(p["shape"]), p["offset"], p["length"]) for p in e["parts"])
    return Tensor(piece.name, "experts", want.shape, None, e["offset"], e["length"], (0,) * e["count"], e["count"], e["stride"], parts)


def outline(model, quant: str | None = None) -> ColibriFile | Outline:
    """The model's outline. quant: as in convert(). Raises ConvertError or FileError."""
    src = Path(model).expanduser()
    if str(model) == "demo" and not src.exists() or src.is_file() and src.suffix != ".gguf":
        if quant is not None:
            raise ConvertError(f"{src} is a .colibri file, and plans are made of such files as they are; leave quant out, or convert first")
        return ColibriFile(resolve(model))
    if not src.exists():
        raise ConvertError(f"{src} does not exist; wanted a .colibri or .gguf file (its first megabytes will do), a Hugging Face folder "
                           "(config.json with the index of its safetensors will do), or demo")
    spec, bindings, tensors = _hf(src) if src.is_dir() else _gguf(src)
    vocab = spec.topology["vocab_size"]
    planned = plan.make(spec.topology, bindings, spec.ropes, quant, None, bytes(TOKENIZER_BYTES * vocab))
    return Outline(src, planned, all(_here(t) for t in tensors.values()))


def _here(t: SourceTensor) -> bool:
    if isinstance(t, packed.Joined):
        return all(p.offset + p.rows * p.cols * WIDTHS[p.format] <= p.file.size for p in (t.codes, t.scales, t.biases) if p)
    return not isinstance(t.file, Absent) and t.offset + t.rows * t.row_bytes <= t.file.size


def _gguf(src: Path):
    from ..families.common import GGUFConfig

    try:
        fields, tensors = gguf.read(src, headers=True)
    except ConvertError as e:
        if "needs" in str(e) and "left" in str(e):
            raise ConvertError(f"{e}: the headers do not end within these {src.stat().st_size} bytes, so take more of the file") from None
        raise
    family = families.for_gguf(fields)
    tensors.pop("rope_freqs.weight", None)      # values, which may not be here, and no size
    spec = family.from_gguf(GGUFConfig(fields, tensors))
    return spec, family.gguf_tensors(spec, tensors), tensors


def _hf(src: Path):
    from ..families.common import HFConfig

    if not (src / "config.json").is_file():
        raise ConvertError(f"{src} has no config.json; wanted a Hugging Face model folder")
    config = safetensors.load_json_file(src / "config.json")
    family = families.for_hf(config.get("model_type"))
    spec = family.from_hf(HFConfig(packed.plain(config)))
    tensors = flashmoe.read_folder(src, config) if flashmoe.is_folder(src) else _index(src, config)
    if tensors is None:
        tensors = packed.join(safetensors.read_folder(src, headers=True), config)
    if spec.topology["tied"]:
        tensors.pop("lm_head.weight", None)     # the embedding once more; convert() compares the two
    bindings = family.hf_tensors(spec, tensors)
    return spec, bindings, tensors


def _index(src: Path, config: dict) -> dict | None:
    """Tensors without shapes from the index alone; None where there is none or all of its shards are here."""
    if not (src / INDEX).is_file():
        return None
    names = safetensors.load_json_file(src / INDEX).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ConvertError(f"{src / INDEX} has no weight_map; download it again")
    if all((src / Path(str(shard)).name).is_file() for shard in set(map(str, names.values()))):
        return None
    if any(n.endswith((".scales", "_scales")) for n in names):
        raise ConvertError(f"{src / INDEX} names quantised matrices, of which an index tells no sizes; put the first megabytes of "
                           "each shard beside it")
    kind = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    if kind not in DTYPES:
        raise ConvertError(f"config.json: dtype is {kind[:40]!r}, wanted one of {', '.join(DTYPES)}")
    return {n: SourceTensor(n, DTYPES[kind], None, Absent(src / str(shard)), 0) for n, shard in names.items()}
