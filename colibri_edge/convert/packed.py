"""Quantised matrices that a checkpoint keeps in two or three tensors, put together as one.

Owns: `join(tensors, config)`, which finds them, and `Joined`, which hands out their rows as the source blocks of
formats.py. Three spellings:
  MLX, affine:  x.weight u32 (codes of consecutive columns from the lowest bits up), x.scales, x.biases, one of each
                for `group_size` columns: weight = scale q + bias
  MLX, mxfp4:   x.weight u32, x.scales u8 (e8m0), groups of 32
  gpt-oss:      x_blocks u8 [..., cols / 32, 16] (low nibble: even column), x_scales u8 [..., cols / 32] (e8m0 as well)
Kept without loss: mxfp4; 2 and 4 bits with bfloat16 scales, in groups of 32, 64 or 128 (whose scale stands twice). All else
is read as float32, and `kept` says why: plan.py then wants to be told a format.
Refuses: other group sizes and widths, modes nobody here knows, parts that are missing or whose shapes do not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..topology import FORMATS
from .formats import AFFINE, GGML, _n_plane, _widen, unpack_codes
from .source import ConvertError, SourceTensor

GROUPS, BITS = (32, 64, 128), (2, 4, 8)
AGAIN = "download it again"


@dataclass(slots=True)
class Joined(SourceTensor):
    """A matrix [..., rows, cols] in parts. file and offset are the codes'. bits: of a code; group: columns of a scale."""

    codes: SourceTensor = None
    scales: SourceTensor = None
    biases: SourceTensor | None = None
    bits: int = 4
    group: int = 32
    kept: str = field(default="")

    @property
    def files(self) -> set:
        return {t.file for t in (self.codes, self.scales, self.biases) if t is not None}

    def _raw(self, t: SourceTensor, first: int, last: int, nbytes: int) -> np.ndarray:
        return t.file.read(t.offset + first * nbytes, (last - first) * nbytes).reshape(last - first, nbytes)

    def read(self, first: int, last: int) -> np.ndarray:
        """Rows first .. last-1 as uint8[rows, row bytes] of source blocks (or of float32)."""
        if not 0 <= first <= last <= self.rows:
            raise ConvertError(f"tensor {self.name} has {self.rows} rows, asked for {first} to {last}")
        n, groups = last - first, self.cols // self.group
        codes = self._raw(self.codes, first, last, self.cols * self.bits // 8)
        if self.biases is None:
            blocks = np.empty((n, groups), GGML["mxfp4"])
            blocks["d"] = self._raw(self.scales, first, last, groups)
            blocks["n"] = _n_plane(unpack_codes(codes, 4).reshape(n, groups, 32))
            return blocks.view(np.uint8).reshape(n, -1)
        width = 4 if self.scales.format == "f32" else 2
        d, m = (self._raw(t, first, last, groups * width).view("<u4" if width == 4 else "<u2")
                for t in (self.scales, self.biases))
        if self.format in AFFINE:
            k = FORMATS[self.format].k
            blocks = np.empty((n, self.cols // k), GGML[self.format])
            blocks["d"], blocks["m"] = (np.repeat(x, self.group // k, axis=1) for x in (d, m))
            blocks["p"] = codes.reshape(n, -1, k * self.bits // 8)
            return blocks.view(np.uint8).reshape(n, -1)
        d, m = (_widen(self.scales.format, np.ascontiguousarray(x))[..., None] for x in (d, m))
        w = d * unpack_codes(codes, self.bits).reshape(n, groups, self.group).astype(np.float32) + m
        return w.reshape(n, -1).view(np.uint8)


def affine(name: str, codes: SourceTensor, scales: SourceTensor, biases: SourceTensor, bits: int, group: int) -> Joined:
    """The matrix of MLX's three tensors; checks that they fit together."""
    cols = codes.shape[-1] * 32 // bits if codes.shape else 0
    want = (*codes.shape[:-1], cols // group)
    if codes.format != "U32" or scales.format not in ("bf16", "f16", "f32") or biases.format != scales.format:
        raise ConvertError(f"tensor {name} has codes, scales and biases of types {codes.format}, {scales.format} and "
                           f"{biases.format}, wanted U32 and twice BF16, F16 or F32; {AGAIN}")
    if cols % group or not cols or scales.shape != want or biases.shape != want:
        raise ConvertError(f"tensor {name} has codes {list(codes.shape)}, scales {list(scales.shape)} and biases "
                           f"{list(biases.shape)}, wanted the latter as {list(want)} ({bits} bits, group {group}); does "
                           "config.json belong to these files?")
    kept = ""
    if bits == 8:
        kept = "8-bit affine"
    elif scales.format != "bf16":
        kept = f"{bits}-bit affine with {scales.format} scales"
    fmt = "f32" if kept else f"q{bits}_a" + ("32" if group == 32 else "")
    return Joined(name, fmt, (*codes.shape[:-1], cols), codes.file, codes.offset, 0, codes, scales, biases, bits, group, kept)


def mxfp4(name: str, codes: SourceTensor, scales: SourceTensor) -> Joined:
    """The matrix of MXFP4 codes (u32 [..., cols / 8] or u8 [..., cols / 32, 16]) and u8 scales."""
    blocks = codes.format == "U8" and len(codes.shape) > 2 and codes.shape[-1] == 16
    lead = codes.shape[:-2] if blocks else codes.shape[:-1]
    cols = codes.shape[-2] * 32 if blocks else codes.shape[-1] * 8 if codes.shape else 0
    if not (blocks or codes.format == "U32") or scales.format != "U8" or scales.shape != (*lead, cols // 32) or cols % 32 or not cols:
        raise ConvertError(f"tensor {name} has MXFP4 codes {codes.format} {list(codes.shape)} and scales {scales.format} "
                           f"{list(scales.shape)}, wanted U8 [.., {cols // 32}, 16] or U32 and U8 {[*lead, cols // 32]}; {AGAIN}")
    return Joined(name, "mxfp4", (*lead, cols), codes.file, codes.offset, 0, codes, scales, None, 4, 32)


def plain(config: dict) -> dict:
    """config.json without what join() reads: MLX's `quantization`, and `quantization_config` where it says the same or MXFP4."""
    q = config.get("quantization_config")
    ours = isinstance(q, dict) and (q == config.get("quantization") or q.get("quant_method") == "mxfp4")
    return {k: v for k, v in config.items() if k != "quantization" and not (k == "quantization_config" and ours)}


def settings(config: dict, base: str) -> tuple[str, int, int]:
    """(mode, bits, group size) of one MLX matrix: config.json's `quantization`, with its exceptions by name."""
    q = config.get("quantization")
    if not isinstance(q, dict):
        raise ConvertError(f"{base}.scales is there, but config.json has no \"quantization\" with bits and group_size; {AGAIN}")
    # an exception stands for itself: what it leaves out is MLX's default, not the folder's; flash-moe drops the prefix
    q = next((q[n] for n in (base, "language_model." + base) if isinstance(q.get(n), dict)), q)
    mode, bits, group = (q.get(k, d) for k, d in (("mode", "affine"), ("bits", 4), ("group_size", 64)))
    if mode not in ("affine", "mxfp4") or type(bits) is not int or bits not in BITS or type(group) is not int or group not in GROUPS:
        raise ConvertError(f"config.json quantises {base} as {str(mode)[:20]!r} with {str(bits)[:20]} bits in groups of "
                           f"{str(group)[:20]}, wanted 'affine' of 2, 4 or 8 bits in groups of 32, 64 or 128, or 'mxfp4'")
    return mode, bits, group


def join(tensors: dict[str, SourceTensor], config: dict) -> dict[str, SourceTensor]:
    """The same tensors with quantised matrices in one piece: x.weight for MLX's three, x for gpt-oss' x_blocks and x_scales."""
    out = dict(tensors)

    def take(name: str, why: str) -> SourceTensor:
        if name not in out:
            raise ConvertError(f"the checkpoint lacks {name}, {why} is there; the download is incomplete")
        return out.pop(name)

    for name in tensors:
        if name.endswith(".scales"):
            base = name[:-7]
            mode, bits, group = settings(config, base)
            codes, scales = take(base + ".weight", name), take(name, name)
            out[base + ".weight"] = (mxfp4(base + ".weight", codes, scales) if mode == "mxfp4" else
                                     affine(base + ".weight", codes, scales, take(base + ".biases", name), bits, group))
        elif name.endswith("_blocks"):
            base = name[:-7]
            out[base] = mxfp4(base, take(name, name), take(base + "_scales", name))
    return out
