"""Hugging Face tokenizer.json -> tables.

Owns: the reading of each setting of that file. Refuses: with :class:`Unsupported`, naming the setting, whatever the
tables cannot say; :func:`colibri_edge.text.compile.compile_hf` then embeds the file for the ``tokenizers`` library.
"""

from __future__ import annotations

import re
import unicodedata

import numpy as np

from . import _blob as B
from ._pre_kinds import GPT2


class Unsupported(ValueError):
    """A tokenizer setting the compiled tables cannot express."""


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in of each byte: character -> byte (the rule of its published encoder.json)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in set(plain)]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}


_ALPHABET = byte_alphabet()
_TO_BYTE = {ord(c): b for c, b in _ALPHABET.items()}
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


def alphabet_bytes(token: str) -> bytes:
    """Bytes of a byte-level token; a token with a character outside the alphabet stands for itself."""
    try:
        return bytes(map(_TO_BYTE.__getitem__, map(ord, token)))
    except KeyError:
        return token.encode("utf-8", "surrogatepass")


def _pattern(node, where: str) -> dict:
    if isinstance(node, dict) and "Regex" in node:
        return {"pattern": node["Regex"], "regex": True}
    if isinstance(node, dict) and "String" in node:
        return {"pattern": node["String"], "regex": False}
    raise Unsupported(f"{where}: pattern {node!r} is neither String nor Regex")


def normalizer_ops(node) -> list[dict]:
    if node is None:
        return []
    kind = node["type"]
    if kind == "Sequence":
        return [op for n in node["normalizers"] for op in normalizer_ops(n)]
    if kind in ("NFC", "NFD", "NFKC", "NFKD"):
        return [{"op": "unicode", "form": kind}]
    if kind == "Prepend":
        return [{"op": "prepend", "text": node["prepend"]}]
    if kind == "Replace":
        p = _pattern(node["pattern"], "normalizer Replace")
        if p["regex"] and not re.fullmatch(r"[ \\s]?\{\d*,?\d*\}|[ ]\+", p["pattern"]):
            raise Unsupported(f"normalizer Replace: regex {p['pattern']!r}")
        return [{"op": "replace", **p, "to": node["content"]}]
    if kind == "Strip":
        return [{"op": "strip", "left": bool(node.get("strip_left")), "right": bool(node.get("strip_right"))}]
    raise Unsupported(f"normalizer {kind!r}")


def pretok_ops(node) -> list[dict]:
    if node is None:
        return []
    kind = node["type"]
    if kind == "Sequence":
        ops = [op for n in node["pretokenizers"] for op in pretok_ops(n)]
        for op in ops[:-1]:
            if op["op"] == "bytes":
                raise Unsupported("pre_tokenizer Sequence: a step after ByteLevel")
        return ops
    if kind == "ByteLevel":
        ops = [{"op": "prefix_space"}] if node.get("add_prefix_space", True) else []
        if node.get("use_regex", True):
            ops.append({"op": "split", "pattern": GPT2, "regex": True, "behavior": "Isolated", "invert": False})
        return [*ops, {"op": "bytes"}]
    if kind == "Split":
        p = _pattern(node["pattern"], "pre_tokenizer Split")
        return [{"op": "split", **p, "behavior": node["behavior"], "invert": bool(node.get("invert"))}]
    if kind == "Digits":
        behavior = "Isolated" if node.get("individual_digits") else "Contiguous"
        return [{"op": "split", "pattern": r"\p{N}", "regex": True, "behavior": behavior, "invert": False}]
    if kind == "Punctuation":
        return [{"op": "split", "pattern": r"[!-/:-@\[-`{-~\p{P}]", "regex": True,
                 "behavior": node.get("behavior", "Isolated"), "invert": False}]
    if kind == "WhitespaceSplit":
        return [{"op": "split", "pattern": r"\s", "regex": True, "behavior": "Removed", "invert": False}]
    if kind == "Metaspace":
        scheme = node.get("prepend_scheme")
        if scheme is None:
            scheme = "always" if node.get("add_prefix_space", True) else "never"
        return [{"op": "metaspace", "text": node.get("replacement", "▁"), "prepend": scheme,
                 "split": bool(node.get("split", True))}]
    raise Unsupported(f"pre_tokenizer {kind!r}")


