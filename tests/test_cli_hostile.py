"""The command line against wrong use and damaged things: a clear line, the right exit code, no traceback, no hang."""
from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

import colibri_edge
from colibri_edge.apps import cli


@pytest.fixture
def refused(capfd, monkeypatch):
    """refused(code, *argv, stdin=b"") -> the error, after checking that it is one and goes to stderr only."""

    def run(want: int, *argv, stdin: bytes = b"") -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        code = cli.main([str(a) for a in argv])
        out, err = capfd.readouterr()
        assert (code, out) == (want, ""), err
        assert err.startswith("colibri-edge: error: ") and "Traceback" not in err and "internal error" not in err
        return err.removeprefix("colibri-edge: error: ").rstrip("\n")

    return run


USAGE = [
    ([], "COMMAND"), (["fly"], "'fly'"), (["--wings"], "COMMAND"), (["run"], "MODEL"),
    (["run", "M", "--wings"], "--wings"),
    (["run", "M", "-p"], "-p"), (["run", "M", "-p", "a", "-f", "b"], "not allowed"), (["run", "M", "extra"], "extra"),
    (["run", "M", "-p", ""], "empty"), (["run", "M"], "empty"), (["run", "M", "-p", "-"], "empty"),
    (["run", "M", "-p", "a", "--raw", "--system", "b"], "--system"), (["run", "M", "-p", "\udcff"], "UTF-8"),
    (["run", "M", "-p", "a", "--system", "\udcff"], "UTF-8"), (["run", "M", "-p", "a", "--max", "3"], "--max"),
    (["convert"], "SRC"), (["convert", "a"], "DST"), (["convert", "a", "b", "--quant", "q1"], "q1"),
    (["info"], "MODEL"), (["verify"], "MODEL"), (["config"], "--version"),
    *((["run", "M", "-p", "a", flag, value], value) for flag, values in {
        "-n": ("0", "-1", "1e12", "abc", "1.5", ""), "--temp": ("-1", "nan", "inf", "warm"),
        "--top-p": ("-0.1", "1.1", "nan"),
        "--top-k": ("-1", "1.5"), "--min-p": ("-1", "2"), "--repeat-penalty": ("0", "-1", "nan"),
        "--seed": ("-1", "x", "18446744073709551616"), "--stop": ("",), "-t": ("0", "-1", "257", "two"),
        "--ram": ("0", "2 lots", "nan", "inf", "1e400"), "--ctx": ("0", "-5", "4k"), "--kv": ("f8",),
    }.items() for value in values),
]


@pytest.mark.parametrize("argv, named", USAGE, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_wrong_usage(refused, argv, named):
    message = refused(2, *argv)
    assert named in message.encode("utf-8", "backslashreplace").decode() and "\n" not in message


@pytest.fixture
def things(tmp_path, tiny_model):
    """Things that are no model, by name."""
    raw = tiny_model.read_bytes()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "empty.gguf").write_bytes(b"")
    (tmp_path / "empty.colibri").write_bytes(b"")
    (tmp_path / "text.colibri").write_text("once upon a time")
    (tmp_path / "cut.colibri").write_bytes(raw[:-1000])
    (tmp_path / "stub.colibri").write_bytes(raw[:20])
    (tmp_path / "long.colibri").write_bytes(raw + b"\0")
    (tmp_path / "meta.colibri").write_bytes(raw[:100] + bytes([raw[100] ^ 4]) + raw[101:])
    (tmp_path / "folder").mkdir()
    (tmp_path / "badjson").mkdir()
    (tmp_path / "badjson" / "config.json").write_text("{")
    os.mkfifo(tmp_path / "fifo")
    os.mkfifo(tmp_path / "fifo.gguf")
    os.symlink("nowhere", tmp_path / "link")
    return tmp_path


THINGS = ["missing", "empty", "empty.gguf", "empty.colibri", "text.colibri", "cut.colibri", "stub.colibri",
          "long.colibri", "meta.colibri", "folder", "badjson", "fifo", "fifo.gguf", "link"]


@pytest.mark.parametrize("thing", THINGS)
def test_no_model(refused, things, thing):
    path = things / thing
    convert = ["convert", path, things / "out.colibri"]
    for argv in (["run", path, "-p", "hi"], ["info", path], ["verify", path], convert):
        message = refused(1, *argv)
        assert thing in message and "\n" not in message
    assert not (things / "out.colibri").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is readable to root")
