"""The MoE block against a float64 reference, its file, and the ways it refuses."""

import itertools
import os
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

from colibri_edge import MoEBlock, export_block
from colibri_edge._native import constants
from colibri_edge.blockfile import read_block
from colibri_edge.core import blas

MAX_TOP_K, MAX_BATCH, MAX_EXPERTS = (constants()[k] for k in ("max_top_k", "max_batch", "max_experts"))
ACTS = {
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def make(seed=0, hidden=64, inter=96, experts=12, gated=True, scale=0.2):
    """Random arrays of a block."""
    r = np.random.default_rng(seed)

    def draw(*shape):
        return (r.standard_normal(shape) * scale).astype(np.float32)

    d = {"router": draw(hidden, experts), "w1": draw(experts, hidden, inter), "w2": draw(experts, inter, hidden)}
    if gated:
        d["w3"] = draw(experts, hidden, inter)
    return d


def reference(d, x, top_k, activation, renormalise):
    """float64, one token and one expert at a time."""
    d = {k: v.astype(np.float64) for k, v in d.items()}
    x = x.astype(np.float64)
    out = np.zeros_like(x)
    for t, s in enumerate(x @ d["router"]):
        order = np.lexsort((np.arange(len(s)), -s))[:top_k]
        p = np.exp(s - s.max())
        p /= p[order].sum() if renormalise else p.sum()
        for e in order:
            h = ACTS[activation](x[t] @ d["w1"][e])
            if "w3" in d:
                h = h * (x[t] @ d["w3"][e])
            out[t] += p[e] * (h @ d["w2"][e])
    return out


def relative(a, b):
    """Largest difference over the largest value of each token."""
    if a.size == 0:
        return 0.0
    return float((np.abs(a - b).max(1) / np.abs(b).max(1)).max())


@pytest.fixture
def write(tmp_path):
    count = itertools.count()

    def _write(d, **kw):
        path = tmp_path / f"b{next(count)}.colibri"
        export_block(d, path, **{"top_k": 2, "activation": "silu", "renormalise": True, **kw})
        return path

    return _write


@pytest.mark.parametrize("activation", ACTS)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("top_k", [1, 2, 12])
def test_equals_float64(write, activation, gated, top_k):
    if top_k > MAX_TOP_K:
        pytest.skip(f"this build takes top_k up to {MAX_TOP_K}")
    d = make(3, gated=gated)
    most = min(40, MAX_BATCH)
    for renormalise, ascii_magic in ((False, False), (True, True)):
        path = write(d, top_k=top_k, activation=activation, renormalise=renormalise, ascii_magic=ascii_magic)
        block = MoEBlock(path, max_batch=most)
        for n in {0, 1, min(3, most), most}:
            x = np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)
            y = block.forward(x)
            assert y.shape == x.shape and relative(y, reference(d, x, top_k, activation, renormalise)) < 1e-5


@pytest.mark.parametrize(("hidden", "inter", "experts"), [(1, 1, 1), (7, 5, 3), (33, 71, 9), (128, 200, 40)])
@pytest.mark.parametrize("blas_from", [1, 4, 1 << 20])
def test_odd_sizes_on_both_back_ends(write, hidden, inter, experts, blas_from):
    experts = min(experts, MAX_EXPERTS)
    d = make(5, hidden, inter, experts, scale=0.5)
    k = min(2, experts)
    n = min(19, MAX_BATCH)
    x = np.random.default_rng(1).standard_normal((n, hidden)).astype(np.float32)
    block = MoEBlock(write(d, top_k=k), max_batch=n, _blas_from=blas_from)
    assert relative(block.forward(x), reference(d, x, k, "silu", True)) < 1e-5


def test_ragged_loads(write):
    d = make(7)
    n = min(24, MAX_BATCH)
    x = np.abs(np.random.default_rng(2).standard_normal((n, 64))).astype(np.float32)
    one = {**d, "router": np.zeros_like(d["router"])}
    one["router"][:, 5] = 1.0  # all tokens to expert 5, then by the tie rule to expert 0
    block = MoEBlock(write(one), max_batch=n)
    assert relative(block.forward(x), reference(one, x, 2, "silu", True)) < 1e-5
    assert block.expert_uses == [n, 0, 0, 0, 0, n, 0, 0, 0, 0, 0, 0]
    ids, weights = block.last_routing()
    assert (ids == [5, 0]).all() and np.allclose(weights.sum(1), 1)


