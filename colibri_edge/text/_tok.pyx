# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Typed door to the C tokenizer.

Owns: the buffer a table blob lies in, the scratch of the encoders, and the turning of C status codes into Python
exceptions. Refuses: blobs that do not check out (ValueError). Everything about Unicode, patterns and templates is above
this, in ``tokenizer.py``.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL
    bytes PyBytes_FromStringAndSize(const char *, Py_ssize_t)


cdef extern from "colibri/tokenizer.h" nogil:
    enum:
        CL_TOK_EBLOB
        CL_TOK_EMEM
        CL_TOK_ELIMIT
        CL_TOK_NONE
        CL_SEC_CONFIG
        CL_SEC_HF_JSON
        CL_TOKF_PRESENT
        CL_TOKF_CONTROL
        CL_TOKF_UNUSED
        CL_TOKF_BYTE
    ctypedef struct cl_tok_span:
        const uint8_t *p
        uint64_t n
    ctypedef struct cl_tok:
        cl_tok_span sec[16]
        uint32_t kind
        uint32_t flags
        uint32_t vocab
        uint32_t unk
    ctypedef struct cl_tok_work:
        uint32_t *ids
        size_t n_ids
    int cl_tok_open(cl_tok *, const void *, size_t) noexcept
    int cl_tok_bytes(const cl_tok *, uint32_t, const uint8_t **, uint32_t *) noexcept
    uint32_t cl_tok_flags(const cl_tok *, uint32_t) noexcept
    uint32_t cl_tok_find(const cl_tok *, const uint8_t *, size_t) noexcept
    int cl_tok_encode_text(const cl_tok *, cl_tok_work *, const uint8_t *, size_t) noexcept
    int cl_tok_next_inert(const cl_tok *, const uint8_t *, size_t, size_t, size_t *, size_t *) noexcept
    void cl_tok_work_free(cl_tok_work *) noexcept
    int cl_tok_next_added(const cl_tok *, int, const uint8_t *, size_t, size_t, size_t *, size_t *, uint32_t *,
                          uint32_t *) noexcept
    uint32_t cl_tok_build_hash(uint8_t *, uint32_t, const uint32_t *, size_t, const uint32_t *,
                               const uint8_t *) noexcept
    uint32_t cl_tok_build_merges(uint8_t *, uint32_t, const uint32_t *, const uint32_t *, size_t) noexcept


cdef int _raise(int rc) except -1:
    if rc == 0:
        return 0
    if rc == CL_TOK_EMEM:
        raise MemoryError("out of memory while encoding text")
    if rc == CL_TOK_ELIMIT:
        raise ValueError("text piece larger than 2 GiB: split it")
    raise ValueError("tokenizer tables are damaged or of another version: convert the model again")


