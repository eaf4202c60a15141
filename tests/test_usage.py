"""The usage file beside a model: what it says changes speed only, what is wrong with it is left aside, what it holds is whole or old."""
from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from colibri_edge import budget, limits, usage
from colibri_edge.apps import cli
from colibri_edge.core.store import POLICIES
from colibri_edge.engine import Program
from colibri_edge.file import ColibriFile
from colibri_edge.model import Model

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import make_golden as golden  # noqa: E402

EXPERTS = [12, 12]      # of the golden model's sparse layers


@pytest.fixture(autouse=True)
def steady(monkeypatch):
    """The memory of this process, which other tests let grow and shrink, counts in every ceiling: here as a constant."""
    monkeypatch.setattr(limits, "rss_bytes", lambda: 64 << 20)


@pytest.fixture
def path(tmp_path):
    return golden.write_model(tmp_path, "q4_0")


def tight(path, less: int = 14, **kw) -> Model:
    """The model with that many experts fewer than it has in memory."""
    file = ColibriFile(path)
    need = budget.need(file, Program(file), 96, "f16", 32, 2)
    ram = sum(need.values()) - less * max(t.stride for t in budget.routed(file))
    return Model.load(path, ram=ram, ctx=96, kv="f16", chunk=32, threads=2, **kw)


@pytest.mark.parametrize("weights", ["map", "ram"])
def test_weights_that_stay_in_memory_heed_the_ceiling(path, weights):
    """--ram is a ceiling whatever --weights says: refused where only streaming would fit, taken where all of it fits."""
    with pytest.raises(ValueError, match=f"weights='{weights}' holds all experts in memory, .* leave weights at 'auto'"):
        tight(path, weights=weights)
    assert tight(path, 0, weights=weights).program.weights == weights
    with pytest.raises(budget.DoesNotFit):
        Model.load(path, ram=1 << 20, weights=weights)


def test_learned_counts_never_change_a_bit(path):
    want = Model.load(path, kv="f16").logits(golden.prompt())
    first = tight(path)
    assert np.array_equal(first.logits(golden.prompt()), want)
    assert first.usage_note is None and first.save_usage() is None
    learned = usage.read(usage.beside(path), EXPERTS)
    assert learned.tokens == golden.TOKENS
    whole = Model.load(path, kv="f16")
    whole.session.start_trace(golden.TOKENS)
    whole.logits(golden.prompt())
    asked = Counter((n, e) for n, chosen in whole.session.routing() for e in chosen)
    assert {(n, e): uses for n, row in enumerate(learned.counts) for e, uses in enumerate(row) if uses} == asked
    for file in (learned.counts, [[0] * 11 + [9]] * 2, [[1 << 53] * 12] * 2, [[0] * 12] * 2):
        usage.write(usage.beside(path), usage.Usage(file, 7))
        for policy in POLICIES:
            for prefetch in (False, True):
                m = tight(path, policy=policy, prefetch=prefetch)
                assert m.program.weights == "stream"
                assert np.array_equal(m.logits(golden.prompt()), want)


def test_a_second_run_begins_with_the_hot_experts(path):
    usage.write(usage.beside(path), usage.Usage([[5, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 7], [0] * 11 + [8]], 10))
    m = tight(path)
    assert m.stats()["guesses"] == 4
    again = tight(path, learn=False)
    assert again.stats()["guesses"] == 0 and again.save_usage() is None


def test_chat_takes_the_options_of_the_machine(monkeypatch):
    """What `chat --help` offers reaches the model, as with `run`."""
    seen = {}

    def load(path, **options):
        seen.update(options)
        raise ValueError("far enough")

    monkeypatch.setattr(Model, "load", load)
    options = ["-t", "3", "--ram", "1GiB", "--ctx", "99", "--kv", "q8_0", "--weights", "map", "--policy", "lru", "--prefetch", "--no-usage"]
    for command in (["chat", "demo"], ["run", "demo", "-p", "x"]):
        seen.clear()
        assert cli.main([*command, *options]) == 1
        assert seen == {"threads": 3, "ram": 1 << 30, "ctx": 99, "kv": "q8_0", "weights": "map", "policy": "lru", "prefetch": True,
                        "learn": False}


def test_counts_add_up_and_old_ones_fade():
    old = usage.Usage([[10, 0], [4, 4]], 100)
    assert usage.merge(old, [[1, 2], [3, 4]], 10) == usage.Usage([[11, 2], [7, 8]], 110)
    assert usage.merge(usage.Usage(None), [[1, 2]], 3) == usage.Usage([[1, 2]], 3)
    many = usage.merge(usage.Usage([[1000, 0]], 10 * usage.KEEP_TOKENS), [[0, 1]], 1)
    assert 90 <= many.counts[0][0] <= 110 and many.counts[0][1] == 1 and many.tokens <= 1.1 * usage.KEEP_TOKENS


