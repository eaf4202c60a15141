"""Families with windows, sinks, biases and norms of their own (gpt_oss, Gemma) against transformers.

Marks of issue "Done when" 1 and 2: float32 logits of an 80-token prompt (longer than every window but one, than the chunk and than a
block of 64 positions) within 1e-4 of the largest logit, 20 equal greedy tokens, the same bits after other chunks, other threads,
rewinding and streaming; a GGUF of the same model holds the same weights.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import tinymodels as tiny

from colibri_edge import families
from colibri_edge.convert import ConvertError, convert
from colibri_edge.engine import Program, Session
from colibri_edge.families.common import HFConfig
from colibri_edge.file import ColibriFile
from colibri_edge.topology import FileError, wanted

PROMPT = tiny.prompt(80)


@pytest.fixture(scope="module", params=tiny.WINDOWED, ids=lambda t: t.name)
def model(request, tmp_path_factory):
    """(Tiny, transformers model, float32 .colibri file)"""
    root = tmp_path_factory.mktemp(request.param.name)
    folder = tiny.build(request.param, root / "hf")
    return request.param, tiny.load(folder), convert(folder, root / "f32.colibri", "f32").path


def logits(path, kv="f32", threads=1, chunk=32, slots=0, ids=PROMPT) -> np.ndarray:
    """Of every token of the prompt, from a session of its own; with slots, streamed through so many."""
    program = Program(ColibriFile(path), *(("stream", slots) if slots else ()))
    session = Session(program, 128, threads, kv, chunk)
    out = np.empty((len(ids), program.vocab), np.float32)
    session.all_logits(ids, out)
    return out


def test_engine_equals_transformers(model):
    t, reference, path = model
    want, got = tiny.reference_logits(reference, PROMPT), logits(path)
    error = np.abs(got - want).max() / np.abs(want).max()
    print(f"{t.name}: {error:.1e} of the largest logit")
    assert error <= 1e-4
    session = Session(Program(ColibriFile(path)), 128, 1, "f32", 32)
    session.feed(PROMPT[:48])
    said = []
    for _ in range(20):
        said.append(int(session.logits_view().argmax()))
        session.feed(said[-1:])
    assert tiny.is_greedy(reference, PROMPT[:48], said)


def test_exactness(model, tmp_path):
    """The same bits for any chunk, threads and number of slots, with float and with integer weights."""
    t, reference, path = model
    layers = ColibriFile(path).topology["layers"]
    sparse = layers[0]["ffn"]["kind"] == "moe"
    for p in (path, convert(tiny.build(t, tmp_path / "hf"), tmp_path / "q.colibri", "q8_0").path):
        want = logits(p, "f16", 1, 256)
        assert np.isfinite(want).all()
        for threads, chunk in ((2, 7), (1, 1), (3, 64)):
            assert np.array_equal(logits(p, "f16", threads, chunk), want)
        if sparse:
            for slots in {layers[0]["ffn"]["top_k"], layers[0]["ffn"]["top_k"] + 3}:
                assert np.array_equal(logits(p, "f16", 2, 32, slots), want)


def test_rewind_gives_the_same_bits(model):
    _, _, path = model
    want = logits(path)
    session = Session(Program(ColibriFile(path)), 128, 2, "f32", 16)
    session.feed(PROMPT)
    for back, stop in ((70, 75), (30, 60), (3, 4)):
        session.rewind(back)
        session.feed(PROMPT[back:stop])
        assert np.array_equal(session.logits_view(), want[stop - 1])
        session.feed(PROMPT[stop:])
        assert np.array_equal(session.logits_view(), want[79])


def test_topology_is_that_of_transformers(model):
    t, reference, path = model
    topo = ColibriFile(path).topology
    c = reference.config
    assert topo["model_type"] == t.family and topo["tied"] == c.tie_word_embeddings
    for kind, layer, mine in zip(c.layer_types, reference.model.layers, topo["layers"], strict=True):
        a, attn = mine["attn"], layer.self_attn
        assert a["window"] == (c.sliding_window if kind == "sliding_attention" else 0)
        assert (a["head_dim"], a["heads"] // a["kv_heads"]) == (attn.head_dim, attn.num_key_value_groups)
        assert a["scale"] == pytest.approx(attn.scaling)


GPT_OSS_20B = {
    "architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0, "eos_token_id": 200002,
    "experts_per_token": 4,
    "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096, "initializer_range": 0.02,
    "intermediate_size": 2880, "layer_types": ["sliding_attention", "full_attention"] * 12, "max_position_embeddings": 131072,
    "model_type": "gpt_oss", "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8,
    "num_local_experts": 32, "output_router_logits": False, "pad_token_id": 199999, "rms_norm_eps": 1e-05, "rope_theta": 150000,
    "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn"], "quant_method": "mxfp4"},
    "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn",
                     "truncate": False},
    "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": False, "use_cache": True,
    "transformers_version": "4.55.0.dev0", "vocab_size": 201088}


def topology(config: dict) -> dict:
    return families.for_hf(config["model_type"]).from_hf(HFConfig(config)).topology


def test_published_configurations_are_accepted():
    topo = topology(GPT_OSS_20B)
    weights = sum(int(np.prod(w.shape)) * (3 if w.kind == "experts" else 1) for w in wanted(topo).values())
    assert 20.8e9 < weights < 21.0e9           # its model card says 20.9 billion


@pytest.mark.parametrize(("change", "match"), [
    ({"layer_types": ["chunked_attention"] * 24}, "layer_types"), ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ({"quantization_config": {"quant_method": "awq"}}, "mxfp4 or none"), ({"swiglu_limit": -1.0}, "swiglu_limit"),
])
def test_gpt_oss_refuses_by_name(change, match):
    with pytest.raises(ConvertError, match=match):
        topology(GPT_OSS_20B | change)


@pytest.mark.parametrize(("change", "match"), [
    ({"sinks": False}, "sinks is false"), ({"softcap": 0.0}, "softcap is 0"), ({"post_norm": 1}, "post_norm is 1"),
])
def test_topology_refuses_settings_of_no_effect(change, match):
    topo = json.loads(json.dumps(topology(GPT_OSS_20B)))
    topo["layers"][3]["attn"] |= change
    with pytest.raises(FileError, match=match):
        wanted(topo)


# The language model of google/gemma-4-26B-A4B, as its config.json spells it.
GEMMA4_26B = {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "tie_word_embeddings": True, "text_config": {
    "attention_bias": False, "attention_dropout": 0.0, "attention_k_eq_v": True, "bos_token_id": 2, "dtype": "bfloat16",
    "enable_moe_block": True, "eos_token_id": 1, "final_logit_softcapping": 30.0, "global_head_dim": 512, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2816, "hidden_size_per_layer_input": 0, "initializer_range": 0.02,
    "intermediate_size": 2112, "layer_types": ([*["sliding_attention"] * 5, "full_attention"] * 5), "max_position_embeddings": 262144,
    "model_type": "gemma4_text", "moe_intermediate_size": 704, "num_attention_heads": 16, "num_experts": 128,
    "num_global_key_value_heads": 2, "num_hidden_layers": 30, "num_key_value_heads": 8, "num_kv_shared_layers": 0, "pad_token_id": 0,
    "rms_norm_eps": 1e-06, "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
    "sliding_window": 1024, "tie_word_embeddings": True, "top_k_experts": 8, "use_bidirectional_attention": "vision", "use_cache": True,
    "use_double_wide_mlp": False, "vocab_size": 262144, "vocab_size_per_layer_input": 262144}}


def test_published_gemma_configurations_are_accepted():
    topo = topology(GEMMA4_26B)
    weights = sum(int(np.prod(w.shape)) * (3 if w.kind == "experts" else 1) for w in wanted(topo).values())
    assert 25.0e9 < weights < 26.0e9
    sliding, last = topo["layers"][0]["attn"], topo["layers"][5]["attn"]
    assert (sliding["kv_heads"], sliding["head_dim"], sliding["window"], "k_eq_v" in sliding) == (8, 256, 1024, False)
    assert (last["kv_heads"], last["head_dim"], last["window"], last["k_eq_v"]) == (2, 512, 0, True)
    old = topology({"model_type": "gemma3_text", "head_dim": 256, "hidden_size": 1152, "intermediate_size": 6912, "num_attention_heads": 4,
                    "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rope_local_base_freq": 10000,
                    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262144,
                    "cache_implementation": "hybrid", "max_position_embeddings": 32768})
    assert [x["attn"]["window"] for x in old["layers"][:7]] == [512] * 5 + [0, 512]


@pytest.mark.parametrize(("change", "match"), [
    ({"num_kv_shared_layers": 10}, "E2B, E4B"), ({"hidden_size_per_layer_input": 256}, "E2B, E4B"),
    ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention"), ({"num_key_value_heads": 7}, "divisor"),
])
def test_gemma4_refuses_by_name(change, match):
    with pytest.raises(ConvertError, match=match):
        topology({**GEMMA4_26B, "text_config": GEMMA4_26B["text_config"] | change})
