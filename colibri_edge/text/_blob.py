"""Writes a tokenizer table blob.

Owns: the byte layout of docs/tokenizer-tables.md on the writing side; the reading side is csrc/text/tok_open.c.
Refuses: vocabularies over 2**24 ids and over 4 GiB of token bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from . import _tok

MAGIC = b"CLTOKEN\0"
NONE = 0xFFFFFFFF
HEADER, SECTIONS, ALIGN = 64, 16, 64

KIND_HF, KIND_BPE_BYTE, KIND_BPE_CHAR, KIND_UNIGRAM = range(4)
IGNORE_MERGES, FUSE_UNK, BYTE_FALLBACK = 1, 2, 4
PRESENT, CONTROL, ADDED, BYTE, UNK, UNUSED, MODEL = 1, 2, 4, 8, 16, 32, 64
ADD_CONTROL, ADD_LSTRIP, ADD_RSTRIP, ADD_SINGLE_WORD = 1, 2, 4, 8

(CONFIG, OFFSETS, BYTES, FLAGS, HASH, MERGES, BYTE_IDS, SCORES, ADDED_RAW, ADDED_NORM, ADDED_TEXT, HF_JSON,
 PATTERNS, INERT) = range(14)


@dataclass
class AddedToken:
    """A token that is searched in the text before the model runs."""

    id: int
    content: bytes  #: UTF-8, as it stands in the text
    control: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False  #: searched in normalised text; content is then normalised too

    @property
    def flags(self) -> int:
        return (self.control * ADD_CONTROL | self.lstrip * ADD_LSTRIP | self.rstrip * ADD_RSTRIP
                | self.single_word * ADD_SINGLE_WORD)


@dataclass
class Tables:
    """Everything a blob holds, before it is laid out. ``tokens[i]`` is None where id i has no token."""

    kind: int
    tokens: list[bytes | None]
    flags: list[int]
    config: dict
    model_flags: int = 0
    unk: int | None = None
    byte_ids: Mapping[int, int] = field(default_factory=dict)
    merges: np.ndarray | None = None  #: uint32 (n, 3): left, right, result
    ranks: np.ndarray | None = None  #: uint32 (n,)
    scores: np.ndarray | None = None  #: float64 (vocab,)
    unk_score: float = 0.0
    added: list[AddedToken] = field(default_factory=list)
    hf_json: bytes = b""
    patterns: bytes = b""
    inert: bytes = b""


def check_id(id, text) -> int:
    """A token id of a source file, before anything is sized by it."""
    if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id < 1 << 24:
        raise ValueError(f"token {text!r} has id {id!r}: wanted 0 to {(1 << 24) - 1}")
    return id


def _added_section(entries: Iterable[AddedToken], text: bytearray) -> bytes:
    out, seen = [], {}
    for e in entries:
        seen[e.content] = e  # the same content twice: the later one stands
    for content in sorted(seen):
        e = seen[content]
        out.append(struct.pack("<4I", e.id, e.flags, len(text), len(content)))
        text += content
    return b"".join(out)


def write(t: Tables) -> bytes:
    """Lays the tables out as one blob."""
    vocab = len(t.tokens)
    if vocab > 1 << 24:
        raise ValueError(f"vocabulary of {vocab} ids: at most {1 << 24} are supported")
    data = b"".join(b or b"" for b in t.tokens)
    if len(data) >= 1 << 32:
        raise ValueError(f"{len(data)} bytes of tokens: at most 4 GiB are supported")
    offsets = np.zeros(vocab + 1, np.uint32)
    np.cumsum([len(b or b"") for b in t.tokens], out=offsets[1:])
    sec: dict[int, bytes] = {
        CONFIG: json.dumps(t.config, ensure_ascii=False, separators=(",", ":")).encode(),
        OFFSETS: offsets.astype("<u4").tobytes(),
        BYTES: data,
        FLAGS: bytes(t.flags),
        HF_JSON: t.hf_json,
        PATTERNS: t.patterns,
        INERT: t.inert,
    }
    hash_probe = merge_probe = max_len = 0
    if t.kind != KIND_HF:
        ids = np.array([i for i, f in enumerate(t.flags) if f & MODEL], np.uint32)
        max_len = max((len(t.tokens[i]) for i in ids), default=0)
        sec[HASH], hash_probe = _tok.build_hash(ids, offsets, data)
        sec[BYTE_IDS] = struct.pack("<256I", *(t.byte_ids.get(b, NONE) for b in range(256)))
    if t.kind == KIND_UNIGRAM:
        sec[SCORES] = t.scores.astype("<f8").tobytes()
    elif t.kind != KIND_HF:
        triples = np.ascontiguousarray(t.merges, np.uint32).reshape(-1)
        sec[MERGES], merge_probe = _tok.build_merges(triples, np.ascontiguousarray(t.ranks, np.uint32))
    text = bytearray()
    sec[ADDED_RAW] = _added_section((a for a in t.added if not a.normalized), text)
    sec[ADDED_NORM] = _added_section((a for a in t.added if a.normalized), text)
    sec[ADDED_TEXT] = bytes(text)

    at = HEADER + 16 * SECTIONS
    directory, body = [], []
    for i in range(SECTIONS):
        part = sec.get(i, b"")
        pad = -at % ALIGN
        body += [bytes(pad), part]
        at += pad
        directory.append(struct.pack("<2Q", at, len(part)))
        at += len(part)
    unk = NONE if t.unk is None else t.unk
    head = struct.pack("<8sIIQ8Id", MAGIC, 1, SECTIONS, at, t.kind, t.model_flags, vocab, unk, max_len, hash_probe,
                       merge_probe, 0, t.unk_score)
    return head + b"".join(directory) + b"".join(body)
