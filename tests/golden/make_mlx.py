"""The program that made mlx.npz: matrices quantised and dequantised by MLX itself (pip install "mlx[cpu]"; 0.32.4 wrote the file).

    python make_mlx.py

Holds, for each case such as affine-4-64: x float32 [8, 256], codes uint32, scales, biases (bfloat16 as uint16; mxfp4: uint8 and
none), and y float32 [8, 256], what MLX makes of them in float32 arithmetic.
"""
from pathlib import Path

import mlx.core as mx
import numpy as np

CASES = [("affine", bits, group) for bits in (2, 4, 8) for group in (32, 64, 128)] + [("mxfp4", 4, 32)]


def main() -> None:
    out = {}
    x = (np.random.default_rng(7).standard_normal((8, 256)) * 0.02).astype(np.float32)
    for mode, bits, group in CASES:
        name = f"{mode}-{bits}-{group}"
        codes, scales, *biases = mx.quantize(mx.array(x).astype(mx.bfloat16), group_size=group, bits=bits, mode=mode)
        out[name + ".codes"] = np.array(codes)
        out[name + ".scales"] = np.array(scales if mode == "mxfp4" else scales.view(mx.uint16))
        if biases:
            out[name + ".biases"] = np.array(biases[0].view(mx.uint16))
            scales, biases = scales.astype(mx.float32), [biases[0].astype(mx.float32)]
        out[name + ".y"] = np.array(mx.dequantize(codes, scales, *biases, group_size=group, bits=bits, mode=mode).astype(mx.float32))
    np.savez_compressed(Path(__file__).parent / "mlx.npz", **out)


if __name__ == "__main__":
    main()
