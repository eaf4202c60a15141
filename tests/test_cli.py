"""The command line as a person uses it: run, convert, info, verify, config, their output, their exit codes.

What goes wrong on purpose is in test_cli_hostile.py. Most tests call main() in this process; those about signals, pipes
and start-up start the command.
"""
from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from tinychat import write_folder

import colibri_edge
from colibri_edge.apps import cli

ROOT = Path(__file__).parent.parent
PROMPT = "turn on the lamp"
KEYS = {"text", "tokens", "prompt_tokens", "completion_tokens", "finish_reason", "load_s", "ttft_s", "prefill_tok_s",
        "decode_tok_s", "peak_rss_bytes", "expert_hits", "expert_misses", "bytes_read", "wait_s", "threads", "isa"}
COMMAND = [sys.executable, "-m", "colibri_edge"]


@pytest.fixture
def call(capfd):
    """call(*argv) -> (exit code, stdout, stderr) of the command, in this process."""

    def run(*argv) -> tuple[int, str, str]:
        capfd.readouterr()
        code = cli.main([str(a) for a in argv])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def facts(call, tiny_model):
    """facts(*options) -> the object that `run --json` prints for the tiny model."""

    def run(*options) -> dict:
        code, out, err = call("run", tiny_model, "--json", *options)
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


@pytest.fixture(scope="session")
def long_model(tmp_path_factory):
    """A model whose answer takes minutes."""
    folder = write_folder(tmp_path_factory.mktemp("long") / "chat", context=1 << 17)
    colibri_edge.convert(folder, folder.parent / "long.colibri", "q8_0")
    return folder.parent / "long.colibri"


# -- what a newcomer meets first ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["", *cli.COMMANDS])
def test_help(call, command):
    code, out, err = call(*([command] if command else []), "--help")
    assert (code, err) == (0, "")
    assert "usage: colibri-edge" in out
    assert "colibri-edge run demo" in out or "examples:" in out


def test_versions_agree(call):
    version = colibri_edge.__version__
    assert call("--version") == (0, f"colibri-edge {version}\n", "")
    assert call("config", "--version") == (0, f"{version}\n", "")
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == version
    assert f"version: '{version}'" in (ROOT / "meson.build").read_text()
    from colibri_edge.convert import VERSION

    assert version == VERSION


def test_starts_light():
    """--version loads neither numpy nor the engine nor what only some commands need."""
    heavy = ("numpy", "colibri_edge._native", "regex", "jinja2", "tokenizers", "psutil", "asyncio", "urllib.request")
    code = ("import sys\nfrom colibri_edge.apps.cli import main\nmain(['--version'])\n"
            f"print([m for m in {heavy!r} if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[1] == "[]"


def test_exports():
    code = ("from colibri_edge import Model, convert, isa, show_config\n"
            "import colibri_edge.convert.cache as c, colibri_edge\n"
            "assert callable(convert) and callable(colibri_edge.convert) and c.resolve and Model.load\n"
            "assert show_config()['isa'] == isa()")
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="nonsense"):
        colibri_edge.nonsense  # noqa: B018
    assert set(colibri_edge.__all__) <= set(dir(colibri_edge))


# -- run ------------------------------------------------------------------------------------------------------


def test_run_streams_only_the_answer(call, tiny_model, facts):
    text = facts("-p", PROMPT, "-n", 12)["text"]
    code, out, err = call("run", tiny_model, "-p", PROMPT, "-n", 12)
    assert (code, out, err) == (0, text if text.endswith("\n") else text + "\n", "")
    done = subprocess.run([*COMMAND, "run", tiny_model, "-p", PROMPT, "-n", "12"], capture_output=True)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, out, b"")


def test_json_keys_and_counts(facts):
    f = facts("-p", PROMPT, "-n", 9)
    assert set(f) == KEYS
    assert f["completion_tokens"] == len(f["tokens"]) == 9
    assert f["finish_reason"] == "length"
    assert f["expert_hits"] >= 8 * 2 * 2        # two layers, top-2; prefill chunks use each expert once; the last is not fed
    assert f["expert_misses"] == f["bytes_read"] == 0
    assert f["peak_rss_bytes"] > 10 << 20
    assert min(f["load_s"], f["ttft_s"], f["prefill_tok_s"], f["decode_tok_s"]) > 0
    assert f["isa"] == colibri_edge.isa()


def test_prompt_from_everywhere(facts, tmp_path, monkeypatch):
    want = facts("-p", "grüße 🐦", "-n", 5)["tokens"]
    for ending in ("", "\n", "\r\n"):
        raw = f"grüße 🐦{ending}".encode()
        (tmp_path / "prompt.txt").write_bytes(raw)
        assert facts("-f", tmp_path / "prompt.txt", "-n", 5)["tokens"] == want
        for options in ((), ("-p", "-")):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
            assert facts(*options, "-n", 5)["tokens"] == want


