"""Strings and small tokenizers for the text tests.

Owns: the seeded generator of odd strings, the training corpus, and one small trained tokenizer per style in real use.
"""

from __future__ import annotations

import json
import random

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Oracle

from colibri_edge.text._pre_kinds import KINDS

BLOCKS = [(0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF),
          (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE7F),
          (0x0F00, 0x0FFF), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F),
          (0x2070, 0x209F), (0x20A0, 0x20CF), (0x2100, 0x218F), (0x2190, 0x22FF), (0x2460, 0x24FF), (0x3000, 0x30FF),
          (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA960, 0xA97F), (0xAC00, 0xD7FF), (0xE000, 0xE0FF), (0xF900, 0xFAFF),
          (0xFB00, 0xFB4F), (0xFE00, 0xFE6F), (0xFF00, 0xFFFF), (0x10000, 0x100FF), (0x11000, 0x110FF), (0x16D40, 0x16D7F),
          (0x1D400, 0x1D7FF), (0x1E900, 0x1E95F), (0x1F100, 0x1F2FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF),
          (0x30000, 0x323AF), (0xE0000, 0xE01FF), (0x0, 0x1F), (0x7F, 0x9F)]
SPACES = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2002\u2009\u2028\u2029\u202f\u205f\u3000\u200b\ufeff\x1c\x1f"
PARTS = [
    "'s", "'S", "'\u017f", "'re", "'RE", "'lL", "'d", "'t", "’s", "don't", "I'M", "WE'VE", "123", "1234567",
    "3.14", "0x1F", "١٢٣", "½", "Ⅷ", "²", "def f(x):\n    return x**2\n",
    "for (int i = 0; i < n; ++i) {\r\n\t}", "  ", "   ", "\n\n", "\r\n\r\n", " \n ", "\t\t", "    pass",
    "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇨🇭", "❤️", "e\u0301", "A\u030a", "\u1100\u1161\u11a8", "한국어", "日本語のテスト", "中文分词",
    "ภาษาไทย", "हिन्दी", "עברית", "العربية", "ελληνικά", "кириллица", "Ünïcödé", "ﬁ", "ǅ", "ʰ", "İ", "ß", "ﬀ",
    "\u212b", "\u2126", "▁", "▁▁", " ▁ ", "<s>", "</s>", "<unk>", "<0x41>", "<0xE4>", "<|endoftext|>",
    "<|im_start|>", "<|im_end|>", "<|im_", "<tool>", "<mask>", "<pad>", "\x00", "\x7f", "\ufffd",
    "https://example.org/a?b=c&d=%20", "user@example.org", "!!!", "...", "—", "$%^&*()", "[[", "{{x}}", "/*",
    "//", "# ", "== != <= ->", "Hello", " world", "the", " the", "The quick brown fox", "internationalization",
    "aaaaaaaaaaaaaaaaaaaaaaaa", "ABCdef", "camelCaseWord", "snake_case", "\u0378", "\U0001fae9", "\u0295",
    "\u1c89", "\ua7da", "\U00016d63\U00016d67", "\U000113c5", "\U00010d4e\u0301", "\U0003134b", "\U00033480",
    "\u088f",
]


def strings(n: int, seed: int) -> list[str]:
    """n strings: every script, code, emoji, controls, unassigned code points, spellings of special tokens."""
    r = random.Random(seed)
    out = ["", " ", "  ", "\n", "a", "▁", "é", "<s>"]

    def code_point() -> str:
        while True:
            c = r.randrange(0x110000)
            if not 0xD800 <= c < 0xE000:
                return chr(c)

    def some() -> str:
        k = r.random()
        if k < 0.45:
            return r.choice(PARTS)
        if k < 0.60:
            a, b = r.choice(BLOCKS)
            return "".join(chr(r.randint(a, b)) for _ in range(r.randint(1, 6)))
        if k < 0.70:
            return "".join(r.choice(SPACES) for _ in range(r.randint(1, 4)))
        if k < 0.78:
            return "".join(code_point() for _ in range(r.randint(1, 4)))
        if k < 0.90:
            return "".join(r.choice("etaoin shrdlu.,'0123456789") for _ in range(r.randint(1, 20)))
        return r.choice([" ", " ", "", "\n"])

    while len(out) < n:
        out.append("".join(some() for _ in range(r.randint(1, 9))))
    return out[:n]