def test_threads_batches_loading_and_pinning_do_not_change_results(write):
    d = make(9, 256, 320, 16)
    path = write(d)
    n = min(3, MAX_BATCH)
    x = np.random.default_rng(4).standard_normal((n, 256)).astype(np.float32)
    want = MoEBlock(path, threads=1, max_batch=n).forward(x)
    for kw in (
        {"threads": 2},
        {"threads": 4},
        {"load": "read"},
        {"pin": "auto", "threads": 2},
        {"_grouped": False},
        {"_skew": 4},
        {"load": "read", "_skew": 12},
    ):
        assert np.array_equal(MoEBlock(path, max_batch=n, **kw).forward(x), want), kw
    one = MoEBlock(path, max_batch=1)
    assert np.array_equal(np.concatenate([one.forward(x[i : i + 1]) for i in range(n)]), want)


def test_ten_thousandfold_activations_do_not_overflow(write):
    d = make(11)
    d["w1"][3] *= 1e4
    x = np.random.default_rng(6).standard_normal((1, 64)).astype(np.float32) * 1e4
    k = min(12, MAX_TOP_K)
    y = MoEBlock(write(d, top_k=k)).forward(x)
    assert np.isfinite(y).all() and relative(y, reference(d, x, k, "silu", True)) < 1e-5


def test_routing_and_expert_errors(write):
    d = make(13)
    block = MoEBlock(write(d))
    x = np.ones((1, 64), np.float32)
    good = block.forward(x)
    x[0, 17] = np.nan
    with pytest.raises(RuntimeError, match=r"input token 0 holds a NaN or an infinity at 17") as e:
        block.forward(x)
    assert e.value.code == -2
    x[0, 17] = 1
    assert np.array_equal(block.forward(x), good)  # an error leaves nothing behind
    bad = {**d, "w2": d["w2"].copy()}
    for i in range(12):
        bad["w2"][i, 0, 0] = np.inf if i % 2 else np.nan
    with pytest.raises(RuntimeError, match=r"expert \d+: its output for token 0 is not finite") as e:
        MoEBlock(write(bad)).forward(x)
    assert e.value.code == -3
    with pytest.raises(ValueError, match=r"x has shape \(1, 3\), wanted \(tokens, 64\)"):
        block.forward(np.ones((1, 3), np.float32))
    small = MoEBlock(block.path, max_batch=2)
    with pytest.raises(ValueError, match="batch 3; this model was opened for 0 to 2"):
        small.forward(np.ones((3, 64), np.float32))
    with pytest.raises(ValueError, match=f"max_batch {MAX_BATCH + 1}; this build takes 1 to {MAX_BATCH}"):
        MoEBlock(block.path, max_batch=MAX_BATCH + 1)


def test_what_a_build_was_not_made_for_is_refused_with_the_numbers(write):
    """A pinned build (docs/block.md) has small limits; this holds for any."""
    if MAX_EXPERTS < 65535:
        path = write(make(14, 1, 1, MAX_EXPERTS + 1), top_k=1)
        n = MAX_EXPERTS + 1
        with pytest.raises(RuntimeError, match=rf"{n} experts; this build takes 1 to {n - 1} .*-Dmax_experts={n}"):
            MoEBlock(path)
    if MAX_TOP_K < MAX_EXPERTS:
        k = MAX_TOP_K + 1
        path = write(make(14, 1, 1, k), top_k=k)
        with pytest.raises(RuntimeError, match=rf"top_k {k}; this build takes at most {k - 1} .*-Dmax_top_k={k}"):
            MoEBlock(path)


def test_out_is_used_and_checked(write):
    d = make(15)
    block = MoEBlock(write(d))
    x = np.ones((2, 64), np.float32)
    out = np.empty_like(x)
    assert block.forward(x, out) is out and np.array_equal(out, block.forward(x))
    with pytest.raises(ValueError, match="memory of its own"):
        block.forward(x, x)


# ---- the file ----


