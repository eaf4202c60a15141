"""Quantised folders as other programs write them, from a tiny transformers model; numpy only, nothing of colibri_edge.

Owns: `quantise` (MLX's affine groups), `write_mlx(folder, path, ...)`, `write_flashmoe(mlx, path, ...)`, and
`reference(folder, quantised)`: the transformers model with every quantised matrix replaced by its dequantised floats.
"""
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import tinymodels as tiny


def bf16(x: np.ndarray) -> np.ndarray:
    """Nearest bfloat16 bits, uint16."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def wide(u: np.ndarray) -> np.ndarray:
    return (u.astype(np.uint32) << 16).view(np.float32)


def quantise(x: np.ndarray, bits: int, group: int, half: str = "bf16"):
    """x [..., cols] -> (codes u32 [..., cols bits / 32], scales, biases of `half`, dequantised float32 x)."""
    g = x.reshape(*x.shape[:-1], -1, group)
    low, high = g.min(-1), g.max(-1)
    scale, bias = (high - low) / ((1 << bits) - 1), low
    if half == "bf16":
        scale, bias = bf16(scale), bf16(bias)
        s, b = wide(scale), wide(bias)
    else:
        scale, bias = scale.astype(half), bias.astype(half)
        s, b = scale.astype(np.float32), bias.astype(np.float32)
    s, b = s[..., None], b[..., None]
    q = np.clip(np.rint((g - b) / np.where(s == 0, 1, s)), 0, (1 << bits) - 1)
    y = (s * q.astype(np.float32) + b).reshape(x.shape)
    per = 32 // bits
    q = q.astype(np.uint32).reshape(*x.shape[:-1], -1, per) << np.arange(0, 32, bits, dtype=np.uint32)
    return np.bitwise_or.reduce(q, axis=-1), scale, bias, y


def quantise_mxfp4(x: np.ndarray):
    """x [..., cols] -> (codes u32 [..., cols / 8], scales u8 [..., cols / 32], dequantised float32 x), by the gguf package."""
    import gguf

    kind = gguf.GGMLQuantizationType.MXFP4
    raw = gguf.quants.quantize(np.ascontiguousarray(x, np.float32), kind)
    y = gguf.quants.dequantize(raw, kind)
    raw = raw.reshape(*x.shape[:-1], -1, 17)
    codes = np.concatenate([raw[..., 1:] & 15, raw[..., 1:] >> 4], axis=-1).astype(np.uint32)     # columns in their order
    codes = codes.reshape(*x.shape[:-1], -1, 8) << np.arange(0, 32, 4, dtype=np.uint32)
    return np.bitwise_or.reduce(codes, axis=-1), np.ascontiguousarray(raw[..., 0]), y


def write_mlx(folder, path, bits: int = 4, group: int = 64, *, special: dict | None = None, half: str = "bf16",
              multimodal: bool = False, mxfp4: bool = False) -> tuple[Path, dict]:
    """An MLX folder of the model in `folder` (experts stacked, gate and up apart, under the names of the family in mlx-lm; zero-centred
    norms plus one, convolutions as [channels, taps, 1]) and {name in transformers: dequantised floats}.

    special: {end of a name: (bits, group)} of matrices that are quantised otherwise, as MLX does with routers.
    mxfp4: matrices are of that mode, but those of `special` affine.
    multimodal: the language model under language_model, beside a vision tower; its settings in text_config.
    """
    model, tensors, done = tiny.load(folder), {}, {}
    config = json.loads((Path(folder) / "config.json").read_text())
    settings, prefix = {"group_size": group, "bits": bits} | ({"mode": "mxfp4"} if mxfp4 else {}), "language_model." if multimodal else ""
    family = config["model_type"]
    zero_centred = family in tiny.ZERO_CENTRED

    def put(name: str, x: np.ndarray) -> np.ndarray:
        own = next((v for end, v in (special or {}).items() if name.endswith(end)), None)
        name = prefix + name
        if own:
            settings[name] = {"bits": own[0], "group_size": own[1]}
        if mxfp4 and not own:
            tensors[name + ".weight"], tensors[name + ".scales"], y = quantise_mxfp4(x)
            return y
        tensors[name + ".weight"], tensors[name + ".scales"], tensors[name + ".biases"], y = quantise(x, *(own or (bits, group)), half)
        return y

    def put_turned(base: str, x: np.ndarray, parts: tuple[str, ...]) -> np.ndarray:
        """gpt-oss: x [E, in, out], the parts' columns in turn, each put as [E, out, in]."""
        y = np.empty_like(x)
        for i, part in enumerate(parts):
            y[..., i::len(parts)] = put(base + part, np.ascontiguousarray(x[..., i::len(parts)].swapaxes(1, 2))).swapaxes(1, 2)
        return y

    for name, p in [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if n.endswith("layer_scalar"))]:
        x = p.detach().float().numpy()
        stack = name[:name.find("experts.")] + {"gpt_oss": "experts.", "gemma4_text": "experts.switch_glu."}.get(family, "switch_mlp.")
        if family == "gpt_oss" and ".experts." in name:
            parts = ("gate_proj", "up_proj") if "gate_up" in name else ("down_proj",)
            if name.endswith("_bias"):
                tensors.update({f"{prefix}{stack}{part}.bias": np.ascontiguousarray(x[:, i::len(parts)]) for i, part in enumerate(parts)})
            else:
                done[name] = put_turned(stack, x, parts)
        elif name.endswith("experts.gate_up_proj"):
            half_rows = x.shape[1] // 2
            done[name] = np.concatenate([put(stack + "gate_proj", x[:, :half_rows]), put(stack + "up_proj", x[:, half_rows:])], axis=1)
        elif name.endswith("experts.down_proj"):
            done[name] = put(stack + "down_proj", x)
        elif x.ndim == 2 and (not name.endswith(("mlp.gate.weight", "router.weight", "router.proj.weight")) or special):
            done[name] = put(name.removesuffix(".weight"), x)
        elif name.endswith("conv1d.weight"):
            tensors[prefix + name] = x.swapaxes(1, 2)
        else:
            one = zero_centred and name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight")
            tensors[prefix + name] = x + np.float32(one)
    if multimodal:
        config = {"model_type": config["model_type"].removesuffix("_text"), "text_config": config, "vision_config": {"depth": 1},
                  "tie_word_embeddings": config["tie_word_embeddings"]}
        tensors["vision_tower.blocks.0.norm1.weight"] = np.ones(8, np.float32)
        if family.startswith("qwen"):
            tensors[prefix + "mtp.norm.weight"] = np.ones(8, np.float32)
    config["quantization"] = config["quantization_config"] = settings
    return tiny.write_folder(path, config, tensors), done


