"""Conversion: the faults other converters had, layouts, naming of what is missing or unused, and a careful writer."""

from __future__ import annotations

import errno
import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tinymodels as tiny

from colibri_edge.convert import ConvertError, convert, writer
from colibri_edge.convert.cache import resolve
from colibri_edge.convert.progress import Bar, clock, line
from colibri_edge.convert.source import SourceFile, SourceTensor
from colibri_edge.file import ColibriFile, FileError

E = tiny.E


def make(folder, fused: bool = False, drop=(), add=None, tensors=None, files=None, **config) -> Path:
    c = tiny.moe_config(**config)
    t = tensors or tiny.moe_tensors(c, fused)
    t = {k: v for k, v in t.items() if k not in drop} | (add or {})
    return tiny.write_folder(folder, c, t, **(files or {}))


def refused(src, dst, match: str, **kw) -> None:
    with pytest.raises(ConvertError, match=match):
        convert(src, dst, **kw)
    assert not Path(dst).exists() and not list(Path(dst).parent.glob("*.tmp-*"))


def same_weights(a, b) -> None:
    with ColibriFile(a) as x, ColibriFile(b) as y:
        assert x.topology == y.topology and set(x.tensors) == set(y.tensors)
        assert {n: t.crc for n, t in x.tensors.items()} == {n: t.crc for n, t in y.tensors.items()}


# -- FAULTS.md ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("fused", [False, True])
def test_fault_01_expert_ids_are_integers(tmp_path, fused):
    """Expert e is filled with the constant e (10 must not come before 2); every slot is read back."""
    config = tiny.moe_config()
    t = tiny.moe_tensors(config, fused)
    for name in t:
        if fused and "experts" in name:
            t[name][:] = np.arange(E, dtype=np.float32)[:, None, None]
        elif ".experts." in name:
            t[name] = np.full_like(t[name], int(name.split(".experts.")[1].split(".")[0]))
    path = convert(make(tmp_path / "m", tensors=t), tmp_path / "m.colibri").path
    with ColibriFile(path) as f:
        for n in (0, 1):
            for e in range(E):
                for part in ("gate", "up", "down"):
                    assert (tiny.weights(f, f"layers.{n}.experts", part, e) == e).all()


def test_fault_02_both_layouts_give_the_same_file(tmp_path):
    a = convert(make(tmp_path / "a/m"), tmp_path / "a.colibri").path
    b = convert(make(tmp_path / "b/m", fused=True), tmp_path / "b.colibri").path
    same_weights(a, b)
    with ColibriFile(a) as f:
        start = min(t.offset for t in f.tensors.values())
    assert a.read_bytes()[start:] == b.read_bytes()[start:]


def test_fault_02_an_unused_source_tensor_is_an_error(tmp_path):
    extra = {"model.layers.0.mlp.experts.12.up_proj.weight": np.zeros((24, 64), np.float32)}
    refused(make(tmp_path / "m", add=extra), tmp_path / "x", r"nothing uses .*experts\.12\.up_proj")
    extra = {"model.layers.0.self_attn.q_proj.bias": np.zeros(64, np.float32)}
    refused(make(tmp_path / "n", add=extra), tmp_path / "x", r"nothing uses .*q_proj\.bias")
    buffers = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(8, np.float32)}
    convert(make(tmp_path / "o", add=buffers), tmp_path / "x")


def test_fault_03_the_embedding_keeps_all_its_rows(tmp_path):
    """vocab_size is the matrix's; the tokenizer's tables say how many ids are tokens, and sampling masks the others."""
    with ColibriFile(convert(make(tmp_path / "m"), tmp_path / "m.colibri").path) as f:
        assert f.topology["vocab_size"] == 320 and f.tensor("output").shape == (320, 64)
    refused(make(tmp_path / "n", vocab_size=300, tensors=tiny.moe_tensors(tiny.moe_config())), tmp_path / "x",
            r"embed_tokens.weight has shape \[320, 64\], the configuration asks for \[300, 64\]")


