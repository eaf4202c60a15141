"""What a model brings besides weights: chat template, end ids, generation defaults, tokenizer tables.

Owns: `from_hf(folder, config)` and `from_gguf(fields)`, both -> {"chat_template", "generation"}, and the calls into
text/compile.py for the tokenizer. Every declared end id is kept, whichever file declares it.
Refuses: end ids outside the vocabulary. Damaged side files are errors; absent ones are not.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from ..file import SAMPLING
from .safetensors import load_json_file
from .source import ConvertError

TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>",
             "<|end_of_turn|>", "<|return|>", "<|call|>", "<turn|>")
HARMONY = {"<|return|>", "<|call|>"}      # where both are, <|end|> ends a message of the answer, not the answer
CONTROL = 3          # GGUF token type


def _ids(value, vocab: int, where: str) -> list[int]:
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for i in ids:
        if type(i) is not int or not 0 <= i < vocab:
            raise ConvertError(f"{where} is {str(value)[:60]}, wanted token ids below {vocab}")
    return ids


def _optional(path: Path) -> dict:
    return load_json_file(path) if path.is_file() else {}


def from_hf(folder: Path, config: dict, vocab: int) -> dict:
    gen, tok = _optional(folder / "generation_config.json"), _optional(folder / "tokenizer_config.json")
    ids = _ids(gen.get("eos_token_id"), vocab, "generation_config.json eos_token_id")
    ids = ids + _ids(config.get("eos_token_id"), vocab, "config.json eos_token_id")
    name = tok.get("eos_token")
    name = name.get("content") if isinstance(name, dict) else name
    added = tok.get("added_tokens_decoder")
    if isinstance(name, str) and isinstance(added, dict):
        ids = ids + [int(i) for i, t in added.items()
                     if i.isdigit() and int(i) < vocab and isinstance(t, dict) and t.get("content") == name]
    generation = _numbers(gen)
    if ids:
        generation["eos_token_ids"] = sorted(set(ids), key=ids.index)
    jinja = folder / "chat_template.jinja"
    template = jinja.read_text("utf-8") if jinja.is_file() else _template(tok.get("chat_template"))
    if template is None:
        template = _template(_optional(folder / "chat_template.json").get("chat_template"))
    return {"chat_template": template, "generation": generation}


def _template(value) -> str | None:
    """A template is text, or an array of named ones, of which "default" counts."""
    if isinstance(value, list):
        value = next((t.get("template") for t in value if isinstance(t, dict) and t.get("name") == "default"), None)
    if not (value is None or isinstance(value, str)):
        raise ConvertError(f"chat_template is {json.dumps(value)[:60]}, wanted text")
    return value


def _numbers(gen: dict) -> dict:
    """Sampling defaults; do_sample false means greedy, which is temperature 0 here."""
    out = {k: gen[k] for k in SAMPLING if type(gen.get(k)) in (int, float) and math.isfinite(gen[k])}
    if gen.get("do_sample") is False:
        out.pop("temperature", None)
        out["temperature"] = 0.0
    return out


def from_gguf(fields, vocab: int) -> dict:
    ids = []
    for key in ("eos", "eot", "eom"):
        name = f"tokenizer.ggml.{key}_token_id"
        ids += _ids(fields.get(name), vocab, name)
    if "tokenizer.ggml.tokens" in fields and "tokenizer.ggml.token_type" in fields:
        kinds = fields["tokenizer.ggml.token_type"]
        tokens = fields["tokenizer.ggml.tokens"] if isinstance(kinds, list) and CONTROL in kinds else []
        found = {t: i for i, (t, k) in enumerate(zip(tokens, kinds, strict=False)) if k == CONTROL and t in TURN_ENDS}
        ids += [i for t, i in found.items() if t != "<|end|>" or not found.keys() >= HARMONY]
    generation = {}
    for ours, theirs in (("temperature", "temp"), ("top_k", "top_k"), ("top_p", "top_p"), ("min_p", "min_p"),
                         ("repetition_penalty", "penalty_repeat")):
        v = fields.get(f"general.sampling.{theirs}")
        if type(v) in (int, float) and math.isfinite(v):
            generation[ours] = v
    if ids:
        generation["eos_token_ids"] = sorted({i for i in ids if i < vocab}, key=ids.index)
    template = fields.get("tokenizer.chat_template")
    return {"chat_template": template if isinstance(template, str) else None, "generation": generation}


def tokenizer_hf(folder: Path) -> bytes | None:
    """Compiled tables, or None where the folder has no tokenizer."""
    if not (folder / "tokenizer.json").is_file():
        return None
    compiler = _compiler()
    return compiler.compile_hf(folder) if compiler else None


def tokenizer_gguf(fields) -> bytes | None:
    """Compiled tables, or None where the file has no vocabulary."""
    if "tokenizer.ggml.tokens" not in fields:
        return None
    compiler = _compiler()
    return compiler.compile_gguf(fields) if compiler else None


def _compiler():
    try:
        from ..text import compile as compiler
    except ImportError:
        return None
    return compiler