def corpus() -> list[str]:
    r = random.Random(5)
    words = [p for p in PARTS if not p.startswith("<")]
    return ["".join(r.choice(words) + r.choice([" ", " ", "", "\n"]) for _ in range(40)) for _ in range(400)]


def _split(pattern: str):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def _byte_level(pre, nfc=False, ignore_merges=False, specials=(), alphabet=True, prefix=None):
    t = Oracle(models.BPE(ignore_merges=ignore_merges))
    t.normalizer = normalizers.NFC() if nfc else None
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=1500, special_tokens=list(specials), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else []))
    if prefix:
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single=f"{prefix} $A", pair=f"{prefix} $A {prefix} $B", special_tokens=[(prefix, t.token_to_id(prefix))])])
    return t


def gpt2():
    t = _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), specials=["<|endoftext|>"])
    t.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False), AddedToken("fox", single_word=True)])
    return t


def gpt2_prefix_space():
    return _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), specials=["<s>", "</s>"], alphabet=False)


def llama3():
    pre = pre_tokenizers.Sequence([_split(KINDS["llama-bpe"].patterns[0]),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return _byte_level(pre, ignore_merges=True, specials=["<|begin|>", "<|im_start|>", "<|im_end|>"],
                       prefix="<|begin|>")


def qwen():
    pre = pre_tokenizers.Sequence([_split(KINDS["qwen2"].patterns[0]),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t = _byte_level(pre, nfc=True, specials=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("e\u0301e\u0301", normalized=True), "  "])
    return t


def smollm():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return _byte_level(pre, specials=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


def kind(name: str):
    """Any pre-tokenizer kind of the GGUF table."""
    k = KINDS[name]
    steps = [pre_tokenizers.Digits(individual_digits=True) if p == "digits" else _split(p) for p in k.patterns]
    pre = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return _byte_level(pre, nfc=k.nfc, ignore_merges=k.ignore_merges, specials=["<|im_start|>", "<|im_end|>"])


def _bytes_tokens():
    return [f"<0x{b:02X}>" for b in range(256)]


def _sentencepiece(normalizer, pre, decoder, train_pre=None):
    """BPE with byte fallback; trained with Metaspace words, then set to the wanted form."""
    t = Oracle(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = train_pre or pre_tokenizers.Metaspace()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=1200, show_progress=False, limit_alphabet=300,
                                                        special_tokens=["<unk>", "<s>", "</s>", *_bytes_tokens()]))
    spec = json.loads(t.to_str())
    spec["added_tokens"] = [a for a in spec["added_tokens"] if not a["content"].startswith("<0x")]
    t = Oracle.from_str(json.dumps(spec))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre, decoder
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                     special_tokens=[("<s>", t.token_to_id("<s>"))])
    return t


def _llama_decoder(strip=True):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)


def llama2():
    return _sentencepiece(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None,
                          _llama_decoder())


def llama2_metaspace():
    return _sentencepiece(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), _llama_decoder())


def gemma():
    t = _sentencepiece(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
                       _llama_decoder(False))
    t.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False)])
    return t


def _unigram(byte_fallback: bool, decoder, normalizer, pre):
    t = Oracle(models.Unigram())
    t.normalizer, t.pre_tokenizer = normalizer, pre_tokenizers.Metaspace()
    extra = _bytes_tokens() if byte_fallback else []
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=900, show_progress=False, unk_token="<unk>",
                                                            special_tokens=["<pad>", "<unk>", "</s>"]))
    spec = json.loads(t.to_str())
    if byte_fallback:
        spec["model"]["vocab"] += [[b, -30.0] for b in extra]
        spec["model"]["byte_fallback"] = True
    t = Oracle.from_str(json.dumps(spec))
    t.pre_tokenizer, t.decoder = pre, decoder
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                     special_tokens=[("</s>", t.token_to_id("</s>"))])
    return t


def unigram():
    return _unigram(False, decoders.Metaspace(), None, pre_tokenizers.Metaspace())


def unigram_bytes():
    return _unigram(True, _llama_decoder(), normalizers.Sequence([normalizers.NFKC(), normalizers.Prepend("▁"),
                                                                  normalizers.Replace(" ", "▁")]), None)


STYLES = {f.__name__: f for f in (gpt2, gpt2_prefix_space, llama3, qwen, smollm, llama2, llama2_metaspace, gemma,
                                  unigram, unigram_bytes)}
