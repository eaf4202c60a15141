"""The exactness contract: the same bits for any threads, chunks, instruction set, and for warm and cold starts. FAULT 17."""
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from colibri_edge import available_isas
from colibri_edge.convert.synthetic import topology, write_random
from colibri_edge.engine import Program, Session
from colibri_edge.file import ColibriFile
from colibri_edge.model import Model

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import make_golden as golden  # noqa: E402

WANT = json.loads((Path(golden.__file__).parent / "golden.json").read_text())


@pytest.fixture(scope="module", params=[*golden.NAMES, *golden.family_topologies()])
def model(request, tmp_path_factory):
    """(format or family, path of its golden model)"""
    write = golden.write_model if request.param in golden.NAMES else golden.write_family
    return request.param, write(tmp_path_factory.mktemp("golden"), request.param)


@pytest.mark.parametrize("kv", golden.KV)
def test_golden_logits(model, kv):
    fmt, path = model
    assert golden.logits_hash(path, kv=kv) == WANT[f"{fmt}/{kv}"]


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("chunk", [1, 7, 32, 256])
def test_threads_and_chunks(model, threads, chunk):
    fmt, path = model
    assert golden.logits_hash(path, kv="f16", threads=threads, chunk=chunk) == WANT[f"{fmt}/f16"]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("chunk", [1, 7, 256])
def test_a_q8_cache_under_any_split(tmp_path, threads, chunk):
    path = golden.write_model(tmp_path, "q4_k")
    assert golden.logits_hash(path, kv="q8_0", threads=threads, chunk=chunk) == WANT["q4_k/q8_0"]


def test_layers_whose_heads_differ_very_much(tmp_path):
    """One layer of 16,384 heads on one key, one with a head of 16,384 channels: room for each, which the product of both is not."""
    wide = topology("x", hidden=32, layers=2, heads=1 << 14, kv_heads=1, head_dim=2, vocab=64, intermediate=32, qk_norm=None, rope_dim=2)
    wide["layers"][1]["attn"] |= {"heads": 1, "kv_heads": 1, "head_dim": 1 << 14, "rope": None}
    write_random(tmp_path / "m.colibri", wide, "q4_0")
    models = (Model.load(tmp_path / "m.colibri", threads=t, ctx=64, chunk=c) for t, c in ((1, 1), (1, 8), (2, 32)))
    first, *others = (m.logits(range(20)) for m in models)
    assert np.isfinite(first).all() and all(np.array_equal(first, o) for o in others)


@pytest.mark.parametrize("isa", available_isas())
def test_every_isa_of_this_machine(isa):
    done = subprocess.run([sys.executable, golden.__file__, "--check"], env={**os.environ, "COLIBRI_EDGE_ISA": isa},
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().endswith(f"{len(WANT)} passed, 0 failed")


def test_warm_start_equals_cold_start(model):
    _, path = model
    ids = golden.prompt().tolist()
    m = Model.load(path, kv="f16", chunk=32)
    cold = m.logits(ids)[-1]
    m.logits([1, 2, 3])
    assert m._prefill(ids) == 0
    assert np.array_equal(m.session.logits_view(), cold)
    assert m._prefill(ids) == len(ids) - 1              # the same prompt again: only its last token is computed
    assert np.array_equal(m.session.logits_view(), cold)
    other = ids[:40] + [7, 8, 9]
    assert m._prefill(other) == 40
    warm = m.session.logits_view().copy()
    m.reset()
    m._prefill(other)
    assert np.array_equal(m.session.logits_view(), warm)


def test_rewind_gives_the_same_bits(model):
    _, path = model
    ids = golden.prompt()
    m = Model.load(path)
    m.session.feed(ids[:50])
    first = m.session.logits_view().copy()
    m.session.feed(ids[50:])
    m.session.rewind(30)
    m.session.feed(ids[30:50])
    assert np.array_equal(m.session.logits_view(), first)


@pytest.mark.parametrize("policy", ["next", "lfu", "lru"])
@pytest.mark.parametrize("slots", [3, 5, 13, 24])
@pytest.mark.parametrize("threads", [1, 2])
def test_streamed_experts_give_the_same_bits(model, slots, policy, threads):
    """Placement changes speed, never results: any number of slots from top_k on, any policy, direct reads or buffered ones."""
    fmt, path = model
    program = Program(ColibriFile(path), "stream", slots, policy, direct=slots != 5)
    session = Session(program, 100, threads, "f16", 32)
    ids = golden.prompt()
    out = np.empty((len(ids), program.vocab), np.float32)
    session.all_logits(ids, out)
    assert hashlib.sha256(out.tobytes()).hexdigest() == WANT[f"{fmt}/f16"]
    stats = program.store.stats()
    assert stats["expert_misses"] > 0 and stats["bytes_read"] > 0


def test_weights_in_ram_give_the_same_bits(model):
    fmt, path = model
    assert golden.logits_hash(path, kv="f16", weights="ram") == WANT[f"{fmt}/f16"]
