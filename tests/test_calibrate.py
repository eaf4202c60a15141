"""2-bit experts, their calibration, and 4-bit files put into 2 bits; references: transformers, torch, numpy."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tinymodels as tiny

from colibri_edge.apps import calibrate as cal
from colibri_edge.convert import convert
from colibri_edge.convert.formats import dequantise, quantise
from colibri_edge.file import ColibriFile
from colibri_edge.model import Model

TEXT = "The lamp in the kitchen is on. Turn it down to thirty percent at seven, and close the blinds in the hall. " * 12


def cli(*args) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "colibri_edge", *map(str, args)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny.build(tiny.BY_NAME["qwen3_moe-top2"], tmp_path_factory.mktemp("moments") / "hf")


def test_moments_are_those_of_transformers(folder, tmp_path):
    import torch

    ids = tiny.prompt(40)
    m = Model.load(convert(folder, tmp_path / "m.colibri", "f32").path, threads=2, chunk=16)
    m.session.start_moments()
    m.session.feed(ids)
    got = m.session.moments()
    reference, inputs = tiny.load(folder), {}
    sparse = [n for n, layer in enumerate(reference.model.layers) if hasattr(layer.mlp, "experts")]
    for n in sparse:
        reference.model.layers[n].mlp.register_forward_pre_hook(lambda _, args, n=n: inputs.__setitem__(n, args[0].detach()[0]))
    tiny.reference_logits(reference, ids)
    assert len(got) == len(sparse)
    for n, (hidden, rows) in zip(sparse, got, strict=True):
        x, mlp = inputs[n], reference.model.layers[n].mlp
        assert np.allclose(hidden, (x ** 2).sum(0).numpy(), rtol=1e-4)
        want = torch.zeros(rows.shape)
        chosen = torch.topk(x @ mlp.gate.weight.T, 2, dim=1).indices
        for e in range(len(want)):
            gate, up = (x[(chosen == e).any(1)] @ mlp.experts.gate_up_proj[e].T).chunk(2, dim=1)
            want[e] = ((torch.nn.functional.silu(gate) * up) ** 2).sum(0)
        assert np.allclose(rows, want.detach().numpy(), rtol=1e-3, atol=1e-5)


def test_divergence_is_that_of_torch(folder, tmp_path):
    import torch

    a = Model.load(convert(folder, tmp_path / "a.colibri").path, threads=1)
    b = Model.load(convert(folder, tmp_path / "b.colibri", "q2").path, threads=1)
    texts = [tiny.prompt(24, seed=s) for s in (1, 2)]
    p, q = (torch.log_softmax(torch.from_numpy(np.concatenate([m.logits(t) for t in texts])).double(), 1) for m in (a, b))
    want = torch.nn.functional.kl_div(q, p, log_target=True, reduction="sum") / 48
    assert np.isclose(cal.divergence(a, b, texts), float(want), rtol=1e-9) and want > 1e-3


def test_weights_of_columns_bring_the_divergence_down(folder, tmp_path):
    """Columns whose activations differ a hundredfold, as in trained models: the weighted file is nearer to the source."""
    import torch
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "model.safetensors")
    gain = torch.exp(1.5 * torch.randn(64, generator=torch.Generator().manual_seed(1)))
    for name in state:
        if "post_attention_layernorm" in name:
            state[name] = state[name] * gain
        elif "mlp.gate.weight" in name:
            state[name] = state[name] / gain
    src = tmp_path / "hf"
    src.mkdir()
    (src / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file(state, src / "model.safetensors", {"format": "pt"})
    source = Model.load(convert(src, tmp_path / "s.colibri").path, threads=2)
    weights = cal.importance(source, [tiny.prompt(64, seed=s) for s in range(4)])
    assert weights["layers.1.experts"]["down"].shape == (12, 172) and (weights["layers.2.experts"]["gate_up"] > 0).all()
    found = []
    for columns in (None, weights):
        path = convert(tmp_path / "s.colibri", tmp_path / "q.colibri", "q2", importance=columns).path
        found.append(cal.divergence(source, Model.load(path, threads=2), [tiny.prompt(64, seed=s) for s in range(10, 14)]))
    print(found)
    assert found[1] < 0.9 * found[0]


def test_four_bit_experts_become_two_bit_ones(folder, tmp_path):
    convert(folder, tmp_path / "four.colibri", "q4_0")
    report = convert(tmp_path / "four.colibri", tmp_path / "two.colibri", "q2")
    assert report.became["q4_0"]["q2_a"] == 2 * 12 * 3 and report.classes["routed experts"][1] < report.classes["attention"][1]
    with ColibriFile(tmp_path / "four.colibri") as a, ColibriFile(tmp_path / "two.colibri") as b:
        for name, t in a.tensors.items():
            if t.kind != "experts":
                assert t.crc == b.tensor(name).crc
        for part, rows in (("gate", 172), ("down", 64)):
            x = tiny.weights(a, "layers.1.experts", part, 5)
            padded = np.pad(x, ((0, -rows % 8), (0, 0)))
            want = dequantise("q2_a", quantise("q2_a", padded), x.shape[1])[:rows]
            assert np.array_equal(tiny.weights(b, "layers.1.experts", part, 5), want)


def test_convert_calibrate(tiny_folder, tmp_path):
    text = tmp_path / "text"
    text.write_text(TEXT)
    done = cli("convert", tiny_folder, tmp_path / "m.colibri", "--quant", "q2", "--calibrate", text)
    assert done.returncode == 0, done.stderr
    assert "KL divergence from the source over" in done.stdout and "routed experts" in done.stdout
    assert [p.name for p in tmp_path.glob("*.colibri*")] == ["m.colibri"]
    with ColibriFile(tmp_path / "m.colibri") as f:
        assert {p.format for p in f.tensor("layers.0.experts").parts} == {"q2_a"}


@pytest.mark.parametrize(("quant", "name", "match"), [("q8_0", "text", "weighs affine experts only"), ("q2", "none", "is no file"),
                                                      ("q2", "short", "wanted at least")])
def test_what_cannot_calibrate_is_refused(tiny_folder, tmp_path, quant, name, match):
    (tmp_path / "text").write_text(TEXT)
    (tmp_path / "short").write_text("Too short.")
    done = cli("convert", tiny_folder, tmp_path / "m.colibri", "--quant", quant, "--calibrate", tmp_path / name)
    assert done.returncode == (2 if quant == "q8_0" else 1) and match in done.stderr and not list(tmp_path.glob("*.colibri*"))
