"""Weight formats: GGUF blocks to R8 and back, values against the gguf package, quantisers' errors."""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import numpy as np
import pytest

from colibri_edge.convert import formats
from colibri_edge.convert.quantise import BIASED, QUANTISERS
from colibri_edge.topology import FORMATS

ROWS, COLS = 24, 512
KIND = gguf.GGMLQuantizationType


def random_rows(fmt: str, rows: int = ROWS, cols: int = COLS, seed: int = 0) -> np.ndarray:
    """Source rows uint8[rows, row bytes]: every code and scale at random, half-precision scales finite."""
    rng = np.random.default_rng(seed)
    if fmt in formats.FLOATS:
        x = rng.standard_normal((rows, cols)).astype(np.float32)
        u = {"f32": x.view(np.uint32), "f16": x.astype(np.float16).view(np.uint16),
             "bf16": (x.view(np.uint32) >> 16).astype(np.uint16)}[fmt]
        return u.view(np.uint8)
    kind = formats.GGML[fmt]
    raw = rng.integers(0, 256, (rows, cols // FORMATS[fmt].k * kind.itemsize), dtype=np.uint8)
    blocks = raw.view(kind)
    for name in {"d", "m", "dmin"} & set(kind.names):
        x = rng.standard_normal(blocks.shape).astype(np.float32)
        if fmt == "mxfp4":
            blocks[name] = rng.integers(0, 250, blocks.shape)       # subnormal scales too; beyond 252 values overflow
        else:
            blocks[name] = x.view(np.uint32) >> 16 if fmt in formats.AFFINE else x.astype(np.float16).view(np.uint16)
    return raw


def test_table_equals_the_header():
    text = (Path(__file__).parents[1] / "include/colibri/formats.h").read_text()
    rows = re.findall(r"X\((\w+),\s*(\d+),\s*(\d+),\s*(\d+),", text)
    assert {n: (int(i), int(k), int(b)) for n, i, k, b in rows} == {
        f.name: (f.id, f.k, f.block_bytes) for f in FORMATS.values()}


@pytest.mark.parametrize("fmt", FORMATS)
def test_lossless_round_trip(fmt):
    raw = random_rows(fmt)
    r8 = formats.pack_r8(fmt, raw)
    assert r8.shape == (ROWS // 8, FORMATS[fmt].group_bytes(COLS))
    assert np.array_equal(formats.unpack_r8(fmt, r8, COLS), raw)


@pytest.mark.parametrize("fmt", [f for f in FORMATS if f not in formats.AFFINE])     # those: test_sources.py, against MLX
def test_values_equal_the_gguf_package_bit_for_bit(fmt):
    raw = random_rows(fmt, seed=1)
    want = gguf.quants.dequantize(raw.view(np.float16), KIND.F16) if fmt == "f16" else gguf.quants.dequantize(
        raw, KIND[fmt.upper()])
    got = formats.dequantise(fmt, formats.pack_r8(fmt, raw), COLS)
    assert got.dtype == np.float32 and np.array_equal(got.view(np.uint32), want.astype(np.float32).view(np.uint32))
    assert np.array_equal(formats.rows_to_float(fmt, raw), got)


def unit(fmt: str, name: str, r: int, q: np.ndarray) -> np.ndarray:
    """Codes of row r of one R8 block from the drawing in docs/format.md, without formats.py: u1[K]."""
    block = q
    k = FORMATS[fmt].k
    out = np.zeros(k, int)
    for col in range(k):
        s, w = divmod(col, 32)
        b = block["b"][s] if "b" in block.dtype.names else block
        c, j = (w % 16) // 4, w % 4
        if name == "n":
            byte = int(b["n"][c].view("u1").reshape(8, 4)[r, j])
            out[col] = byte >> 4 if w >= 16 else byte & 15
        elif name == "h":
            out[col] = int(b["h"].view("u1").reshape(8, 4)[r, j]) >> (w // 4) & 1
        else:
            i, f = divmod(w // 4, 4)
            out[col] = int(b["t"][i].view("u1").reshape(8, 4)[r, j]) >> 2 * f & 3
    return out


@pytest.mark.parametrize("fmt", ["q4_0", "q5_1", "q4_k", "q5_k", "q6_k", "q3_k", "q2_k", "mxfp4", *formats.AFFINE])
def test_layout_is_the_one_in_the_specification(fmt):
    k = FORMATS[fmt].k
    raw = random_rows(fmt, 8, k, seed=2)
    block = np.ascontiguousarray(formats.pack_r8(fmt, raw)).view(formats.R8[fmt]).reshape(-1)[0]
    codes = formats._codes(fmt, formats._separate(fmt, formats.pack_r8(fmt, raw))).reshape(8, k)
    for r in (0, 3, 7):
        want = np.zeros(k, int)
        names = formats._names(fmt)
        if "n" in names:
            want += unit(fmt, "n", r, block)
        if "t" in names:
            want += unit(fmt, "t", r, block) << (4 if "n" in names else 0)
        if "h" in names:
            want += unit(fmt, "h", r, block) << (2 if fmt == "q3_k" else 4)
        assert np.array_equal(codes[r], want)


@pytest.mark.parametrize("fmt", ["f32", "f16", "bf16"])
def test_floats_off_the_block_are_padded_with_zeros(fmt):
    raw = random_rows(fmt, 8, 72)
    r8 = formats.pack_r8(fmt, raw)
    assert r8.shape == (1, FORMATS[fmt].group_bytes(72))
    assert np.array_equal(formats.unpack_r8(fmt, r8, 72), raw)
    assert not formats.dequantise(fmt, r8, 96)[:, 72:].any()


# Relative error, norm-wise, of normal weights: measured, plus 3 %.
ERRORS = {"f32": 0.0, "f16": 2.2e-4, "bf16": 1.72e-3, "q8_0": 5.5e-3, "q4_0": 0.085, "q4_k": 0.075, "q6_k": 0.0177,
          "mxfp4": 0.1147, "q4_a": 0.0851, "q2_a": 0.3322, "q4_a32": 0.0741, "q2_a32": 0.3071}


@pytest.mark.parametrize("fmt", ERRORS)
def test_quantisers_error(fmt):
    x = (np.random.default_rng(3).standard_normal((64, 1024)) * 0.02).astype(np.float32)
    y = formats.dequantise(fmt, formats.quantise(fmt, x), 1024)
    assert np.linalg.norm(y - x) <= ERRORS[fmt] * np.linalg.norm(x)


@pytest.mark.parametrize("fmt", [*QUANTISERS, *BIASED])
def test_quantisers_on_odd_rows(fmt):
    """Zeros stay zeros, outliers and tiny weights survive, 72 columns are padded with zeros."""
    x = np.random.default_rng(4).standard_normal((8, 72)).astype(np.float32)
    x[0] = 0
    x[1] = 3.5
    x[2] *= 1e-7
    x[3, 5] = 1000
    x[4] = np.abs(x[4])
    x[5] = -np.abs(x[5])
    y = formats.dequantise(fmt, formats.quantise(fmt, x), 72)
    assert np.isfinite(y).all() and not y[0].any()
    assert np.allclose(y[1], 3.5, rtol=0.15 if fmt == "mxfp4" else 0.04)    # mxfp4 has 3 and 4
    assert abs(y[3, 5] - 1000) < 70
    for r in (4, 5):
        assert np.linalg.norm(y[r] - x[r]) < {"q2_a": 0.25, "q2_a32": 0.25, "mxfp4": 0.14}.get(fmt, 0.12) * np.linalg.norm(x[r])


@pytest.mark.parametrize("fmt", BIASED)
def test_importance_moves_the_error_to_columns_that_count_less(fmt):
    rng = np.random.default_rng(8)
    x, h = rng.standard_normal((16, 192)).astype(np.float32), np.exp(1.5 * rng.standard_normal(192)).astype(np.float32)
    plain, weighed = (formats.dequantise(fmt, formats.quantise(fmt, x, w), 192) for w in (None, h))
    assert (h * (weighed - x) ** 2).sum() < 0.9 * (h * (plain - x) ** 2).sum()
    assert ((plain - x) ** 2).sum() < ((weighed - x) ** 2).sum()
    even = formats.dequantise(fmt, formats.quantise(fmt, x, np.full(192, 3, np.float32)), 192)
    assert np.isclose(np.linalg.norm(even - x), np.linalg.norm(plain - x), rtol=1e-3)


def test_bf16_rounds_to_nearest_even():
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8], np.float32)
    y = formats.dequantise("bf16", formats.quantise("bf16", np.tile(x, (8, 1))), 4)[0]
    assert y.tolist() == [1.0, 1 + 2**-6, 1 + 2**-7, -1.0]


@pytest.mark.parametrize(("fmt", "bad"), [("q8_0", np.nan), ("f32", np.inf), ("f16", 1e6)])
def test_weights_that_do_not_fit_are_refused(fmt, bad):
    x = np.zeros((8, 32), np.float32)
    x[2, 3] = bad
    with pytest.raises(ValueError, match="NaN or infinite|65504"):
        formats.quantise(fmt, x)


def test_seven_rows_are_refused():
    with pytest.raises(ValueError, match="multiple of 8"):
        formats.pack_r8("q8_0", np.zeros((7, 34), np.uint8))


@pytest.mark.parametrize("fmt", FORMATS)
def test_scales_and_floats_that_are_no_numbers_are_seen(fmt):
    raw = random_rows(fmt)
    assert formats.finite(fmt, raw)
    if fmt in formats.FLOATS:
        raw.view(formats.FLOATS[fmt])[3, 7] = {"f32": 0x7FC00000, "f16": 0xFC00, "bf16": 0x7F81}[fmt]
    else:
        raw.view(formats.GGML[fmt])["d"][3, 1] = 255 if fmt == "mxfp4" else 0x7F80 if fmt in formats.AFFINE else 0x7E00
    assert not formats.finite(fmt, raw)