def test_same_text_for_any_threads_and_for_a_seed(facts):
    plain = facts("-p", PROMPT, "-n", 20, "-t", 1)
    assert plain["threads"] == 1
    assert facts("-p", PROMPT, "-n", 20, "-t", 2)["tokens"] == plain["tokens"]
    sampling = ("--temp", 1.5, "--top-p", 0.95, "--top-k", 50, "--min-p", 0.01, "--repeat-penalty", 1.1, "--seed", 7)
    drawn = [facts("-p", PROMPT, "-n", 20, *sampling)["tokens"] for _ in range(2)]
    assert drawn[0] == drawn[1] != plain["tokens"]
    assert facts("-p", PROMPT, "-n", 20, *sampling[:-1], 8)["tokens"] != drawn[0]
    assert facts("-p", PROMPT, "-n", 20, "--temp", 0, "--seed", 7)["tokens"] == plain["tokens"]


def test_stop(facts):
    text = facts("-p", PROMPT, "-n", 20)["text"]
    stop = text[4:6]
    f = facts("-p", PROMPT, "-n", 20, "--stop", "never said", "--stop", stop)
    assert f["text"] == text[:text.index(stop)]
    assert f["finish_reason"] == "stop"


def test_raw_and_system(call, facts, tmp_path):
    chat, raw = facts("-p", PROMPT, "-n", 1), facts("-p", PROMPT, "-n", 1, "--raw")
    assert raw["prompt_tokens"] < chat["prompt_tokens"] < facts("-p", PROMPT, "-n", 1, "--system", "x")["prompt_tokens"]
    bare = tmp_path / "bare.colibri"
    colibri_edge.convert(write_folder(tmp_path / "bare", template=False), bare)
    code, out, err = call("run", bare, "-p", PROMPT)
    assert (code, out) == (1, "") and "--raw" in err and err.count("\n") == 1
    assert call("run", bare, "-p", PROMPT, "--raw", "-n", 3)[0] == 0
    dumb = tmp_path / "dumb.colibri"
    colibri_edge.convert(write_folder(tmp_path / "dumb", tokenizer=False), dumb)
    code, out, err = call("run", dumb, "-p", PROMPT, "--raw")
    assert (code, out) == (1, "") and "no tokenizer" in err


def test_user_text_stays_user_text(facts):
    """FAULTS 11: a prompt that spells a control token does not become one."""
    plain = facts("-p", "hall", "-n", 1)["prompt_tokens"]
    assert facts("-p", "hall<|im_end|>", "-n", 1)["prompt_tokens"] > plain + 3


def test_timing_adds_up(call, tiny_model):
    code, out, err = call("run", tiny_model, "-p", PROMPT, "-n", 30, "--timing")
    assert code == 0 and out
    stage_lines, layer_lines = (part.splitlines() for part in err.split("\n\n"))
    rows = [re.split(r"  +", line) for line in stage_lines]
    assert rows[0] == ["stage", "prefill s", "decode s", "share"]
    assert re.fullmatch(r"routing and dispatch: [\d.]+% of prefill, [\d.]+% of decode", rows.pop()[0])
    stages = {r[0]: [float(x.rstrip("%")) for x in r[1:]] for r in rows[1:]}
    names, *layers = [re.split(r"  +", line.strip()) for line in layer_lines[:-1]]
    column = names.index("experts ms")
    assert sum(float(r[column]) for r in layers) == pytest.approx(1e3 * sum(stages["experts"][:2]), abs=0.1 + 0.005 * len(layers))
    total = stages.pop("sum")
    for i, tolerance in ((0, 0.002), (1, 0.002), (2, 1.0)):
        assert sum(s[i] for s in stages.values()) == pytest.approx(total[i], abs=tolerance)
    assert "experts" in stages and "attention" in stages
    assert all(s[i] >= 0 for s in stages.values() for i in (0, 1))


def test_context_ends_an_answer(facts):
    f = facts("-p", PROMPT, "-n", 10**12)
    assert f["finish_reason"] == "length"
    assert f["prompt_tokens"] + f["completion_tokens"] == 160 + 1       # the last token needs no room
    small = facts("-p", PROMPT, "-n", 500, "--ctx", 48)
    assert small["prompt_tokens"] + small["completion_tokens"] == 48 + 1
    assert f["tokens"][:small["completion_tokens"]] == small["tokens"]


def test_folder_and_gguf_are_converted_once(call, tmp_path, capfd):
    folder = write_folder(tmp_path / "chat")
    assert call("run", folder, "-p", PROMPT, "-n", 3)[0] == 0
    made = tmp_path / "chat.colibri"
    before = made.stat().st_mtime_ns
    assert call("run", folder, "-p", PROMPT, "-n", 3)[0] == 0
    assert made.stat().st_mtime_ns == before


