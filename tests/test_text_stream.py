"""Streams: no half characters, joined pieces are the whole, no part of a stop string (FAULTS 10, 12)."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("tokenizers")

import text_samples as S  # noqa: E402

from colibri_edge.text.compile import compile_hf  # noqa: E402
from colibri_edge.text.stream import StopStrings, TextStream  # noqa: E402
from colibri_edge.text.tokenizer import Tokenizer  # noqa: E402


@pytest.fixture(scope="module", params=["gpt2", "llama2", "unigram_bytes"])
def tok(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("tok") / "tokenizer.json"
    S.STYLES[request.param]().save(str(path))
    return Tokenizer(compile_hf(path, odd="refuse"))


def test_emoji_and_cjk(tok):
    text = "👨‍👩‍👧‍👦 𠜎𠜱 한국어 日本語 🏳️‍🌈 e\u0301 x\U00010d4e"
    stream = tok.stream()
    pieces = [stream.push(i) for i in tok.encode(text, False)]
    assert all("\ufffd" not in p for p in pieces)
    assert "".join(pieces) + stream.flush() == tok.decode(tok.encode(text, False))


@pytest.mark.parametrize("skip", [False, True])
def test_joined_pieces_equal_the_whole(tok, skip):
    r = random.Random(1)
    for _ in range(300):
        ids = [r.randrange(tok.vocab_size) for _ in range(r.randint(0, 12))]
        stream = tok.stream(skip)
        assert "".join([*map(stream.push, ids), stream.flush()]) == tok.decode(ids, skip)


def test_long_byte_runs(tok):
    """Text spelled in byte tokens streams; joined pieces equal the whole, broken bytes or not."""
    if tok.unk_id is None:
        pytest.skip("no byte tokens")
    byte = {tok.token_bytes(i)[0]: i for i in range(tok.vocab_size)
            if len(tok.token_bytes(i)) == 1 and tok._t.token_flags(i) & 8}
    text = "ሰላም ለሁላችሁ ይሁን 👍🏽 " * 30
    stream = tok.stream()
    seen = [stream.push(byte[b]) for b in text.encode()]
    assert sum(map(len, seen)) > len(text) - 256
    assert "".join(seen) + stream.flush() == text.removeprefix(" ") == tok.decode([byte[b] for b in text.encode()])
    r = random.Random(4)
    for _ in range(400):
        raw = "".join(r.choice("aé中👍") for _ in range(r.choice([3, 40, 120, 300]))).encode()
        raw = raw[:r.randint(0, len(raw))] + r.choice([b"", b"\xff", b"\xe4\xbd", b"a"]) + raw[:r.choice([0, 9, 300])]
        ids = [byte[b] for b in raw]
        ids[r.randint(0, len(ids)):0] = [tok.encode("x", False)[-1]] * r.randint(0, 1)
        stream = tok.stream()
        assert "".join([*map(stream.push, ids), stream.flush()]) == tok.decode(ids)
        if "\ufffd" not in raw.decode("utf-8", "replace"):
            assert "\ufffd" not in tok.decode([byte[b] for b in raw])


def test_leading_space(tok):
    for text in ("hello", " hello", "  hello", " "):
        ids = tok.encode(text, False)
        stream = tok.stream()
        assert "".join([*map(stream.push, ids), stream.flush()]) == tok.decode(ids)


def test_every_byte_string_comes_back(tok):
    """FAULTS 12; NFKC of unigram_bytes is not lossless, so there only what it does not change."""
    r = random.Random(2)
    cases = [bytes([b]) for b in range(256)] + [r.randbytes(r.randint(1, 30)) for _ in range(300)]
    cases += [b"\xe4\xbd", b"\xff\xfe", b"ok\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"\x80" * 20]
    for raw in cases:
        if tok.unk_id is not None and not _stable(raw):
            continue
        ids = tok.encode(raw, False)
        assert tok.decode_bytes(ids) == raw, raw
        if tok.unk_id is not None:
            assert tok.unk_id not in ids


def _stable(raw: bytes) -> bool:
    import unicodedata

    text = raw.decode("utf-8", "surrogateescape")
    return unicodedata.normalize("NFKC", text) == text and "▁" not in text


def test_special_tokens_are_left_out(tok):
    special = tok.special_ids[0]
    ids = [*tok.encode("a", False), special, *tok.encode("b", False)]
    assert tok.control_texts[0] in tok.decode(ids)
    assert tok.control_texts[0] not in tok.decode(ids, skip_special=True)


def test_wrong_ids(tok):
    with pytest.raises(ValueError, match="token id -1"):
        tok.decode([-1])
    assert tok.decode([10**6]) == ""  # a row of the matrix without a token
    assert tok.token_bytes(10**6) == b""


@pytest.mark.parametrize("stops", [["</s>"], ["\n\n", "\n\nUser:"], ["ab", "abc", "b"], ["aaa"], ["x"], ["é", "中文"],
                                   ["STOP", "TOP"]])
def test_stop_strings_at_every_cut(stops):
    text = "héllo </s> wörld 中文\n\nUser: abc aab aaaa x STOP end </"
    want_at = min([text.find(s) for s in stops if s in text], default=len(text))
    for seed in range(60):
        r = random.Random(seed)
        watch, out, at = StopStrings(stops), "", 0
        while at < len(text) and not watch.stopped:
            n = r.randint(1, 4)
            out += watch.push(text[at:at + n])
            assert text.startswith(out) and len(out) <= want_at
            at += n
        out += watch.flush()
        assert out == text[:want_at]
        assert watch.stopped == (want_at < len(text))
        if watch.stopped:
            assert watch.push("more") == "" and watch.flush() == ""
            longest = max((s for s in stops if text.startswith(s, want_at)), key=len)
            assert text.startswith(watch.matched, want_at) and len(watch.matched) <= len(longest)


def test_stop_strings_hold_back_no_more_than_needed():
    watch = StopStrings(["User:"])
    assert watch.push("a U") == "a "
    assert watch.push("s") == ""
    assert watch.push("b") == "Usb"
    assert watch.push("User") == ""
    assert watch.flush() == "User" and not watch.stopped


@pytest.mark.parametrize("bad", [[""], [None], [5]])
def test_wrong_stop_strings(bad):
    with pytest.raises(ValueError, match="stop string"):
        StopStrings(bad)


def test_finish_reasons(tok):
    ids = tok.encode("one two STOP three", False)

    def run(**kw):
        s = TextStream(tok.stream(), **kw)
        out = ""
        for i in ids:
            out += s.push(i)
            if s.finish_reason:
                break
        return out + s.finish(), s.finish_reason, s.tokens

    assert run(stops=["STOP"])[:2] == ("one two ", "stop")
    assert run()[1] == "length"
    text, reason, n = run(max_tokens=2)
    assert (reason, n) == ("length", 2) and "one two STOP three".startswith(text)
    assert run(eos_ids=[ids[0]]) == ("", "stop", 1)
    text, reason, _ = run(stops=["three!"])
    assert (text, reason) == ("one two STOP three", "length")
    s = TextStream(tok.stream(), eos_ids=[ids[0]])
    s.push(ids[0])
    with pytest.raises(ValueError, match="has ended"):
        s.push(ids[0])


def test_stop_in_byte_tokens(tok):
    """A newline made of a byte token stops at once, although byte runs are held back."""
    nl = next(i for i in range(tok.vocab_size) if tok.token_bytes(i) == b"\n")
    s = TextStream(tok.stream(), stops=["\n"])
    out = "".join(s.push(i) for i in tok.encode("ab", False))
    out += s.push(nl)
    assert s.finish_reason == "stop" and out == tok.decode(tok.encode("ab", False))
