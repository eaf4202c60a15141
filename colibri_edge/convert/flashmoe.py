"""Reader of flash-moe's folders: what its extract_weights.py and repack_experts.py write, beside config.json.

    model_weights.json    {"tensors": {name: {"offset", "size", "shape", "dtype"}}, ...}; names as MLX has them
    model_weights.bin     the tensors it names: everything but the routed experts
    packed_experts/layer_XX.bin                  expert e at byte e x size, or, as older versions wrote it,
    packed_experts/layer_XX_expert_YYYY.bin      one file for each
    packed_experts_2bit/                         the same with 2-bit codes
An expert is gate, up and down, each as codes (u32), scales and biases (bfloat16), without padding.
Owns: `read_folder(folder, config)` -> tensors by their Hugging Face names, one matrix for each part of each expert.
Refuses: a manifest that does not fit its file, layers that are missing, files of any other size. Of both folders of
experts the one with 4 bits is taken.
"""

from __future__ import annotations

from pathlib import Path

from ..topology import MAX_DIM, MAX_EXPERTS, MAX_LAYERS
from . import packed
from .safetensors import DTYPES, load_json_file
from .source import ConvertError, SourceFile, SourceTensor

AGAIN = "run flash-moe's extract_weights.py and repack_experts.py again"
PARTS = ("gate_proj", "up_proj", "down_proj")


class Briefly(SourceFile):
    """A file that each read opens and closes (threads read at the same time): there may be one for each of 30,000 experts."""

    def read(self, offset: int, length: int):
        once = SourceFile(self.path)
        try:
            return once.read(offset, length)
        finally:
            once.close()


def is_folder(folder: Path) -> bool:
    return (folder / "model_weights.json").is_file()


def _resident(folder: Path) -> dict[str, SourceTensor]:
    entries = load_json_file(folder / "model_weights.json").get("tensors")
    path = folder / "model_weights.bin"
    if not path.is_file():
        raise ConvertError(f"{path} is missing, model_weights.json describes it; {AGAIN}")
    if not isinstance(entries, dict) or not entries:
        raise ConvertError(f"{folder / 'model_weights.json'} has no tensors; {AGAIN}")
    file, out = SourceFile(path), {}
    for name, e in entries.items():
        where = f"{folder / 'model_weights.json'}: tensor {name[:200]!r}"
        e = e if isinstance(e, dict) else {}
        dtype, shape, offset, length = (e.get(k) for k in ("dtype", "shape", "offset", "size"))
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise ConvertError(f"{where} has dtype {str(dtype)[:40]!r}, wanted one of {', '.join(DTYPES)}")
        fmt, size = DTYPES[dtype]
        if not isinstance(shape, list) or len(shape) > 8 or any(type(s) is not int or not 0 <= s < 1 << 48 for s in shape):
            raise ConvertError(f"{where} has shape {str(shape)[:80]}, wanted a list of sizes; {AGAIN}")
        for s in shape:
            size *= s
        if type(offset) is not int or length != size or not 0 <= offset <= file.size - size:
            raise ConvertError(f"{where} has offset {str(offset)[:40]} and size {str(length)[:40]}, wanted {size} bytes "
                               f"within {file.size}; {AGAIN}")
        out[name] = SourceTensor(name, fmt, tuple(shape), file, offset)
    return out


def _experts(folder: Path, config: dict, group: int) -> dict[str, SourceTensor]:
    config = {"num_experts": config.get("num_local_experts")} | config        # transformers 5 writes it so
    keys = ("num_hidden_layers", "num_experts", "moe_intermediate_size", "hidden_size")
    for k in keys:
        if type(config.get(k)) is not int or config[k] < 1:
            raise ConvertError(f"{folder / 'config.json'}: {k} is {str(config.get(k))[:40]}, wanted a whole number; copy the "
                               "file from the model that flash-moe's programs read")
    layers, count, inter, hidden = (config[k] for k in keys)
    if layers > MAX_LAYERS or count > MAX_EXPERTS or max(inter, hidden) > MAX_DIM:
        raise ConvertError(f"{folder / 'config.json'}: {layers} layers of {count} experts, {hidden} by {inter}; a model file takes "
                           f"{MAX_LAYERS} layers, {MAX_EXPERTS} experts and {MAX_DIM} at most")
    home = next((folder / f for f in ("packed_experts", "packed_experts_2bit") if (folder / f).is_dir()), None)
    if home is None:
        raise ConvertError(f"{folder} has no packed_experts folder; {AGAIN}")
    sizes = {bits: 3 * (inter * hidden * bits // 8 + 2 * 2 * inter * hidden // group) for bits in (4, 2)}
    out: dict[str, SourceTensor] = {}
    for n in range(layers):
        whole = home / f"layer_{n:02d}.bin"
        if whole.is_file():
            file = SourceFile(whole)
            files, total = [file] * count, file.size
        else:
            files = []
            for e in range(count):
                one = home / f"layer_{n:02d}_expert_{e:04d}.bin"
                if not one.is_file():
                    raise ConvertError(f"{one} is missing, and so is {whole.name}; {AGAIN}")
                files.append(Briefly(one))
            total = sum(f.size for f in files)
        bits = next((b for b, size in sizes.items() if total == count * size), None)
        if bits is None or (files[0] is not files[-1] and any(f.size != sizes[bits] for f in files)):
            raise ConvertError(f"{files[0].path}: the layer's {count} experts have {total} bytes, wanted {count * sizes[4]} "
                               f"(4 bits) or {count * sizes[2]} (2 bits) in groups of {group}; {AGAIN}")
        for e, file in enumerate(files):
            pos = e * sizes[bits] if whole.is_file() else 0
            for part in PARTS:
                rows, cols = (hidden, inter) if part == "down_proj" else (inter, hidden)
                name, pieces = f"model.layers.{n}.mlp.experts.{e}.{part}.weight", []
                for fmt, width, size in (("U32", cols * bits // 32, 4), ("bf16", cols // group, 2), ("bf16", cols // group, 2)):
                    pieces.append(SourceTensor(name, fmt, (rows, width), file, pos))
                    pos += rows * width * size
                out[name] = packed.affine(name, *pieces, bits, group)
    return out


def read_folder(folder: Path, config: dict) -> dict[str, SourceTensor]:
    """All tensors of a flash-moe folder. config: of config.json, whose text part counts where it has one."""
    if isinstance(config.get("text_config"), dict):
        config = config | config["text_config"]
    group = packed.settings({"quantization": {}} | config, "experts")[2]
    config = {"quantization": {"group_size": group, "bits": 4}} | config
    return packed.join(_resident(folder), config) | _experts(folder, config, group)
