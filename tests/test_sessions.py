"""State of sessions: rewind, copy, save and load give the bits of a cold start, with and without a recurrent state; a file that is
damaged, of another model, another KV type or too long is refused by name."""
from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from colibri_edge import families, session_file
from colibri_edge.convert.synthetic import write_random
from colibri_edge.crc32c import crc32c
from colibri_edge.engine import Program, Session
from colibri_edge.families.common import HFConfig
from colibri_edge.file import ColibriFile, FileError
from colibri_edge.model import Model

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import make_golden as golden  # noqa: E402

IDS = golden.prompt().tolist()


KV: dict[Path, str] = {}     # how the KV cache of a model is tested
SMALL = {"vocab_size": 301, "hidden_size": 72, "intermediate_size": 44, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 18, "max_position_embeddings": 128, "sliding_window": 13}
EXPERTS = {"num_experts": 12, "num_local_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 20}
FAMILIES = {
    "gemma2": SMALL | {"attn_logit_softcapping": 20.0, "final_logit_softcapping": 3.0},
    "gemma3": SMALL | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "gemma4": SMALL | {"layer_types": ["sliding_attention", "full_attention", "full_attention"], "global_head_dim": 28,
                       "num_global_key_value_heads": 1, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0,
                       "enable_moe_block": True, "num_experts": 12, "top_k_experts": 3, "moe_intermediate_size": 20},
    "gpt_oss": SMALL | {"num_local_experts": 12, "num_experts_per_tok": 3, "rope_theta": 10000.0},
    "qwen3_next": SMALL | EXPERTS | {"head_dim": 16, "sliding_window": None, "shared_expert_intermediate_size": 20,
                                     "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                                     "linear_key_head_dim": 12, "linear_value_head_dim": 20, "partial_rotary_factor": 0.5,
                                     "rope_theta": 10000.0},
}
FAMILIES["qwen3_5_moe"] = FAMILIES["qwen3_next"]


def write(folder: Path, name: str) -> Path:
    """A golden model (format, or family/format as in make_golden.py), or one of FAMILIES in q4_0."""
    if name not in FAMILIES:
        return golden.write_model(folder, name)
    spec = families.for_hf(name).from_hf(HFConfig({"model_type": name} | FAMILIES[name]))
    write_random(folder / f"{name}.colibri", spec.topology, "q4_0", seed=13, spread=0.12, biases=name == "gpt_oss")
    return folder / f"{name}.colibri"


@pytest.fixture(scope="module", params=[("f32", "f32"), ("q4_0", "f16"), ("q4_0", "q8_0"), ("delta/q4_0", "f16"), ("delta/f32", "q8_0"),
                                        ("gemma2", "f16"), ("gemma3", "q8_0"), ("gemma4", "f16"), ("gemma4", "q8_0"), ("gpt_oss", "q8_0"),
                                        ("gpt_oss", "f32"), ("qwen3_next", "f16"), ("qwen3_5_moe", "q8_0")], ids="/".join)
def path(request, tmp_path_factory):
    """Attention with each type of KV cache; windows, sinks, heads of several widths; models with a recurrent state."""
    name, kv = request.param
    made = write(tmp_path_factory.mktemp("sessions"), name)
    KV[made] = kv
    return made


def load(path, threads=2, **kw):
    return Model.load(path, threads=threads, chunk=16, **{"kv": KV.get(path, "auto")} | kw)


@pytest.fixture(scope="module")
def cold(path):
    """Logits of the whole prompt from a fresh start, [tokens, vocab]."""
    return load(path).logits(IDS)


def test_rewind_to_anywhere(path, cold):
    s = load(path).session
    s.feed(IDS)
    for to in (69, 64, 63, 37, 16, 50, 1, 0):    # 50 lies ahead by then: it is fed up to
        if to > s.pos:
            s.feed(IDS[s.pos:to])
        s.rewind(to)
        assert s.pos == to and s.tokens() == IDS[:to]
        s.feed(IDS[to:to + 1])
        assert np.array_equal(s.logits_view(), cold[to]), to


def test_a_checkpoint_is_not_used_for_other_tokens(path, cold):
    s = load(path).session
    s.feed(IDS[:20])
    s.checkpoint()
    s.feed([5, 6, 7])
    s.checkpoint()
    s.rewind(10)                      # both checkpoints belong to tokens that are gone
    s.feed(IDS[10:23])
    s.rewind(22)
    s.feed(IDS[22:23])
    assert np.array_equal(s.logits_view(), cold[22])


def test_checkpoints_save_work(path):
    m = load(path)
    s = m.session
    s.feed(IDS[:48])
    s.checkpoint()
    s.feed(IDS[48:])
    s.start_trace(200)
    s.rewind(48)
    s.rewind(48)
    assert s.routing() == []          # nothing was computed again
    s.rewind(40)
    routed = sum(layer["ffn"]["kind"] == "moe" for layer in m.program.topology["layers"])
    assert len(s.routing()) == (40 * routed if s.recurrent else 0)
    s.feed(IDS[40:45])
    s.start_trace(200)
    s.rewind(40)                      # the same way back is free the second time
    assert s.routing() == []


def passes(model) -> int:
    """Tokens that the traced session computed, as its routing tells; 0 for a dense model."""
    routed = sum(layer["ffn"]["kind"] == "moe" for layer in model.program.topology["layers"])
    return len(model.session.routing()) // max(1, routed)


def test_the_way_back_to_a_primed_prompt_stays_free(path, cold):
    m = load(path)
    m.prime(IDS[:40])
    for more in ([5, 6], [5, 6, 7, 8], [5, 6, 7, 8, 9, 10], [11, 12, 13], IDS[40:]):    # one conversation that grows, then others
        ids = IDS[:40] + more
        shared = next((i for i, (a, b) in enumerate(zip(m._fed, ids[:-1], strict=False)) if a != b), min(len(m._fed), len(ids) - 1))
        m.session.start_trace(200)
        assert m._prefill(ids) == shared >= 40
        assert passes(m) <= len(more)                # nothing before the end of the primed prompt is computed again
        m._fed.append(3)
        m.session.feed([3])
    m.session.start_trace(200)
    m.prime(IDS[:40])
    m.prime(IDS[:40])
    assert passes(m) == 0 and m.session.pos == 40 and m._fed == IDS[:40]
    m._prefill(IDS)
    assert np.array_equal(m.session.logits_view(), cold[-1])


def test_what_is_kept_is_the_last_one_asked_for(path, cold):
    s = load(path).session
    for at in (10, 20, 30, 40):
        s.feed(IDS[s.pos:at])
        s.checkpoint(keep=at in (10, 20))
    s.start_trace(200)
    s.rewind(20)
    assert s.routing() == []
    s.rewind(15)                      # the one at 10 made room
    s.feed(IDS[15:16])
    assert np.array_equal(s.logits_view(), cold[15])
    for at in (17, 18, 19):           # what was kept at 20 belongs to tokens that are gone: nothing stands in the way
        s.feed(IDS[s.pos:at])
        s.checkpoint()
    s.rewind(18)
    s.feed(IDS[18:19])
    assert np.array_equal(s.logits_view(), cold[18])


def test_copy_goes_its_own_way(path, cold):
    a = load(path).session
    a.feed(IDS[:40])
    b = a.copy()
    assert np.array_equal(a.logits_view(), b.logits_view()) and b.tokens() == IDS[:40]
    a.feed([9, 8, 7])
    b.feed(IDS[40:41])
    assert np.array_equal(b.logits_view(), cold[40])
    a.rewind(40)
    a.feed(IDS[40:41])
    assert np.array_equal(a.logits_view(), cold[40])
    b.rewind(12)
    b.feed(IDS[12:13])
    assert np.array_equal(b.logits_view(), cold[12])


@pytest.mark.parametrize("at", [0, 1, 37, 64])
def test_save_and_load(path, cold, at, tmp_path):
    a = load(path)
    a.session.feed(IDS[:at])
    size = a.save_session(tmp_path / "s")
    assert size == (tmp_path / "s").stat().st_size and [p.name for p in tmp_path.iterdir()] == ["s"]
    b = load(path, threads=1, ctx=at + 3)        # another context, other threads
    b.load_session(tmp_path / "s")
    assert b.session.tokens() == b._fed == IDS[:at]
    if at:
        assert np.array_equal(b.session.logits_view(), cold[at - 1])
    b.session.feed(IDS[at:at + 2])
    assert np.array_equal(b.session.logits_view(), cold[at + 1])
    b.session.rewind(at)
    b.session.feed(IDS[at:at + 1])
    assert np.array_equal(b.session.logits_view(), cold[at])


def test_a_loaded_prefix_is_not_computed_again(path, cold, tmp_path):
    a = load(path)
    a._prefill(IDS[:50])
    a.save_session(tmp_path / "s")
    b = load(path)
    b.load_session(tmp_path / "s")
    assert b._prefill(IDS) == 50
    assert np.array_equal(b.session.logits_view(), cold[-1])


def test_faults_are_named(path, tmp_path):
    m = load(path)
    m.session.feed(IDS[:30])
    m.save_session(tmp_path / "s")
    good = (tmp_path / "s").read_bytes()
    other = load(golden.write_model(tmp_path, "q8_0"), kv=KV[path])
    with pytest.raises(FileError, match="another model"):
        other.load_session(tmp_path / "s")
    with pytest.raises(FileError, match="holds 30 tokens, the context is 24"):
        load(path, ctx=24).load_session(tmp_path / "s")
    kv = "f16" if KV[path] == "f32" else "f32"
    with pytest.raises(FileError, match="saved with kv="):
        load(path, kv=kv).load_session(tmp_path / "s")
    for name, data in {"cut": good[:-1], "longer": good + b"x", "empty": b"", "magic": b"x" + good[1:],
                       "head": good[:9] + b"\x01" + good[10:],
                       "json": good[:40] + b"?" + good[41:], "payload": good[:-9] + bytes([good[-9] ^ 1]) + good[-8:]}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FileError, match="damaged|is not a saved session"):
            m.load_session(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        m.load_session(tmp_path / "none")
    m.load_session(tmp_path / "s")    # it still works
    assert m.session.pos == 30


@pytest.mark.parametrize("token", [-1, 301, (1 << 31) - 1, -(1 << 31)])
def test_token_ids_of_a_file_are_checked(path, cold, tmp_path, token):
    """A file with good checksums is not a good file yet: a replay would read where the id points to."""
    m = load(path)
    m.session.feed(IDS[:30])
    m.save_session(tmp_path / "s")
    rewrite(tmp_path / "s", payload=lambda p: p[:12] + token.to_bytes(4, "little", signed=True) + p[16:])
    with pytest.raises(FileError, match=f"token 3 is {token}, outside the vocabulary of 301"):
        m.load_session(tmp_path / "s")
    m.session.feed(IDS[:31])
    assert np.array_equal(m.session.logits_view(), cold[30])


@pytest.mark.parametrize("change", [{"tokens": "20"}, {"tokens": None}, {"tokens": -8}, {"tokens": 2.5}, {"tokens": True}, {"kv": 3},
                                    {"model": None}])
def test_a_header_that_is_none_is_named(path, tmp_path, change):
    m = load(path)
    m.session.feed(IDS[:20])
    m.save_session(tmp_path / "s")
    rewrite(tmp_path / "s", facts=lambda f: f | change)
    with pytest.raises(FileError, match="its header says"):
        m.load_session(tmp_path / "s")
    rewrite(tmp_path / "s", facts=lambda f: [1, 2])
    with pytest.raises(FileError, match="its header says"):
        m.load_session(tmp_path / "s")


def rewrite(file: Path, facts=lambda f: f, payload=lambda p: p) -> None:
    """Changes a session file and makes its checksums fit again."""
    head, data = session_file.HEAD, file.read_bytes()
    magic, length, _, _, _ = head.unpack(data[:head.size])
    text, rest = data[head.size + 4:][:length], payload(data[head.size + 4 + length:])
    text = json.dumps(facts(json.loads(text))).encode()
    start = head.pack(magic, len(text), crc32c(text), len(rest), crc32c(rest))
    file.write_bytes(start + crc32c(start).to_bytes(4, "little") + text + rest)


def test_views_keep_the_session(path, cold):
    """A view of its memory may be the last thing that is left of a session."""
    def views():
        m = load(path)
        m.session.feed(IDS[:20])
        return m.session.logits_view(), m.session.state_views(20)

    logits, state = views()
    gc.collect()
    assert np.array_equal(logits, cold[19])
    assert np.frombuffer(state[0], np.int32).tolist() == IDS[:20]
    logits[0] = 1.0     # writable, as before


EIO = 1     # colibri/reader.h


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    return golden.write_model(tmp_path_factory.mktemp("recurrent"), "delta/q4_0")


def streamed(path) -> Model:
    """With so few experts in memory that most passes read."""
    file = ColibriFile(path)
    program = Program(file, "stream", 6)
    return Model(file, program, Session(program, 100, 2, "f16", 16, checkpoints=2))


def test_a_way_back_that_fails_is_gone_again(recurrent):
    """A read that fails while the recurrent state is computed again: the position stays what it was, and the next try is right."""
    ids = IDS[:60]
    cold = Model.load(recurrent, threads=2, chunk=16, kv="f16").logits([*ids, 5])
    m = streamed(recurrent)
    m._prefill(ids)
    m.program.store.inject(EIO, 3)
    with pytest.raises(OSError, match="cannot be read"):
        m._prefill([*ids[:30], 7, 8, 9])
    m._prefill([*ids[:30], 7, 8, 9])
    m._prefill([*ids, 5])
    assert np.array_equal(m.session.logits_view(), cold[60])


def test_a_feed_that_fails_twice_keeps_its_place(recurrent):
    ids = IDS[:60]
    cold = Model.load(recurrent, threads=2, chunk=16, kv="f16").logits([*ids, 5])
    s = streamed(recurrent).session
    s.feed(ids[:16])
    s.checkpoint()
    s.feed(ids[16:])
    failed = 0
    for nth in (0, 3, 1, None):
        if nth is not None:
            s.program.store.inject(EIO, nth)
        try:
            s.feed([5])
            break
        except OSError:
            failed += 1
            assert s.pos == 60
    assert failed and s.pos == 61 and s.tokens() == [*ids, 5]
    assert np.array_equal(s.logits_view(), cold[60])


def test_what_was_there_survives_a_refusal(path, cold, tmp_path):
    m = load(path)
    m.session.feed(IDS[:30])
    (tmp_path / "x").write_bytes(b"not a session")
    with pytest.raises(FileError, match="not a saved session"):
        m.session.load(tmp_path / "x")
    m.session.feed(IDS[30:31])
    assert np.array_equal(m.session.logits_view(), cold[30])


def test_saving_nowhere_leaves_nothing(path, tmp_path):
    m = load(path)
    with pytest.raises(OSError, match="none"):
        m.save_session(tmp_path / "none" / "s")
    assert list(tmp_path.iterdir()) == []


def test_a_context_is_what_was_asked_for(tiny_model):
    """Also where it is no multiple of eight."""
    m = Model.load(tiny_model, ctx=13)
    whole = Model.load(tiny_model).logits(range(1, 14))
    assert m.session.ctx == 13 and np.array_equal(m.logits(range(1, 14)), whole)
    with pytest.raises(ValueError, match="13 . 1 tokens do not fit the context of 13"):
        m.session.feed([1])
    for wrong in ((0, 1), (13, 0)):
        with pytest.raises(ValueError, match="wanted at least 1"):
            Session(m.program, wrong[0], 1, "f32", wrong[1])


@pytest.mark.parametrize("between", [lambda m: list(m.generate("b", 3)), lambda m: m.reset(), lambda m: m.logits([1, 2]),
                                     lambda m: m.prime([5, 6])])
def test_an_answer_is_not_taken_up_in_another_sequence(tiny_model, between):
    m = Model.load(tiny_model, ctx=64)
    first = m.generate("a", 8)
    next(iter(first))
    between(m)
    with pytest.raises(RuntimeError, match="gone on with another sequence"):
        next(iter(first))
    assert [t.id for t in m.generate("a", 8)] == [t.id for t in Model.load(tiny_model, ctx=64).generate("a", 8)]
