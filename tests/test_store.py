"""Streamed experts: faults of the disk, the budget, refusals. The bits are in test_exactness.py."""
import sys
from pathlib import Path

import numpy as np
import pytest

from colibri_edge import budget, limits
from colibri_edge.engine import Program, Session
from colibri_edge.file import ColibriFile, FileError
from colibri_edge.model import Model

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import make_golden as golden  # noqa: E402

EIO, SHORT, EINVAL, CUT, FLIP = 1, 2, 3, 4, 5   # colibri/reader.h


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return golden.write_model(tmp_path_factory.mktemp("store"), "q4_0")


@pytest.fixture(scope="module")
def want(path):
    return Model.load(path, kv="f16").logits(golden.prompt())


def session(path, slots=6, **kw):
    return Session(Program(ColibriFile(path), "stream", slots, **kw), 100, 2, "f16", 32)


def run(s):
    ids = golden.prompt()
    out = np.empty((len(ids), s.program.vocab), np.float32)
    s.all_logits(ids, out)
    return out


@pytest.mark.parametrize("nth", [0, 1, 17])
@pytest.mark.parametrize(("fault", "error", "words"), [
    (EIO, OSError, "cannot be read"), (CUT, FileError, "cut while it was in use"), (FLIP, FileError, "is damaged"),
])
def test_a_failing_read_is_named_and_the_next_pass_is_right(path, want, fault, error, words, nth):
    s = session(path)
    s.program.store.inject(fault, nth)
    with pytest.raises(error, match=r"layer \d+, expert \d+ .*" + words):
        run(s)
    s.rewind(0)
    assert np.array_equal(run(s), want)


@pytest.mark.parametrize("fault", [SHORT, EINVAL])
def test_short_and_refused_reads_go_on_right(path, want, fault):
    """FAULT 21: a direct read that is refused falls back to a buffered one, once and for all."""
    s = session(path)
    s.program.store.inject(fault, 2)
    assert np.array_equal(run(s), want)
    assert s.program.store.stats()["direct"] is (fault == SHORT)


def test_a_damaged_record_is_found_at_its_first_read(path, tmp_path):
    data = bytearray(path.read_bytes())
    t = ColibriFile(path).tensor("layers.2.experts")
    for e in range(t.count):
        data[t.offset + e * t.stride + 100] ^= 1
    bad = tmp_path / "bad.colibri"
    bad.write_bytes(data)
    for weights in ("map", "stream"):
        s = Session(Program(ColibriFile(bad), weights, 6), 100, 1, "f16", 32)
        with pytest.raises(FileError, match=r"layer 2, expert \d+ is damaged"):
            run(s)


def test_a_file_cut_while_it_streams_is_an_error(path, tmp_path):
    copy = tmp_path / "copy.colibri"
    copy.write_bytes(path.read_bytes())
    s = session(copy, 3)
    s.feed(golden.prompt()[:4])
    with open(copy, "r+b") as f:
        f.truncate(ColibriFile(path).tensor("layers.2.experts").offset)
    with pytest.raises(FileError, match="cut while it was in use"):
        s.feed(golden.prompt()[4:40])


def test_budget_places_and_refuses(path, want):
    file = ColibriFile(path)
    program = Program(file)
    stride = max(t.stride for t in budget.routed(file))
    all_of_it = sum(budget.need(file, program, 96, "f16", 32, 2).values())
    roomy = budget.place(file, program, ctx=96, kv="f16", chunk=32, threads=2, ram=all_of_it + (8 << 20))
    assert (roomy.weights, roomy.slots) == ("map", 0)
    tight = all_of_it - 10 * stride
    placed = budget.place(file, program, ctx=96, kv="f16", chunk=32, threads=2, ram=tight)
    assert placed.weights == "stream" and 3 <= placed.slots < 24 and placed.total <= tight
    with pytest.raises(budget.DoesNotFit, match=r"ceiling +1\.0 MiB"):
        Model.load(path, ram="1MiB")


def test_model_under_a_ceiling_streams_and_says_the_same(path, want):
    file = ColibriFile(path)
    need = budget.need(file, Program(file), 96, "f16", 32, 2)
    m = Model.load(path, ram=sum(need.values()) - need["routed experts"] // 2, ctx=96, kv="f16", chunk=32, threads=2)
    assert m.program.weights == "stream"
    assert np.array_equal(m.logits(golden.prompt()), want)
    assert m.stats()["bytes_read"] > 0


def test_peak_memory_counts_what_the_ceiling_counts():
    assert 0 < limits.rss_bytes() <= limits.peak_rss_bytes()


def test_available_memory_of_a_cgroup(tmp_path):
    """FAULT 20: limit minus use plus reclaimable; "max" means none; parents count; v1 and v2."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    proc, meminfo = tmp_path / "proc", tmp_path / "meminfo"
    proc.write_text("0::/a/b\n")
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    1000000 kB\n")
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("5\n")
    (tmp_path / "a" / "memory.max").write_text("500000000\n")
    (tmp_path / "a" / "memory.current").write_text("400000000\n")
    (tmp_path / "a" / "memory.stat").write_text("anon 1\ninactive_file 300000000\n")
    assert limits.available_bytes(tmp_path, proc, meminfo) == 400_000_000
    proc.write_text("4:memory:/x\n")
    folder = tmp_path / "memory" / "x"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (folder / "memory.usage_in_bytes").write_text("5\n")
    assert limits.available_bytes(tmp_path, proc, meminfo) == 1_024_000_000
    (folder / "memory.limit_in_bytes").write_text("1000\n")
    (folder / "memory.usage_in_bytes").write_text("900\n")
    (folder / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 50\n")
    assert limits.available_bytes(tmp_path, proc, meminfo) == 150
