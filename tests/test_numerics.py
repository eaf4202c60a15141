"""docs/numerics.md, "Matrix products", written once more in numpy: logits bit for bit, on codes that the gguf package decodes."""
import gguf
import numpy as np
import pytest
import tinymodels
from test_convert_formats import KIND, random_rows

from colibri_edge import Model, convert
from colibri_edge.convert import formats
from colibri_edge.topology import FORMATS

HIDDEN, VOCAB = 512, 320
TOKENS = [3, 77, 5, 201, 9, 77, 318, 64, 1, 42, 7, 250, 11, 96, 33, 8, 140, 2, 299, 17, 61]
F32 = np.float32


def fma(a, b, c):
    """float32 a * b + c with one rounding: the sum of doubles rounded to odd, then to float."""
    p, c = np.float64(a) * np.float64(b), np.float64(c)
    s = p + c
    t = s - p
    rest = (p - (s - t)) + (c - t)                              # what the sum lost (Knuth, TAOCP 2, 4.2.2)
    inexact = (rest != 0) & (s.view(np.int64) & 1 == 0)
    return np.where(inexact, np.nextafter(s, np.where(rest > 0, np.inf, -np.inf)), s).astype(F32)


def test_fma():
    one = F32(1 + 2.0**-23)
    assert fma(one, one, F32(-1 - 2.0**-22)) == F32(2.0**-46)
    assert fma(F32(2.0**-12 + 2.0**-32), F32(2.0**-12 - 2.0**-32), one) == one     # a tie once it is rounded to double


def rms_norm(x, w, eps):
    """Row by row: eight lanes, the tree of the ground rules."""
    lane = np.zeros((len(x), 8), F32)
    for k in range(0, x.shape[1], 8):
        lane = fma(x[:, k:k + 8], x[:, k:k + 8], lane)
    pair = lane[:, :4] + lane[:, 4:]
    ss = (pair[:, 0] + pair[:, 2]) + (pair[:, 1] + pair[:, 3])
    inv = F32(1) / np.sqrt(ss / F32(x.shape[1]) + F32(eps))
    return (x * inv[:, None]) * w


def activations(x):
    """Blocks of 32: (d float32, q [tokens, blocks, 32], s0, s1), the others [tokens, blocks]."""
    b = x.reshape(len(x), -1, 32)
    amax = np.abs(b).max(-1)
    assert (amax > 1e-30).all()
    q = np.rint(b * (F32(127) / amax)[..., None]).astype(np.int64)
    return amax / F32(127), q, q[..., :16].sum(-1), q[..., 16:].sum(-1)


def decoded(fmt, raw, **fields):
    """The gguf package's values of rows whose scale fields are put to these floats: d = 1, dmin = 0 leaves plain integers."""
    raw = raw.copy()
    for name, value in fields.items():
        raw.view(formats.GGML[fmt])[name] = value if fmt == "mxfp4" else np.float16(value).view(np.uint16)
    return gguf.quants.dequantize(raw, KIND[fmt.upper()])


def field(fmt, raw, name):
    """That scale of each block as float32 [rows, blocks]."""
    f = raw.view(formats.GGML[fmt])[name]
    return np.ldexp(F32(1), f.astype(int) - 128).astype(F32) if fmt == "mxfp4" else f.view(np.float16).astype(F32)


def float_product(w, x):
    acc = np.zeros((len(x), len(w)), F32)
    for k in range(x.shape[1]):
        acc = fma(w[:, k], x[:, k, None], acc)
    return acc


def block_product(fmt, raw, x):
    """Formats of 32 columns a block."""
    d, q, s0, s1 = activations(x)
    biased = "m" in formats.GGML[fmt].names
    codes = decoded(fmt, raw, d=128 if fmt == "mxfp4" else 1, **({"m": 0} if biased else {})).reshape(len(raw), -1, 32).astype(np.int64)
    scale = field(fmt, raw, "d")
    acc = np.zeros((len(x), len(raw)), F32)
    for b in range(d.shape[1]):
        acc = fma(scale[:, b] * d[:, b, None], (q[:, b] @ codes[:, b].T).astype(F32), acc)
        if biased:
            acc = fma(field(fmt, raw, "m")[:, b] * d[:, b, None], (s0 + s1)[:, b, None].astype(F32), acc)
    return acc


