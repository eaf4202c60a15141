"""Streamed experts: faults of the disk, the budget, refusals. The bits are in test_exactness.py."""
import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
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


def test_a_mapped_file_that_is_cut_is_an_error_not_a_crash(path, want, tmp_path):
    """The pages behind the new end are gone: zeros and a note instead of SIGBUS, then an error; other mappings go on."""
    copy = tmp_path / "copy.colibri"
    copy.write_bytes(path.read_bytes())
    m, other = Model.load(copy, kv="f16"), Model.load(path, kv="f16")
    assert m.program.weights == "map" and np.array_equal(m.logits(golden.prompt()), want)
    with open(copy, "r+b") as f:
        f.truncate(ColibriFile(path).tensor("layers.0.experts").offset)
    for _ in range(2):
        with pytest.raises(FileError, match="was cut while it was in use"):
            m.logits(golden.prompt())
    assert np.array_equal(other.logits(golden.prompt()), want)


def test_a_fault_elsewhere_still_ends_the_process(tmp_path):
    """The handler takes faults of model files only."""
    code = ("import mmap, sys\nimport numpy as np\nfrom colibri_edge.model import Model\nm = Model.load(sys.argv[1], kv='f16')\n"
            "m.logits([1])\nf = open(sys.argv[2], 'w+b')\nf.truncate(8192)\na = np.frombuffer(mmap.mmap(f.fileno(), 8192), np.uint8)\n"
            "f.truncate(0)\nprint('before', flush=True)\nprint(a[5000])")
    model = golden.write_model(tmp_path, "q8_0")
    done = subprocess.run([sys.executable, "-c", code, model, tmp_path / "x"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "before\n")


@pytest.mark.parametrize("weights", ["map", "stream"])
def test_a_file_replaced_or_unlinked_while_it_runs_is_the_old_one(path, want, tmp_path, weights):
    copy, fresh = tmp_path / "copy.colibri", tmp_path / "fresh.colibri"
    copy.write_bytes(path.read_bytes())
    fresh.write_bytes(bytes(len(path.read_bytes())))
    s = Session(Program(ColibriFile(copy), weights, 6), 100, 2, "f16", 32)
    os.replace(fresh, copy)
    assert np.array_equal(run(s), want)
    copy.unlink()
    s.rewind(0)
    assert np.array_equal(run(s), want)


def test_stopped_and_continued(path, want, tmp_path):
    """SIGSTOP in the middle of streaming, then SIGCONT: it goes on right."""
    code = ("import sys, hashlib\nsys.path.insert(0, sys.argv[2])\nimport test_store as t\nfrom pathlib import Path\n"
            "s = t.session(Path(sys.argv[1]), 3)\nprint('go', flush=True)\n"
            "for _ in range(30):\n    s.rewind(0)\n    x = t.run(s)\nprint(hashlib.sha256(x.tobytes()).hexdigest())")
    child = subprocess.Popen([sys.executable, "-c", code, path, Path(__file__).parent], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "go\n"
    for _ in range(3):
        time.sleep(0.1)
        child.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        child.send_signal(signal.SIGCONT)
    out, _ = child.communicate(timeout=120)
    assert (child.returncode, out.strip()) == (0, hashlib.sha256(want.tobytes()).hexdigest())


@pytest.mark.parametrize("slots", [3, 6, 13, 23])
def test_reading_ahead_never_changes_a_bit(path, want, slots):
    s = Session(Program(ColibriFile(path), "stream", slots), 100, 2, "f16", 32, prefetch=True)
    out = np.empty_like(want)
    for i, token in enumerate(golden.prompt()):     # one by one: only then the next layer's choice is guessed
        s.feed((token,))
        out[i] = s.logits_view()
    assert np.array_equal(out, want)
    stats = s.program.store.stats()
    assert 0 <= stats["guesses_used"] <= stats["guesses"] and (stats["guesses"] > 0 or slots == 3)


@pytest.mark.parametrize("fault", [EIO, CUT])
def test_a_guess_that_fails_matters_only_when_it_was_right(path, want, fault):
    s = Session(Program(ColibriFile(path), "stream", 12), 100, 2, "f16", 32, prefetch=True)
    failed = 0
    for token, row in zip(golden.prompt(), want, strict=True):
        s.program.store.inject(fault, 1)
        try:
            s.feed((token,))
        except (OSError, FileError):
            failed += 1
            s.program.store.inject(0, 0)
            s.feed((token,))
        assert np.array_equal(s.logits_view(), row)
    assert failed


@pytest.mark.parametrize("slots", [4, 8])
def test_sessions_of_one_program_in_threads_of_their_own(path, want, slots):
    """They share the slots: a pass must not lose what another one needs in them."""
    program = Program(ColibriFile(path), "stream", slots)
    sessions = [Session(program, 100, 1, "f16", 32) for _ in range(3)]
    sessions.append(sessions[0].copy())
    right = [0] * len(sessions)

    def work(i: int) -> None:
        for _ in range(3):
            sessions[i].rewind(0)
            for token, row in zip(golden.prompt()[:30], want, strict=False):
                sessions[i].feed((token,))
                right[i] += np.array_equal(sessions[i].logits_view(), row)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(sessions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert right == [90] * len(sessions)


def test_what_is_known_is_fetched_before_it_is_asked_for(path, want):
    s = session(path, 8)
    s.program.store.learn([[0, 9, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0], [7] * 12], 10)
    assert np.array_equal(run(s), want)
    assert s.program.store.stats()["guesses"] == 8
    assert s.program.store.tokens == golden.TOKENS and all(sum(c) == 3 * golden.TOKENS for c in s.program.store.counts())


@pytest.mark.parametrize("fmt", ["f32", "bf16", "q4_0", "q6_k"])
def test_rows_of_the_embedding_from_the_file(tmp_path, fmt):
    """The same bits as from memory; what the image leaves out is the embedding."""
    path = golden.write_model(tmp_path, fmt)
    want = Model.load(path, kv="f16").logits(golden.prompt())
    s = session(path, embed_rows=True)
    assert np.array_equal(run(s), want)
    s.program.verify_resident()
    for token, row in zip(golden.prompt()[:5], want, strict=False):
        s.rewind(0) if token == golden.prompt()[0] else None
        s.feed((token,))
        assert np.array_equal(s.logits_view(), row)
    s.program.store.inject(EIO, 0)
    s.rewind(0)
    with pytest.raises(OSError, match="embedding of token") as fault:    # which of the reads in flight fails is the readers' business
        s.feed(golden.prompt())
    assert int(re.search(r"token (\d+) cannot be read", str(fault.value))[1]) in golden.prompt()
    assert np.array_equal(run(s), want)


def test_large_embeddings_stay_in_the_file_under_a_ceiling(path, want, monkeypatch):
    file = ColibriFile(path)
    need = budget.need(file, Program(file), 96, "f16", 32, 2)
    ram = sum(need.values()) - need["routed experts"] // 2 + (1 << 20)
    monkeypatch.setattr(limits, "rss_bytes", lambda: need["Python"] - budget.LATER_BYTES + (1 << 20))
    before = budget.place(file, Program(file), ctx=96, kv="f16", chunk=32, threads=2, ram=ram)
    assert not before.embed_rows
    monkeypatch.setattr(budget, "ROWS_FROM", 1)
    placed = budget.place(file, Program(file), ctx=96, kv="f16", chunk=32, threads=2, ram=ram)
    assert placed.embed_rows and placed.need["resident weights"] == before.need["resident weights"] - file.tensor("embed").length
    m = Model.load(path, ram=ram, ctx=96, kv="f16", chunk=32, threads=2, learn=False)
    assert m.program.embed_rows and np.array_equal(m.logits(golden.prompt()), want)
    with pytest.raises(ValueError, match="embed_rows needs"):
        Program(file, "map", embed_rows=True)


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


def test_fewer_slots_than_a_token_takes(path):
    with pytest.raises(ValueError, match="slots for streamed experts"):
        Program(ColibriFile(path), "stream", 1)


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names that are no UTF-8")
def test_a_folder_whose_name_is_no_text(path, want, tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    (folder / "m.colibri").write_bytes(path.read_bytes())
    assert np.array_equal(run(session(folder / "m.colibri")), want)