def test_fault_04_tied_shares_and_untied_must_have_an_output(tmp_path):
    with ColibriFile(convert(make(tmp_path / "m", tie_word_embeddings=True), tmp_path / "m.colibri").path) as f:
        assert f.topology["tied"] and "output" not in f.tensors
    refused(make(tmp_path / "n", drop=["lm_head.weight"]), tmp_path / "x", "lacks lm_head.weight, wanted for output")
    t = tiny.moe_tensors(tiny.moe_config())
    t["lm_head.weight"] = t["model.embed_tokens.weight"].copy()
    convert(make(tmp_path / "o", tensors=t, tie_word_embeddings=True), tmp_path / "o.colibri")
    t["lm_head.weight"][5, 5] += 1
    refused(make(tmp_path / "p", tensors=t, tie_word_embeddings=True), tmp_path / "x", "lm_head.weight differs")


@pytest.mark.parametrize("name", ["mlp.experts.7.up_proj.weight", "mlp.experts.0.gate_proj.weight", "mlp.gate.weight",
                                  "self_attn.k_norm.weight", "post_attention_layernorm.weight"])
def test_fault_05_a_missing_tensor_is_fatal_and_named(tmp_path, name):
    full = f"model.layers.1.{name}"
    refused(make(tmp_path / "m", drop=[full]), tmp_path / "x", f"lacks {full}, wanted for layers.1")


def test_fault_05_dense_or_sparse_comes_from_the_configuration(tmp_path):
    with ColibriFile(convert(make(tmp_path / "m", mlp_only_layers=[0]), tmp_path / "m.colibri").path) as f:
        assert [layer["ffn"]["kind"] for layer in f.topology["layers"]] == ["dense", "moe"]
        assert "layers.0.mlp" in f.tensors and "layers.0.experts" not in f.tensors
    t = tiny.moe_tensors(tiny.moe_config(mlp_only_layers=[0]))
    refused(make(tmp_path / "n", tensors=t), tmp_path / "x", r"lacks model.layers.0.mlp.gate.weight, wanted for")
    t = tiny.moe_tensors(tiny.moe_config())
    refused(make(tmp_path / "o", tensors=t, mlp_only_layers=[0]), tmp_path / "x", "lacks model.layers.0.mlp.gate_proj")


