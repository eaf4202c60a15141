"""Compiles a tokenizer into one blob of flat tables.

Owns: the two entrances, :func:`compile_hf` and :func:`compile_gguf`, and the gathering of a Hugging Face folder's side
files (which tokens begin and end a text). The blob is described in docs/tokenizer-tables.md and read by
:class:`colibri_edge.text.tokenizer.Tokenizer`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from . import _blob as B
from ._from_gguf import gguf_tables
from ._from_hf import Unsupported, hf_tables
from ._patterns import compile_patterns, inert_section

__all__ = ["Unsupported", "compile_gguf", "compile_hf"]

_SHAPES = (KeyError, TypeError, AttributeError, IndexError)  # what odd JSON raises on the way
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token", "cls_token", "sep_token", "mask_token")


def compile_gguf(fields: Mapping[str, object]) -> bytes:
    """Tables of a GGUF vocabulary.

    ``fields``: metadata, key -> plain Python value; the ``tokenizer.ggml.*`` keys are read. Models ``gpt2`` (byte-level BPE,
    pre-tokenizer by ``tokenizer.ggml.pre``), ``llama`` (SentencePiece BPE by scores) and ``t5`` (unigram).
    Raises ValueError that names the setting for anything else.
    """
    try:
        t = gguf_tables(fields)
    except _SHAPES as e:
        raise ValueError(f"tokenizer.ggml.* has a value of the wrong shape: {type(e).__name__}: {e}") from None
    t.patterns, t.inert = compile_patterns(t.config), inert_section(t.config)
    return B.write(t)


def compile_hf(source: str | os.PathLike, *, odd: str = "embed") -> bytes:
    """Tables of a Hugging Face tokenizer.

    ``source``: a folder with tokenizer.json (then tokenizer_config.json, special_tokens_map.json, generation_config.json and
    config.json are read too, where present, for begin and end tokens), or the path of a tokenizer.json.
    ``odd``: what to do with a setting the tables cannot express: ``"embed"`` keeps the file as it is, to be run by the
    ``tokenizers`` library (``Tokenizer.note`` then says why), ``"refuse"`` raises :class:`Unsupported`, which names the setting.
    """
    if odd not in ("embed", "refuse"):
        raise ValueError(f"odd = {odd!r}: wanted 'embed' or 'refuse'")
    path = Path(source)
    folder = path if path.is_dir() else path.parent
    path = path / "tokenizer.json" if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"{path}: a Hugging Face tokenizer needs tokenizer.json; there is none here")
    raw = path.read_bytes()
    try:
        spec = json.loads(raw)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{path}: not JSON: {e}") from None
    if not isinstance(spec, dict) or not isinstance(spec.get("model"), dict):
        raise ValueError(f"{path}: not a tokenizer.json (no 'model' object)")
    side = {n: _read_json(folder / f"{n}.json") for n in ("tokenizer_config", "special_tokens_map", "generation_config",
                                                          "config")}
    named = _named_tokens(side)
    control = set(named.values()) | _listed_special(side)
    try:
        try:
            t = hf_tables(spec, control)
            t.patterns, t.inert = compile_patterns(t.config), inert_section(t.config)
        except Unsupported as e:
            if odd == "refuse":
                raise
            t = _embedded(spec, raw, control, str(e))
        _begin_and_end(t, spec, named, side)
    except _SHAPES as e:
        raise ValueError(f"{path}: a value of the wrong shape: {type(e).__name__}: {e}") from None
    return B.write(t)


def _read_json(path: Path) -> dict:
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{path}: not JSON: {e}") from None
    return data if isinstance(data, dict) else {}


def _content(v) -> str | None:
    return v.get("content") if isinstance(v, dict) else v if isinstance(v, str) else None


def _named_tokens(side: dict[str, dict]) -> dict[str, str]:
    out = {}
    for name in _NAMED:
        for source in ("special_tokens_map", "tokenizer_config"):
            text = _content(side[source].get(name))
            if text:
                out[name] = text
    return out


def _listed_special(side: dict[str, dict]) -> set[str]:
    out = set()
    for source in ("special_tokens_map", "tokenizer_config"):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            listed = side[source].get(key) or []
            listed = listed.values() if isinstance(listed, dict) else listed
            out |= {_content(x) for x in listed}
    for entry in (side["tokenizer_config"].get("added_tokens_decoder") or {}).values():
        if isinstance(entry, dict) and entry.get("special"):
            out.add(entry.get("content"))
    return out - {None, ""}


def _ids(value) -> list[int]:
    if value is None or isinstance(value, bool):
        return []
    return [int(v) for v in (value if isinstance(value, list) else [value])]


def _begin_and_end(t: B.Tables, spec: dict, named: dict[str, str], side: dict[str, dict]) -> None:
    """Fills bos, eos and pad, and lets add_bos_token / add_eos_token of tokenizer_config.json overrule the template."""
    vocab = spec["model"].get("vocab") or {}
    ids = dict(vocab) if isinstance(vocab, dict) else {p[0]: i for i, p in enumerate(vocab)}
    ids.update((a["content"], a["id"]) for a in spec.get("added_tokens") or [])
    c = t.config
    gen, conf = side["generation_config"], side["config"]
    bos = ids.get(named.get("bos_token"))
    if bos is None and "bos_token" not in side["tokenizer_config"]:
        bos = next((i for i in _ids(gen.get("bos_token_id") or conf.get("bos_token_id")) if i < len(t.tokens)), None)
    text_conf = conf.get("text_config") if isinstance(conf.get("text_config"), dict) else {}
    eos = {ids.get(named.get("eos_token"))}
    eos.update(_ids(gen.get("eos_token_id")) or _ids(conf.get("eos_token_id")) or _ids(text_conf.get("eos_token_id")))
    c["bos"], c["pad"] = bos, ids.get(named.get("pad_token"))
    c["eos"] = sorted(e for e in eos if e is not None and 0 <= e < len(t.tokens))
    first_eos = c["eos_token"] = ids.get(named.get("eos_token"))
    for key, side_ids, token, at in (("add_bos_token", "prefix", bos, 0), ("add_eos_token", "suffix", first_eos, 1)):
        want = side["tokenizer_config"].get(key)
        have = c[side_ids]
        if want is None or token is None:
            continue
        if want and token not in have:
            c[side_ids] = [*have, token] if at else [token, *have]
        elif not want:
            c[side_ids] = [i for i in have if i != token]
    for i in {bos, *c["eos"]} - {None}:
        if t.flags[i] & B.ADDED:
            t.flags[i] |= B.CONTROL


def _embedded(spec: dict, raw: bytes, control: set[str], note: str) -> B.Tables:
    """A blob that keeps the file; ids, bytes and flags are still tables, for masks and for token_bytes."""
    vocab = spec["model"].get("vocab") or {}
    ids = dict(vocab) if isinstance(vocab, dict) else {p[0]: i for i, p in enumerate(vocab)}
    added = spec.get("added_tokens") or []
    ids.update((a["content"], a["id"]) for a in added)
    size = max((B.check_id(i, text) for text, i in ids.items()), default=-1) + 1
    tokens: list[bytes | None] = [None] * size
    flags = [0] * size
    for text, i in ids.items():
        tokens[i], flags[i] = text.encode("utf-8", "surrogatepass"), B.PRESENT
    for a in added:
        flags[a["id"]] |= B.ADDED | (B.CONTROL if a.get("special") or a["content"] in control else 0)
    return B.Tables(B.KIND_HF, tokens, flags, {"note": note, "prefix": [], "suffix": []}, hf_json=raw)