def decoder_rule(node) -> dict:
    """{"kind": "bytes"} or {"kind": "pieces", replace, byte_fallback, strip, drop_first}."""
    rule = {"kind": "pieces", "replace": [], "byte_fallback": False, "strip": None, "drop_first": None}
    steps = [] if node is None else node["decoders"] if node["type"] == "Sequence" else [node]
    kinds = [s["type"] for s in steps]
    if kinds == ["ByteLevel"]:
        return {"kind": "bytes"}
    fused = False
    for s in steps:
        kind = s["type"]
        if kind == "Replace" and not rule["byte_fallback"] and "String" in s["pattern"]:
            rule["replace"].append([s["pattern"]["String"], s["content"]])
        elif kind == "ByteFallback" and not fused:
            rule["byte_fallback"] = True
        elif kind == "Fuse":
            fused = True
        elif kind == "Strip" and fused and not s.get("stop") and len(s["content"]) == 1 and rule["strip"] is None:
            rule["strip"] = [s["content"], int(s["start"])]
        elif kind == "Metaspace" and len(steps) == 1:
            scheme = s.get("prepend_scheme", "always" if s.get("add_prefix_space", True) else "never")
            rule["replace"].append([s.get("replacement", "▁"), " "])
            rule["drop_first"] = None if scheme == "never" else s.get("replacement", "▁")
            fused = True
        else:
            raise Unsupported(f"decoder {kinds}: step {kind!r}")
    if not steps:
        raise Unsupported("decoder null (tokens joined by spaces)")
    return rule


def post_rule(node) -> tuple[list[int], list[int]]:
    """Ids put before and after a raw prompt."""
    steps = [] if node is None else node["processors"] if node["type"] == "Sequence" else [node]
    pre: list[int] = []
    post: list[int] = []
    seen = False
    for s in steps:
        kind = s["type"]
        if kind == "ByteLevel":
            continue
        if seen:
            raise Unsupported("post_processor Sequence with two templates")
        seen = True
        if kind == "TemplateProcessing":
            side = pre
            for item in s["single"]:
                if "Sequence" in item:
                    if side is post:
                        raise Unsupported("post_processor template with two sequences")
                    side = post
                else:
                    side += s["special_tokens"][item["SpecialToken"]["id"]]["ids"]
        elif kind in ("RobertaProcessing", "BertProcessing"):
            pre.append(s["cls"][1])
            post.append(s["sep"][1])
        else:
            raise Unsupported(f"post_processor {kind!r}")
    return pre, post


def normalize(text: str, ops: list[dict]) -> str:
    """The part of normalisation that is the same for added tokens and text (see tokenizer.py for the whole)."""
    for op in ops:
        if op["op"] == "unicode":
            text = unicodedata.normalize(op["form"], text)
        elif op["op"] == "replace" and not op["regex"]:
            text = text.replace(op["pattern"], op["to"])
        elif op["op"] == "prepend":
            text = op["text"] + text if text else text
        elif op["op"] == "strip":
            text = text.lstrip() if op["left"] else text
            text = text.rstrip() if op["right"] else text
        else:
            raise Unsupported(f"added token {text!r} under normalizer {op!r}")
    return text


def added_tokens(spec: dict, control: set[str], ops: list[dict]) -> list[B.AddedToken]:
    out = []
    for a in spec.get("added_tokens") or []:
        content = a["content"]
        if not content:
            continue
        is_control = bool(a.get("special")) or content in control
        normalized = bool(a.get("normalized", not is_control))
        prepends = any(op["op"] == "prepend" for op in ops)
        if normalized and is_control and not prepends and normalize(content, ops) == content:
            normalized = False  # a spelling that normalisation leaves alone is found in the raw text as well
        text = normalize(content, ops) if normalized else content
        out.append(B.AddedToken(B.check_id(a["id"], content), text.encode(), is_control, bool(a.get("lstrip")),
                                bool(a.get("rstrip")), bool(a.get("single_word")), normalized))
    return out


def _merge_list(model: dict) -> list[tuple[str, str]]:
    out = []
    for m in model.get("merges") or []:
        pair = m.split(" ") if isinstance(m, str) else m
        if len(pair) != 2:
            raise ValueError(f"merge {m!r}: wanted two tokens separated by one space")
        out.append((pair[0], pair[1]))
    return out


def merge_arrays(vocab: dict[str, int], merges: list[tuple[str, str]], never: set[int]) -> tuple[np.ndarray, np.ndarray]:
    """uint32 (n, 3) left, right, result and uint32 (n,) ranks. Merges that would make a control token are left out."""
    triples, ranks = [], []
    for rank, (a, b) in enumerate(merges):
        try:
            t = (vocab[a], vocab[b], vocab[a + b])
        except KeyError as e:
            raise ValueError(f"merge {a!r} + {b!r}: token {e.args[0]!r} is not in the vocabulary") from None
        if t[2] not in never:
            triples.append(t)
            ranks.append(rank)
    return np.array(triples, np.uint32).reshape(-1, 3), np.array(ranks, np.uint32)


def hf_tables(spec: dict, control: set[str]) -> B.Tables:
    """Tables of one tokenizer.json (parsed). ``control`` are texts declared special outside of it."""
    model = spec["model"]
    kind = model.get("type") or ("Unigram" if isinstance(model.get("vocab"), list) else "BPE")
    norm, pre, dec = (normalizer_ops(spec.get("normalizer")), pretok_ops(spec.get("pre_tokenizer")),
                      decoder_rule(spec.get("decoder")))
    prefix, suffix = post_rule(spec.get("post_processor"))
    added = added_tokens(spec, control, norm)
    if kind == "BPE":
        t = _bpe(model, pre, dec, added)
    elif kind == "Unigram":
        t = _unigram(model, pre, dec, added)
    else:
        raise Unsupported(f"model {kind!r}")
    t.config.update(normalizer=norm, pretok=[op for op in pre if op["op"] != "bytes"], decoder=dec, prefix=prefix,
                    suffix=suffix)
    return t


