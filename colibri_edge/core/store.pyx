# cython: language_level=3
"""Where the records of routed experts lie, and how they come from disk.

Resident: every record has an address from the start (the file's mapping or image); its checksum is compared at its first use.
Streamed: a slab of fixed slots, filled by reading threads. acquire() says which experts a layer needs, starts the missing reads at
once and orders the experts, those present first; wait() is called before one is used. Placement changes speed, never results.

guess() brings in what will probably be asked for, behind every read that is needed; learn() begins with the counts of earlier runs.

Policies (who leaves): "next", the default, the expert that will be asked for latest if it is asked for as regularly as before; "lru", the
slot used longest ago; "lfu", the expert asked for least often, where a use counts less and less with the tokens that pass
(docs/decisions.md holds the measured comparison).
Refuses: to evict what the running layer needs; partial or damaged records.
"""
import os

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from colibri_edge._native cimport cl_crc32c, cl_huge_alloc, cl_huge_free

POLICIES = {"lru": LRU, "lfu": LFU, "next": NEXT}
DEFAULT_POLICY = "next"
cdef double NEWER = 0.3     # weight of the newest gap in the mean
cdef enum:
    RARE = 256              # passes between uses that are taken for granted until an expert was asked for twice
    LOOK_BACK = 256         # guesses after which their worth is judged
    LOOK_AGAIN = 32         # every so many calls a guess is made all the same


