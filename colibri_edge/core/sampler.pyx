# cython: language_level=3
"""Sampling: logits to one token id.

Owns: the settings of one stream of tokens and the checking of them; the arithmetic is csrc/sampler.c. Refuses: settings
out of range and logits that are NaN (ValueError). One sampler belongs to one stream; nothing is allocated per token.
"""
import os


cdef object _real(str name, object value, double low, double high, str wanted):
    try:
        x = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} = {value!r}: wanted {wanted}") from None
    if not low <= x <= high:
        raise ValueError(f"{name} = {value!r}: wanted {wanted}")
    return x


cdef object _whole(str name, object value, object low, object high, str wanted):
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} = {value!r}: wanted {wanted}")
    return value


cdef class Sampler:
    """Chooses token ids for one stream.

    ``vocab``: number of logits. ``temperature``: 0 takes the highest logit (ties to the lower id). ``top_k``: 0 is off.
    ``top_p``: 1 is off. ``min_p``: 0 is off; a token needs this share of the best token's probability.
    ``repetition_penalty``: 1 is off; ``window``: how many last tokens it sees, 0 for all. ``seed``: None draws one from
    the system (see :attr:`seed`). ``banned``: uint8[vocab] IN, 1 for ids never to be taken (:meth:`Tokenizer.banned`).

    Same logits, settings and seed give the same ids on every CPU. Raises ValueError naming the setting, the value found
    and the value wanted.
    """

    def __cinit__(self, vocab, *, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, window=0,
                  seed=None, banned=None):
        cdef cl_sampler_config c
        cdef const uint8_t *ban = NULL
        cdef int rc
        vocab = _whole("vocab", vocab, 1, 0x7FFFFFFE, "the number of logits, 1 or more")
        c.temperature = _real("temperature", temperature, 0.0, 1e6, "a number of 0 or more (0: greedy)")
        if 0 < c.temperature < 1e-6:
            c.temperature = 0
        c.top_p = _real("top_p", top_p, 0.0, 1.0, "a number from 0 to 1 (1: off)")
        c.min_p = _real("min_p", min_p, 0.0, 1.0, "a number from 0 to 1 (0: off)")
        c.repetition_penalty = _real("repetition_penalty", repetition_penalty, 1e-6, 1e6, "a number above 0 (1: off)")
        c.top_k = min(_whole("top_k", top_k, 0, 1 << 62, "a whole number of 0 or more (0: off)"), vocab)
        c.window = _whole("window", window, 0, 1 << 26, "a whole number of tokens, 0 for all")
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little") >> 1
        c.seed = _whole("seed", seed, 0, (1 << 64) - 1, "a whole number from 0 to 2**64 - 1")
        if banned is not None:
            banned = bytes(banned)
            if len(banned) != vocab:
                raise ValueError(f"banned has {len(banned)} entries: wanted one for each of the {vocab} logits")
            ban = <const uint8_t *><const char *>(<bytes>banned)
        rc = cl_sampler_init(&self.s, vocab, &c, ban)
        if rc == CL_SAMPLER_EMEM:
            raise MemoryError(f"no memory for a sampler of {vocab} logits")
        if rc:
            raise ValueError(f"sampler settings were refused (status {rc})")

    def __dealloc__(self):
        cl_sampler_free(&self.s)

    @property
    def vocab(self):
        """Number of logits."""
        return self.s.vocab

    @property
    def seed(self):
        """The seed in use."""
        return self.s.cfg.seed

    cdef int32_t draw(self, const float *logits) except -1 nogil:
        cdef int32_t id = cl_sampler_sample(&self.s, logits)
        if id < 0:
            with gil:
                _fail(id)
        return id

    cdef void accept_one(self, int32_t id) noexcept nogil:
        cl_sampler_accept(&self.s, id)

    def accept(self, ids):
        """Tells the repetition penalty about tokens it has not drawn itself (the prompt)."""
        for id in ids:
            if not 0 <= id < self.s.vocab:
                raise ValueError(f"token id {id}: wanted 0 to {self.s.vocab - 1}")
            cl_sampler_accept(&self.s, id)

    def reset(self, seed=None):
        """Forgets all tokens and starts the random numbers again, from the same seed or another."""
        if seed is None:
            seed = self.s.cfg.seed
        cl_sampler_reset(&self.s, _whole("seed", seed, 0, (1 << 64) - 1, "a whole number from 0 to 2**64 - 1"))

    def sample(self, const float[::1] logits not None):
        """One id. logits: float32[vocab] IN. The id counts as accepted."""
        cdef int32_t id
        self._check(logits.shape[0])
        with nogil:
            id = self.draw(&logits[0])
        return id

    def candidates(self, const float[::1] logits not None):
        """What the next draw chooses from: (ids, probabilities), in its order. logits: float32[vocab] IN."""
        cdef double total = 0
        cdef int32_t n, i
        self._check(logits.shape[0])
        n = cl_sampler_candidates(&self.s, &logits[0], &total)
        if n < 0:
            _fail(n)
        return [self.s.items[i].id for i in range(n)], [self.s.items[i].p / total for i in range(n)]

    cdef int _check(self, Py_ssize_t n) except -1:
        if n != self.s.vocab:
            raise ValueError(f"{n} logits: wanted {self.s.vocab}")
        return 0


cdef int _fail(int32_t status) except -1:
    if status == CL_SAMPLER_ENAN:
        raise ValueError("a logit is NaN or +inf: the model's numbers are broken (verify the file)")
    if status == CL_SAMPLER_ENONE:
        raise ValueError("no token may be sampled: every one is banned or at -inf")
    raise ValueError(f"sampler failed with status {status}")