def damage(path, at, data):
    raw = bytearray(path.read_bytes())
    raw[at : at + len(data)] = data
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize(
    ("at", "data", "text"),
    [
        (0, b"GGUF", "bad magic: found 47 47 55 46 52 31 00 00"),
        (8, b"\x02", "a version 2 file, a whole model"),
        (8, b"\x07", "version 7"),
        (9, b"\x1a", "uniform_expert_shape is not set: experts of unequal size are refused"),
        (9, b"\x1f", "flags 0x1f"),
        (9, b"\x3b", "flags 0x3b"),
        (14, b"\x01", "reserved 0x0001"),
        (12, b"\x00\x00", "top_k 0, wanted 1 to 12"),
        (12, b"\x0d\x00", "top_k 13, wanted 1 to 12"),
        (10, b"\x00\x00", "0 experts"),
        (16, struct.pack("<I", 0), "hidden 0"),
        (20, struct.pack("<I", 0xFFFFFFFF), "intermediate 4294967295"),
        (20, struct.pack("<I", 97), "its sizes ask for"),
        (24, struct.pack("<Q", 1), "header says 1 payload bytes"),
    ],
)
def test_damaged_headers_are_refused(write, at, data, text):
    path = damage(write(make(17)), at, data)
    with pytest.raises(RuntimeError) as e:
        MoEBlock(path)
    assert text in str(e.value) and e.value.code == -1


def test_cut_extended_and_absent_files(write, tmp_path):
    path = write(make(17))
    raw = path.read_bytes()
    for data, text in (
        (raw[:20], "shorter than a header"),
        (raw[:-4], "it is cut or damaged"),
        (raw + b"0000", "it is cut or damaged"),
    ):
        path.write_bytes(data)
        with pytest.raises(RuntimeError, match=text):
            MoEBlock(path)
        with pytest.raises(ValueError):
            read_block(path)
    with pytest.raises(FileNotFoundError, match="cannot open"):
        MoEBlock(tmp_path / "none.colibri")
    with pytest.raises(RuntimeError, match="not a regular file"):
        MoEBlock(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="a mapped file cannot be cut on Windows")
def test_a_file_cut_while_it_is_mapped_is_an_error_not_a_crash(write):
    d = make(17, 256, 512, 4)
    path = write(d)
    block, whole = MoEBlock(path), MoEBlock(path, load="read")
    x = np.ones((4, 256), np.float32)
    want = block.forward(x)
    os.truncate(path, 8192)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="was cut while it was in use") as e:
            block.forward(x)
        assert e.value.code == -1
    assert np.array_equal(whole.forward(x), want)


def test_header_is_exact(write):
    d = make(19, 8, 16, 3)
    raw = write(d, top_k=1, activation="gelu_tanh", renormalise=True).read_bytes()
    assert raw[:32] == bytes.fromhex("C04C314252310000") + struct.pack(
        "<BBHHHIIQ", 1, 1 | 2 | 1 << 2 | 1 << 4, 3, 1, 0, 8, 16, len(raw) - 32
    )
    assert raw[32 : 32 + 4 * 24] == d["router"].tobytes()
    first = b"".join(m.tobytes() for m in (d["w1"][0], d["w3"][0], d["w2"][0]))
    assert raw[32 + 96 : 32 + 96 + len(first)] == first
    back = read_block(write(d))
    assert all(np.array_equal(getattr(back, k), d[k]) for k in d)


def test_every_expert_is_at_its_place(write):
    """Ids sorted as text (10 before 2) is the classic fault."""
    tensors = {"gate.weight": np.arange(12 * 8, dtype=np.float32).reshape(12, 8)}
    for e in sorted(range(12), key=str):
        for name, shape in (("gate_proj", (16, 8)), ("up_proj", (16, 8)), ("down_proj", (8, 16))):
            tensors[f"experts.{e}.{name}.weight"] = np.full(shape, e, np.float32)
    back = read_block(write(tensors))
    for e in range(12):
        assert (back.w1[e] == e).all() and (back.w3[e] == e).all() and (back.w2[e] == e).all()
        assert np.array_equal(back.router[:, e], tensors["gate.weight"][e])