def super_product(fmt, raw, x):
    """K-quants: 256 columns a block, eight sub-blocks."""
    d, q, s0, s1 = activations(x)
    minima = "dmin" in formats.GGML[fmt].names
    codes = decoded(fmt, raw, d=1, **({"dmin": 0} if minima else {})).reshape(len(raw), -1, 32).astype(np.int64)
    scale = field(fmt, raw, "d")
    if minima:
        least = -decoded(fmt, raw, d=0, dmin=1).reshape(len(raw), -1, 2, 16)[..., 0].astype(np.int64)
        dmin = field(fmt, raw, "dmin")
    acc = np.zeros((len(x), len(raw)), F32)
    for block in range(d.shape[1] // 8):
        t, u = np.zeros_like(acc), np.zeros_like(acc)
        for b in range(8 * block, 8 * block + 8):
            t = fma(d[:, b, None], (q[:, b] @ codes[:, b].T).astype(F32), t)
            if fmt == "q2_k":
                u = fma(d[:, b, None], (np.outer(s0[:, b], least[:, b, 0]) + np.outer(s1[:, b], least[:, b, 1])).astype(F32), u)
            elif minima:
                u = fma(least[:, b, 0].astype(F32), (d[:, b] * (s0 + s1)[:, b].astype(F32))[:, None], u)
        if minima:
            acc = fma(-dmin[:, block], u, acc)
        acc = fma(scale[:, block], t, acc)
    return acc


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tiny = tinymodels.Tiny("qwen3-product", {"vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 64, "num_hidden_layers": 1,
                                             "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
                                             "max_position_embeddings": 64, "tie_word_embeddings": False})
    return tinymodels.build(tiny, tmp_path_factory.mktemp("product"))


@pytest.mark.parametrize("fmt", [f for f in FORMATS if f not in formats.AFFINE])       # those: test_sources.py, against MLX
def test_logits_are_the_product_of_the_specification(folder, tmp_path, fmt):
    """A model whose layer adds nothing: its logits are one product, of the normalised embedding with random blocks."""
    path = tmp_path / "m.gguf"
    tinymodels.write_gguf(folder, path, lambda name: fmt.upper() if name == "output.weight" else "F32")
    raw = random_rows(fmt, VOCAB, HIDDEN, seed=6)
    if fmt == "mxfp4":
        raw.view(formats.GGML[fmt])["d"] = np.random.default_rng(7).integers(100, 140, raw.view(formats.GGML[fmt]).shape)
    tensors = {t.name: t.data for t in gguf.GGUFReader(path, "r+").tensors}
    for name in ("blk.0.attn_output.weight", "blk.0.ffn_down.weight"):
        tensors[name][:] = 0
    tensors["output.weight"].view(np.uint8)[:] = raw
    tensors["output.weight"].flush()
    convert(path, tmp_path / "m.colibri")

    x = rms_norm(tensors["token_embd.weight"][TOKENS], tensors["output_norm.weight"], 1e-6)
    if fmt in formats.FLOATS:
        kind = {"f32": F32, "f16": np.float16, "bf16": np.uint16}[fmt]
        want = float_product(formats.bf16_float(raw.view(kind)) if fmt == "bf16" else raw.view(kind).astype(F32), x)
    else:
        want = (super_product if FORMATS[fmt].k == 256 else block_product)(fmt, raw, x)
    for chunk in (1, 2, 21):
        got = Model.load(tmp_path / "m.colibri", chunk=chunk).logits(TOKENS)
        assert np.array_equal(got.view(np.uint32), want.view(np.uint32)), f"chunk of {chunk}: {(got != want).mean():.1%} differ"