def test_fault_07_source_offsets_beyond_four_gib(tmp_path):
    """A row of a sparse safetensors-like file at 5 GiB."""
    with open(tmp_path / "big", "wb") as f:
        f.truncate((5 << 30) + 4096)
        f.seek((5 << 30) + 256)
        f.write(np.arange(64, dtype=np.float32).tobytes())
    t = SourceTensor("w", "f32", ((5 << 30) // 256 + 2, 64), SourceFile(tmp_path / "big"), 0)
    row = (5 << 30) // 256 + 1
    assert t.all().floats(row, row + 1)[0].tolist() == list(range(64))
    t.file.close()


def test_fault_08_source_and_target_the_same_file(tmp_path):
    src = make(tmp_path / "m")
    before = (src / "model.safetensors").read_bytes()
    with pytest.raises(ConvertError, match="same file"):
        convert(src, src / "model.safetensors")
    assert (src / "model.safetensors").read_bytes() == before


def test_fault_08_only_models_are_overwritten(tmp_path):
    """Arguments the wrong way round, or the folder's config.json as target, destroy nothing."""
    src = make(tmp_path / "m")
    with pytest.raises(ConvertError, match="exists and is no .colibri file"):
        convert(src, src / "config.json")
    assert json.loads((src / "config.json").read_text())["hidden_size"] == 64


@pytest.mark.parametrize("failure", ["disk full", "interrupt", "damaged source"])
def test_fault_08_the_old_file_survives(tmp_path, monkeypatch, failure):
    src, dst = make(tmp_path / "m"), tmp_path / "m.colibri"
    convert(src, dst)
    before = dst.read_bytes()
    calls = []

    def put(f, offset, data, real=writer._put):
        calls.append(offset)
        if len(calls) == 40:
            if failure == "disk full":
                raise OSError(errno.ENOSPC, "No space left on device")
            if failure == "interrupt":
                raise KeyboardInterrupt
            raise ConvertError("tensor x holds NaN")
        real(f, offset, data)

    monkeypatch.setattr(writer, "_put", put)
    with pytest.raises((OSError, KeyboardInterrupt, ConvertError)):
        convert(src, dst, "q8_0")
    assert len(calls) == 40 and dst.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "m.colibri"]


def test_fault_08_a_disk_without_room_is_seen_first(tmp_path, monkeypatch):
    monkeypatch.setattr(writer.shutil, "disk_usage", lambda p: type("U", (), {"free": 1000})())
    refused(make(tmp_path / "m"), tmp_path / "x", "0 MiB free, the file needs")


def test_an_unfinished_file_has_no_magic(tmp_path, monkeypatch):
    """Until the last write there is no header, so that a copy of the temporary file is never taken for a model."""
    heads = []

    def put(f, offset, data, real=writer._put):
        if offset == 0:
            heads.append(Path(f.name).read_bytes()[:8])
        real(f, offset, data)

    monkeypatch.setattr(writer, "_put", put)
    convert(make(tmp_path / "m"), tmp_path / "m.colibri")
    assert heads == [bytes(8)]


# -- formats and report ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("quant", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k", "q4_a", "mxfp4", "q2"])
def test_quant_reaches_every_matrix_but_router_and_norms(tmp_path, quant):
    config = tiny.moe_config(mlp_only_layers=[1], hidden_size=72, moe_intermediate_size=20)
    t = tiny.moe_tensors(config)
    report = convert(tiny.write_folder(tmp_path / "m", config, t), tmp_path / "m.colibri", quant)
    with ColibriFile(report.path) as f:
        f.verify()
        head = "q8_0" if quant in ("q4_0", "q4_k", "q4_a", "mxfp4", "q2") else quant     # hidden 72 is no multiple of 256
        other = "q8_0" if quant == "q2" else quant
        experts = "q2_a" if quant == "q2" else quant
        assert f.tensor("embed").format == f.tensor("output").format == head
        assert f.tensor("layers.0.router").format == "f32" and f.tensor("layers.0.attn.q").format == other
        assert {p.format for p in f.tensor("layers.0.experts").parts} == {experts}
        assert {p.format for p in f.tensor("layers.1.mlp").parts} == {other}
        worst = {"f32": 0, "f16": 5e-4, "bf16": 3e-3, "q8_0": 9e-3, "q4_0": 0.12, "q4_k": 0.1, "q6_k": 0.03,
                 "q4_a": 0.11, "mxfp4": 0.15, "q2": 0.42}[quant]
        for e in (0, 11):
            for part in ("gate", "up", "down"):
                want = t[f"model.layers.0.mlp.experts.{e}.{part}_proj.weight"]
                got = tiny.weights(f, "layers.0.experts", part, e)
                assert got.shape == want.shape
                assert np.linalg.norm(got - want) <= worst * np.linalg.norm(want)
        assert np.array_equal(tiny.weights(f, "layers.0.router"), t["model.layers.0.mlp.gate.weight"])
    assert report.became["f32"][experts] >= 36 and experts in str(report)
    assert report.classes["routed experts"][0] == 36 * 72 * 20 and set(report.classes) == {
        "embedding", "output matrix", "attention", "router and gates", "routed experts", "dense FFN"}


def test_head_quant_and_unknown_quant(tmp_path):
    src = make(tmp_path / "m")
    with ColibriFile(convert(src, tmp_path / "m.colibri", "q4_0", head_quant="q4_0").path) as f:
        assert f.tensor("embed").format == "q4_0"
    refused(src, tmp_path / "x", "wanted one of f32", quant="q3_x")


def test_half_precision_sources_keep_their_type(tmp_path):
    t = tiny.moe_tensors(tiny.moe_config())
    for i, name in enumerate(sorted(t)):
        if t[name].ndim > 1:
            t[name] = t[name].astype(np.float16) if i % 2 else (t[name].view(np.uint32) >> 16).astype(np.uint16)
        else:
            t[name] = t[name].astype(np.float16)
    with ColibriFile(convert(make(tmp_path / "m", tensors=t), tmp_path / "m.colibri").path) as f:
        kept = {x.format for x in f.tensors.values() if x.kind == "matrix" and "router" not in x.name}
        assert kept == {"f16", "bf16"}
        name = "model.layers.0.self_attn.q_proj.weight"
        want = t[name].astype(np.float32) if t[name].dtype == np.float16 else \
            (t[name].astype(np.uint32) << 16).view(np.float32)
        assert np.array_equal(tiny.weights(f, "layers.0.attn.q"), want)
        assert f.tensor("output_norm").format == "f32"


def test_a_part_of_mixed_types_becomes_f32_and_the_report_says_so(tmp_path):
    t = tiny.moe_tensors(tiny.moe_config())
    name = "model.layers.0.mlp.experts.3.up_proj.weight"
    t[name] = t[name].astype(np.float16)
    report = convert(make(tmp_path / "m", tensors=t), tmp_path / "m.colibri")
    assert report.became["f16"] == {"f32": 1}


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_types_nobody_reads_are_refused_by_name(tmp_path, dtype):
    t = tiny.moe_tensors(tiny.moe_config())
    t["model.layers.1.self_attn.v_proj.weight"] = t["model.layers.1.self_attn.v_proj.weight"].astype(dtype)
    refused(make(tmp_path / "m", tensors=t), tmp_path / "x", "v_proj.weight is stored as [FI]64, wanted one of f32")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["model.layers.1.mlp.experts.5.down_proj.weight", "model.norm.weight"])
