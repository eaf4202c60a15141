# cython: language_level=3
"""The functions behind include/colibri.h, handed to libcolibri in a capsule.

Owns: the mapping from the C API to blocks and sessions. Refuses: taking the GIL for a block; a session takes it to open, to close and to
tell an error.
"""
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from colibri_edge.block cimport block, block_close, block_forward, block_open, block_options
from colibri_edge.core.blas cimport cl_clear_error, cl_fail, cl_last_error
from colibri_edge.engine cimport Session

import colibri_edge.block
import colibri_edge.engine

cdef extern from "colibri/capi.h" nogil:
    enum:
        CL_CAPI_VERSION
    const char *CL_CAPI_CAPSULE
    ctypedef struct cl_capi:
        int32_t version
        void *(*init_model)(const char *path, int max_batch) noexcept nogil
        int (*forward)(void *model, const float *x, float *out, int batch) noexcept nogil
        void (*free_model)(void *model) noexcept nogil
        int (*hidden_size)(const void *model) noexcept nogil
        const char *(*last_error)() noexcept nogil
        void (*clear_error)() noexcept nogil
        void *(*session_open)(const char *path, int ctx, int threads) noexcept nogil
        int (*session_feed)(void *session, const int32_t *tokens, int n) noexcept nogil
        const float *(*session_logits)(const void *session) noexcept nogil
        int (*session_vocab)(const void *session) noexcept nogil
        int (*session_position)(const void *session) noexcept nogil
        int (*session_rewind)(void *session, int position) noexcept nogil
        void (*session_close)(void *session) noexcept nogil


# ---- blocks ----

cdef void *_init_model(const char *path, int max_batch) noexcept nogil:
    cdef block_options o
    memset(&o, 0, sizeof(o))
    o.max_batch = max_batch
    if path == NULL:
        cl_fail(-1, "colibri_init_model: the path is NULL")
        return NULL
    return block_open(path, &o)


cdef int _forward(void *model, const float *x, float *out, int batch) noexcept nogil:
    return block_forward(<block *>model, x, out, batch)


cdef void _free_model(void *model) noexcept nogil:
    block_close(<block *>model)


cdef int _hidden_size(const void *model) noexcept nogil:
    return (<const block *>model).hidden if model != NULL else -1


# ---- sessions ----

# The handle owns one reference to the session, borrowed by what runs without the GIL.
cdef struct handle:
    PyObject *session
    bint fed

# Calls of cdef functions on a borrowed Session, without reference counting.
ctypedef int32_t (*feed_fn)(PyObject *s, const int32_t *tokens, int32_t n) noexcept nogil
ctypedef const float *(*logits_fn)(PyObject *s) noexcept nogil
ctypedef int32_t (*number_fn)(PyObject *s) noexcept nogil
ctypedef int32_t (*rewind_fn)(PyObject *s, int32_t position) noexcept nogil


cdef int32_t _feed_session(Session s, const int32_t *tokens, int32_t n) noexcept nogil:
    """Feeds n tokens; afterwards logits[0] is the last one's. On an error the position is as before."""
    cdef int32_t start = s.pos, i, rc
    if n < 0 or (n > 0 and tokens == NULL):
        return cl_fail(-1, "colibri_session_feed: %d tokens with a NULL pointer or a negative count", <int>n)
    if n > s.ctx - start:
        return cl_fail(-1, "colibri_session_feed: %d + %d tokens do not fit the context of %d", <int>start, <int>n, <int>s.ctx)
    for i in range(n):
        if tokens[i] < 0 or tokens[i] >= s.program.vocab:
            return cl_fail(-1, "colibri_session_feed: token %d is %d, outside the vocabulary of %d", <int>i, <int>tokens[i],
                           <int>s.program.vocab)
    rc = s.feed_tokens(tokens, n, True)
    return _say(s, rc) if rc else 0


