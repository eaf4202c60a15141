"""Quantised sources that are kept as they are: MLX folders, gpt-oss' MXFP4, flash-moe's files; and .colibri files as sources.

The references are MLX itself (golden/mlx.npz), transformers' own unpacking, and transformers on weights that numpy dequantised.
"""
from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import mlxmodels as mlx
import numpy as np
import pytest
import tinymodels as tiny

from colibri_edge.convert import ConvertError, convert, packed
from colibri_edge.convert.formats import dequantise, pack_r8, rows_to_float
from colibri_edge.convert.outline import outline
from colibri_edge.convert.safetensors import read_file
from colibri_edge.file import ColibriFile
from colibri_edge.model import Model

GOLDEN = np.load(Path(__file__).parent / "golden/mlx.npz")
CASES = sorted({k.rsplit(".", 1)[0] for k in GOLDEN.files})
PROMPT = tiny.prompt(40)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of a tiny qwen3_moe whose widths every group size divides."""
    return tiny.build(tiny.BY_NAME["qwen3_moe-wide"], tmp_path_factory.mktemp("sources") / "hf")


def load_arrays(path: Path) -> dict:
    """{name: array} of a .safetensors file; bfloat16 as uint16."""
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    kinds = {"U32": np.uint32, "F32": np.float32, "BF16": np.uint16}
    return {k: np.frombuffer(raw[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]], kinds[e["dtype"]]).reshape(e["shape"]).copy()
            for k, e in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}


def tensors(path: Path, **arrays) -> dict:
    """SourceTensors of arrays, by name (with __ for a dot)."""
    tiny.write_safetensors(path, {k.replace("__", "."): v for k, v in arrays.items()})
    return read_file(path)


@pytest.mark.parametrize("case", CASES)
def test_what_mlx_quantised_becomes_what_mlx_dequantises(tmp_path, case):
    mode, bits, group = case.split("-")
    arrays = {"m__weight": GOLDEN[case + ".codes"], "m__scales": GOLDEN[case + ".scales"]}
    if mode == "affine":
        arrays["m__biases"] = GOLDEN[case + ".biases"]
    config = {"quantization": {"bits": 4, "group_size": 64, "m": {"mode": mode, "bits": int(bits), "group_size": int(group)}}}
    t = packed.join(tensors(tmp_path / "t", **arrays), config)["m.weight"]
    assert t.format == {"8": "f32", "4": "q4_a", "2": "q2_a"}[bits] + ("32" if group == "32" and bits != "8" else "") or t.format == mode
    y = GOLDEN[case + ".y"]
    assert t.shape == y.shape
    raw = t.read(0, 8)
    assert np.allclose(rows_to_float(t.format, raw), y, rtol=2e-7, atol=1e-9)
    assert np.array_equal(dequantise(t.format, pack_r8(t.format, raw), y.shape[1]), rows_to_float(t.format, raw))
    assert np.array_equal(t.read(3, 5), raw[3:5])


def test_gpt_oss_blocks_are_unpacked_as_transformers_does(tmp_path):
    import torch
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (3, 16, 4, 16), dtype=np.uint8)
    scales = rng.integers(100, 140, (3, 16, 4), dtype=np.uint8)
    t = packed.join(tensors(tmp_path / "t", e__down_proj_blocks=blocks, e__down_proj_scales=scales), {})["e.down_proj"]
    want = convert_moe_packed_tensors(torch.from_numpy(blocks.copy()), torch.from_numpy(scales.copy()), dtype=torch.float32)
    assert t.format == "mxfp4" and t.shape == (3, 16, 128)
    got = rows_to_float("mxfp4", t.read(0, 48)).reshape(3, 16, 128)
    assert np.array_equal(got, want.numpy().swapaxes(1, 2))         # transformers turns the matrices round


def test_gpt_oss_keeps_its_experts_and_says_what_the_dequantised_weights_say(tmp_path):
    import gguf
    import torch
    from safetensors.torch import load_file, save_file

    src = tiny.build(tiny.BY_NAME["gpt_oss-wide"], tmp_path / "hf")
    state, weights = load_file(src / "model.safetensors"), {}
    for name in [n for n in state if n.endswith(("gate_up_proj", "down_proj")) and ".experts." in n]:
        w = np.ascontiguousarray(state.pop(name).float().numpy().swapaxes(1, 2))
        raw = gguf.quants.quantize(w, gguf.GGMLQuantizationType.MXFP4)
        weights[name] = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.MXFP4).swapaxes(1, 2)
        raw = raw.reshape(*w.shape[:2], -1, 17)
        codes = np.concatenate([raw[..., 1:] & 15, raw[..., 1:] >> 4], axis=-1)            # columns in their order
        state[name + "_blocks"] = torch.from_numpy(codes[..., 0::2] | codes[..., 1::2] << 4)
        state[name + "_scales"] = torch.from_numpy(np.ascontiguousarray(raw[..., 0]))
    folder = tmp_path / "mxfp4"
    folder.mkdir()
    config = json.loads((src / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    report = convert(folder, tmp_path / "m.colibri")
    assert report.became["mxfp4"].keys() == {"mxfp4"}
    median, far = close(tmp_path / "m.colibri", mlx.reference(src, weights))
    assert median <= 2e-2 and far <= 0.1, (median, far)


def close(path, reference) -> tuple[float, float]:
    """(median, share of positions over 2 %) of the relative error of the logits."""
    want = tiny.reference_logits(reference, PROMPT)
    got = Model.load(path, threads=1).logits(PROMPT)
    error = np.linalg.norm(got - want, axis=1) / np.linalg.norm(want, axis=1)
    return float(np.median(error)), float((error > 2e-2).mean())


def exact(path, reference) -> float:
    """Share of positions, over prompts of four tokens, whose logits agree to 1e-5 when transformers rounds activations as the engine
    does (a rounding that falls on the other side spoils the prompt's rest)."""
    engine, error = Model.load(path, threads=1, kv="f32"), []
    with tiny.int8_activations(reference):
        for i in range(0, 40, 4):
            want = tiny.reference_logits(reference, PROMPT[i:i + 4])
            error.extend(np.linalg.norm(engine.logits(PROMPT[i:i + 4]) - want, axis=1) / np.linalg.norm(want, axis=1))
    return float((np.array(error) <= 1e-5).mean())


@pytest.mark.parametrize(("bits", "group", "stored"), [(4, 64, "q4_a"), (4, 32, "q4_a32"), (4, 128, "q4_a"), (2, 64, "q2_a"),
                                                        (2, 32, "q2_a32"), (2, 128, "q2_a")])
def test_mlx_folders_are_kept_and_say_what_the_dequantised_weights_say(tmp_path, model, bits, group, stored):
    folder, weights = mlx.write_mlx(model, tmp_path / "mlx", bits, group)
    report = convert(folder, tmp_path / "m.colibri")
    assert report.became[stored] == {stored: report.became[stored][stored]} and set(report.became) == {stored, "f32"}
    with ColibriFile(tmp_path / "m.colibri") as f:
        for name, ours in (("model.embed_tokens.weight", "embed"), ("model.layers.1.self_attn.k_proj.weight", "layers.1.attn.k")):
            assert np.array_equal(tiny.weights(f, ours), weights[name])
        both = weights["model.layers.0.mlp.experts.gate_up_proj"][7]
        assert np.array_equal(np.concatenate([tiny.weights(f, "layers.0.experts", x, 7) for x in ("gate", "up")]), both)
        assert np.array_equal(tiny.weights(f, "layers.0.experts", "down", 7), weights["model.layers.0.mlp.experts.down_proj"][7])
    median, far = close(tmp_path / "m.colibri", mlx.reference(model, weights))
    assert median <= 1e-2 and far <= 0.1, (median, far)


MIXED = {"mlp.gate": (8, 64), "shared_expert_gate": (8, 64), "o_proj": (4, 32), "switch_mlp.down_proj": (2, 128)}


@pytest.mark.parametrize(("bits", "group"), [(4, 64), (2, 32)])
@pytest.mark.parametrize(("family", "multimodal"), [("qwen3_next", False), ("qwen3_5_moe", False), ("qwen3_5_moe", True)])
def test_mlx_folders_of_delta_rule_models_are_the_checkpoint_with_other_weights(tmp_path, family, multimodal, bits, group):
    src = tiny.build(tiny.BY_NAME[family + "-wide"], tmp_path / "hf")
    folder, weights = mlx.write_mlx(src, tmp_path / "mlx", bits, group, special=MIXED, multimodal=multimodal)
    convert(src, tmp_path / "hf.colibri")
    convert(folder, tmp_path / "m.colibri")
    with ColibriFile(tmp_path / "hf.colibri") as a, ColibriFile(tmp_path / "m.colibri") as b:
        assert a.topology == b.topology
        vectors = [n for n, t in a.tensors.items() if t.kind == "vector"]
        assert {f"layers.{n}.attn.{x}" for n, x in ((0, "conv"), (0, "out_norm"), (1, "q_norm"))} < set(vectors)
        assert all(np.array_equal(tiny.weights(a, n), tiny.weights(b, n)) for n in vectors if not n.endswith("shared_gate"))
        kept = "q4_a" if bits == 4 else "q2_a32"
        formats = {n: b.tensor("layers." + n).format for n in ("0.attn.qkv", "0.attn.z", "0.attn.o", "1.attn.q", "1.attn.o")}
        assert formats == dict.fromkeys(formats, kept) | {"1.attn.o": "q4_a32"}
        assert [p.format for p in b.tensor("layers.1.experts").parts] == [kept, "q2_a"]
        copy = tiny.dequantised_copy(b, src)
    state = dict(copy.named_parameters())
    assert all(np.array_equal(state[n].detach().numpy(), x) for n, x in weights.items())
    share = exact(tmp_path / "m.colibri", mlx.reference(src, weights))
    assert share >= 0.6, share


def test_an_mlx_folder_that_does_not_tell_its_norms_is_refused(tmp_path):
    src = tiny.build(dataclasses.replace(tiny.BY_NAME["qwen3_next-wide"], config=tiny.BY_NAME["qwen3_next-wide"].config | {
        "layer_types": ["full_attention"] * 2}), tmp_path / "hf")
    with pytest.raises(ConvertError, match="nothing tells whether its norms"):
        convert(mlx.write_mlx(src, tmp_path / "mlx")[0], tmp_path / "m.colibri")


def test_the_language_model_is_found_under_either_prefix(tmp_path):
    src = tiny.build(tiny.BY_NAME["qwen3_5_moe-top2"], tmp_path / "hf")              # under model.language_model
    convert(src, tmp_path / "a.colibri")
    tensors, config = load_arrays(src / "model.safetensors"), json.loads((src / "config.json").read_text())
    inner = "model.language_model."
    tensors = {("language_model.model." + n.removeprefix(inner) if n.startswith(inner) else n if n.startswith("model.visual.")
                else "language_model." + n): x for n, x in tensors.items()}
    convert(tiny.write_folder(tmp_path / "older", config, tensors), tmp_path / "b.colibri")
    with ColibriFile(tmp_path / "a.colibri") as a, ColibriFile(tmp_path / "b.colibri") as b:
        assert {n: t.crc for n, t in a.tensors.items()} == {n: t.crc for n, t in b.tensors.items()}


@pytest.mark.parametrize(("family", "bits", "group", "more", "kept"), [
    ("gpt_oss", 4, 32, {"special": {"mlp.router": (8, 64)}, "mxfp4": True}, "mxfp4"), ("gpt_oss", 4, 64, {}, "q4_a"),
    ("gpt_oss", 2, 32, {"special": {"mlp.router": (8, 64), "o_proj": (4, 64)}}, "q2_a32"), ("gemma4", 4, 64, {}, "q4_a"),
    ("gemma4", 4, 32, {"special": {"router.proj": (8, 64)}, "multimodal": True}, "q4_a32"), ("gemma4", 2, 64, {}, "q2_a")])
def test_mlx_folders_of_gpt_oss_and_gemma4(tmp_path, family, bits, group, more, kept):
    """The file holds the very weights of the dequantised model, whose logits in float32 are those of transformers."""
    src = tiny.build(tiny.BY_NAME[family + "-wide"], tmp_path / "hf")
    folder, weights = mlx.write_mlx(src, tmp_path / "mlx", bits, group, **more)
    convert(folder, tmp_path / "m.colibri")
    reference = mlx.reference(src, weights)
    reference.save_pretrained(tmp_path / "plain")
    convert(tmp_path / "plain", tmp_path / "plain.colibri", "f32")
    with ColibriFile(tmp_path / "plain.colibri") as a, ColibriFile(tmp_path / "m.colibri") as b:
        assert a.topology == b.topology and a.tensors.keys() == b.tensors.keys()
        for name, t in a.tensors.items():
            if t.kind != "experts":
                assert np.array_equal(tiny.weights(a, name), tiny.weights(b, name)), name
                continue
            assert {p.format for p in b.tensor(name).parts if len(p.shape) == 2} == {kept}
            for part in t.parts:
                for e in range(t.count):
                    assert np.array_equal(tiny.weights(a, name, part.name, e), tiny.weights(b, name, part.name, e)), (name, part.name)
    want = tiny.reference_logits(reference, PROMPT)
    assert np.abs(Model.load(tmp_path / "plain.colibri", threads=1, kv="f32").logits(PROMPT) - want).max() <= 1e-4 * np.abs(want).max()


def test_an_mlx_router_in_eight_bits_becomes_float32(tmp_path, model):
    folder, weights = mlx.write_mlx(model, tmp_path / "mlx", special={"mlp.gate": (8, 64)})
    convert(folder, tmp_path / "m.colibri")
    with ColibriFile(tmp_path / "m.colibri") as f:
        assert np.array_equal(tiny.weights(f, "layers.1.router"), weights["model.layers.1.mlp.gate.weight"])


def test_what_no_format_keeps_asks_for_one(tmp_path, model):
    folder, weights = mlx.write_mlx(model, tmp_path / "mlx", half="float16")
    with pytest.raises(ConvertError, match=r"is 4-bit affine with f16 scales, which no format here keeps .* --quant q8_0"):
        convert(folder, tmp_path / "m.colibri")
    convert(folder, tmp_path / "m.colibri", "q8_0")
    with ColibriFile(tmp_path / "m.colibri") as f:
        x = weights["model.layers.0.self_attn.q_proj.weight"]
        assert np.linalg.norm(tiny.weights(f, "layers.0.attn.q") - x) < 0.01 * np.linalg.norm(x)


@pytest.mark.parametrize(("change", "match"), [
    (lambda t, c: c.pop("quantization"), "no \"quantization\""),
    (lambda t, c: c["quantization"].update(bits=3), "with 3 bits .* wanted 'affine' of 2, 4 or 8 bits"),
    (lambda t, c: c["quantization"].update(group_size=32), "does config.json belong to these files"),
    (lambda t, c: c["quantization"].update(mode="nvfp4"), "'nvfp4' with 4 bits"),
    (lambda t, c: t.pop("lm_head.biases"), "lacks lm_head.biases, lm_head.scales is there"),
    (lambda t, c: t.update({"lm_head.scales": t["lm_head.scales"][:, :1]}), "lm_head.weight has codes"),
    (lambda t, c: t["model.layers.0.mlp.switch_mlp.up_proj.scales"].__setitem__((3, 5, 0), 0x7F80), "NaN or infinite"),
])
def test_mlx_folders_that_do_not_fit_are_refused(tmp_path, model, change, match):
    folder, _ = mlx.write_mlx(model, tmp_path / "mlx")
    t = load_arrays(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config.pop("quantization_config")
    change(t, config)
    with pytest.raises(ConvertError, match=match):
        convert(tiny.write_folder(tmp_path / "bad", config, t), tmp_path / "m.colibri")


def test_planning_reads_the_headers_of_an_mlx_folder(tmp_path, model):
    folder, _ = mlx.write_mlx(model, tmp_path / "mlx")
    convert(folder, tmp_path / "m.colibri")
    planned = outline(folder)
    with ColibriFile(tmp_path / "m.colibri") as f:
        assert planned.complete and {n: (t.format, t.length) for n, t in f.tensors.items()} == {
            n: (t.format, t.length) for n, t in planned.tensors.items()}
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:len(data) // 2])
    assert not outline(folder).complete
    assert outline(mlx.write_flashmoe(mlx.write_mlx(model, tmp_path / "again")[0], tmp_path / "flash")).complete


@pytest.mark.parametrize("two_bit", [False, True])
@pytest.mark.parametrize("single", [False, True])
def test_flash_moe_folders_give_the_same_file_as_the_mlx_folder(tmp_path, model, single, two_bit):
    folder, weights = mlx.write_mlx(model, tmp_path / "mlx", 2 if two_bit else 4)
    convert(folder, tmp_path / "a.colibri")
    convert(mlx.write_flashmoe(folder, tmp_path / "flash", single, two_bit), tmp_path / "b.colibri")
    with ColibriFile(tmp_path / "a.colibri") as a, ColibriFile(tmp_path / "b.colibri") as b:
        assert a.topology == b.topology
        assert {n: t.crc for n, t in a.tensors.items()} == {n: t.crc for n, t in b.tensors.items()}
    if not single:
        median, far = close(tmp_path / "b.colibri", mlx.reference(model, weights))
        assert median <= 1e-2 and far <= 0.1, (median, far)


def test_a_flash_moe_folder_of_its_own_family(tmp_path):
    src = tiny.build(tiny.BY_NAME["qwen3_5_moe-wide"], tmp_path / "hf")
    folder, _ = mlx.write_mlx(src, tmp_path / "mlx", special={"mlp.gate": (8, 64), "shared_expert_gate": (8, 64)}, multimodal=True)
    convert(folder, tmp_path / "a.colibri")
    convert(mlx.write_flashmoe(folder, tmp_path / "flash"), tmp_path / "b.colibri")
    with ColibriFile(tmp_path / "a.colibri") as a, ColibriFile(tmp_path / "b.colibri") as b:
        assert a.topology == b.topology
        assert {n: t.crc for n, t in a.tensors.items()} == {n: t.crc for n, t in b.tensors.items()}


def test_flash_moe_folders_that_do_not_fit_are_refused(tmp_path, model):
    folder, _ = mlx.write_mlx(model, tmp_path / "mlx")
    flash = mlx.write_flashmoe(folder, tmp_path / "flash")
    layer = flash / "packed_experts/layer_01.bin"
    data = layer.read_bytes()
    for change, match in ((lambda: layer.write_bytes(data[:-4]), r"12 experts have \d+ bytes, wanted \d+ \(4 bits\)"),
                          (layer.unlink, r"layer_01_expert_0000.bin is missing, and so is layer_01.bin"),
                          ((flash / "model_weights.bin").unlink, "model_weights.bin is missing")):
        change()
        with pytest.raises(ConvertError, match=match):
            convert(flash, tmp_path / "m.colibri")


@pytest.mark.parametrize("quant", [None, "q4_0", "q6_k", "q4_a", "mxfp4"])
def test_a_colibri_file_is_its_own_copy(tmp_path, model, quant):
    convert(model, tmp_path / "a.colibri", quant)
    convert(tmp_path / "a.colibri", tmp_path / "b.colibri")
    with ColibriFile(tmp_path / "a.colibri") as a, ColibriFile(tmp_path / "b.colibri") as b:
        assert a.topology == b.topology and a.meta["generation"] == b.meta["generation"]
        assert {n: t.crc for n, t in a.tensors.items()} == {n: t.crc for n, t in b.tensors.items()}