def test_weights_that_are_no_numbers_are_refused_by_name(tmp_path, name, bad):
    t = tiny.moe_tensors(tiny.moe_config())
    t[name].flat[3] = bad
    for quant in (None, "q8_0"):
        refused(make(tmp_path / "m", tensors=t), tmp_path / "x", f"{name}.* NaN or infinite", quant=quant)


# -- what comes along --------------------------------------------------------------------------------------------------

def test_generation_defaults_end_ids_and_template(tmp_path):
    files = {"generation_config_json": json.dumps({"eos_token_id": [5, 2], "temperature": 0.7, "top_p": 0.9,
                                                   "do_sample": True, "top_k": None}),
             "tokenizer_config_json": json.dumps({"eos_token": "<end>", "chat_template": [
                 {"name": "tool_use", "template": "t"}, {"name": "default", "template": "{{ messages }}"}],
                 "added_tokens_decoder": {"9": {"content": "<end>"}, "10": {"content": "<x>"}}})}
    with ColibriFile(convert(make(tmp_path / "m", files=files), tmp_path / "m.colibri").path) as f:
        assert f.meta["generation"] == {"temperature": 0.7, "top_p": 0.9, "eos_token_ids": [5, 2, 9]}
        assert f.meta["chat_template"] == "{{ messages }}"
    files |= {"chat_template_jinja": "from the jinja file", "generation_config_json": json.dumps({"do_sample": False})}
    with ColibriFile(convert(make(tmp_path / "n", files=files), tmp_path / "n.colibri").path) as f:
        assert f.meta["generation"] == {"temperature": 0.0, "eos_token_ids": [2, 9]}
        assert f.meta["chat_template"] == "from the jinja file"
    refused(make(tmp_path / "o", eos_token_id=320), tmp_path / "x", "eos_token_id is 320, wanted token ids below 320")


@pytest.mark.parametrize(("change", "match"), [
    ({"model_type": "gpt_neox"}, "model_type is 'gpt_neox', wanted one of llama"),
    ({"model_type": None}, "model_type"), ({"hidden_act": "gelu"}, "hidden_act is 'gelu', wanted one of silu"),
    ({"attention_sinks": 4}, "attention_sinks = '4' is not known"),
    ({"quantization_config": {"bits": 4}}, "quantised"), ({"auto_map": {"x": "y"}}, "code of its own"),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'"),
    ({"rope_scaling": {"type": "yarn", "factor": 2.0, "odd": 1}}, "odd = '1' is not known"),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary"),
    ({"hidden_size": None}, "lacks hidden_size"), ({"hidden_size": "64"}, "hidden_size is '64'"),
    ({"num_key_value_heads": 3}, "divisor"), ({"num_experts_per_tok": 13}, "selects 13 of 12"),
    ({"mlp_only_layers": [7]}, "mlp_only_layers"), ({"rms_norm_eps": "small"}, "rms_norm_eps"),
    ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, "max_window_layers is '1'"),
    ({"num_local_experts": 11}, "should agree"), ({"head_dim": 15}, "head_dim is '15'"),
    ({"layer_types": ["sliding_attention"] * 2}, "layer_types"), ({"num_hidden_layers": 2.0}, "num_hidden_layers"),
    ({"num_hidden_layers": 3}, "lacks model.layers.2"), ({"is_encoder_decoder": True}, "is_encoder_decoder is 'True'"),
])
def test_settings_are_refused_by_name_never_guessed(tmp_path, change, match):
    config = tiny.moe_config()
    src = tiny.write_folder(tmp_path / "m", config | change, tiny.moe_tensors(config))
    refused(src, tmp_path / "x", match)