cdef int32_t _say(Session s, int32_t rc) noexcept nogil:
    """Tells cl_fail what a code of Session.forward means, and returns the code that colibri.h has for it."""
    cdef int32_t code = -1 if rc < -3 else rc   # the file was cut, or cannot be read
    with gil:
        try:
            text = str(s.error(rc)).encode("utf-8", "replace")
        except Exception as e:
            text = f"code {rc}, and then {type(e).__name__}".encode()
        return cl_fail(code, "%s", <const char *>text)


cdef const float *_logits_of(Session s) noexcept nogil:
    return s.logits


cdef int32_t _vocab_of(Session s) noexcept nogil:
    return s.program.vocab


cdef int32_t _position_of(Session s) noexcept nogil:
    return s.pos


cdef int32_t _rewind_to(Session s, int32_t position) noexcept nogil:
    if position < 0 or position > s.pos:
        return cl_fail(-1, "colibri_session_rewind: position %d, wanted 0 to %d", <int>position, <int>s.pos)
    cdef int32_t rc = s.rewind_to(position)
    return _say(s, rc) if rc else 0


# Held in variables: a direct call through another type is undefined in C, and GCC makes it a trap.
cdef feed_fn feed_session = <feed_fn><void *>_feed_session
cdef logits_fn logits_of = <logits_fn><void *>_logits_of
cdef number_fn vocab_of = <number_fn><void *>_vocab_of
cdef number_fn position_of = <number_fn><void *>_position_of
cdef rewind_fn rewind_to = <rewind_fn><void *>_rewind_to


cdef void *_session_open(const char *path, int ctx, int threads) noexcept nogil:
    cdef handle *h = <handle *>calloc(1, sizeof(handle))
    if h == NULL or path == NULL:
        free(h)
        cl_fail(-1, "colibri_session_open: no memory, or the path is NULL")
        return NULL
    with gil:
        try:
            from colibri_edge import Model

            session = Model.load((<bytes>path).decode("utf-8", "surrogateescape"), ctx=ctx or None, threads=threads or None).session
            Py_INCREF(session)
            h.session = <PyObject *>session
        except BaseException as e:
            text = f"{type(e).__name__}: {e}".encode("utf-8", "replace")
            cl_fail(-1, "%s", <const char *>text)
    if h.session == NULL:
        free(h)
        return NULL
    return h


cdef int _session_feed(void *session, const int32_t *tokens, int n) noexcept nogil:
    cdef handle *h = <handle *>session
    if h == NULL:
        return cl_fail(-1, "no session: the pointer is NULL; did colibri_session_open fail?")
    cdef int32_t rc = feed_session(h.session, tokens, n)
    h.fed |= rc == 0 and n > 0
    return rc


cdef const float *_session_logits(const void *session) noexcept nogil:
    cdef const handle *h = <const handle *>session
    if h == NULL or not h.fed:
        cl_fail(-1, "no logits: no token has been fed")
        return NULL
    return logits_of(h.session)


cdef int _session_vocab(const void *session) noexcept nogil:
    return vocab_of((<const handle *>session).session) if session != NULL else -1


cdef int _session_position(const void *session) noexcept nogil:
    return position_of((<const handle *>session).session) if session != NULL else -1


cdef int _session_rewind(void *session, int position) noexcept nogil:
    if session == NULL:
        return cl_fail(-1, "no session: the pointer is NULL")
    return rewind_to((<handle *>session).session, position)


cdef void _session_close(void *session) noexcept nogil:
    cdef handle *h = <handle *>session
    if h == NULL:
        return
    with gil:
        Py_DECREF(<object>h.session)
    free(h)


cdef cl_capi table
table.version = CL_CAPI_VERSION
table.init_model = _init_model
table.forward = _forward
table.free_model = _free_model
table.hidden_size = _hidden_size
table.last_error = cl_last_error
table.clear_error = cl_clear_error
table.session_open = _session_open
table.session_feed = _session_feed
table.session_logits = _session_logits
table.session_vocab = _session_vocab
table.session_position = _session_position
table.session_rewind = _session_rewind
table.session_close = _session_close
_api = PyCapsule_New(&table, CL_CAPI_CAPSULE, NULL)