def _fill(vocab: dict[str, int], spec_added: list[B.AddedToken], text_of, dec: dict) -> tuple[list, list]:
    for tok, i in vocab.items():
        B.check_id(i, tok)
    size = max([*vocab.values(), *(a.id for a in spec_added)], default=-1) + 1
    tokens: list[bytes | None] = [None] * size
    flags = [0] * size
    for tok, i in vocab.items():
        if tokens[i] is not None:
            raise ValueError(f"token id {i} is given twice, as {tokens[i]!r} and {tok!r}")
        tokens[i] = text_of(tok)
        flags[i] = B.PRESENT | B.MODEL
        if dec.get("byte_fallback") and _BYTE_TOKEN.match(tok):
            flags[i] |= B.BYTE
    return tokens, flags


def _mark_added(tokens: list, flags: list, added: list[B.AddedToken], text_of) -> None:
    for a in added:
        tokens[a.id] = text_of(a.content.decode())
        flags[a.id] |= B.PRESENT | B.ADDED
        if a.control:
            flags[a.id] = (flags[a.id] | B.CONTROL) & ~B.MODEL


def _bpe(model: dict, pre: list[dict], dec: dict, added: list[B.AddedToken]) -> B.Tables:
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise Unsupported(f"BPE {key} = {model[key]!r}")
    if model.get("dropout"):
        raise Unsupported(f"BPE dropout = {model['dropout']!r}")
    vocab: dict[str, int] = model["vocab"]
    by_bytes = bool(pre) and pre[-1]["op"] == "bytes"
    if by_bytes != (dec["kind"] == "bytes"):
        raise Unsupported("ByteLevel pre_tokenizer without ByteLevel decoder, or the other way round")
    text_of = alphabet_bytes if by_bytes else str.encode
    tokens, flags = _fill(vocab, added, text_of, dec)
    if by_bytes:
        for tok, i in vocab.items():
            if not all(ord(c) in _TO_BYTE for c in tok):
                flags[i] &= ~B.MODEL  # text never looks like this after ByteLevel
    _mark_added(tokens, flags, added, text_of)
    unk = vocab.get(model["unk_token"]) if model.get("unk_token") else None
    if unk is not None:
        flags[unk] |= B.UNK
    never = {a.id for a in added if a.control}
    triples, ranks = merge_arrays(vocab, _merge_list(model), never)
    model_flags = (B.IGNORE_MERGES * bool(model.get("ignore_merges")) | B.FUSE_UNK * bool(model.get("fuse_unk"))
                   | B.BYTE_FALLBACK * bool(model.get("byte_fallback")))
    if by_bytes:
        if model.get("byte_fallback"):
            raise Unsupported("BPE byte_fallback together with ByteLevel")
        ids = {b: vocab[c] for c, b in _ALPHABET.items() if c in vocab}
    else:
        ids = {b: vocab[f"<0x{b:02X}>"] for b in range(256) if f"<0x{b:02X}>" in vocab}
    return B.Tables(B.KIND_BPE_BYTE if by_bytes else B.KIND_BPE_CHAR, tokens, flags, {}, model_flags, unk, ids, triples,
                    ranks, added=added)


def _unigram(model: dict, pre: list[dict], dec: dict, added: list[B.AddedToken]) -> B.Tables:
    if pre and pre[-1]["op"] == "bytes":
        raise Unsupported("Unigram with ByteLevel pre_tokenizer")
    if dec["kind"] == "bytes":
        raise Unsupported("Unigram with ByteLevel decoder")
    pieces = model["vocab"]
    vocab = {tok: i for i, (tok, _) in enumerate(pieces)}
    if len(vocab) != len(pieces):
        raise Unsupported("Unigram vocabulary with the same piece twice")
    unk = model.get("unk_id")
    if unk is None:
        raise Unsupported("Unigram without unk_id")
    tokens, flags = _fill(vocab, added, str.encode, dec)
    _mark_added(tokens, flags, added, str.encode)
    flags[unk] |= B.UNK
    scores = np.zeros(len(tokens))
    scores[:len(pieces)] = [s for _, s in pieces]
    ids = {b: vocab[f"<0x{b:02X}>"] for b in range(256) if f"<0x{b:02X}>" in vocab}
    lowest = min((s for _, s in pieces), default=0.0)
    return B.Tables(B.KIND_UNIGRAM, tokens, flags, {}, B.FUSE_UNK | B.BYTE_FALLBACK * bool(model.get("byte_fallback")),
                    unk, ids, scores=scores, unk_score=lowest - 10.0, added=added)