def reference(folder, quantised: dict):
    import torch

    model = tiny.load(folder)
    state = dict(model.named_parameters())
    with torch.no_grad():
        for name, x in quantised.items():
            state[name].copy_(torch.from_numpy(np.ascontiguousarray(x)))
    return model


def write_flashmoe(mlx, path, single: bool = False, two_bit: bool = False) -> Path:
    """flash-moe's folder of an MLX folder: without its vision tower and the prefix language_model.
    single: a file for each expert, as older versions wrote it."""
    path = Path(path)
    home = path / ("packed_experts_2bit" if two_bit else "packed_experts")
    home.mkdir(parents=True)
    raw = (Path(mlx) / "model.safetensors").read_bytes()
    n = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + n])

    def data(name: str) -> bytes:
        first, last = head[name]["data_offsets"]
        return raw[8 + n + first:8 + n + last]

    blob, manifest = b"", {}
    for name in sorted(head):
        if ".switch_mlp." not in name and not name.startswith("vision_tower."):
            blob += bytes(-len(blob) % 64)
            x = data(name)
            manifest[name.removeprefix("language_model.")] = {"offset": len(blob), "size": len(x), "shape": head[name]["shape"],
                                                              "dtype": head[name]["dtype"]}
            blob += x
    (path / "model_weights.bin").write_bytes(blob)
    (path / "model_weights.json").write_text(json.dumps({"model": "x", "num_tensors": len(manifest), "tensors": manifest}))
    config = json.loads((Path(mlx) / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config))
    prefix, text = ("language_model.", config["text_config"]) if "text_config" in config else ("", config)
    experts = text.get("num_experts") or text["num_local_experts"]
    for layer in range(text["num_hidden_layers"]):
        parts = [data(f"{prefix}model.layers.{layer}.mlp.switch_mlp.{p}.{kind}") for p in ("gate_proj", "up_proj", "down_proj")
                 for kind in ("weight", "scales", "biases")]
        records = [b"".join(x[e * len(x) // experts:(e + 1) * len(x) // experts] for x in parts) for e in range(experts)]
        if single:
            for e, r in enumerate(records):
                (home / f"layer_{layer:02d}_expert_{e:04d}.bin").write_bytes(r)
        else:
            (home / f"layer_{layer:02d}.bin").write_bytes(b"".join(records))
    return path
