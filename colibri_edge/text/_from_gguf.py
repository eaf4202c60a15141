"""GGUF metadata -> tables.

Owns: the reading of ``tokenizer.ggml.*``. Refuses: an unknown model or pre-tokenizer name, by name; it is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from . import _blob as B
from ._from_hf import _ALPHABET, Unsupported, alphabet_bytes, merge_arrays
from ._pre_kinds import DIGITS, KINDS

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_K = "tokenizer.ggml."
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def _texts(values) -> list[str]:
    return [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in values]


def _id(fields: Mapping, key: str, size: int) -> int | None:
    v = fields.get(_K + key)
    if v is None or int(v) in (-1, B.NONE):
        return None
    if not 0 <= int(v) < size:
        raise ValueError(f"{_K}{key} = {v}: the vocabulary has {size} tokens")
    return int(v)


def gguf_tables(fields: Mapping[str, object]) -> B.Tables:
    """Tables of one GGUF vocabulary. ``fields`` maps metadata keys to plain values (lists, str, int, bool)."""
    model = str(fields.get(_K + "model") or "")
    if _K + "tokens" not in fields or not model:
        raise ValueError(f"the GGUF file has no tokenizer: {_K}model and {_K}tokens are wanted")
    tokens = _texts(fields[_K + "tokens"])
    types = [int(x) for x in fields.get(_K + "token_type") or []] or [NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise ValueError(f"{_K}token_type has {len(types)} entries for {len(tokens)} tokens")
    build = {"gpt2": _gpt2, "llama": _llama, "t5": _unigram, "gemma4": _gemma4}.get(model)
    if build is None:
        raise Unsupported(f"{_K}model = {model!r}: known are gpt2, llama, t5, gemma4")
    t, pre, suf = build(fields, tokens, types)
    bos, eos = _id(fields, "bos_token_id", len(tokens)), _id(fields, "eos_token_id", len(tokens))
    if pre and bos is None and fields.get(_K + "add_bos_token"):
        raise ValueError(f"{_K}add_bos_token is set and {_K}bos_token_id is not")
    ends = [e for e in (_id(fields, k, len(tokens)) for k in _END_KEYS) if e is not None]
    for key in ("bos_token_id", *_END_KEYS):
        i = _id(fields, key, len(tokens))
        if i is not None:
            t.flags[i] = (t.flags[i] | B.CONTROL) & ~B.MODEL
    t.config.update(prefix=[bos] if pre and bos is not None else [], suffix=[eos] if suf and eos is not None else [],
                    bos=bos, eos=sorted(set(ends)), eos_token=eos, pad=_id(fields, "padding_token_id", len(tokens)))
    return t


def _flag(fields: Mapping, key: str, default: bool) -> bool:
    v = fields.get(_K + key)
    return default if v is None else bool(v)


def _token_flags(types: list[int]) -> list[int]:
    known = {NORMAL: B.MODEL, UNKNOWN: B.UNK | B.CONTROL, CONTROL: B.CONTROL | B.ADDED, USER: B.ADDED,
             UNUSED: B.UNUSED, BYTE: B.BYTE}
    return [B.PRESENT | known.get(x, B.MODEL) for x in types]


def _added(tokens: list[str], types: list[int]) -> list[B.AddedToken]:
    return [B.AddedToken(i, s.encode(), types[i] == CONTROL) for i, s in enumerate(tokens)
            if types[i] in (CONTROL, USER) and s]


def _merges(fields: Mapping) -> list[tuple[str, str]]:
    merges = []
    for m in _texts(fields.get(_K + "merges") or []):
        a, sep, b = m.partition(" ")
        if not sep or not b:
            raise ValueError(f"{_K}merges: {m!r}: wanted two tokens separated by one space")
        merges.append((a, b))
    return merges


def _gpt2(fields: Mapping, tokens: list[str], types: list[int]):
    name = str(fields.get(_K + "pre") or "default")
    if name not in KINDS:
        raise Unsupported(f"{_K}pre = {name!r} is unknown; known are {', '.join(sorted(KINDS))}")
    kind = KINDS[name]
    vocab = {s: i for i, s in enumerate(tokens)}
    data = [s.encode() if x in (CONTROL, USER) else alphabet_bytes(s) for s, x in zip(tokens, types, strict=True)]
    flags = _token_flags(types)
    for i, s in enumerate(tokens):
        if types[i] == USER and all(c in _ALPHABET for c in s):
            flags[i] |= B.MODEL
        elif flags[i] & B.MODEL and not all(c in _ALPHABET for c in s):
            flags[i] &= ~B.MODEL
    merges = _merges(fields)
    never = {i for i, x in enumerate(types) if x in (CONTROL, UNKNOWN)}
    triples, ranks = merge_arrays(vocab, merges, never)
    ops = [{"op": "prefix_space"}] if _flag(fields, "add_space_prefix", False) else []
    for p in kind.patterns:
        ops.append({"op": "split", "pattern": r"\p{N}" if p == DIGITS else p, "regex": True, "behavior": "Isolated",
                    "invert": False})
    config = {"normalizer": [{"op": "unicode", "form": "NFC"}] if kind.nfc else [], "pretok": ops,
              "decoder": {"kind": "bytes"}}
    ids = {b: vocab[c] for c, b in _ALPHABET.items() if c in vocab}
    t = B.Tables(B.KIND_BPE_BYTE, data, flags, config, B.IGNORE_MERGES * kind.ignore_merges, None, ids, triples, ranks,
                 added=_added(tokens, types))
    return t, _flag(fields, "add_bos_token", kind.add_bos), _flag(fields, "add_eos_token", False)


def _scores(fields: Mapping, n: int) -> np.ndarray:
    s = fields.get(_K + "scores")
    if s is None or len(s) != n:
        raise ValueError(f"{_K}scores has {0 if s is None else len(s)} entries for {n} tokens")
    return np.asarray(s, np.float64)


def _pieces_rule(space: bool) -> dict:
    return {"kind": "pieces", "replace": [["▁", " "]], "byte_fallback": True, "strip": [" ", 1] if space else None,
            "drop_first": None}


def _byte_ids(tokens: list[str], types: list[int]) -> dict[int, int]:
    return {int(s[3:5], 16): i for i, s in enumerate(tokens)
            if types[i] == BYTE and len(s) == 6 and s.startswith("<0x")}


def _llama(fields: Mapping, tokens: list[str], types: list[int]):
    """SentencePiece BPE: any two neighbours whose joined text is a piece may merge, best score first. As pairs: every
    split of every piece, ranked by the piece's score (equal scores share a rank, so that the left one goes first)."""
    scores = _scores(fields, len(tokens))
    usable = {s: i for i, s in enumerate(tokens) if types[i] in (NORMAL, USER)}
    order = {x: r for r, x in enumerate(sorted({scores[i] for i in usable.values()}, reverse=True))}
    triples, ranks = [], []
    for s, i in usable.items():
        for k in range(1, len(s)):
            a = usable.get(s[:k])
            if a is not None:
                b = usable.get(s[k:])
                if b is not None:
                    triples.append((a, b, i))
                    ranks.append(order[scores[i]])
    space = _flag(fields, "add_space_prefix", True)
    norm = [{"op": "prepend", "text": "▁"}] if space else []
    norm.append({"op": "replace", "pattern": " ", "regex": False, "to": "▁"})
    flags = _token_flags(types)
    for i, x in enumerate(types):
        if x == USER:
            flags[i] |= B.MODEL
    unk = _id(fields, "unknown_token_id", len(tokens))
    if unk is None and UNKNOWN in types:
        unk = types.index(UNKNOWN)
    config = {"normalizer": norm, "pretok": [], "decoder": _pieces_rule(space)}
    t = B.Tables(B.KIND_BPE_CHAR, [s.encode() for s in tokens], flags, config, B.FUSE_UNK | B.BYTE_FALLBACK, unk,
                 _byte_ids(tokens, types), np.array(triples, np.uint32).reshape(-1, 3), np.array(ranks, np.uint32),
                 added=_added(tokens, types))
    return t, _flag(fields, "add_bos_token", True), _flag(fields, "add_eos_token", False)


