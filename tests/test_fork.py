"""Threads that behave: idle after an answer (FAULTS 26), usable in a forked child (FAULTS 25)."""
from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from pathlib import Path

import pytest

import colibri_edge
from colibri_edge.engine import Program, Session
from colibri_edge.file import ColibriFile

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import make_golden as golden  # noqa: E402

PROMPT = list(range(40, 90))


def test_idle_after_an_answer(tiny_model):
    model = colibri_edge.Model.load(tiny_model, threads=2)
    for _ in model.generate(PROMPT, 30):
        pass
    before = time.process_time()
    time.sleep(5)
    assert time.process_time() - before < 0.1


def in_a_child(right) -> None:
    """Fails unless right() is true in a forked child, soon."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)     # Python 3.12 and newer warn of threads at a fork
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if right() else 3
        finally:
            sys.stderr.flush()
            os._exit(code)
    limit = time.monotonic() + 60
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > limit:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail("the child hangs")
        time.sleep(0.02)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("threads", [1, 2])
def test_works_in_a_forked_child(tiny_model, threads):
    """A child goes on with its parent's model and gets the same bits; so does the parent."""
    model = colibri_edge.Model.load(tiny_model, threads=threads)
    want = model.logits(PROMPT)
    in_a_child(lambda: (model.logits(PROMPT) == want).all() and len(list(model.generate(PROMPT, 5))) == 5)
    assert (model.logits(PROMPT) == want).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("prefetch", [False, True])
def test_streams_in_a_forked_child(tmp_path, prefetch):
    """The reading threads are gone in the child, and with them what they were reading."""
    path = golden.write_model(tmp_path, "q4_0")
    want = colibri_edge.Model.load(path, kv="f16", threads=2).logits(golden.prompt())
    program = Program(ColibriFile(path), "stream", 6)
    session = Session(program, 100, 2, "f16", 16, prefetch=prefetch)

    def right() -> bool:
        session.rewind(0)
        for token, row in zip(golden.prompt(), want, strict=True):
            session.feed((token,))
            if not (session.logits_view() == row).all():
                return False
        return True

    program.store.learn([[1] * 12, [1] * 12], 10)   # reads are under way at the first fork
    in_a_child(right)
    assert right()
    in_a_child(lambda: right() and session.copy().pos == session.pos)
    assert right()


def test_many_models_come_and_go(tiny_model):
    """Threads end with their model."""
    before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
    for _ in range(20):
        colibri_edge.Model.load(tiny_model, threads=3).logits(PROMPT[:2])
    after = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
    assert after <= before + 3