def test_sources_of_other_kinds(tmp_path):
    refused(tmp_path / "none", tmp_path / "x", "does not exist")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", tmp_path / "x", "no config.json")
    (tmp_path / "f.bin").write_bytes(b"PK\x03\x04zip")
    refused(tmp_path / "f.bin", tmp_path / "x", "begins with")
    src = make(tmp_path / "m")
    with pytest.raises(ConvertError, match="folder .* does not exist"):
        convert(src, tmp_path / "nowhere" / "x.colibri")
    with pytest.raises(ConvertError, match="is no file"):
        convert(src, tmp_path / "empty")


# -- hostile safetensors -----------------------------------------------------------------------------------------------

def shard(path, head: dict | bytes, data: bytes = b"") -> None:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize(("head", "match"), [
    ({"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 17]}}, "wanted 16 bytes"),
    ({"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [-16, 0]}}, "data_offsets"),
    ({"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [64, 80]}}, "within 64"),
    ({"w": {"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]}}, "shape"),
    ({"w": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 16]}}, "wanted 4835703278458516698824704"),
    ({"w": {"dtype": "F4", "shape": [2], "data_offsets": [0, 8]}}, "dtype 'F4'"), ({"w": 3}, "no entry"),
    ({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
      "v": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}}, "overlap"),
    (b'{"w": {}, "w": {}}', "twice"), (b"[1]", "no JSON object"), (b"{" * 9999, "not JSON"), (b"\xff", "not JSON"),
])
def test_hostile_safetensors(tmp_path, head, match):
    src = make(tmp_path / "m")
    shard(src / "model.safetensors", head, bytes(64))
    refused(src, tmp_path / "x", match)


def test_hostile_safetensors_lengths_and_shards(tmp_path):
    src = make(tmp_path / "m")
    (src / "model.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}")
    refused(src, tmp_path / "x", "header length is 9223372036854775808")
    (src / "model.safetensors").unlink()
    refused(src, tmp_path / "x", "no .safetensors file")
    index = src / "model.safetensors.index.json"
    for names, match in (({"w": "../secret.safetensors"}, "plain file name"), ({"w": "a.safetensors"}, "is missing"),
                         ({}, "no weight_map")):
        index.write_text(json.dumps({"weight_map": names}))
        refused(src, tmp_path / "x", match)
    shard(src / "a.safetensors", {"v": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4))
    index.write_text(json.dumps({"weight_map": {"w": "a.safetensors"}}))
    refused(src, tmp_path / "x", "says that 'w' is in a.safetensors, it is not")


# -- GGUF --------------------------------------------------------------------------------------------------------------

def gguf_bytes(keys: list[tuple[str, int, bytes]], tensors: list[tuple[str, list[int], int, int]], data: bytes = b"",
               counts=None, version: int = 3) -> bytes:
    """A GGUF file by hand: keys (name, type, raw value), tensors (name, axes, type, offset)."""
    def text(s: str) -> bytes:
        return struct.pack("<Q", len(s.encode())) + s.encode()

    out = b"GGUF" + struct.pack("<I2Q", version, *(counts or (len(tensors), len(keys))))
    for name, kind, raw in keys:
        out += text(name) + struct.pack("<I", kind) + raw
    for name, axes, kind, offset in tensors:
        out += text(name) + struct.pack(f"<I{len(axes)}Q", len(axes), *axes) + struct.pack("<IQ", kind, offset)
    return out + bytes(-len(out) % 32) + data


U32, STR, ARR = 4, 8, 9
ONE = [("a", [32, 2], 0, 0)]


@pytest.mark.parametrize(("data", "match"), [
    (b"GGUF", "at least 24"), (b"GGML" + bytes(40), "wanted b'GGUF'"),
    (gguf_bytes([], [], version=1), "GGUF version 1"), (b"GGUF\0\0\0\3" + bytes(16), "big-endian"),
    (gguf_bytes([], [], counts=(2**60, 0)), "announces"), (gguf_bytes([], [], counts=(0, 2**63)), "announces"),
    (gguf_bytes([("k", 99, b"")], []), "unknown type 99"),
    (gguf_bytes([("k", STR, struct.pack("<Q", 2**62))], []), "wanted at most"),
    (gguf_bytes([("k", STR, struct.pack("<Q", 2**20))], []), "the file has"),
    (gguf_bytes([("k", ARR, struct.pack("<IQ", U32, 2**61))], []), "needs"),
    (gguf_bytes([("k", ARR, struct.pack("<IQ", STR, 2**61))], []), "strings, wanted at most"),
    (gguf_bytes([("k", ARR, struct.pack("<IQ", STR, 2) + struct.pack("<Q", 2**62))], []), "ends behind|strings"),
    (gguf_bytes([("k", ARR, struct.pack("<IQ", ARR, 1) + bytes(64))], []), "array of type 9"),
    (gguf_bytes([("k", U32, bytes(4))] * 2, []), "twice"),
    (gguf_bytes([("general.alignment", U32, struct.pack("<I", 48))], ONE, bytes(256)), "power of two"),
    (gguf_bytes([], [("a", [32, 2], 0, 0)], bytes(255)), "it was cut"),
    (gguf_bytes([], [("a", [32], 0, 8)], bytes(256)), "multiple of 32"),
    (gguf_bytes([], [("a", [33], 2, 0)], bytes(256)), "multiple of 32"),
    (gguf_bytes([], [("a", [0, 2], 0, 0)], bytes(256)), "sizes of at least 1"),
    (gguf_bytes([], [("a", [2**39, 2**39, 2**39], 0, 0)], bytes(256)), "it was cut"),
    (gguf_bytes([], [("a", [1] * 9, 0, 0)], bytes(256)), "axes"),
    (gguf_bytes([], ONE * 2, bytes(256)), "there twice"),
    (gguf_bytes([], [*ONE, ("b", [32], 0, 32)], bytes(256)), "overlap"),
    (gguf_bytes([], ONE, bytes(256)), "general.architecture is 'None'"),
    (gguf_bytes([("general.architecture", STR, struct.pack("<Q", 3) + b"rwk")], ONE, bytes(256)), "'rwk'"),
])
def test_hostile_gguf(tmp_path, data, match):
    (tmp_path / "m.gguf").write_bytes(data)
    refused(tmp_path / "m.gguf", tmp_path / "x", match)


@pytest.fixture(scope="module")
def gguf_model(tmp_path_factory):
    """(folder, GGUF in F32) of a tiny qwen3_moe of the real class."""
    folder = tmp_path_factory.mktemp("gguf")
    src = tiny.build(tiny.WIDE["qwen3_moe"], folder / "hf")
    return src, tiny.write_gguf(src, folder / "m.gguf")


def test_gguf_in_parts_equals_one_file(gguf_model, tmp_path):
    src, one = gguf_model
    first = tiny.write_gguf(src, tmp_path / "p.gguf", parts=3)
    third = first.with_name(first.name.replace("00001", "00003"))
    a = convert(one, tmp_path / "a.colibri").path
    same_weights(a, convert(first, tmp_path / "b.colibri").path)
    same_weights(a, convert(third, tmp_path / "c.colibri").path)
    os.replace(third, tmp_path / "away")
    refused(first, tmp_path / "x", "00003-of-00003.gguf is missing; the model has 3 parts")


def test_gguf_bits_flipped_in_its_header_never_crash(gguf_model, tmp_path):
    """Metadata or directory altered at random: a ConvertError that is short, or a conversion."""
    data = gguf_model[1].read_bytes()
    (tmp_path / "m.gguf").write_bytes(data)
    end = data.index(b"token_embd.weight") + 3000
    rng = random.Random(0)
    refusals = 0
    for _ in range(80):
        at = rng.randrange(8, end)
        with open(tmp_path / "m.gguf", "r+b") as f:
            f.seek(at)
            f.write(bytes([data[at] ^ 1 << rng.randrange(8)]))
            f.flush()
            try:
                convert(tmp_path / "m.gguf", tmp_path / "x.colibri")
            except (ConvertError, FileError) as e:
                refusals += 1
                assert len(str(e)) < 900
            f.seek(at)
            f.write(data[at:at + 1])
    assert refusals > 20


@pytest.mark.parametrize(("fields", "match"), [
    ({"qwen3moe.attention.scale": 0.5}, "attention.scale = '0.5' is not known"),
    ({"qwen3moe.expert_gating_func": 2}, "expert_gating_func is '2'"),
    ({"qwen3moe.rope.scaling.type": "longrope"}, "rope.scaling.type is 'longrope'"),
    ({"qwen3moe.attention.head_count": 0}, "head_count"), ({"qwen3moe.attention.head_count": [4, 4]}, "head_count"),
    ({"qwen3moe.expert_used_count": 13}, "selects 13 of 12"), ({"qwen3moe.rope.freq_base": -1.0}, "rope.freq_base"),
])
def test_gguf_settings_are_refused_by_name(gguf_model, tmp_path, fields, match):
    try:
        path = tiny.write_gguf(gguf_model[0], tmp_path / "m.gguf", fields=fields)
    except ValueError:                        # the writer refuses to set a key twice: alter it in the file instead
        (key, value), = fields.items()
        data = gguf_model[1].read_bytes()
        raw = struct.pack("<I", len(key)) + bytes(4) + key.encode()
        at = data.index(raw) + len(raw) + 4
        if isinstance(value, list):
            pytest.skip("needs a longer value")
        data = data[:at] + struct.pack("<f" if isinstance(value, float) else "<I", value) + data[at + 4:]
        path = tmp_path / "m.gguf"
        path.write_bytes(data)
    refused(path, tmp_path / "x", match)


def test_gguf_foreign_types_and_missing_or_unused_tensors(gguf_model, tmp_path):
    src = gguf_model[0]
    path = tiny.write_gguf(src, tmp_path / "m.gguf", skip={"blk.1.ffn_up_exps.weight"})
    refused(path, tmp_path / "x", r"lacks blk.1.ffn_up_exps.weight, wanted for layers.1.experts \[12, 256, 256\]")
    path = tiny.write_gguf(src, tmp_path / "n.gguf", extra={"blk.0.attn_sinks.weight": np.zeros(4, np.float32)})
    refused(path, tmp_path / "x", "nothing uses the tensor blk.0.attn_sinks.weight")
    data = gguf_model[1].read_bytes()
    name = b"blk.1.attn_v.weight"
    at = data.index(name) + len(name) + 4 + 16
    (tmp_path / "o.gguf").write_bytes(data[:at] + struct.pack("<I", 20) + data[at + 4:])
    refused(tmp_path / "o.gguf", tmp_path / "x", "blk.1.attn_v.weight is stored as IQ4_NL, wanted one of")


def test_gguf_generation_defaults(gguf_model, tmp_path):
    fields = {"tokenizer.ggml.eos_token_id": 4, "tokenizer.ggml.eot_token_id": 9, "tokenizer.chat_template": "T",
              "general.sampling.temp": 0.5, "general.name": "tiny"}
    path = convert(tiny.write_gguf(gguf_model[0], tmp_path / "m.gguf", fields=fields), tmp_path / "m.colibri").path
    with ColibriFile(path) as f:
        assert f.meta["generation"] == {"temperature": 0.5, "eos_token_ids": [4, 9]}
        assert f.meta["chat_template"] == "T" and f.meta["source"]["name"] == "tiny"


# -- names of models, progress, memory ---------------------------------------------------------------------------------

def test_resolve_converts_once(tmp_path, monkeypatch):
    monkeypatch.setenv("COLIBRI_EDGE_CACHE", str(tmp_path / "cache"))
    src = make(tmp_path / "models" / "m")
    seen = []
    path = resolve(src, progress=lambda *a: seen.append(a))
    assert path == tmp_path / "models" / "m.colibri" and seen and seen[-1][0] == seen[-1][1] > 0
    before = path.stat().st_mtime_ns
    assert resolve(src) == path and path.stat().st_mtime_ns == before and resolve(path) == path
    os.utime(src / "model.safetensors", ns=(1, 1))
    assert resolve(src) == path and path.stat().st_mtime_ns != before
    assert resolve(src, "q8_0").name == "m.q8_0.colibri"
    monkeypatch.setattr("colibri_edge.convert.cache.os.access", lambda *a: False)
    os.utime(src / "model.safetensors", ns=(2, 2))
    assert tmp_path / "cache" in resolve(src).parents
    with pytest.raises(ConvertError, match="does not exist"):
        resolve(tmp_path / "nothing")


def test_resolve_leaves_what_a_user_converted(tmp_path, monkeypatch):
    """`convert m m.colibri --quant q2`, and later `run m`: hours of work stay as they are."""
    monkeypatch.setenv("COLIBRI_EDGE_CACHE", str(tmp_path / "cache"))
    src = make(tmp_path / "m")
    mine = convert(src, tmp_path / "m.colibri", "q2").path
    before = mine.read_bytes()
    path = resolve(src, progress=lambda *a: None)
    assert tmp_path / "cache" in path.parents and mine.read_bytes() == before
    assert resolve(src) == path
    with pytest.raises(FileError, match="not a .colibri file"):
        resolve(src / "config.json")


def test_progress_line():
    assert clock(75) == "1:15" and clock(4000) == "1:06:40"
    text = line("convert", 500_000_000, 2_000_000_000, 5.0, "layers.3.experts")
    assert "25%" in text and "100 MB/s" in text and "0:15 left" in text and len(text) <= 100
    assert "? left" in line("convert", 0, 10, 0.0, "")

    class Terminal:
        text = ""

        def __init__(self, tty):
            self.isatty = lambda: tty

        def write(self, s):
            self.text += s

        def flush(self):
            pass

    quiet, loud = Terminal(False), Terminal(True)
    for stream in (quiet, loud):
        bar = Bar("convert", stream)
        bar(10, 10, "end")
        bar.close()
    assert quiet.text == "" and "100%" in loud.text and loud.text.endswith("\n")


@pytest.mark.big
def test_a_four_gigabyte_gguf_converts_in_little_memory(tmp_path):
    """Done when 6: COLIBRI_BIG_GGUF names a file of some 4 GB; peak resident memory stays below 1.5 GiB."""
    src = os.environ.get("COLIBRI_BIG_GGUF")
    if not src:
        pytest.skip("COLIBRI_BIG_GGUF is not set")
    code = ("import re, sys\nfrom colibri_edge.convert import convert\n"
            "from colibri_edge.file import ColibriFile\n"
            "r = convert(sys.argv[1], sys.argv[2]); ColibriFile(r.path).verify()\n"
            "print(r, int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) // 1024)")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    out = subprocess.run([sys.executable, "-c", code, src, str(tmp_path / "big.colibri")], capture_output=True,
                         text=True, env=env)
    assert out.returncode == 0, out.stderr
    print(out.stdout)
    assert int(out.stdout.split()[-1]) < 1536


@pytest.mark.parametrize("key, value", [("num_hidden_layers", 1 << 30), ("num_experts", 1 << 30), ("head_dim", 1 << 26)])
def test_sizes_that_no_model_has(tmp_path, key, value):
    """Refused before lists of that length are made."""
    config = tiny.moe_config(**{key: value})
    src = tiny.write_folder(tmp_path / "src", config, tiny.moe_tensors(tiny.moe_config()))
    with pytest.raises(ConvertError, match=r"a whole number from [01] to|a model file takes"):
        convert(src, tmp_path / "m.colibri")