def test_export_refuses_what_it_would_lose(tmp_path):
    d = make(21, 8, 16, 4)
    path = tmp_path / "x.colibri"
    uneven = {
        **d,
        "w1": [*d["w1"][:3], d["w1"][3][:, :8]],
        "w2": [*d["w2"][:3], d["w2"][3][:8]],
        "w3": [*d["w3"][:3], d["w3"][3][:, :8]],
    }
    with pytest.raises(ValueError, match="expert 3 has shapes .* non-uniform experts are refused"):
        export_block(uneven, path, top_k=2, activation="silu")
    names = {"gate.weight": d["router"].T, "experts.0.w1.weight": d["w1"][0].T, "experts.0.w2.weight": d["w2"][0].T}
    with pytest.raises(ValueError, match="expert ids are .0, 2."):
        export_block(
            {**names, "experts.2.w1.weight": d["w1"][0].T, "experts.2.w2.weight": d["w2"][0].T},
            path,
            top_k=1,
            activation="relu",
        )
    with pytest.raises(ValueError, match="no place for: .'experts.0.w1.bias'"):
        export_block(
            {"gate.weight": d["router"].T[:1], **dict(list(names.items())[1:]), "experts.0.w1.bias": d["w1"][0][0]},
            path,
            top_k=1,
            activation="relu",
        )
    with pytest.raises(ValueError, match="they have to be given"):
        export_block(d, path, top_k=2)
    with pytest.raises(ValueError, match="version 1 knows relu, gelu_tanh, silu"):
        export_block(d, path, top_k=2, activation="tanh")
    with pytest.raises(ValueError, match="top_k 5"):
        export_block(d, path, top_k=5, activation="silu")
    assert os.listdir(tmp_path) == []  # neither the file nor a temporary one


TORCH = {
    "mixtral": ("MixtralConfig", "MixtralSparseMoeBlock", {"intermediate_size": 48, "num_local_experts": 12}),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        "Qwen2MoeSparseMoeBlock",
        {"moe_intermediate_size": 48, "num_experts": 12, "shared_expert_intermediate_size": 16},
    ),
    "qwen3_moe": (
        "Qwen3MoeConfig",
        "Qwen3MoeSparseMoeBlock",
        {"moe_intermediate_size": 48, "num_experts": 12, "norm_topk_prob": True},
    ),
    "olmoe": (
        "OlmoeConfig",
        "OlmoeSparseMoeBlock",
        {"intermediate_size": 48, "num_experts": 12, "norm_topk_prob": False},
    ),
}


@pytest.mark.parametrize("family", TORCH)
def test_transformers_blocks(family, tmp_path):
    """The block's own forward is the reference; both layouts give the same file."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    import importlib

    config, name, sizes = TORCH[family]
    torch.manual_seed(1)
    cfg = getattr(transformers, config)(hidden_size=32, num_experts_per_tok=2, **sizes)
    cfg._experts_implementation = "eager"
    block = getattr(importlib.import_module(f"transformers.models.{family}.modeling_{family}"), name)(cfg).eval()
    with torch.no_grad():
        for p in block.parameters():
            p.normal_(0, 0.2)
        if family == "qwen2_moe":
            with pytest.raises(ValueError, match="a shared expert .* which version 1 cannot hold"):
                export_block(block, tmp_path / "b")
            for p in block.shared_expert.parameters():
                p.zero_()
        export_block(block, tmp_path / "b", shared="leave_out")
        n = min(9, MAX_BATCH)
        x = torch.randn(1, n, 32)
        want = block(x)
        want = (want[0] if isinstance(want, tuple) else want)[0].double().numpy()
    assert relative(MoEBlock(tmp_path / "b").forward(x[0].numpy()), want) < 1e-5
    state = {k: v for k, v in block.state_dict().items() if not k.startswith("shared")}
    fused, down = state.pop("experts.gate_up_proj"), state.pop("experts.down_proj")
    roles = ("w1", "w3", "w2") if family == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    for e in range(12):
        for role, w in zip(roles, (fused[e, :48], fused[e, 48:], down[e]), strict=True):
            state[f"experts.{e}.{role}.weight"] = w
    export_block(state, tmp_path / "c", top_k=2, activation="silu", renormalise=family in ("mixtral", "qwen3_moe"))
    assert (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


# ---- threads, BLAS, fork ----


def test_blas_is_loaded_only_when_needed_and_held_to_one_thread(write):
    path = write(make(23))
    code = f"""
