"""Pre-tokenizer kinds that GGUF files name in ``tokenizer.ggml.pre``.

Owns: one table, name -> how text is cut before BPE. The patterns are data of the models themselves (their published
tokenizer.json). Refuses: nothing; an unknown name is refused by the caller, with the list of these.
"""

from __future__ import annotations

from dataclasses import dataclass

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + _TAIL
QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _TAIL
QWEN35 = (_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SLASH_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
         rf"{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_SLASH_TAIL}")
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}|{_SLASH_TAIL}")
_DS_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DS_V3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
          r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
_DS_CODER_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_NO_HAN = "&&[^\\p{Han}]]"
KIMI = (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER[:-1]}{_NO_HAN}*{_LOWER[:-1]}{_NO_HAN}+{_CONTRACTIONS}?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER[:-1]}{_NO_HAN}+{_LOWER[:-1]}{_NO_HAN}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_TAIL}")
# The cased letters of an older Unicode, spelled out in the model's file.
_DS_LLM_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbe"
    "ῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ"
    "𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")
_DS_LLM_MARKS = "!-/:-~！-／：-～‘-‟\u3000-。"
BAILING = (r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
           r"|\s*[\r\n]|\s+(?!\S)|\s+")

DIGITS = "digits"  #: stands for "every digit alone"


@dataclass(frozen=True)
class PreKind:
    """How one family cuts its text: ``patterns`` are applied in turn, each isolating its matches."""

    patterns: tuple[str, ...]
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False  #: when the file does not say


_gpt2 = PreKind((GPT2,))
_gpt2_nfc = PreKind((GPT2,), nfc=True)
_code = PreKind((DIGITS, GPT2))
_llama3 = PreKind((LLAMA3,), ignore_merges=True, add_bos=True)
_cl100k = PreKind((LLAMA3,))
_qwen2 = PreKind((QWEN2,), nfc=True)
_deepseek3 = PreKind((r"\p{N}{1,3}", _DS_CJK, _DS_V3))

KINDS: dict[str, PreKind] = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "phi-2": _gpt2,
    "jina-es": _gpt2,
    "jina-de": _gpt2,
    "gigachat": _gpt2,
    "mpt": _gpt2_nfc,
    "olmo": _gpt2_nfc,
    "smollm": _code,
    "starcoder": _code,
    "refact": _code,
    "command-r": PreKind((DIGITS, GPT2), nfc=True),
    "codeshell": _code,
    "exaone": _code,
    "minerva-7b": _code,
    "llama-bpe": _llama3,
    "llama3": _llama3,
    "llama-v3": _llama3,
    "smaug-bpe": _llama3,
    "falcon3": _llama3,
    "lfm2": PreKind((LLAMA3,), ignore_merges=True, add_bos=True),
    "dbrx": _cl100k,
    "olmo2": _cl100k,
    "glm4": _cl100k,
    "chatglm-bpe": _cl100k,
    "qwen2": _qwen2,
    "deepseek-r1-qwen": PreKind((QWEN2,)),
    "stablelm2": PreKind((QWEN2,)),
    "hunyuan": PreKind((QWEN2,)),
    "megrez": _qwen2,
    "qwen35": PreKind((QWEN35,), nfc=True),
    "gpt-4o": PreKind((O200K,)),
    "llama4": PreKind((O200K,)),
    "tekken": PreKind((TEKKEN,), ignore_merges=True),
    "deepseek-v3": _deepseek3,
    "hunyuan-dense": _deepseek3,
    "kimi-k2": PreKind((KIMI,)),
    "deepseek-llm": PreKind((r"[\r\n]", rf"\s?[{_DS_LLM_LETTERS}]+", rf"\s?[{_DS_LLM_MARKS}]+", r"\s+$", _DS_CODER_CJK,
                             DIGITS)),
    "deepseek-coder": PreKind((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DS_CODER_CJK, DIGITS)),
    "bailingmoe": PreKind((BAILING,)),
}