def interrupt(model, *options) -> subprocess.Popen:
    """Starts a long answer and interrupts it after its first bytes."""
    child = subprocess.Popen([*COMMAND, "run", model, "-p", PROMPT, "-n", "100000", "--ctx", "120000", *options],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return child


def test_interrupt_keeps_what_was_said(long_model):
    child = interrupt(long_model, "--timing")
    first = child.stdout.read(8)
    child.send_signal(signal.SIGINT)
    start = time.monotonic()
    out, err = child.communicate(timeout=30)
    assert time.monotonic() - start < 10
    assert child.returncode == 130
    assert (first + out).endswith(b"\n")
    assert b"Traceback" not in err and b"sum" in err


def test_interrupt_with_json(long_model):
    child = interrupt(long_model, "--json", "--timing")
    time.sleep(4)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    assert b"Traceback" not in err
    if out:     # nothing is printed where the model was not loaded yet
        f = json.loads(out)
        assert f["finish_reason"] == "interrupted" and f["completion_tokens"] == len(f["tokens"])
        assert f["text"]


def test_closed_pipe_is_quiet(long_model):
    child = interrupt(long_model)
    assert child.stdout.read(8)
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait(timeout=30) == 0
    done = subprocess.run(f"{sys.executable} -m colibri_edge run --help | head -n 1", shell=True, capture_output=True)
    assert done.stderr == b""


@pytest.mark.parametrize("closed, code", [(">&-", 0), ("2>&-", 0), ("<&-", 0)])
def test_closed_streams(tiny_model, closed, code):
    line = f"{sys.executable} -m colibri_edge run {tiny_model} -p hi -n 2 {closed}"
    done = subprocess.run(line, shell=True, capture_output=True)
    assert (done.returncode, done.stderr) == (code, b"")


def test_terminal_gets_no_control_characters(monkeypatch):
    from colibri_edge.apps.run import _Output

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        out = _Output(stream)
        out.write("a\x1b[2Jb\t\x07")
        out.end("a\x1b[2Jb\t\x07c")
    assert terminal.getvalue() == "a[2Jb\tc\n"
    assert pipe.getvalue() == "a\x1b[2Jb\t\x07c\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_is_an_error(tiny_model):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "run", tiny_model, "-p", PROMPT, "-n", "3"], stdout=full,
                              stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr.startswith(b"colibri-edge: error: ") and done.stderr.count(b"\n") == 1


# -- convert, info, verify ------------------------------------------------------------------------------------


def test_convert_reports(call, tiny_folder, tmp_path):
    target = tmp_path / "out.colibri"
    code, out, err = call("convert", tiny_folder, target, "--quant", "q4_0")
    assert (code, err) == (0, "")
    assert "qwen3_moe" in out and "q4_0" in out and "f32" in out
    assert call("convert", tiny_folder, target)[0] == 0                  # a .colibri file may be written over
    other = tmp_path / "notes.txt"
    other.write_text("dear diary")
    code, out, err = call("convert", tiny_folder, other)
    assert code == 1 and "no .colibri file" in err and other.read_text() == "dear diary"
    assert call("convert", tiny_folder, tmp_path)[0] == 1
    assert call("convert", tiny_folder, tmp_path / "none" / "x.colibri")[0] == 1


def test_quants_are_the_converters():
    from colibri_edge.apps import convert
    from colibri_edge.convert import plan

    assert tuple(plan.QUANTS) == convert.QUANTS


def test_info(call, tiny_model, tiny_folder):
    code, out, err = call("info", tiny_model)
    assert (code, err) == (0, "")
    for text in ("qwen3_moe", "12 experts of width 32, 2 a token", "160 tokens", "q8_0", "300 tokens, embedding of 320",
                 "<|im_end|>", "KV cache"):
        assert text in out
    code, out, err = call("info", tiny_model, "--json")
    f = json.loads(out)
    assert f["bytes"] == tiny_model.stat().st_size
    experts = 2 * 12 * 3 * 64 * 32
    rest = 2 * 320 * 64 + 2 * (64 * 64 * 2 + 2 * 64 * 32 + 12 * 64)
    assert f["weights"] == experts + rest
    assert f["weights_active"] == experts * 2 // 12 + rest - 320 * 64
    assert 8.5 <= f["bits_per_weight"] < 9
    assert [m["context"] for m in f["memory"]] == [160]
    assert len(f["layers"]) == 2 and f["layers"][0]["experts"] == 12


def test_verify(call, tiny_model, tmp_path):
    code, out, err = call("verify", tiny_model)
    assert (code, err) == (0, "") and "sound" in out
    from colibri_edge.file import ColibriFile

    with ColibriFile(tiny_model) as f:
        t = f.tensor("layers.1.experts")
        at = t.offset + 7 * t.stride + 100
    raw = bytearray(tiny_model.read_bytes())
    raw[at] ^= 1
    bad = tmp_path / "bad.colibri"
    bad.write_bytes(raw)
    code, out, err = call("verify", bad)
    assert (code, out) == (1, "") and "layers.1.experts expert 7" in err and err.count("\n") == 1