from colibri_edge import MoEBlock
from colibri_edge.core import blas
import numpy as np
MoEBlock({str(path)!r}, max_batch=1).forward(np.ones((1, 64), np.float32))
assert not blas.loaded(), "one token needs no BLAS"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    block = MoEBlock(path, max_batch=1, _blas_from=1)
    x = np.ones((1, 64), np.float32)
    want = block.forward(x)
    assert blas.loaded()
    blas.set_threads(2)
    before = blas.threads()
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.is_set():
            seen.add(blas.threads())

    t = threading.Thread(target=watch)
    t.start()
    for _ in range(2000):
        assert np.array_equal(block.forward(x), want)
    stop.set()
    t.join()
    assert blas.threads() == before
    assert before == 1 or 1 in seen


def test_missing_blas_is_named(write):
    path = write(make(23))
    n = min(64, MAX_BATCH)
    code = f"from colibri_edge import MoEBlock; MoEBlock({str(path)!r}, max_batch={n}, _blas_from=1)"
    for value, text in (("", "no BLAS for float32 experts"), ("/none.so", "cannot load the BLAS /none.so")):
        p = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "COLIBRI_EDGE_BLAS": value}
        )
        assert p.returncode and text in p.stderr and "scipy-openblas32" in p.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_works(write):
    path = write(make(25, 256, 320, 16))
    code = f"""
import os, numpy as np
from colibri_edge import MoEBlock
block = MoEBlock({str(path)!r}, threads=2, max_batch={min(8, MAX_BATCH)})
x = np.random.default_rng(0).standard_normal(({min(8, MAX_BATCH)}, 256)).astype(np.float32)
want = block.forward(x)
pid = os.fork()
if pid == 0:
    fresh = MoEBlock({str(path)!r}).forward(x)
    os._exit(0 if np.array_equal(block.forward(x), want) and np.array_equal(fresh, want) else 3)
assert os.waitpid(pid, 0)[1] == 0
assert np.array_equal(block.forward(x), want)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


def test_pin_says_whether_it_did(write):
    block = MoEBlock(write(make(27, 256, 320, 16)), threads=2, pin="auto")
    mask = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    x = np.ones((1, 256), np.float32)
    for _ in range(600):
        block.forward(x)
    assert block.pinned == sys.platform.startswith(("linux", "win"))
    assert sum(block.expert_uses) == 1200
    if mask:
        assert os.sched_getaffinity(0) == mask  # the caller's own mask is as before
    with pytest.raises(ValueError, match="pin="):
        MoEBlock(block.path, pin="yes")


def test_pool_follows_the_formula(write):
    """docs/block.md: the sum of the slots, each rounded up to the cache line."""
    line = constants()["cache_line"]
    n = min(6, MAX_BATCH)
    block = MoEBlock(write(make(29)), max_batch=n, threads=1)
    info = block.info()
    sizes = dict((name, size) for name, _, size in info["pool"])
    pairs = n * 2
    assert (
        sizes["scores"] == n * 16 * 4
        and sizes["h: act(x W1)"] == pairs * 112 * 4
        and sizes["y: expert outputs"] == pairs * 80 * 4
    )
    assert info["pool_bytes"] == sum(-(-s // line) * line for s in sizes.values())
    assert all(offset % line == 0 for _, offset, _ in info["pool"])


def test_info_prints_the_pool(write):
    path = write(make(31))
    p = subprocess.run([sys.executable, "-m", "colibri_edge", "info", str(path)], capture_output=True, text=True)
    assert p.returncode == 0 and "12, top 2, renormalised" in p.stdout and "h: act(x W1)" in p.stdout, p.stderr
    damage(path, 12, b"\x00\x00")
    p = subprocess.run([sys.executable, "-m", "colibri_edge", "info", str(path)], capture_output=True, text=True)
    assert p.returncode == 1 and "top_k 0, wanted 1 to 12" in p.stderr


def test_thread_count_from_the_environment(write):
    code = f"from colibri_edge import MoEBlock; print(MoEBlock({str(write(make(33)))!r}).threads)"
    for value, want in (("3", "3\n"), ("x", "")):
        p = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "COLIBRI_EDGE_THREADS": value},
        )
        assert p.stdout == want and (want or "COLIBRI_EDGE_THREADS='x', wanted 1 to 256" in p.stderr)