cdef class Store:
    """Records of all routed stacks of a file.

    tensors: the stacks (file.Tensor of kind "experts") in layer order. views: for resident records one buffer a stack.
    slots: for streamed records, how many fit the budget, at least the largest top_k.
    """

    def __cinit__(self, path, list tensors, list views=None, int slots=0, str policy=DEFAULT_POLICY, bint direct=True):
        cdef int32_t i, e, error = 0
        cdef const uint8_t[::1] v
        cdef uint32_t[::1] crc
        cdef stack_records *s
        import array

        self.path = path
        self.names = [t.name for t in tensors]
        self.keep = []
        self.n_stacks = len(tensors)
        self.streamed = views is None
        self.kind = POLICIES[policy]
        self.weight = 1.0
        self.growth = 1.02
        self.stacks = <stack_records *>calloc(max(1, self.n_stacks), sizeof(stack_records))
        if self.stacks == NULL:
            raise MemoryError("no memory for the table of experts")
        for i, t in enumerate(tensors):
            s = &self.stacks[i]
            s.count = t.count
            s.stride = t.stride
            s.offset = t.offset
            s.at = <const uint8_t **>calloc(t.count, sizeof(uint8_t *))
            s.slot = <int32_t *>calloc(t.count, sizeof(int32_t))
            s.use = <double *>calloc(t.count, sizeof(double))
            s.asked = <int64_t *>calloc(t.count, sizeof(int64_t))
            s.last = <int64_t *>calloc(t.count, sizeof(int64_t))
            s.gap = <double *>calloc(t.count, sizeof(double))
            s.verified = <uint8_t *>calloc(t.count, 1)
            if s.at == NULL or s.slot == NULL or s.use == NULL or s.asked == NULL or s.last == NULL or s.gap == NULL or s.verified == NULL:
                raise MemoryError("no memory for the table of experts")
            words = array.array("I", t.crc)
            self.keep.append(words)
            crc = words
            s.crc = &crc[0]
            for e in range(s.count):
                s.slot[e] = -1
                s.gap[e] = <double>RARE * self.n_stacks
            if not self.streamed:
                self.keep.append(views[i])
                v = views[i]
                for e in range(s.count):
                    s.at[e] = &v[0] + <size_t>e * s.stride
            self.slot_bytes = max(self.slot_bytes, s.stride)
        if not self.streamed:
            return
        self.n_slots = slots
        self.slab_bytes = <int64_t>slots * self.slot_bytes
        self.slab = cl_huge_alloc(self.slab_bytes)
        self.slots = <slot_state *>calloc(max(1, slots), sizeof(slot_state))
        if self.slab == NULL or self.slots == NULL:
            raise MemoryError(f"no memory for {self.slab_bytes} bytes of expert slots; take a smaller ram")
        for i in range(slots):
            self.slots[i].stack = -1
            self.slots[i].read.dst = self.slab + <size_t>i * self.slot_bytes
        self.reader = cl_reader_open(os.fsencode(path), CL_READERS, direct, &error)
        if self.reader == NULL:
            raise OSError(error, "the model file cannot be read", str(path))

    def __dealloc__(self):
        cdef int32_t i
        cl_reader_close(self.reader)
        cl_huge_free(self.slab, self.slab_bytes)
        free(self.slots)
        if self.stacks != NULL:
            for i in range(self.n_stacks):
                free(self.stacks[i].at)
                free(self.stacks[i].slot)
                free(self.stacks[i].use)
                free(self.stacks[i].asked)
                free(self.stacks[i].last)
                free(self.stacks[i].gap)
                free(self.stacks[i].verified)
        free(self.stacks)

    cdef void begin(self) noexcept nogil:
        """Before a pass: another session's, in another thread, ends first, for a pass relies on the slots that it acquired."""
        if self.streamed:
            cl_reader_begin(self.reader)

    cdef void end(self) noexcept nogil:
        if self.streamed:
            cl_reader_end(self.reader)

    cdef int32_t acquire(self, int32_t stack, const int32_t *experts, const int32_t *start, int32_t n, int32_t *order) noexcept nogil:
        """Begins to bring in experts[n] of a stack, which start[i + 1] - start[i] tokens ask for; order[n]: those present first. 0, or -3
        (see error())."""
        cdef stack_records *s = &self.stacks[stack]
        cdef slot_state *slot
        cdef int32_t i, e, present = 0
        self.clock += 1
        if not self.streamed:
            for i in range(n):
                order[i] = i
                s.asked[experts[i]] += start[i + 1] - start[i]
                if not s.verified[experts[i]] and self._check(s, stack, experts[i]):
                    return -3
            self.hits += n
            return 0
        for i in range(n):
            e = experts[i]
            s.use[e] += self.weight
            if s.last[e]:
                s.gap[e] = (1.0 - NEWER) * min(s.gap[e], <double>self.clock) + NEWER * (self.clock - s.last[e])
            s.last[e] = self.clock
            s.asked[e] += start[i + 1] - start[i]
            if s.slot[e] >= 0:
                slot = &self.slots[s.slot[e]]
                slot.used = self.clock
                if slot.guessed:
                    slot.guessed = False
                    self.right += 1
                    self.lately_right += 1
                    cl_reader_hurry(self.reader, &slot.read)
                order[present] = i
                present += 1
        self.hits += present
        self.misses += n - present
        for i in range(n):
            e = experts[i]
            if s.slot[e] < 0:
                order[present] = i
                present += 1
                self._load(self._victim(), stack, e)
                cl_reader_submit(self.reader, &self.slots[s.slot[e]].read)
        return 0

    cdef void guess(self, int32_t stack, const int32_t *experts, int32_t n) noexcept nogil:
        """Begins to bring in experts[n] of a stack that will probably be asked for next, behind all reads that are needed now. What the
        running layer uses stays; a guess that was wrong is the next to leave, for nobody asked for it. Where fewer than one of three
        guesses of late was right it does nothing but try again now and then."""
        cdef stack_records *s = &self.stacks[stack]
        cdef int32_t i, e, v
        if self.lately > LOOK_BACK and 3 * self.lately_right < self.lately:
            self.held_back += 1
            if self.held_back % LOOK_AGAIN:
                return
        if self.lately > 4 * LOOK_BACK:
            self.lately /= 2
            self.lately_right /= 2
        for i in range(n):
            e = experts[i]
            if s.slot[e] >= 0:
                self.slots[s.slot[e]].used = self.clock
                continue
            v = self._victim()
            if v < 0:
                return
            self._load(v, stack, e)
            self.slots[v].guessed = True
            self.guesses += 1
            self.lately += 1
            cl_reader_submit_later(self.reader, &self.slots[v].read)

    cdef void _load(self, int32_t v, int32_t stack, int32_t expert) noexcept nogil:
        """Gives an expert the slot v; its read is ready to be queued."""
        cdef slot_state *slot = &self.slots[v]
        cdef stack_records *s
        if slot.stack >= 0:
            if not (slot.guessed and cl_reader_cancel(self.reader, &slot.read)):
                cl_reader_wait(self.reader, &slot.read)
            s = &self.stacks[slot.stack]
            s.at[slot.expert] = NULL
            s.slot[slot.expert] = -1
        s = &self.stacks[stack]
        slot.stack = stack
        slot.expert = expert
        slot.used = self.clock
        slot.guessed = False
        slot.read.offset = s.offset + <uint64_t>expert * s.stride
        slot.read.bytes = s.stride
        slot.read.crc = s.crc[expert]
        slot.read.check = not s.verified[expert]
        s.slot[expert] = v
        s.at[expert] = slot.read.dst

    cdef double _worth(self, const slot_state *slot) noexcept nogil:
        """What a slot's expert is worth by the policy; the least leaves."""
        cdef const stack_records *s = &self.stacks[slot.stack]
        cdef double due
        if self.kind == LRU:
            return <double>slot.used
        if self.kind == LFU:
            return s.use[slot.expert]
        due = s.last[slot.expert] + s.gap[slot.expert]
        return -due if due >= self.clock else due - 2.0 * self.clock     # overdue: as late as it is overdue, seen from now

    cdef int32_t _victim(self) noexcept nogil:
        """The slot to give up: an empty one, else by policy; never one of the running acquire (-1 when there is no other)."""
        cdef int32_t i, best = -1
        cdef double value, least = 0
        cdef slot_state *slot
        for i in range(self.n_slots):
            slot = &self.slots[i]
            if slot.stack < 0:
                return i
            if slot.used == self.clock:
                continue
            value = self._worth(slot)
            if best < 0 or value < least:
                best = i
                least = value
        return best

    cdef int32_t _check(self, stack_records *s, int32_t stack, int32_t expert) noexcept nogil:
        """The checksum of a resident record at its first use."""
        if cl_crc32c(0, s.at[expert], s.stride) != s.crc[expert]:
            self.failed_stack = stack
            self.failed_expert = expert
            self.failed_state = CL_READ_CRC
            return -3
        s.verified[expert] = 1
        return 0

    cdef int32_t wait(self, int32_t stack, int32_t expert) noexcept nogil:
        """Returns when the record may be read: 0, or -3 (see error()). Any thread of the pass."""
        cdef stack_records *s = &self.stacks[stack]
        cdef int32_t state
        if not self.streamed:
            return 0
        state = cl_reader_wait(self.reader, &self.slots[s.slot[expert]].read)
        if state == CL_READ_DONE:
            s.verified[expert] = 1
            return 0
        self.failed_stack = stack
        self.failed_expert = expert
        self.failed_state = state
        self.failed_errno = self.slots[s.slot[expert]].read.error
        return -3

    cdef void age(self, int32_t tokens) noexcept nogil:
        """Tokens have passed: uses from now on weigh more than those before."""
        cdef int32_t i, e
        self.tokens += tokens
        for _ in range(tokens):
            self.weight *= self.growth
        if self.weight > 1e200:
            for i in range(self.n_stacks):
                for e in range(self.stacks[i].count):
                    self.stacks[i].use[e] /= self.weight
            self.weight = 1.0

    def error(self):
        """The exception for the record that failed; its slot is emptied, so that a later pass reads it again."""
        from colibri_edge.file import FileError
        import os

        cdef int32_t i
        with nogil:
            self.begin()
        for i in range(self.n_slots):
            if self.slots[i].stack >= 0 and cl_reader_state(&self.slots[i].read) == CL_READ_QUEUED and self.slots[i].guessed:
                continue
            if self.slots[i].stack >= 0 and cl_reader_wait(self.reader, &self.slots[i].read) != CL_READ_DONE:
                self.stacks[self.slots[i].stack].slot[self.slots[i].expert] = -1
                self.stacks[self.slots[i].stack].at[self.slots[i].expert] = NULL
                self.slots[i].stack = -1
        self.end()
        where = f"{self.path}: layer {self.names[self.failed_stack].split('.')[1]}, expert {self.failed_expert}"
        if self.failed_state == CL_READ_CRC:
            return FileError(f"{where} is damaged: its CRC-32C differs from the directory's; copy or convert the file again")
        if self.failed_state == CL_READ_CUT:
            return FileError(f"{where} lies behind the end of the file, which was cut while it was in use; copy it again")
        return OSError(self.failed_errno, f"{where} cannot be read: {os.strerror(self.failed_errno)}; check the disk")

    def counts(self) -> list:
        """How often each expert was asked for since loading: [[tokens that chose it] per stack]."""
        cdef int32_t e
        return [[self.stacks[i].asked[e] for e in range(self.stacks[i].count)] for i in range(self.n_stacks)]

    def learn(self, list counts, int64_t tokens, bint fetch=True) -> None:
        """Counts of earlier runs: the policy begins with them, and the empty slots are filled with the experts asked for most, in the
        background. counts [[uses] per stack] over that many tokens. Speed only."""
        cdef int32_t i, e, v
        cdef double often
        if not self.streamed or tokens < 1:
            return
        for i in range(self.n_stacks):
            for e in range(self.stacks[i].count):
                often = counts[i][e] / <double>tokens
                self.stacks[i].use[e] = self.weight * often / (self.growth - 1)   # what ageing leaves of so many uses a pass
                if counts[i][e]:
                    self.stacks[i].gap[e] = min(self.stacks[i].gap[e], self.n_stacks / often)
        if not fetch:
            return
        hot = sorted(((counts[i][e], i, e) for i in range(self.n_stacks) for e in range(self.stacks[i].count)), reverse=True)
        empty = [v for v in range(self.n_slots) if self.slots[v].stack < 0]
        for v, (n, i, e) in zip(empty, hot):
            if not n:
                return
            if self.stacks[i].slot[e] < 0:
                self._load(v, i, e)
                self.slots[v].guessed = True
                self.guesses += 1
                cl_reader_submit_later(self.reader, &self.slots[v].read)

    def touch(self, int stack, list experts) -> None:
        """For benchmarks: asks for these experts of a stack and waits until all are in memory. Raises what error() makes."""
        cdef int32_t ids[256]
        cdef int32_t order[256]
        cdef int32_t start[257]
        cdef int32_t i, n = len(experts), failed = 0
        if not 0 <= stack < self.n_stacks or n > 256 or any(not 0 <= e < self.stacks[stack].count for e in experts):
            raise ValueError(f"stack {stack} has no experts {experts}")
        if self.streamed and n > self.n_slots:
            raise ValueError(f"{n} experts do not fit {self.n_slots} slots")
        for i in range(n):
            ids[i] = experts[i]
        for i in range(n + 1):
            start[i] = i
        with nogil:
            failed = self.acquire(stack, ids, start, n, order)
            for i in range(n):
                failed |= self.wait(stack, ids[i])
        if failed:
            raise self.error()

    def pass_over(self, int tokens=1) -> None:
        """For benchmarks: a pass of that many tokens is over."""
        self.age(tokens)

    def stats(self) -> dict:
        """Uses of routed experts: found in memory, read from disk; records brought in before they were asked for, and how many of them
        were asked for; bytes read; seconds that threads waited; direct reads or not."""
        cdef cl_reader_stats s
        memset(&s, 0, sizeof(s))
        if self.reader != NULL:
            cl_reader_get_stats(self.reader, &s)
        return {"expert_hits": self.hits, "expert_misses": self.misses, "guesses": self.guesses, "guesses_used": self.right,
                "bytes_read": s.bytes, "wait_s": s.wait_ns * 1e-9,
                "direct": bool(s.direct), "slots": self.n_slots}

    def inject(self, int fault, int nth) -> None:
        """For tests: the n-th read from now on suffers a fault (colibri/reader.h)."""
        if self.reader != NULL:
            cl_reader_inject(self.reader, fault, nth)
