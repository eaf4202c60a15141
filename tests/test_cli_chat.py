"""`colibri-edge chat` on a real pseudo-terminal and through a pipe, and `bench --moe-only`."""
from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest
from tinychat import write_folder

import colibri_edge
from colibri_edge.apps import cli
from colibri_edge.model import Model

COMMAND = [sys.executable, "-m", "colibri_edge"]


class Terminal:
    """A chat on a pseudo-terminal: what is typed, and what comes."""

    def __init__(self, *args):
        self.master, slave = pty.openpty()
        self.child = subprocess.Popen([*COMMAND, "chat", *map(str, args)], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                      env={**os.environ, "TERM": "dumb"}, preexec_fn=lambda: __import__("fcntl").ioctl(0, 0x540E, 0))
        os.close(slave)
        self.seen = ""

    def until(self, pattern: str, seconds: float = 60) -> str:
        """Waits for a pattern in what came since the last one; returns it all."""
        end = time.monotonic() + seconds
        while not (m := re.search(pattern, self.seen, re.S)):
            ready = select.select([self.master], [], [], max(0, end - time.monotonic()))[0]
            assert ready, f"{pattern!r} did not come: {self.seen!r}"
            try:
                more = os.read(self.master, 65536)
            except OSError:
                more = b""
            assert more, f"ended before {pattern!r}: {self.seen!r}"
            self.seen += more.decode("utf-8", "replace")
        out, self.seen = self.seen[:m.end()], self.seen[m.end():]
        return out

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def interrupt(self, pattern: str) -> str:
        """Ctrl-C, again where it fell between the prompt and readline's waiting, which notices it with the next key only."""
        for _ in range(20):
            self.type("\x03")
            with contextlib.suppress(AssertionError):
                return self.until(pattern, 3)
        return self.until(pattern, 3)

    def close(self) -> int:
        code = self.child.wait(timeout=30)
        os.close(self.master)
        return code


def test_a_conversation_on_a_terminal(tmp_path):
    """History, streaming, /stats, /reset; Ctrl-C stops a long answer and the next turn works; Ctrl-D ends."""
    model = tmp_path / "long.colibri"
    colibri_edge.convert(write_folder(tmp_path / "chat", context=1 << 15), model, "q8_0")
    t = Terminal(model, "-n", "30000", "--ctx", "32000")
    t.until("> ")
    t.type("turn on the lamp\n")
    t.until(r"lamp\r\n.{20}")               # streamed: text long before the end
    t.type("\x03")
    t.until("> ")
    t.type("/stats\n")
    assert "interrupted" in t.until("threads.*> ")
    t.interrupt(r"Ctrl-D or /quit ends.*")  # at the prompt it throws the line away
    t.type("/reset\n")
    t.until("forgotten.*> ")
    t.type("/stat\n")
    t.until(r"did you mean /stats\?.*> ")
    t.type("close the blinds\n")
    t.until(r"blinds\r\n.{20}")
    os.kill(t.child.pid, signal.SIGINT)
    t.until("> ")
    t.type("\x04")
    assert t.close() == 0


def chat(model, lines: str, *options) -> subprocess.CompletedProcess:
    return subprocess.run([*COMMAND, "chat", model, *options], input=lines.encode(), capture_output=True, timeout=120)


def test_the_history_reaches_the_model(tiny_model):
    """Piped turns give what Model.chat gives for the same conversation; /reset forgets it."""
    done = chat(tiny_model, "lamp\nblinds\n/reset\nlamp\n", "-n", "6", "--temp", "0")
    assert (done.returncode, done.stderr) == (0, b"(forgotten)\n")
    model, turns, want = Model.load(tiny_model), [], ""
    for text in ("lamp", "blinds"):
        turns.append({"role": "user", "content": text})
        answer = "".join(t.text for t in model.chat(turns, 6, temperature=0))
        turns.append({"role": "assistant", "content": answer})
        want += answer + "\n"
    assert done.stdout.decode() == want + want.split("\n")[0] + "\n"


def test_old_turns_make_room(tiny_model):
    done = chat(tiny_model, "turn on the lamp in the kitchen\n" * 8, "-n", "12")
    assert done.returncode == 0 and b"oldest turns were forgotten" in done.stderr
    assert done.stdout.count(b"\n") >= 8
    long = chat(tiny_model, "x" * 400 + "\nlamp\n", "-n", "3")
    assert long.returncode == 0 and b"the context 160" in long.stderr and long.stdout


def test_a_model_that_cannot_chat(tmp_path, capfd):
    colibri_edge.convert(write_folder(tmp_path / "bare", template=False), tmp_path / "bare.colibri")
    assert cli.main(["chat", str(tmp_path / "bare.colibri")]) == 1
    assert "no chat template" in capfd.readouterr().err


# -- bench --moe-only -----------------------------------------------------------------------------------------


def test_bench_moe_only(tiny_model, capfd):
    options = ["-p", "16", "-n", "8", "-r", "2", "--json", "--no-probe"]
    assert cli.main(["bench", str(tiny_model), "--moe-only", *options]) == 0
    rows = json.loads(capfd.readouterr().out)["rows"]
    assert [r["test"] for r in rows] == ["moe pp16", "moe tg8"]
    assert all(r["tok_s_min"] <= r["tok_s"] <= r["tok_s_max"] and r["tok_s"] > 0 for r in rows)
    assert "p50_ms" in rows[1] and "p50_ms" not in rows[0]
    assert cli.main(["bench", str(tiny_model), "--moe-only", "-d", "16"]) == 2


def test_moe_only_leaves_the_sequence_alone(tiny_model):
    """Stages: no attention, no head. Position and later logits: as without it."""
    ids = [5, 9, 40, 41]
    model = Model.load(tiny_model, ctx=32)
    want = model.logits(ids)[-1]
    model.reset()
    model.session.feed(ids[:2])
    before = model.session.timing()
    hits = model.stats()["expert_hits"]
    model.session.feed_experts(ids * 3)
    after = model.session.timing()
    assert {k for k in after if after[k] > before[k]} <= {"other", "embed", "norm", "router", "dispatch", "experts", "disk"}
    assert after["experts"] > before["experts"]
    assert model.stats()["expert_hits"] > hits
    assert model.session.pos == 2
    model.session.feed(ids[2:])
    assert (model.session.logits_view() == want).all()
    with pytest.raises(ValueError, match="outside the vocabulary"):
        model.session.feed_experts([320])


def test_moe_only_work(tiny_model):
    """Bytes of a token: routed experts in use and routers, none of attention, embedding and output."""
    from colibri_edge.apps.bench import work_per_token
    from colibri_edge.file import ColibriFile

    with ColibriFile(tiny_model) as f:
        all_, moe = work_per_token(f), work_per_token(f, moe_only=True)
    assert moe["macs"] == 2 * (2 * 3 * 64 * 32 + 12 * 64)
    assert 0 < moe["bytes"] < all_["bytes"] and moe["head_bytes"] == moe["head_macs"] == 0