def _gemma4(fields: Mapping, tokens: list[str], types: list[int]):
    """Merges over characters, spaces as ▁, nothing in front, bytes for the rest. The model is of no use without its start token, and
    some files deny it, so that one is always put in front of a raw prompt."""
    flags = _token_flags(types)
    for i, x in enumerate(types):
        if x == USER:
            flags[i] |= B.MODEL
    never = {i for i, x in enumerate(types) if x in (CONTROL, UNKNOWN)}
    triples, ranks = merge_arrays({s: i for i, s in enumerate(tokens)}, _merges(fields), never)
    unk = _id(fields, "unknown_token_id", len(tokens))
    if unk is None and UNKNOWN in types:
        unk = types.index(UNKNOWN)
    config = {"normalizer": [{"op": "replace", "pattern": " ", "regex": False, "to": "▁"}], "pretok": [], "decoder": _pieces_rule(False)}
    t = B.Tables(B.KIND_BPE_CHAR, [s.encode() for s in tokens], flags, config, B.FUSE_UNK | B.BYTE_FALLBACK, unk,
                 _byte_ids(tokens, types), triples, ranks, added=_added(tokens, types))
    return t, True, _flag(fields, "add_eos_token", False)


def _unigram(fields: Mapping, tokens: list[str], types: list[int]):
    charsmap = fields.get(_K + "precompiled_charsmap")
    if charsmap is not None and len(charsmap):
        raise Unsupported(f"{_K}precompiled_charsmap: {len(charsmap)} bytes of normalisation rules are not supported")
    scores = _scores(fields, len(tokens))
    unk = _id(fields, "unknown_token_id", len(tokens))
    if unk is None:
        if UNKNOWN not in types:
            raise ValueError(f"{_K}unknown_token_id is missing")
        unk = types.index(UNKNOWN)
    space = _flag(fields, "add_space_prefix", True)
    norm: list[dict] = []
    if _flag(fields, "remove_extra_whitespaces", False):
        norm += [{"op": "strip", "left": True, "right": True},
                 {"op": "replace", "pattern": " {2,}", "regex": True, "to": " "}]
    if space:
        norm.append({"op": "prepend", "text": "▁"})
    norm.append({"op": "replace", "pattern": " ", "regex": False, "to": "▁"})
    flags = _token_flags(types)
    for i, x in enumerate(types):
        if x == USER:
            flags[i] |= B.MODEL
    normal = [scores[i] for i, x in enumerate(types) if x == NORMAL]
    bytes_ = _byte_ids(tokens, types)
    config = {"normalizer": norm, "pretok": [], "decoder": _pieces_rule(space)}
    t = B.Tables(B.KIND_UNIGRAM, [s.encode() for s in tokens], flags, config,
                 B.FUSE_UNK | (B.BYTE_FALLBACK if len(bytes_) == 256 else 0), unk, bytes_, scores=scores,
                 unk_score=min(normal, default=0.0) - 10.0, added=_added(tokens, types))
    return t, _flag(fields, "add_bos_token", False), _flag(fields, "add_eos_token", True)
