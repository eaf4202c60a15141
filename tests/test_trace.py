"""Routing traces: what `run --trace` writes, what the viewer draws of it, and damaged files."""
from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import pytest

from colibri_edge import trace
from colibri_edge.apps import cli
from colibri_edge.apps import heatmap as viewer


@pytest.fixture
def recorded(tiny_model, tmp_path, capsys):
    """(file, facts of the run) of a run of the tiny model."""
    path = tmp_path / "run.trace"
    assert cli.main(["run", str(tiny_model), "-p", "turn on the lamp", "-n", "12", "--json", "--trace", str(path)]) == 0
    return path, json.loads(capsys.readouterr().out)


def test_a_run_records_every_choice(recorded):
    path, facts = recorded
    t = trace.read(path)
    fed = facts["prompt_tokens"] + facts["completion_tokens"] - 1    # the last token is not fed
    assert (t.model, t.layers, t.experts, t.prompt_tokens) == ("qwen3_moe", [0, 1], [12, 12], facts["prompt_tokens"])
    assert [n for n, _ in t.rows].count(0) == [n for n, _ in t.rows].count(1) == fed
    assert all(len(set(chosen)) == 2 for _, chosen in t.rows)
    assert [int(u.sum()) for u in t.use()] == [2 * fed] * 2
    assert facts["expert_hits"] >= 2 * 2 * facts["completion_tokens"] - 4


def decode(raw: bytes) -> np.ndarray:
    """A PNG's pixels, read with nothing but the standard: chunks with right checksums, filter 0."""
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, []
    while at < len(raw):
        (n,), kind = struct.unpack(">I", raw[at:at + 4]), raw[at + 4:at + 8]
        data = raw[at + 8:at + 8 + n]
        assert struct.unpack(">I", raw[at + 8 + n:at + 12 + n])[0] == zlib.crc32(kind + data)
        chunks.append((kind, data))
        at += 12 + n
    assert [k for k, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colours, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, colours, rest) == (8, 2, [0, 0, 0])
    rows = np.frombuffer(zlib.decompress(chunks[1][1]), np.uint8).reshape(height, 3 * width + 1)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_the_picture_is_brightest_where_most_was_chosen(recorded, tmp_path, capsys):
    path, _ = recorded
    assert cli.main(["trace", str(path), "-o", str(tmp_path / "x.png"), "--cell", "8"]) == 0
    assert "busiest eighth" in capsys.readouterr().out
    pixels, use = decode((tmp_path / "x.png").read_bytes()), trace.read(path).use()
    assert pixels.shape == (2 * 8 + viewer.MARGIN // 2, 12 * 8 + viewer.MARGIN, 3)
    light = [[int(pixels[8 * n + 4, viewer.MARGIN + 8 * e + 4].sum()) for e in range(12)] for n in range(2)]
    for n in range(2):
        order = np.argsort(use[n], kind="stable")
        assert all(light[n][a] <= light[n][b] for a, b in zip(order, order[1:], strict=False) if use[n][a] < use[n][b])
    assert max(map(max, light)) == int(viewer.COLOURS[-1].sum())
    outside = pixels[:, :viewer.MARGIN]
    assert (outside == 60).any() and set(np.unique(outside)) == {60, 255}     # numbers of the layers


def test_figures_as_json(recorded, capsys):
    path, _ = recorded
    assert cli.main(["trace", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["layers"]
    use = trace.read(path).use()
    for row, counts in zip(rows, use, strict=True):
        p = counts[counts > 0] / counts.sum()
        assert row["counts"] == counts.tolist() and row["unused"] == int((counts == 0).sum())
        assert row["entropy_bits"] == pytest.approx(-(p * np.log2(p)).sum(), abs=1e-3)
        assert row["busiest_eighth"] == pytest.approx(np.sort(counts)[::-1][:2].sum() / counts.sum(), abs=1e-4)
    assert not path.with_suffix(".png").exists()


def test_layers_of_different_width(tmp_path):
    picture = viewer.draw([3, 7], [np.array([1, 0]), np.array([0, 0, 0, 5])], cell=10)
    assert (picture[5, viewer.MARGIN + 35] == 255).all()             # an expert that the first layer does not have
    assert (picture[15, viewer.MARGIN + 35] == viewer.COLOURS[-1]).all()


@pytest.mark.parametrize("raw, words", [
    (b"", "no trace"), (b"{}\n", "no trace"), (b'{"format": "colibri-trace", "version": 1}\n', "no trace"), (b"\xff" * 40, "no trace"),
    (b'{"format": "colibri-trace", "version": 1, "model": "m", "layers": [0], "experts": [4], "prompt_tokens": 1}\n0 1 4\n', "line 2"),
    (b'{"format": "colibri-trace", "version": 1, "model": "m", "layers": [0], "experts": [4], "prompt_tokens": 1}\n0 1\n1 2\n', "line 3"),
    (b'{"format": "colibri-trace", "version": 1, "model": "m", "layers": [0], "experts": [4], "prompt_tokens": 1}\n0 x\n', "line 2"),
    (b'{"format": "colibri-trace", "version": 1, "model": "m", "layers": [], "experts": [], "prompt_tokens": 1}\n', "no layer with"),
])
def test_damaged_traces(tmp_path, raw, words, capsys):
    (tmp_path / "t").write_bytes(raw)
    assert cli.main(["trace", str(tmp_path / "t")]) == 1
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1


def test_a_trace_that_cannot_be_written_is_found_before_the_answer(tiny_model, tmp_path, capsys):
    assert cli.main(["run", str(tiny_model), "-p", "x", "-n", "3", "--trace", str(tmp_path / "no" / "t")]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and "No such file" in captured.err