def test_unreadable(refused, tiny_model, tmp_path):
    path = tmp_path / "secret.colibri"
    path.write_bytes(tiny_model.read_bytes())
    path.chmod(0)
    for command in ("info", "verify"):
        assert "ermission" in refused(1, command, path)


def test_model_in_a_device(refused):
    for command in ("info", "verify"):
        assert "neither a file nor a folder" in refused(1, command, os.devnull)


def test_every_section_is_guarded(refused, tiny_model, tmp_path):
    """A flipped bit in any record is found by verify, and by run as soon as the record is used."""
    from colibri_edge.file import ColibriFile

    with ColibriFile(tiny_model) as f:
        spots = {name: t.offset + t.length // t.count // 2 for name, t in f.tensors.items()}
        spots["tokenizer"] = f.tokenizer[0] + f.tokenizer[1] // 2
    raw = bytearray(tiny_model.read_bytes())
    bad = tmp_path / "bad.colibri"
    for name, at in spots.items():
        raw[at] ^= 0x10
        bad.write_bytes(raw)
        raw[at] ^= 0x10
        assert name in refused(1, "verify", bad)
        if not name.endswith(".experts"):
            assert "damaged" in refused(1, "run", bad, "-p", "hi")
    assert "damaged" in refused(1, "info", bad)     # the last one is the tokenizer


def test_damaged_expert_is_named_at_its_first_use(capfd, tiny_model, tmp_path):
    from colibri_edge.file import ColibriFile

    raw = bytearray(tiny_model.read_bytes())
    with ColibriFile(tiny_model) as f:
        t = f.tensor("layers.1.experts")
        for e in range(t.count):
            raw[t.offset + e * t.stride] ^= 1
    (tmp_path / "bad.colibri").write_bytes(raw)
    assert cli.main(["run", str(tmp_path / "bad.colibri"), "-p", "hi"]) == 1
    out, err = capfd.readouterr()
    assert "layer 1, expert" in err and err.count("\n") == 1


def test_prompt_faults(refused, tiny_model, tmp_path):
    assert "0xff" in refused(1, "run", tiny_model, stdin=b"ab\xff")
    (tmp_path / "latin").write_bytes("grün".encode("latin-1"))
    assert "byte 2" in refused(1, "run", tiny_model, "-f", tmp_path / "latin")
    assert "No such file" in refused(1, "run", tiny_model, "-f", tmp_path / "none")
    assert "directory" in refused(1, "run", tiny_model, "-f", tmp_path)
    assert "empty" in refused(2, "run", tiny_model, "-f", os.devnull)
    assert "16 MiB" in refused(1, "run", tiny_model, "-f", "/dev/zero")
    assert "16 MiB" in refused(1, "run", tiny_model, stdin=bytes(17 << 20))
    message = refused(1, "run", tiny_model, stdin=b"all the lamps in the hall " * 5000)
    assert "160" in message and "tokens" in message


def test_limits_are_refused_with_what_was_found(refused, tiny_model):
    table = refused(1, "run", tiny_model, "-p", "hi", "--ram", "1KiB")
    for word in ("weights", "KV cache", "sum", "ceiling"):
        assert word in table
    assert "161" in refused(1, "run", tiny_model, "-p", "hi", "--ctx", "161")


def test_bad_environment(tiny_model):
    done = subprocess.run([sys.executable, "-m", "colibri_edge", "run", tiny_model, "-p", "hi"], capture_output=True,
                          text=True, env={**os.environ, "COLIBRI_EDGE_ISA": "abacus"})
    assert done.returncode == 1 and "abacus" in done.stderr and done.stderr.count("\n") == 1


def test_debug_shows_the_traceback(capfd, monkeypatch):
    monkeypatch.setenv("COLIBRI_EDGE_DEBUG", "1")
    assert cli.main(["info", "/nowhere"]) == 1
    err = capfd.readouterr().err
    assert "Traceback" in err and "colibri-edge: error: " in err


def test_api_refuses_too(tiny_model):
    m = colibri_edge.Model.load(tiny_model)
    for kw in ({"temperature": -1}, {"top_p": 2}, {"top_k": -1}, {"stop": [""]}):
        with pytest.raises(ValueError):
            m.generate("hi", 4, **kw)
    for n in (0, -1, 1.5, "5", True):
        with pytest.raises(ValueError, match="max_tokens"):
            m.generate("hi", n)
    with pytest.raises(ValueError, match="empty"):
        m.generate("", 4)
