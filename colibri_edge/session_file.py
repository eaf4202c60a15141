"""A session on disk: what a sequence has come to, for the very model file that computed it.

Owns: `save` and `opened`, the layout below, its checks. Refuses: files of another model, of another type of KV cache, cut or damaged
ones, sequences longer than the context. Nothing is taken over before header and lengths are right; the payload's checksum is known
when it has been read, so a session whose payload is damaged ends up empty.

Little-endian: magic "C0LSESS1"; u32 length of the JSON; u32 CRC-32C of the JSON; u64 bytes of the payload; u32 CRC-32C of the payload;
u32 CRC-32C of the 28 bytes before; JSON {"model": fingerprint of the model file, "kv": "f32", "f16" or "q8_0", "tokens": n}; the payload:
Session.state_views(n), one after the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from .crc32c import crc32c
from .topology import FileError

MAGIC = b"C0LSESS1"
HEAD = struct.Struct("<8sIIQI")
MAX_JSON = 4096


def save(path, fingerprint: str, kv: str, tokens: int, views: list[memoryview]) -> int:
    """Write a session; the file appears under its name when it is whole. Returns its bytes."""
    path = Path(path)
    text = json.dumps({"model": fingerprint, "kv": kv, "tokens": tokens}).encode()
    crc = 0
    for v in views:
        crc = crc32c(v, crc)
    head = HEAD.pack(MAGIC, len(text), crc32c(text), sum(len(v) for v in views), crc)
    temp = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        with open(temp, "wb") as f:
            f.write(head + crc32c(head).to_bytes(4, "little") + text)
            for v in views:
                f.write(v)
            f.flush()
            os.fsync(f.fileno())
            size = f.tell()
        os.replace(temp, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temp.unlink()
        raise
    return size


class Opened:
    """A session file whose header is right. pos: its tokens."""

    def __init__(self, f, path, pos: int, nbytes: int, crc: int):
        self.f, self.path, self.pos, self.nbytes, self.crc = f, path, pos, nbytes, crc

    def read_into(self, views: list[memoryview]) -> None:
        """Fill the views; FileError where the bytes are not those that were saved."""
        want, crc = sum(len(v) for v in views), 0
        if want != self.nbytes:
            raise FileError(f"{self.path} holds {self.nbytes} bytes of state, the model asks for {want} after {self.pos} tokens; "
                            "it is damaged: save the session again")
        for v in views:
            at = 0
            while at < len(v):
                n = self.f.readinto(v[at:])
                if not n:
                    raise FileError(f"{self.path} was cut while it was read; save the session again")
                at += n
            crc = crc32c(v, crc)
        if crc != self.crc:
            raise FileError(f"{self.path} is damaged (its CRC-32C is {crc:08x}, wanted {self.crc:08x}); save the session again")


def _facts(path, text: bytes) -> dict:
    """The header's JSON, with what opened() asks of it; a checksum does not make it a header."""
    try:
        facts = json.loads(text)
        good = isinstance(facts["model"], str) and isinstance(facts["kv"], str) and type(facts["tokens"]) is int and facts["tokens"] >= 0
    except (ValueError, TypeError, KeyError, RecursionError):
        good = False
    if not good:
        raise FileError(f"{path}: its header says {text[:80]!r}, wanted a model, a kv and a number of tokens; save the session again")
    return facts


@contextlib.contextmanager
def opened(path, fingerprint: str, kv: str, ctx: int) -> Iterator[Opened]:
    """Open and check a session file for a model file, a type of KV cache and a context."""
    with open(path, "rb") as f:
        head = f.read(HEAD.size + 4)
        if len(head) < HEAD.size + 4 or head[:8] != MAGIC:
            raise FileError(f"{path} is not a saved session: it begins with {head[:8]!r}, wanted {MAGIC!r}")
        if crc32c(head[:HEAD.size]) != int.from_bytes(head[HEAD.size:], "little"):
            raise FileError(f"{path} is damaged (its header's checksum is wrong); save the session again")
        _, length, text_crc, nbytes, crc = HEAD.unpack(head[:HEAD.size])
        text = f.read(length) if length <= MAX_JSON else b""
        size = os.fstat(f.fileno()).st_size
        if len(text) != length or crc32c(text) != text_crc or size != f.tell() + nbytes:
            raise FileError(f"{path} is damaged or cut: it has {size} bytes, wanted {HEAD.size + 4 + length + nbytes}; "
                            "save the session again")
        facts = _facts(path, text)
        if facts["model"] != fingerprint:
            raise FileError(f"{path} was saved with another model (fingerprint {facts['model'][:16]}, this one is {fingerprint[:16]}); "
                            "load the model file that it was saved with")
        if facts["kv"] != kv:
            raise FileError(f"{path} was saved with kv={facts['kv']!r}, this session has {kv!r}; load the model with kv={facts['kv']!r}")
        if facts["tokens"] > ctx:
            raise FileError(f"{path} holds {facts['tokens']} tokens, the context is {ctx}; load the model with a larger ctx")
        yield Opened(f, path, facts["tokens"], nbytes, crc)