@pytest.mark.parametrize("raw", [
    b"", b"{", b"[1]", b"\xff\xfe", b"null", b"NaN", b'{"format": "colibri-usage"}', b"[" * 100_000,
    b'{"format": "colibri-usage", "version": 2, "tokens": 1, "counts": [[1,1,1,1,1,1,1,1,1,1,1,1],[1,1,1,1,1,1,1,1,1,1,1,1]]}',
    json.dumps({"format": "colibri-usage", "version": 1, "tokens": 1, "counts": [[1] * 12, [1] * 11]}).encode(),
    json.dumps({"format": "colibri-usage", "version": 1, "tokens": 1, "counts": [[1] * 12, [-1] * 12]}).encode(),
    json.dumps({"format": "colibri-usage", "version": 1, "tokens": 1, "counts": [[1] * 12, [0.5] * 12]}).encode(),
    json.dumps({"format": "colibri-usage", "version": 1, "tokens": True, "counts": [[1] * 12, [1] * 12]}).encode(),
    json.dumps({"format": "colibri-usage", "version": 1, "tokens": 1 << 99, "counts": [[1] * 12, [1] * 12]}).encode(),
])
def test_what_is_wrong_is_left_aside_with_a_note(path, raw):
    usage.beside(path).write_bytes(raw)
    found = usage.read(usage.beside(path), EXPERTS)
    assert found.counts is None and "safe to delete" in found.note and "\n" not in found.note


def test_a_broken_file_is_replaced_after_a_run(tiny_model, tmp_path, capsys, monkeypatch):
    model = tmp_path / "m.colibri"
    model.write_bytes(tiny_model.read_bytes())
    monkeypatch.setattr(limits, "rss_bytes", lambda: 64 << 20)
    file = ColibriFile(model)
    need = budget.need(file, Program(file), 96, "f16", 256, 1)
    usage.beside(model).write_bytes(b"rubbish")
    command = ["run", str(model), "-p", "turn on the lamp", "-n", "4", "--ctx", "96", "-t", "1", "--ram"]
    assert cli.main([*command, str(sum(need.values()) - need["routed experts"] // 2)]) == 0
    err = capsys.readouterr().err
    assert "is left aside" in err and err.count("\n") == 1
    assert usage.read(usage.beside(model), [12, 12]).tokens > 0


def test_folders_that_cannot_be_written_and_full_disks(path, monkeypatch):
    target = usage.beside(path)
    assert usage.write(target, usage.Usage([[1] * 12] * 2, 3)) is None
    old = target.read_bytes()

    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as m:
        m.setattr(os, "fsync", full)
        assert "No space left" in usage.write(target, usage.Usage([[2] * 12] * 2, 3))
    with monkeypatch.context() as m:
        m.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(PermissionError(errno.EACCES, "denied")))
        assert usage.write(target, usage.Usage([[2] * 12] * 2, 3)) is None      # somebody else's folder: nothing to say
    assert target.read_bytes() == old
    assert [p.name for p in path.parent.iterdir() if ".tmp-" in p.name] == []


def test_a_real_limit_on_the_file_keeps_the_old_one(path):
    """The kernel refuses the write half-way (a limit on the size of files, as a full disk does)."""
    target = usage.beside(path)
    usage.write(target, usage.Usage([[1] * 12] * 2, 3))
    old = target.read_bytes()
    code = ("import sys, pathlib; from colibri_edge import usage\n"
            "print(usage.write(pathlib.Path(sys.argv[1]), usage.Usage([[10 ** 9] * 12] * 2, 3)))")
    done = subprocess.run([sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
    assert "not kept" in done.stdout
    assert target.read_bytes() == old and len(list(path.parent.iterdir())) == 2


def test_kill_9_during_the_write_leaves_a_whole_file(path):
    target = usage.beside(path)
    usage.write(target, usage.Usage([[0] * 12] * 2, 1))
    code = ("import sys, pathlib; from colibri_edge import usage\n"
            "i = 0\nprint('go', flush=True)\n"
            "while True:\n    i += 1\n    usage.write(pathlib.Path(sys.argv[1]), usage.Usage([[i] * 12] * 2, i))\n")
    seen = set()
    for n in range(6):
        child = subprocess.Popen([sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE)
        child.stdout.readline()
        time.sleep(0.02 + 0.013 * n)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        found = usage.read(target, EXPERTS)
        assert found.note is None and found.counts == [[found.tokens] * 12] * 2
        seen.add(found.tokens)
    assert len(seen) > 1
    for left in path.parent.glob("*.tmp-*"):
        os.utime(left, (1, 1))
    assert usage.write(target, usage.Usage([[0] * 12] * 2, 1)) is None
    assert list(path.parent.glob("*.tmp-*")) == []