cdef class Tables:
    """One opened table blob. ``buffer`` is any contiguous bytes-like object; it is held, not copied."""
    cdef cl_tok t
    cdef cl_tok_work w
    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, buffer):
        memset(&self.w, 0, sizeof(self.w))
        self.held = False
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        _raise(cl_tok_open(&self.t, self.view.buf, <size_t>self.view.len))

    def __dealloc__(self):
        cl_tok_work_free(&self.w)
        if self.held:
            PyBuffer_Release(&self.view)

    @property
    def kind(self):
        """CL_TOK_HF 0, CL_TOK_BPE_BYTE 1, CL_TOK_BPE_CHAR 2, CL_TOK_UNIGRAM 3."""
        return self.t.kind

    @property
    def vocab(self):
        """Number of ids in the tables."""
        return self.t.vocab

    @property
    def unk(self):
        """Id of the unknown token or None."""
        return None if self.t.unk == CL_TOK_NONE else self.t.unk

    def section(self, int index):
        """Bytes of one section (a copy)."""
        if index < 0 or index >= 16:
            raise ValueError(f"section {index}: wanted 0..15")
        return PyBytes_FromStringAndSize(<const char *>self.t.sec[index].p, <Py_ssize_t>self.t.sec[index].n)

    def token(self, uint32_t id):
        """Bytes of one token in vocabulary form, or None where the id has none."""
        cdef const uint8_t *p
        cdef uint32_t n
        if cl_tok_bytes(&self.t, id, &p, &n) != 0:
            return None
        return PyBytes_FromStringAndSize(<const char *>p, n)

    def token_flags(self, uint32_t id):
        """CL_TOKF_* of one token, 0 where the id has none."""
        return cl_tok_flags(&self.t, id)

    def find(self, bytes s not None):
        """Id of the model token with exactly these bytes, or None."""
        cdef uint32_t id = cl_tok_find(&self.t, <const uint8_t *><const char *>s, len(s))
        return None if id == CL_TOK_NONE else id

    def flag_bytes(self):
        """uint8[vocab] of CL_TOKF_* as bytes."""
        return PyBytes_FromStringAndSize(<const char *>self.t.sec[3].p, <Py_ssize_t>self.t.vocab)

    def has_added(self, int which):
        """Whether list ``which`` (0 raw, 1 normalised) of added tokens has any."""
        return self.t.sec[8 + (which & 1)].n > 0

    def next_added(self, int which, bytes text not None, size_t at):
        """The leftmost, then longest added token of list ``which`` (0 raw, 1 normalised) in ``text`` from byte ``at``
        on, as (start, end, id, flags) in bytes, or None."""
        cdef size_t start = 0, end = 0
        cdef uint32_t id = 0, flags = 0
        cdef const uint8_t *s = <const uint8_t *><const char *>text
        if cl_tok_next_added(&self.t, which & 1, s, len(text), at, &start, &end, &id, &flags):
            return start, end, id, flags
        return None

    def inert(self, bytes text not None):
        """Runs of characters that normalisation leaves alone: [(start, end)] in bytes."""
        cdef size_t at = 0, start = 0, end = 0
        cdef list out = []
        while cl_tok_next_inert(&self.t, <const uint8_t *><const char *>text, len(text), at, &start, &end):
            out.append((start, end))
            at = end
        return out

    def encode_text(self, text, list out not None):
        """Cuts ``text`` (bytes, or str with lone bytes as surrogate escapes) with the compiled patterns, encodes the
        pieces and appends the ids to ``out``."""
        cdef const char *p = NULL
        cdef Py_ssize_t n = 0
        cdef size_t i
        cdef int rc
        cdef bytes raw
        if isinstance(text, str):
            try:
                p = PyUnicode_AsUTF8AndSize(text, &n)
            except UnicodeEncodeError:
                text = (<str>text).encode("utf-8", "surrogateescape")
        if p == NULL:
            raw = text
            p = raw
            n = len(raw)
        self.w.n_ids = 0
        rc = cl_tok_encode_text(&self.t, &self.w, <const uint8_t *>p, <size_t>n)
        if rc:
            _raise(rc)
        for i in range(self.w.n_ids):
            out.append(self.w.ids[i])

    def join(self, ids, bint skip_control):
        """Token bytes of ids, one after the other; ids without a token give nothing."""
        cdef const uint8_t *p
        cdef uint32_t n, id
        cdef list parts = []
        for x in ids:
            if x < 0:
                raise ValueError(f"token id {x}: wanted 0 or more")
            if x >= self.t.vocab:
                continue
            id = x
            if cl_tok_bytes(&self.t, id, &p, &n) != 0:
                continue
            if skip_control and cl_tok_flags(&self.t, id) & CL_TOKF_CONTROL:
                continue
            parts.append(PyBytes_FromStringAndSize(<const char *>p, n))
        return b"".join(parts)

    def runs(self, ids, bint skip_control):
        """Tokens of ids in runs: [(stands for bytes?, bytes)]; byte tokens (<0x41>) are already bytes."""
        cdef const uint8_t *p
        cdef uint32_t n, id, flags
        cdef bint is_byte, last = False
        cdef list parts = [], out = []
        for x in ids:
            if x < 0:
                raise ValueError(f"token id {x}: wanted 0 or more")
            if x >= self.t.vocab:
                continue
            id = x
            flags = cl_tok_flags(&self.t, id)
            if cl_tok_bytes(&self.t, id, &p, &n) != 0 or (skip_control and flags & CL_TOKF_CONTROL):
                continue
            is_byte = flags & CL_TOKF_BYTE and n == 6
            if is_byte != last and parts:
                out.append((last, b"".join(parts)))
                parts = []
            last = is_byte
            if is_byte:
                parts.append(bytes((16 * _hex(p[3]) + _hex(p[4]),)))
            else:
                parts.append(PyBytes_FromStringAndSize(<const char *>p, n))
        if parts:
            out.append((last, b"".join(parts)))
        return out


cdef inline uint32_t _hex(uint8_t c) noexcept nogil:
    return (c - 48 if c < 58 else (c & 0x5F) - 55) & 15


def build_hash(const uint32_t[::1] ids not None, const uint32_t[::1] offsets not None, bytes data not None):
    """Table bytes -> id. ids uint32[n] IN, offsets uint32[vocab + 1] IN, data IN. Returns (table bytes, longest probe).

    The table has a power of two slots, at least 1.9 times the entries."""
    cdef uint32_t slots = 16, probe
    cdef const uint32_t *p = NULL
    while slots < 1.9 * ids.shape[0]:
        slots *= 2
    table = bytearray(4 * slots)
    cdef Py_buffer view
    PyObject_GetBuffer(table, &view, PyBUF_SIMPLE)
    if ids.shape[0]:
        p = &ids[0]
    probe = cl_tok_build_hash(<uint8_t *>view.buf, slots, p, ids.shape[0], &offsets[0],
                              <const uint8_t *><const char *>data)
    PyBuffer_Release(&view)
    return bytes(table), probe


def build_merges(const uint32_t[::1] triples not None, const uint32_t[::1] ranks not None):
    """Table pair -> merge. triples uint32[3 * n] IN (left, right, result), ranks uint32[n] IN. Returns (table bytes,
    longest probe)."""
    cdef uint32_t slots = 16, probe
    cdef const uint32_t *p = NULL
    cdef const uint32_t *q = NULL
    while slots < 1.9 * ranks.shape[0]:
        slots *= 2
    if triples.shape[0] != 3 * ranks.shape[0]:
        raise ValueError(f"{triples.shape[0]} merge words for {ranks.shape[0]} ranks: wanted three a rank")
    table = bytearray(16 * slots)
    cdef Py_buffer view
    PyObject_GetBuffer(table, &view, PyBUF_SIMPLE)
    if ranks.shape[0]:
        p = &triples[0]
        q = &ranks[0]
    probe = cl_tok_build_merges(<uint8_t *>view.buf, slots, p, q, ranks.shape[0])
    PyBuffer_Release(&view)
    return bytes(table), probe
