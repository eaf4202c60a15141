"""Speed of every stage, for pytest-benchmark: what a change costs, and how one machine compares with another.

    pytest benchmarks --benchmark-only                                                       all of it, about two minutes
    pytest benchmarks --benchmark-only -k "router or decode" --benchmark-group-by=group,param:fmt
    pytest benchmarks --benchmark-only --benchmark-compare=mine.json           with a file of --benchmark-json

Owns: models and inputs that are the same bytes everywhere (colibri_edge.convert.synthetic). Groups are stages, parameters the format,
the batch or the instruction set of the process (COLIBRI_EDGE_ISA). Refuses: ceilings and rivals, which versus.py and ceiling.py measure.
"""
from __future__ import annotations

import numpy as np
import pytest

from colibri_edge import Model, MoEBlock, export_block
from colibri_edge._native import crc32c
from colibri_edge.convert.synthetic import topology, uniform, write_random
from colibri_edge.core.router import route_scores
from colibri_edge.core.sampler import Sampler
from colibri_edge.engine import Program, Session
from colibri_edge.file import ColibriFile

pytest.importorskip("pytest_benchmark", reason="pip install 'colibri-edge[bench]'")

FORMATS = ("q4_0", "q4_k", "q8_0", "q2_k", "bf16")
PREFILL, CTX = 64, 256


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """path(format): a model of 2 layers, 16 experts of 256, hidden 512, about 13 M weights."""
    folder = tmp_path_factory.mktemp("speed")
    small = topology(hidden=512, layers=2, heads=8, kv_heads=4, head_dim=64, vocab=4096, experts=16, top_k=2, intermediate=256)

    def path(fmt: str):
        file = folder / f"{fmt}.colibri"
        if not file.exists():
            write_random(file, small, fmt, seed=5)
        return file

    return path


def session(path) -> Session:
    from colibri_edge.limits import default_threads

    return Session(Program(ColibriFile(path)), CTX, default_threads(), "f16", PREFILL)


@pytest.mark.benchmark(group="prefill of 64 tokens")
@pytest.mark.parametrize("fmt", FORMATS)
def test_prefill(benchmark, model_file, fmt):
    s = session(model_file(fmt))
    tokens = [(7 * i) % 4096 for i in range(PREFILL)]

    def prefill():
        s.rewind(0)
        s.feed(tokens)

    benchmark(prefill)
    benchmark.extra_info["tokens_per_second"] = PREFILL / benchmark.stats.stats.median


@pytest.mark.benchmark(group="decode of a token at position 64")
@pytest.mark.parametrize("fmt", FORMATS)
def test_decode(benchmark, model_file, fmt):
    s = session(model_file(fmt))
    s.feed([(7 * i) % 4096 for i in range(PREFILL)])

    def decode():
        s.rewind(PREFILL)
        s.feed([11])

    benchmark(decode)
    benchmark.extra_info["tokens_per_second"] = 1 / benchmark.stats.stats.median


@pytest.mark.benchmark(group="answer of the demo model")
def test_demo_answer(benchmark):
    model = Model.load("demo", ctx=CTX)
    message = [{"role": "user", "content": "dim the kitchen lamp to 30% at seven"}]
    benchmark(lambda: sum(1 for _ in model.chat(message, 100, temperature=0)))


@pytest.mark.benchmark(group="block, float32, hidden 512, 8 experts of 1024, top-2")
@pytest.mark.parametrize("batch", [1, 8, 64])
def test_block(benchmark, tmp_path, batch):
    shapes = {"router": (512, 8), "w1": (8, 512, 1024), "w2": (8, 1024, 512), "w3": (8, 512, 1024)}
    weights = {k: uniform(i, int(np.prod(s)), 0.05).astype(np.float32).reshape(s) for i, (k, s) in enumerate(shapes.items())}
    export_block(weights, tmp_path / "b.colibri", top_k=2, activation="silu", renormalise=True)
    block = MoEBlock(tmp_path / "b.colibri", max_batch=batch)
    x, out = uniform(9, batch * 512, 1.0).astype(np.float32).reshape(batch, 512), np.empty((batch, 512), np.float32)
    benchmark(lambda: block.forward(x, out))


@pytest.mark.benchmark(group="router, 64 tokens")
@pytest.mark.parametrize(("experts", "top_k"), [(8, 2), (64, 8), (128, 8)])
def test_router(benchmark, experts, top_k):
    scores = uniform(3, 64 * experts, 2.0).astype(np.float32).reshape(64, experts)
    ids, weights = np.empty((64, top_k), np.int32), np.empty((64, top_k), np.float32)
    benchmark(lambda: route_scores(scores, top_k, True, ids, weights))


@pytest.mark.benchmark(group="tokenizer")
@pytest.mark.parametrize("direction", ["encode", "decode"])
def test_tokenizer(benchmark, direction):
    tokenizer = Model.load("demo", ctx=CTX).tokenizer
    text = "set the heating in the bedroom to 21.5 degrees at seven in the evening\n" * 20
    ids = tokenizer.encode(text)
    benchmark((lambda: tokenizer.encode(text)) if direction == "encode" else (lambda: tokenizer.decode(ids)))


@pytest.mark.benchmark(group="sampler, vocabulary of 128 Ki")
@pytest.mark.parametrize("how", ["greedy", "top_k", "top_p", "min_p"])
def test_sampler(benchmark, how):
    settings = {"greedy": {}, "top_k": {"temperature": 0.8, "top_k": 40}, "top_p": {"temperature": 0.8, "top_p": 0.9},
                "min_p": {"temperature": 0.8, "min_p": 0.05}}[how]
    logits = uniform(4, 1 << 17, 8.0).astype(np.float32)
    sampler = Sampler(1 << 17, seed=1, **settings)
    benchmark(lambda: sampler.sample(logits))


@pytest.mark.benchmark(group="CRC-32C of 4 MiB")
def test_crc32c(benchmark):
    data = np.zeros(4 << 20, np.uint8)
    benchmark(lambda: crc32c(data))
