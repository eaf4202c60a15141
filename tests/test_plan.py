"""`colibri-edge plan`: headers alone say what the converted file says; refusals name what fits; the formula of the rate."""
from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tinymodels as tiny

from colibri_edge import budget, convert, limits, usage
from colibri_edge.apps import cli, plan
from colibri_edge.convert.outline import Outline, outline
from colibri_edge.convert.plan import QUANTS
from colibri_edge.convert.source import ConvertError
from colibri_edge.convert.synthetic import topology, write_random
from colibri_edge.engine import Program, Session
from colibri_edge.file import ColibriFile
from colibri_edge.model import Model


@pytest.fixture
def folder(tmp_path):
    """A tiny qwen3_moe with one dense layer, as a Hugging Face folder."""
    config = tiny.moe_config(num_hidden_layers=3, mlp_only_layers=[1])
    return tiny.write_folder(tmp_path / "hf", config, tiny.moe_tensors(config))


def headers_only(folder, target, dtype="float32"):
    """config.json and the index of a checkpoint whose shards are elsewhere."""
    target.mkdir()
    config = json.loads((folder / "config.json").read_text()) | {"torch_dtype": dtype}
    (target / "config.json").write_text(json.dumps(config))
    head = json.loads((folder / "model.safetensors").read_bytes()[8:].split(b"}}")[0] + b"}}")
    names = {n: "model-00001-of-00002.safetensors" for n in head}
    (target / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return target


def same(a: Outline, b: ColibriFile) -> None:
    """Every tensor with the same shape, format, lengths and parts; the offsets differ with the length of the metadata."""
    assert a.tensors.keys() == b.tensors.keys()
    for name, t in b.tensors.items():
        assert replace(a.tensors[name], offset=0, crc=()) == replace(t, offset=0, crc=())
    assert a.topology == b.topology
    pa, pb = Program(a), Program(b)
    na, nb = budget.need(a, pa, 96, "f16"), budget.need(b, pb, 96, "f16")
    assert {k: na[k] for k in ("routed experts", "KV cache", "buffers")} == {k: nb[k] for k in ("routed experts", "KV cache", "buffers")}
    assert abs(na["resident weights"] - nb["resident weights"]) < 200_000   # estimated tokenizer, metadata, alignment


@pytest.mark.parametrize("quant", [None, "q8_0", "q4_0"])
def test_headers_say_what_the_conversion_would_be(folder, tmp_path, quant):
    done = ColibriFile(convert(folder, tmp_path / "m.colibri", quant).path)
    whole = outline(folder, quant)
    assert whole.complete
    same(whole, done)
    alone = outline(headers_only(folder, tmp_path / "index"), quant)
    assert not alone.complete
    same(alone, done)


def test_a_cut_safetensors_file_is_enough(folder, tmp_path):
    done = ColibriFile(convert(folder, tmp_path / "m.colibri").path)
    with open(folder / "model.safetensors", "r+b") as f:
        f.truncate(30_000)
    cut = outline(folder)
    assert not cut.complete
    same(cut, done)
    with pytest.raises(ConvertError, match="cut or damaged"):
        convert(folder, tmp_path / "x.colibri")     # planning is lenient, converting is not
    with open(folder / "model.safetensors", "r+b") as f:
        f.truncate(2000)
    with pytest.raises(ConvertError, match="header length"):
        outline(folder)


def test_the_first_part_of_a_gguf_is_enough(tmp_path):
    import gguf

    path, rng = tmp_path / "m.gguf", np.random.default_rng(1)
    w = gguf.GGUFWriter(path, "llama")
    for put, value in (
            ("block_count", 2), ("context_length", 256), ("embedding_length", 64), ("feed_forward_length", 96),
            ("head_count", 4), ("head_count_kv", 2), ("rope_dimension_count", 16), ("expert_count", 4), ("expert_used_count", 2)):
        getattr(w, f"add_{put}")(value)
    w.add_layer_norm_rms_eps(1e-6)

    def tensor(name, *shape):
        w.add_tensor(name, rng.standard_normal(shape).astype(np.float32))

    tensor("token_embd.weight", 320, 64)
    tensor("output.weight", 320, 64)
    tensor("output_norm.weight", 64)
    tensor("rope_freqs.weight", 8)
    for n in range(2):
        b = f"blk.{n}."
        for name, shape in (("attn_norm", (64,)), ("ffn_norm", (64,)), ("attn_q", (64, 64)), ("attn_k", (32, 64)), ("attn_v", (32, 64)),
                            ("attn_output", (64, 64)), ("ffn_gate_inp", (4, 64)), ("ffn_gate_exps", (4, 96, 64)),
                            ("ffn_up_exps", (4, 96, 64)), ("ffn_down_exps", (4, 64, 96))):
            tensor(f"{b}{name}.weight", *shape)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    raw = path.read_bytes()
    path.write_bytes(raw[:6000])
    cut = outline(path)
    assert not cut.complete and cut.topology["layers"][0]["ffn"]["experts"] == 4
    stack = cut.tensors["layers.1.experts"]
    assert (stack.count, [p.length for p in stack.parts]) == (4, [4 * 2 * 96 * 64, 4 * 64 * 96])
    path.write_bytes(raw[:900])
    with pytest.raises(ConvertError, match="do not end within these 900 bytes"):
        outline(path)


def test_folders_that_say_too_little(folder, tmp_path):
    alone = headers_only(folder, tmp_path / "index", "int8")
    with pytest.raises(ConvertError, match="dtype is 'int8'"):
        outline(alone)
    (alone / "config.json").unlink()
    with pytest.raises(ConvertError, match="no config.json"):
        outline(alone)
    with pytest.raises(ConvertError, match="does not exist"):
        outline(tmp_path / "nowhere")
    names = json.loads((alone / "model.safetensors.index.json").read_text())
    names["weight_map"].pop("model.layers.2.mlp.experts.7.up_proj.weight")
    (alone / "model.safetensors.index.json").write_text(json.dumps(names))
    shutil.copy(folder / "config.json", alone)
    with pytest.raises(ConvertError, match="lacks .*experts.7.up_proj"):
        outline(alone)


# -- the budget's advice ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A float32 model of some 9 MiB whose KV cache takes 8 KiB a position."""
    path = tmp_path_factory.mktemp("big") / "m.colibri"
    write_random(path, topology(hidden=128, layers=4, heads=4, kv_heads=4, head_dim=32, vocab=2000, experts=8, top_k=2, intermediate=128,
                                context=1 << 20), "f32")
    return path


def refusal(path, ram: int, ctx: int) -> budget.DoesNotFit:
    file = ColibriFile(path)
    with pytest.raises(budget.DoesNotFit) as e:
        budget.place(file, Program(file), ctx=ctx, kv="f32", chunk=32, threads=1, ram=ram)
    return e.value


def test_a_refusal_names_the_context_that_fits(big):
    file = ColibriFile(big)
    settings = {"kv": "f32", "chunk": 32, "threads": 1}
    need = budget.need(file, Program(file), 1 << 20, "f32", 32, 1)
    room = need["resident weights"] + need["buffers"] + need["Python"] + (3 << 20) + (64 << 20)
    e = refusal(big, room, 1 << 20)
    fits = int(e.advice.split("ctx=")[1].rstrip(")"))
    assert 4096 < fits < 1 << 20
    assert budget.place(file, Program(file), ctx=fits, ram=room, **settings).weights == "stream"
    token = (Session.kv_bytes_for(Program(file), 2048, "f32") - Session.kv_bytes_for(Program(file), 1024, "f32")) / 1024
    assert abs(budget.most_context(file, Program(file), ram=room, **settings) - fits) * token < 2 * budget.SLACK


def test_a_refusal_names_the_quantisation_that_fits(big, tmp_path):
    file = ColibriFile(big)
    need = budget.need(file, Program(file), 64, "f32", 32, 1)
    e = refusal(big, need["buffers"] + need["Python"] + (3 << 20), 64)
    quant = e.advice.split("--quant ")[1].rstrip(")")
    assert quant in QUANTS and set(budget.QUANTS) <= set(QUANTS)
    small = tmp_path / "small.colibri"
    write_random(small, file.topology, quant, formats={"embed": "q8_0", "output": "q8_0"})
    other = ColibriFile(small)
    least = budget.resident_bytes(other) + 2 * budget.routed(other)[0].stride
    assert abs(budget.least_bytes_as(file, quant) / least - 1) < 0.2    # vectors, metadata and alignment differ
    assert "take more memory or a smaller model" in refusal(big, 1 << 20, 64).advice


# -- the rate ----------------------------------------------------------------------------------------------------------


def test_the_formula():
    w = plan.Work({("q4_0", 64): 1000, ("f32", 64): 400}, 600, 2, 20, 6, 100)
    rates = plan.Rates({("q4_0", 64): 1e6, ("f32", 64): 2e6}, 1e-5, 1e5)
    e = plan.expected(w, rates, 0.75)
    assert e["compute_s"] == pytest.approx(1e-3 + 2e-4 + plan.PASSES * 2 * 1e-5)
    assert (e["missed_bytes"], e["disk_s"]) == (150, pytest.approx(1.5e-3))
    assert e["decode_tok_s"] == pytest.approx(1 / (e["compute_s"] + e["disk_s"]))
    assert plan.expected(w, replace(rates, disk=None), 0.75)["decode_tok_s"] is None
    assert plan.expected(w, replace(rates, disk=None), 1.0)["decode_tok_s"] > 0
    assert plan.expected(replace(w, state_bytes=500), rates, 0.75)["compute_s"] == pytest.approx(e["compute_s"] + 2.5e-4)


def test_the_work_is_that_of_the_file(big):
    file = ColibriFile(big)
    w = plan.work(file)
    t = file.tensors
    per_layer = sum(t[f"layers.0.{n}"].length for n in ("attn.q", "attn.k", "attn.v", "attn.o", "router"))
    experts = 2 * sum(p.length for p in t["layers.0.experts"].parts)
    assert sum(w.products.values()) == 4 * (per_layer + experts) + t["output"].length
    assert (w.experts, w.asked, w.expert_bytes) == (32, 8, 8 * t["layers.0.experts"].stride)


def test_hit_rates_come_from_the_usage_file(big, tmp_path):
    path = tmp_path / "m.colibri"
    shutil.copy(big, path)
    file = ColibriFile(path)
    assert plan.hit_rate(file, 8) == (0.25, "even choice")
    usage.write(usage.beside(path), usage.Usage([[90, 0, 0, 0, 0, 0, 0, 10]] * 4, 50))
    # mean 12.5, variance 868.75: the largest counts shrink by 12.5 / 868.75 of their distance to the mean
    assert plan.hit_rate(file, 4) == (pytest.approx(0.9 - (0.9 - 0.125) * 12.5 / 868.75), "usage")
    usage.write(usage.beside(path), usage.Usage([[9000, 0, 0, 0, 0, 0, 0, 1000]] * 4, 5000))
    assert plan.hit_rate(file, 4)[0] == pytest.approx(0.9, abs=2e-4)        # the longer the run, the more its counts say
    usage.write(usage.beside(path), usage.Usage([[3, 1, 2, 2, 1, 3, 2, 2]] * 4, 2))
    assert plan.hit_rate(file, 16)[0] == pytest.approx(0.5)                 # no more uneven than chance


def test_chance_alone_does_not_look_like_a_habit():
    """Counts drawn evenly: the share of the most used half tends to one half, whatever the length of the run."""
    rng = np.random.default_rng(5)
    rows = [plan._without_noise(np.bincount(rng.integers(0, 128, 1500), minlength=128).tolist()) for _ in range(12)]
    top = sorted((n for row in rows for n in row), reverse=True)
    assert sum(top[:768]) / sum(top) < 0.53
    raw = [np.sort(np.bincount(rng.integers(0, 128, 1500), minlength=128))[64:].sum() / 1500 for _ in range(12)]
    assert np.mean(raw) > 0.6


def test_the_command(big, capsys):
    assert cli.main(["plan", str(big), "--ctx", "128", "--json"]) == 0
    f = json.loads(capsys.readouterr().out)
    assert f["fits"] and f["placement"]["weights"] == "map" and f["expected"]["missed_bytes"] == 0
    assert f["sum"] == sum(f["need"].values()) and f["expected"]["decode_tok_s"] > 0 and f["machine"]["disk_mb_s"] > 0
    file = ColibriFile(big)
    tight = f["sum"] - 20 * budget.routed(file)[0].stride
    assert cli.main(["plan", str(big), "--ctx", "128", "--ram", str(tight), "--memory-rate", "10GB", "--disk-rate", "100MB"]) == 0
    out = capsys.readouterr().out
    assert "of 32 routed experts" in out and "worst case" in out and "settings: --ram" in out
    assert cli.main(["plan", str(big), "--quant", "q4_0"]) == 1
    assert "as they are; leave quant out" in capsys.readouterr().err
    assert cli.main(["plan", str(big), "--ram", "1MiB"]) == 1
    assert "does not fit" in capsys.readouterr().err
    assert cli.main(["plan", str(big), "--ram", "1MiB", "--json"]) == 1
    refused = json.loads(capsys.readouterr().out)
    assert refused["fits"] is False and "smaller model" in refused["advice"]


def test_the_plan_is_what_loading_does(big, monkeypatch):
    """The same ceiling gives the same placement; the ladder's ceiling for half of the experts holds that half."""
    monkeypatch.setattr(limits, "rss_bytes", lambda: 64 << 20)     # what Python takes grows while tests run
    ram = sum(budget.need(ColibriFile(big), Program(ColibriFile(big)), 128, "f32", 256, 1).values()) - 16 * (200 << 10)
    args = SimpleNamespace(model=str(big), ram=ram, ctx=128, kv="auto", quant=None, threads=1, memory_rate=10**10, disk_rate=10**8)
    f = plan.make(args)
    m = Model.load(big, ram=ram, ctx=128, threads=1)
    assert f["placement"]["weights"] == m.program.weights == "stream"
    assert f["placement"]["experts_in_memory"] == m.stats()["slots"] == 15
    half = next(r for r in f["ladder"] if r["share"] == 0.5)
    args.ram = half["ram"]
    assert plan.make(args)["placement"]["experts_in_memory"] == 16


def test_headers_without_weights_get_a_rate(folder, tmp_path, capsys):
    alone = headers_only(folder, tmp_path / "index")
    before = sorted(p.name for p in alone.iterdir())
    assert cli.main(["plan", str(alone), "--quant", "q4_0", "--json"]) == 0
    f = json.loads(capsys.readouterr().out)
    assert not f["weights_here"] and f["expected"]["decode_tok_s"] > 0
    assert sorted(p.name for p in alone.iterdir()) == before     # the probe's file is gone, nothing was converted


def test_streamed_prompts_go_in_larger_pieces_where_the_buffers_are_worth_it(big, monkeypatch):
    monkeypatch.setattr(limits, "rss_bytes", lambda: 64 << 20)
    file = ColibriFile(big)
    program, settings = Program(file), {"ctx": 2048, "kv": "f32", "chunk": None, "threads": 1}
    whole = sum(budget.need(file, program, 2048, "f32", budget.PREFILL_CHUNK, 1).values())
    assert budget.place(file, program, ram=whole, **settings).chunk == budget.PREFILL_CHUNK     # nothing is streamed
    slot = budget.routed(file)[0].stride
    assert budget.place(file, program, ram=whole - 24 * slot, **settings).chunk == budget.PREFILL_CHUNK     # 512 would leave too few
    monkeypatch.setattr(budget, "WORTH", 0.0)
    large = budget.place(file, program, ram=whole - 8 * slot, **settings)
    assert (large.weights, large.chunk) == ("stream", budget.STREAM_CHUNK) and large.total <= whole - 8 * slot
    assert Model.load(big, ram=whole - 8 * slot, ctx=2048, threads=1, learn=False).session.chunk == budget.STREAM_CHUNK
