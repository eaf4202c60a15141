# cython: language_level=3
"""One forward pass: a layer program compiled from a model file, run without the GIL and without allocation.

Program: what the file says, as C structs that point into its mapping; shared by sessions, never written after loading.
Session: one sequence: KV cache, position, buffers sized once. One session belongs to one thread at a time; sessions of a streamed
Program in several threads take turns, pass by pass.
Refuses: Python objects between the first and the last layer, allocation after the session is made.
"""
import os

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.math cimport sqrt
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from colibri_edge._native cimport (
    CL_ACT_GELU_TANH, CL_ACT_RELU, CL_ACT_SILU, CL_KV_F16, CL_KV_F32, CL_KV_Q8, cl_act8, cl_aligned_alloc, cl_aligned_free, cl_attn_scratch,
    cl_dequant_row, cl_expf, cl_get_format, cl_get_kernels, cl_guard_add, cl_guard_lost, cl_guard_remove, cl_huge_alloc,
    cl_huge_free, cl_huge_settle, cl_pool_free, cl_pool_new, cl_pool_run, cl_pool_threads, cl_sincos,
)
from colibri_edge.core.attention cimport QK_FULL, QK_HEAD, QK_NONE, attend
from colibri_edge.core.delta cimport delta_rule, delta_state_floats
from colibri_edge.core.dispatch cimport groups_bytes, groups_init
from colibri_edge.core.ffn cimport apart, expert_stack, ffn, ffn_layer, ffn_scratch
from colibri_edge.core.matmul cimport matmul, mm_job
from colibri_edge.core.store cimport (
    CL_READ_DONE, CL_READERS, Store, cl_read, cl_reader, cl_reader_close, cl_reader_open, cl_reader_submit, cl_reader_wait,
)
from colibri_edge.core.runtime cimport (
    ST_ATTN, ST_ATTN_PROJ, ST_COUNT, ST_EMBED, ST_HEAD, ST_NORM, ST_OTHER, activations, cl_now_ns, enter, enter_layer, imax, imin,
    matrix, pad, round_up, runtime,
)

include "config.pxi"

cdef enum:
    ALIGN = 64
    HEAD_ROWS = 16          # tokens whose logits are computed at a time
    MAX_THREADS = 256
    ROWS_AHEAD = 16         # reads of the embedding in flight
    PAGE = 4096             # CL_READ_ALIGN
    CAP_LOGITS = 4096       # logits of one chunk of the soft cap

STAGES = ("other", "embed", "norm", "attention projections", "attention", "router", "dispatch", "experts", "disk", "head")
ACTIVATIONS = {"silu": CL_ACT_SILU, "gelu_tanh": CL_ACT_GELU_TANH, "relu": CL_ACT_RELU}
KV_TYPES = {"f32": CL_KV_F32, "f16": CL_KV_F16, "q8_0": CL_KV_Q8}


class EngineError(RuntimeError):
    """A forward pass could not go on: damaged record, NaN in the router, no room in the context."""


cdef const uint8_t *address(object view) except NULL:
    cdef const uint8_t[::1] v = view
    return &v[0]


cdef int fill_matrix(matrix *m, str fmt, int64_t rows, int64_t cols, const uint8_t *w) except -1:
    from colibri_edge import _native

    cdef int32_t f = _native.formats()[fmt][0]
    cdef int32_t block_k = cl_get_format(f).block_k
    m.w = w
    m.fmt = f
    m.rows = <int32_t>rows
    m.cols = <int32_t>cols
    m.ngroups = <int32_t>((rows + 7) // 8)
    m.nblk = <int32_t>((cols + block_k - 1) // block_k)
    m.group_stride = <size_t>m.nblk * cl_get_format(f).block_bytes
    m.int8_act = cl_get_format(f).int8_act
    return 0


cdef class Program:
    """The layer program of a ColibriFile. Raises ValueError where this build's constants are too small for the model.

    weights: "map" reads the file's mapping in place (instant start, pages come as they are touched); "ram" copies the file
    into huge pages first (docs/performance.md says when that pays); "stream" keeps all but the routed experts in memory and
    reads those through `slots` slots (core/store), by `policy` ("next", "lfu" or "lru"); direct: past the page cache where possible.
    embed_rows: with "stream", leave the embedding in the file as well, and read the rows that tokens ask for; needs an output matrix
    of its own. Those rows have no checksum of their own: `verify` checks them.
    """

    def __cinit__(self, file, str weights="map", int slots=0, str policy="next", bint direct=True, bint embed_rows=False):
        topo = file.topology
        if weights not in ("map", "ram", "stream"):
            raise ValueError(f"weights is {weights!r}, wanted 'map', 'ram' or 'stream'")
        if embed_rows and (weights != "stream" or topo["tied"]):
            raise ValueError("embed_rows needs weights='stream' and an output matrix of its own")
        self.weights = weights
        self.embed_rows = embed_rows
        self.embed_at = file.tensors["embed"].offset
        self.file = file
        self.keep = []
        self.topology = topo
        self.hidden = topo["hidden_size"]
        self.vocab = topo["vocab_size"]
        self.context = topo["context_length"]
        self.norm_eps = topo["norm_eps"]
        self.embed_scale = topo["embed_scale"]
        self.logit_softcap = topo["logit_softcap"]
        self.n_layers = len(topo["layers"])
        self.n_ropes = len(topo["ropes"])
        self.max_experts = self.max_top_k = 1
        self.layers = <layer *>calloc(imax(1, self.n_layers), sizeof(layer))
        self.ropes = <rope_spec *>calloc(imax(1, self.n_ropes), sizeof(rope_spec))
        self.single = <const uint8_t **>calloc(imax(1, self.n_layers), sizeof(uint8_t *))
        if self.layers == NULL or self.ropes == NULL or self.single == NULL:
            raise MemoryError("no memory for the layer program")
        if hasattr(file, "mapping"):
            self.mapped = address(file.mapping())
            cl_guard_add(self.mapped, file.size)
        if weights == "ram":
            self._load_image(file)
        elif weights == "stream":
            self._read_image(file)
        self._open_store(slots, policy, direct)
        self.float_weights = True
        self._matrix(&self.embed, "embed")
        if topo["tied"]:
            self.output = self.embed
        else:
            self._matrix(&self.output, "output")
        self.output_norm = self._vector("output_norm")
        cdef int32_t i
        for i in range(self.n_ropes):
            spec = topo["ropes"][i]
            self.ropes[i].half = spec["dim"] // 2
            self.ropes[i].factor = spec["attention_factor"]
            self.ropes[i].inv_freq = self._vector(spec["tensor"])
            self.max_rope_half = imax(self.max_rope_half, self.ropes[i].half)
        for i in range(self.n_layers):
            a = topo["layers"][i]["attn"]
            if a["kind"] == "delta":
                self._delta(&self.layers[i], i, a)
            else:
                self._attention(&self.layers[i], i, a)
            self._ffn(&self.layers[i].ffn, i, topo["layers"][i]["ffn"])
        if self.store.streamed and slots < self.max_top_k:
            raise ValueError(f"{slots} slots for streamed experts, and a token takes {self.max_top_k}; give at least as many")

    def __dealloc__(self):
        cl_guard_remove(self.mapped)
        free(self.layers)
        free(self.ropes)
        free(self.single)
        cl_huge_free(self.image, self.image_bytes)

    def settle(self, size_t huge) -> bool:
        """Moves mapped weights into huge pages of that many bytes, in place, while sessions may go on; afterwards `weights` is "ram".

        False where they are not mapped, the system has no huge pages to give, or memory ran out (what was moved stays so). Takes the
        time to copy the file once. The bytes are those that the mapping showed.
        """
        cdef size_t n = self.file.size
        if self.weights != "map" or not huge or self.mapped == NULL or n < 2 * huge:
            return False
        cdef size_t moved
        with nogil:
            moved = cl_huge_settle(self.mapped, n, huge)
        if moved + 2 * huge < n:
            return False
        self.weights = "ram"
        return True

    cdef int _load_image(self, file) except -1:
        """The whole file in anonymous memory, in huge pages where the system gives them."""
        from concurrent.futures import ThreadPoolExecutor

        cdef int64_t step = 16 << 20, n = file.size
        self.image_bytes = n
        self.image = cl_huge_alloc(n)
        if self.image == NULL:
            raise MemoryError(f"no memory for {n} bytes of weights; use weights='map'")
        target = memoryview(<uint8_t[:n]>self.image)

        def read(at):
            with open(file.path, "rb", buffering=0) as f:
                f.seek(at)
                part = target[at:at + step]
                while len(part):
                    got = f.readinto(part)
                    if not got:
                        raise EngineError(f"{file.path} ended at byte {at} of {n} while it was read; it was cut: copy it again")
                    part = part[got:]

        with ThreadPoolExecutor(2) as workers:
            list(workers.map(read, range(0, n, step)))
        return 0

    cdef int _read_image(self, file) except -1:
        """All that lies before the routed experts, past the page cache."""
        from colibri_edge.file import FileError

        cdef int64_t first = min(t.offset for t in file.tensors.values() if t.name.endswith(".experts")), step = 8 << 20, at, end
        cdef int32_t error = 0, i, n = 0, state
        late = [t.name for t in file.tensors.values() if not t.name.endswith(".experts") and t.offset > first]
        if late:
            raise FileError(f"{file.path}: {late[0]} lies behind the routed experts, so these cannot be streamed; convert the model again")
        self.image_bytes = first
        self.image = cl_huge_alloc(first)
        cdef cl_read *reads = <cl_read *>calloc(first // step + 3, sizeof(cl_read))
        cdef cl_reader *reader = cl_reader_open(os.fsencode(file.path), CL_READERS, True, &error)
        try:
            if reader == NULL:
                raise OSError(error, "the model file cannot be read", str(file.path))
            if self.image == NULL or reads == NULL:
                raise MemoryError(f"no memory for {first} bytes of resident weights")
            for at, end in self._resident_spans(file, first):
                while at < end:
                    reads[n].offset = at
                    reads[n].dst = self.image + at
                    reads[n].bytes = min(step, end - at)
                    cl_reader_submit(reader, &reads[n])
                    at += step
                    n += 1
            for i in range(n):
                with nogil:
                    state = cl_reader_wait(reader, &reads[i])
                if state != CL_READ_DONE:
                    raise OSError(reads[i].error, "the model file cannot be read, or was cut meanwhile", str(file.path))
        finally:
            cl_reader_close(reader)
            free(reads)
        return 0

    def _resident_spans(self, file, first):
        """[start, end) of what is read into the image: all before `first`, but the embedding where its rows are read one by one."""
        e = file.tensors["embed"]
        if not self.embed_rows or e.offset >= first:
            return [(0, first)]
        return [(0, e.offset), ((e.offset + e.length) // PAGE * PAGE, first)]

    cdef int _open_store(self, int slots, str policy, bint direct) except -1:
        routed = [t for name, t in self.file.tensors.items() if name.endswith(".experts")]
        routed.sort(key=lambda t: int(t.name.split(".")[1]))
        views = None if self.weights == "stream" else [self.view(t.name) for t in routed]
        self.store = Store(self.file.path, routed, views, slots, policy, direct)
        return 0

    cdef object view(self, str name, record=None):
        """The bytes of a tensor or of one expert record, wherever they lie."""
        if self.image == NULL:
            return self.file.view(name, record)
        t = self.file.tensors[name]
        if t.offset + t.length > self.image_bytes:
            raise ValueError(f"{name} is streamed")
        cdef int64_t at = t.offset + (record or 0) * t.stride, n = t.length if record is None else t.stride
        return memoryview(<const uint8_t[:n]>(self.image + at))

    cdef int _matrix(self, matrix *m, str name) except -1:
        t = self.file.tensor(name)
        view = self.view(name)
        self.keep.append(view)
        fill_matrix(m, t.format, t.shape[0], t.shape[1], address(view))
        if m.int8_act:
            self.float_weights = False
        return 0

    cdef const float *_vector(self, str name) except? NULL:
        """A copy padded with zeros to a multiple of 8; NULL when the file has no such tensor."""
        if name not in self.file.tensors:
            return NULL
        raw = self.view(name)
        copy = bytearray(len(raw) + 64)
        copy[:len(raw)] = raw
        self.keep.append(copy)
        return <const float *>address(copy)

    cdef int _attention(self, layer *l, int32_t n, dict a) except -1:
        cdef str p = f"layers.{n}."
        l.attn.norm = self._vector(p + "attn_norm")
        l.attn.norm_eps = self.norm_eps
        self._matrix(&l.attn.q, p + "attn.q")
        self._matrix(&l.attn.k, p + "attn.k")
        if not a.get("k_eq_v", False):
            self._matrix(&l.attn.v, p + "attn.v")
        self._matrix(&l.attn.o, p + "attn.o")
        l.attn.q_bias = self._vector(p + "attn.q_bias")
        l.attn.k_bias = self._vector(p + "attn.k_bias")
        l.attn.v_bias = self._vector(p + "attn.v_bias")
        l.attn.o_bias = self._vector(p + "attn.o_bias")
        l.attn.q_norm = self._vector(p + "attn.q_norm")
        l.attn.k_norm = self._vector(p + "attn.k_norm")
        l.attn.k_eq_v = a.get("k_eq_v", False)
        l.attn.v_norm = a.get("v_norm", False)
        l.attn.softcap = a.get("softcap", 0.0)
        l.attn.sinks = self._vector(p + "attn.sinks")
        l.attn.post_norm = self._vector(p + "attn_post_norm")
        l.attn.qk_norm_kind = {None: QK_NONE, "head": QK_HEAD, "full": QK_FULL}[a["qk_norm"]]
        l.attn.gated = a["kind"] == "gated"
        if l.attn.gated:
            self.has_gate = True
            self._matrix(&l.attn.gate, p + "attn.gate")
        l.attn.heads = a["heads"]
        l.attn.kv_heads = a["kv_heads"]
        l.attn.head_dim = a["head_dim"]
        l.attn.rope = -1 if a["rope"] is None else a["rope"]
        l.attn.rope_dim = 0 if a["rope"] is None else 2 * self.ropes[l.attn.rope].half
        l.attn.window = a["window"]
        l.attn.scale = a["scale"]
        l.attn.slot = n
        self.has_apart = self.has_apart or l.attn.post_norm != NULL
        self.max_heads_dim = imax(self.max_heads_dim, l.attn.heads * l.attn.head_dim)
        self.max_kv_dim = imax(self.max_kv_dim, l.attn.kv_heads * l.attn.head_dim)
        self.attn_scratch = max(self.attn_scratch, cl_attn_scratch(l.attn.heads // l.attn.kv_heads, l.attn.head_dim))
        return 0

    cdef int _delta(self, layer *l, int32_t n, dict a) except -1:
        cdef str p = f"layers.{n}."
        cdef delta_layer *d = &l.delta
        l.recurrent = True
        d.norm = self._vector(p + "attn_norm")
        d.norm_eps = self.norm_eps
        d.key_heads, d.value_heads, d.key_dim, d.value_dim = a["key_heads"], a["value_heads"], a["key_dim"], a["value_dim"]
        d.taps = a["taps"]
        d.tiled = a["pairing"] == "tiled"
        d.q_scale = 1.0 / sqrt(a["key_dim"])
        d.channels = 2 * d.key_heads * d.key_dim + d.value_heads * d.value_dim
        self._matrix(&d.qkv, p + "attn.qkv")
        self._matrix(&d.z, p + "attn.z")
        self._matrix(&d.o, p + "attn.o")
        self._matrix_f32(&d.beta, p + "attn.beta")
        self._matrix_f32(&d.alpha, p + "attn.alpha")
        d.conv = self._vector(p + "attn.conv")
        d.ldw = d.channels
        d.rate = self._vector(p + "attn.rate")
        d.dt_bias = self._vector(p + "attn.dt_bias")
        d.out_norm = self._vector(p + "attn.out_norm")
        d.state = self.state_floats
        self.state_floats += delta_state_floats(d)
        self.max_heads_dim = imax(self.max_heads_dim, d.value_heads * d.value_dim)
        self.max_keys = imax(self.max_keys, 2 * d.key_heads * d.key_dim)
        self.max_mixed = imax(self.max_mixed, d.channels)
        self.max_taps = imax(self.max_taps, d.taps)
        self.max_value_dim = imax(self.max_value_dim, d.value_heads * d.value_dim)
        self.max_value_heads = imax(self.max_value_heads, d.value_heads)
        return 0

    cdef int _stack(self, expert_stack *s, int32_t n, str name, dict f) except -1:
        t = self.file.tensor(name)
        if name.endswith(".experts"):
            s.slot = self.n_routed
            s.record = self.store.stacks[s.slot].at
            self.n_routed += 1
        else:
            view = self.view(name)
            self.keep.append(view)
            self.single[n] = address(view)
            s.record = &self.single[n]
        s.count = t.count
        s.intermediate = t.shape[1]
        s.clamped = f["activation"] == "swiglu_clamped"
        parts = {p.name: p for p in t.parts}
        s.interleaved = "gate_up" in parts
        s.gated = s.interleaved or "gate" in parts
        if s.clamped:
            if not s.gated:
                from colibri_edge.file import FileError

                raise FileError(f"{self.file.path}: {name} has the activation swiglu_clamped and no gate; convert the model again")
            s.alpha = f["alpha"]
            s.limit = f["limit"]
        else:
            s.activation = ACTIVATIONS[f["activation"]]
        first = parts["gate_up"] if s.interleaved else parts["gate"] if s.gated else parts["up"]
        fill_matrix(&s.gate, first.format, first.shape[0], first.shape[1], NULL)
        s.gate_at = first.offset
        if s.gated and not s.interleaved:
            fill_matrix(&s.up, parts["up"].format, parts["up"].shape[0], parts["up"].shape[1], NULL)
            s.up_at = parts["up"].offset
        down = parts["down"]
        fill_matrix(&s.down, down.format, down.shape[0], down.shape[1], NULL)
        s.down_at = down.offset
        s.gate_bias_at = parts["gate_bias"].offset if "gate_bias" in parts else 0
        s.up_bias_at = parts["up_bias"].offset if "up_bias" in parts else 0
        s.down_bias_at = parts["down_bias"].offset if "down_bias" in parts else 0
        if not s.gated:     # the one matrix before the activation stands in gate's place
            s.gate_bias_at = s.up_bias_at
            s.up_bias_at = 0
        if s.gate.int8_act or s.down.int8_act:
            self.float_weights = False
        self.max_intermediate = imax(self.max_intermediate, s.intermediate)
        return 0

    cdef int _ffn(self, ffn_layer *l, int32_t n, dict f) except -1:
        cdef str p = f"layers.{n}."
        l.norm = self._vector(p + "ffn_norm")
        l.norm_eps = self.norm_eps
        l.post_norm = self._vector(p + "ffn_post_norm")
        l.scale = self._vector(p + "scale")
        self.has_apart = self.has_apart or apart(l)
        l.moe = f["kind"] == "moe"
        if not l.moe:
            l.has_shared = True
            self._stack(&l.shared, n, p + "mlp", f)
            return 0
        l.experts = f["experts"]
        l.top_k = f["top_k"]
        l.renormalise = f["renormalise"]
        if l.experts > CL_MAX_EXPERTS or l.top_k > CL_MAX_TOP_K:
            raise ValueError(f"layer {n} has {l.experts} experts, top-{l.top_k}; this build takes {CL_MAX_EXPERTS} and top-{CL_MAX_TOP_K}: "
                             "rebuild with -Dmax_experts and -Dmax_top_k")
        self.max_experts = imax(self.max_experts, l.experts)
        self.max_top_k = imax(self.max_top_k, l.top_k)
        self._matrix_f32(&l.router, p + "router")
        l.router_bias = self._vector(p + "router_bias")
        l.expert_scale = self._vector(p + "expert_scale")
        l.branches = f.get("branches", False)
        if l.branches:
            self.has_branches = self.has_apart = True
            l.router_norm = self._vector(p + "router_norm")
            l.experts_norm = self._vector(p + "experts_norm")
            l.experts_post = self._vector(p + "experts_post_norm")
            l.shared_post = self._vector(p + "shared_post_norm")
        self._stack(&l.routed, n, p + "experts", f)
        if f["shared"] is not None:
            l.has_shared = True
            self._stack(&l.shared, n, p + "shared", f)
            l.has_shared_gate = f["shared"]["gate"]
            if l.has_shared_gate:
                self._matrix_f32(&l.shared_gate, p + "shared_gate")
        return 0

    cdef int _matrix_f32(self, matrix *m, str name) except -1:
        cdef bint float_weights = self.float_weights
        self._matrix(m, name)
        self.float_weights = float_weights
        return 0

    def verify_resident(self):
        """Checks the CRC of everything but routed experts (they are checked on their first use). Raises FileError."""
        from colibri_edge.file import FileError
        from colibri_edge import _native

        for name, t in self.file.tensors.items():
            if name.endswith(".experts") or (name == "embed" and self.embed_rows):
                continue
            if _native.crc32c(self.view(name)) != t.crc[0]:
                raise FileError(f"{self.file.path}: tensor {name} is damaged (its CRC-32C differs from the directory's); "
                                "copy or convert the file again")


ctypedef struct norm_pass:
    runtime *rt
    const float *x
    size_t ldx
    const float *w
    float eps
    activations *out
    int32_t hidden
    bint quantise


cdef void norm_token(void *ctx, int32_t t, int32_t worker) noexcept nogil:
    cdef norm_pass *p = <norm_pass *>ctx
    cdef float *y = p.out.x + <size_t>t * p.out.ldx
    if p.w != NULL:
        p.rt.k.rmsnorm(p.x + <size_t>t * p.ldx, p.w, y, p.hidden, p.eps)
    if p.quantise:
        p.rt.k.quantize(y, p.out.q + <size_t>t * (p.out.ldx / 32), <int32_t>p.out.ldx)


cdef void norm(runtime *rt, const float *x, size_t ldx, const float *w, float eps, int32_t hidden, activations *out, int32_t nt) noexcept nogil:
    """out = RMSNorm(x) in both forms (w NULL: quantise out.x as it stands)."""
    cdef norm_pass p
    p.rt = rt
    p.x = x
    p.ldx = ldx
    p.w = w
    p.eps = eps
    p.out = out
    p.hidden = hidden
    p.quantise = out.q != NULL
    cl_pool_run(rt.pool, norm_token, &p, nt)


ctypedef struct add_pass:
    runtime *rt
    float *x
    size_t ldx
    float *y
    float *y2
    const float *y_norm      # NULL: y as it is
    const float *y2_norm     # of a second output that is added to the first; NULL: there is none
    const float *w           # norm of what is added; NULL: none
    const float *scale       # [1] or NULL
    float eps
    int32_t hidden


cdef void add_token(void *ctx, int32_t t, int32_t worker) noexcept nogil:
    cdef add_pass *p = <add_pass *>ctx
    cdef float *x = p.x + <size_t>t * p.ldx
    cdef float *y = p.y + <size_t>t * p.ldx
    cdef float *y2
    cdef int32_t i, n = round_up(p.hidden, 8)
    if p.y2_norm != NULL:
        y2 = p.y2 + <size_t>t * p.ldx
        p.rt.k.rmsnorm(y, p.y_norm, y, p.hidden, p.eps)
        p.rt.k.rmsnorm(y2, p.y2_norm, y2, p.hidden, p.eps)
        p.rt.k.add(y, y2, n)
    if p.w != NULL:
        p.rt.k.rmsnorm(y, p.w, y, p.hidden, p.eps)
    p.rt.k.add(x, y, n)
    if p.scale != NULL:
        for i in range(p.hidden):
            x[i] = x[i] * p.scale[0]


ctypedef struct cap_pass:
    float *logits            # [tokens][ld]
    size_t ld
    int32_t vocab
    int32_t per_row          # chunks of a token
    float cap


cdef void cap_chunk(void *ctx, int32_t chunk, int32_t worker) noexcept nogil:
    """cap * tanh(logit / cap) of up to CAP_LOGITS logits of one token."""
    cdef cap_pass *p = <cap_pass *>ctx
    cdef int32_t i, at = chunk % p.per_row * CAP_LOGITS
    cdef float *row = p.logits + <size_t>(chunk / p.per_row) * p.ld
    cdef float cap = p.cap
    for i in range(at, imin(at + CAP_LOGITS, p.vocab)):
        row[i] = cap - 2.0 * cap / (1.0 + cl_expf(2.0 * row[i] / cap))


cdef int32_t acquire(void *store, int32_t stack, const int32_t *experts, const int32_t *start, int32_t n, int32_t *order) noexcept nogil:
    return (<Store>store).acquire(stack, experts, start, n, order)


cdef int32_t wait(void *store, int32_t stack, int32_t expert) noexcept nogil:
    return (<Store>store).wait(stack, expert)


cdef void guess(void *store, int32_t stack, const int32_t *experts, int32_t n) noexcept nogil:
    (<Store>store).guess(stack, experts, n)


cdef class Session:
    """One sequence of a Program.

    ctx: positions; threads: of the pool; kv: "f32", "f16" or "q8_0"; chunk: tokens of one pass (prefill is cut into such chunks);
    prefetch: of streamed experts, read those that the next layer will probably choose (core/ffn); speed only.
    plan: only say what it would take (kv_bytes, arena_bytes, state_bytes); such a session cannot run. checkpoints: copies of the
    recurrent state that rewind() starts from, for models that have one (each takes as much memory as the state).
    """

    def __cinit__(self, Program program not None, int ctx, int threads, str kv="f16", int chunk=256, bint plan=False, bint prefetch=False,
                  int checkpoints=2):
        self.program = program
        self.prefetch = prefetch and program.store.streamed
        if ctx < 1 or chunk < 1:
            raise ValueError(f"ctx is {ctx} and chunk {chunk}, wanted at least 1")
        self.ctx = ctx
        self.room = round_up(ctx, 8)
        self.chunk = imin(imin(chunk, CL_MAX_BATCH), ctx)
        self.kv_type = KV_TYPES[kv]
        self.max_saved = checkpoints if program.state_floats else 0
        self.state_bytes = program.state_floats * sizeof(float) * (1 + self.max_saved)
        self.rt.k = cl_get_kernels()
        self.rt.acquire = acquire
        self.rt.wait = wait
        self.rt.guess = guess
        self.rt.store = <void *>program.store
        self.rt.max_union = program.store.n_slots if program.store.streamed else CL_MAX_EXPERTS
        if plan:
            self.rt.threads = threads
            self.kv_bytes = self.kv_bytes_for(program, ctx, kv)
            self.arena_bytes = self._layout(NULL)
            return
        self.rt.pool = cl_pool_new(threads)
        if self.rt.pool == NULL:
            raise MemoryError("no memory for the thread pool")
        self.rt.threads = cl_pool_threads(self.rt.pool)
        self.ns = <int64_t *>calloc((program.n_layers + 1) * ST_COUNT, sizeof(int64_t))
        if self.ns == NULL:
            raise MemoryError("no memory for the clock")
        self.rt.ns = self.ns
        self._allocate_kv()
        self._allocate_state()
        self.arena_bytes = self._layout(NULL)
        self.arena = <uint8_t *>cl_aligned_alloc(ALIGN, self.arena_bytes)
        if self.arena == NULL:
            raise MemoryError(f"no memory for {self.arena_bytes} bytes of buffers; take a smaller chunk")
        self._layout(self.arena)

    def __dealloc__(self):
        cl_pool_free(self.rt.pool)
        cl_aligned_free(self.arena)
        cl_aligned_free(self.kv)
        cl_aligned_free(self.state)
        free(self.history)
        free(self.saved_pos)
        free(self.views)
        free(self.row_reads)
        free(self.rt.trace)
        free(self.rt.moments)
        free(self.ns)

    @property
    def threads(self) -> int:
        """Threads of the pool, the caller included."""
        return self.rt.threads

    @staticmethod
    def kv_bytes_for(Program program not None, int ctx, str kv) -> int:
        """Bytes of the KV cache at that context."""
        cdef int32_t i
        cdef int64_t total = 0
        cdef int32_t kind = KV_TYPES[kv]
        for i in range(program.n_layers):
            total += _kv_layer_bytes(&program.layers[i], round_up(ctx, 8), kind)
        return total

    cdef int _allocate_kv(self) except -1:
        cdef int32_t i
        cdef int64_t es = _kv_code_bytes(self.kv_type), scales
        cdef layer *l
        cdef uint8_t *at
        self.kv_bytes = 0
        for i in range(self.program.n_layers):
            self.kv_bytes += _kv_layer_bytes(&self.program.layers[i], self.room, self.kv_type)
        self.kv = <uint8_t *>cl_aligned_alloc(ALIGN, self.kv_bytes)
        self.views = <kv_view *>calloc(imax(1, self.program.n_layers), sizeof(kv_view))
        if self.kv == NULL or self.views == NULL:
            raise MemoryError(f"no memory for a KV cache of {self.kv_bytes} bytes at a context of {self.ctx}; take a smaller one")
        at = self.kv
        for i in range(self.program.n_layers):
            l = &self.program.layers[i]
            self.views[i].kv_type = self.kv_type
            scales = self.room * _kv_scale_bytes(self.kv_type, l.attn.head_dim)
            self.views[i].k_codes = <size_t>(es * self.room * l.attn.head_dim)
            self.views[i].v_codes = <size_t>(es * self.room * round_up(l.attn.head_dim, 8))
            self.views[i].k_head = self.views[i].k_codes + scales
            self.views[i].v_head = self.views[i].v_codes + scales
            self.views[i].k = at
            at += self.views[i].k_head * l.attn.kv_heads
            self.views[i].v = at
            at += self.views[i].v_head * l.attn.kv_heads
        return 0

    cdef int _allocate_state(self) except -1:
        self.history = <int32_t *>calloc(self.ctx, sizeof(int32_t))
        self.saved_pos = <int32_t *>calloc(imax(1, self.max_saved), sizeof(int32_t))
        self.state = <float *>cl_aligned_alloc(ALIGN, max(ALIGN, self.state_bytes))
        if self.history == NULL or self.saved_pos == NULL or self.state == NULL:
            raise MemoryError(f"no memory for {self.state_bytes} bytes of recurrent state")
        memset(self.state, 0, self.program.state_floats * sizeof(float))
        self.saved = self.state + self.program.state_floats
        return 0

    cdef int64_t _layout(self, uint8_t *base) except -1:
        """Places every buffer from base on and returns the bytes that they take; with NULL only counts."""
        cdef Program p = self.program
        cdef int64_t n = 0, T = self.chunk
        cdef int32_t i, k = p.max_top_k, w
        cdef int64_t pairs = T * (k + 1), heads = pad(p.max_heads_dim)
        self.ldx = pad(p.hidden)
        self.x = <float *>_take(base, &n, T * self.ldx * 4)
        self.normed.ldx = self.ldx
        self.normed.x = <float *>_take(base, &n, T * self.ldx * 4)
        self.normed.q = <cl_act8 *>_take(base, &n, T * self.ldx / 32 * sizeof(cl_act8))
        self.attn.ldq = heads
        self.attn.ldk = pad(p.max_kv_dim)
        self.attn.q = <float *>_take(base, &n, T * heads * 4)
        self.attn.k = <float *>_take(base, &n, T * self.attn.ldk * 4)
        self.attn.v = <float *>_take(base, &n, T * self.attn.ldk * 4)
        self.attn.gate = <float *>_take(base, &n, T * heads * 4 if p.has_gate else 0)
        self.attn.out.ldx = heads
        self.attn.out.x = <float *>_take(base, &n, T * heads * 4)
        self.attn.out.q = <cl_act8 *>_take(base, &n, T * heads / 32 * sizeof(cl_act8))
        self.y = <float *>_take(base, &n, T * self.ldx * 4 if p.has_apart else 0)
        self.ffn.y = self.y
        self.ffn.y_shared = <float *>_take(base, &n, T * self.ldx * 4 if p.has_branches else 0)
        self.routed = self.normed
        self.router = self.normed
        if p.has_branches:
            self.routed.x = <float *>_take(base, &n, T * self.ldx * 4)
            self.routed.q = <cl_act8 *>_take(base, &n, T * self.ldx / 32 * sizeof(cl_act8))
            self.router.x = <float *>_take(base, &n, T * self.ldx * 4)
            self.router.q = NULL
        self.delta.ldc = pad(p.max_mixed)
        self.delta.qkv = <float *>_take(base, &n, (T + p.max_taps) * self.delta.ldc * 4)
        self.delta.keys = <float *>_take(base, &n, T * p.max_keys * 4)
        self.delta.ldz = pad(p.max_value_dim)
        self.delta.z = <float *>_take(base, &n, T * self.delta.ldz * 4)
        self.delta.ldh = round_up(p.max_value_heads, 8)
        self.delta.beta = <float *>_take(base, &n, T * self.delta.ldh * 4)
        self.delta.decay = <float *>_take(base, &n, T * self.delta.ldh * 4)
        self.delta.out = self.attn.out
        self.ffn.input = self.normed
        self.ffn.ld_scores = round_up(p.max_experts, 8)
        self.ffn.scores = <float *>_take(base, &n, T * self.ffn.ld_scores * 4)
        self.ffn.gate = <float *>_take(base, &n, T * 8 * 4)
        self.ffn.ids = <int32_t *>_take(base, &n, T * k * 4)
        self.ffn.weights = <float *>_take(base, &n, T * k * 4)
        self.ffn.hidden.ldx = pad(p.max_intermediate)
        self.ffn.hidden.x = <float *>_take(base, &n, pairs * self.ffn.hidden.ldx * 4)
        self.ffn.hidden.q = <cl_act8 *>_take(base, &n, pairs * self.ffn.hidden.ldx / 32 * sizeof(cl_act8))
        self.ffn.mark = <int32_t *>_take(base, &n, p.max_experts * 4)
        self.ffn.first = <int32_t *>_take(base, &n, (p.max_experts + 3) * 4)
        cdef uint8_t *groups = <uint8_t *>_take(base, &n, groups_bytes(<int32_t>T, k, p.max_experts))
        if base != NULL:
            groups_init(&self.ffn.groups, groups, <int32_t>T, k, p.max_experts)
        cdef int64_t room
        cdef uint8_t *rows
        if p.embed_rows:
            room = round_up(<int32_t>p.embed.group_stride, PAGE) + PAGE     # a group of eight rows with the pages around it
            rows = <uint8_t *>_take(base, &n, ROWS_AHEAD * room + PAGE)
            if base != NULL:
                rows += (PAGE - <size_t>rows % PAGE) % PAGE
                self.row_reads = <cl_read *>calloc(ROWS_AHEAD, sizeof(cl_read))
                if self.row_reads == NULL:
                    raise MemoryError("no memory for reads of the embedding")
                for i in range(ROWS_AHEAD):
                    self.row_reads[i].dst = rows + i * room
        self.ffn.x = self.x
        self.ffn.ldx = self.ldx
        self.ffn.hidden_size = p.hidden
        self.ffn.ahead.ldx = self.ldx
        self.ffn.ahead.x = <float *>_take(base, &n, self.ldx * 4)
        self.ffn.ahead_scores = <float *>_take(base, &n, self.ffn.ld_scores * 4)
        self.ffn.ahead_ids = <int32_t *>_take(base, &n, k * 4)
        self.ffn.ahead_weights = <float *>_take(base, &n, k * 4)
        self.cos = <float **>_take(base, &n, imax(1, p.n_ropes) * sizeof(float *))
        self.sin = <float **>_take(base, &n, imax(1, p.n_ropes) * sizeof(float *))
        cdef float *table
        for i in range(p.n_ropes):
            table = <float *>_take(base, &n, T * p.ropes[i].half * 8)
            if base != NULL:
                self.cos[i] = table
                self.sin[i] = table + T * p.ropes[i].half
        self.head_rows = imin(HEAD_ROWS, <int32_t>T)
        self.ld_logits = round_up(p.vocab, 8)
        self.logits = <float *>_take(base, &n, self.head_rows * self.ld_logits * 4)
        self.rt.scratch_bytes = max(ffn_scratch(<int32_t>T, k), p.attn_scratch * sizeof(float))
        self.rt.scratch = <uint8_t **>_take(base, &n, MAX_THREADS * sizeof(uint8_t *))
        for w in range(self.rt.threads):
            groups = <uint8_t *>_take(base, &n, self.rt.scratch_bytes)
            if base != NULL:
                self.rt.scratch[w] = groups
        return n

    cdef int32_t _embed_from_file(self, const int32_t *tokens, int32_t n) noexcept nogil:
        """Rows of the embedding by reads of their groups of eight rows, some in flight. 0, or -5: status is the token."""
        cdef const matrix *m = &self.program.embed
        cdef uint64_t start = self.program.embed_at
        cdef cl_reader *reader = self.program.store.reader
        cdef cl_read *q
        cdef uint64_t at
        cdef int32_t t, i, failed = 0
        for t in range(n + ROWS_AHEAD):
            q = &self.row_reads[t % ROWS_AHEAD]
            i = t - ROWS_AHEAD
            if 0 <= i < n:
                at = start + <uint64_t>(tokens[i] / 8) * m.group_stride
                if cl_reader_wait(reader, q) != CL_READ_DONE:
                    failed = -5
                    self.status = tokens[i]
                else:
                    cl_dequant_row(m.fmt, q.dst + at % PAGE, tokens[i] % 8, m.cols, self.x + <size_t>i * self.ldx)
            if t < n:
                at = start + <uint64_t>(tokens[t] / 8) * m.group_stride
                q.offset = at / PAGE * PAGE
                q.bytes = <size_t>((at + m.group_stride + PAGE - 1) / PAGE * PAGE - q.offset)
                cl_reader_submit(reader, q)
        return failed

    cdef int32_t _begin(self, const int32_t *tokens, int32_t n) noexcept nogil:
        """Starts the clock of a pass, the residual stream of its n tokens, and the tables of RoPE. 0, or -5: a row cannot be read, status
        is its token."""
        cdef int32_t t, i, r
        cdef double s, c
        cdef float *row
        cdef rope_spec *spec
        self.rt.mark = cl_now_ns()
        self.rt.current = ST_OTHER
        enter(&self.rt, ST_EMBED)
        if self.program.embed_rows and self._embed_from_file(tokens, n):
            return -5
        for t in range(n):
            row = self.x + <size_t>t * self.ldx
            if not self.program.embed_rows:
                cl_dequant_row(self.program.embed.fmt, self.program.embed.w, tokens[t], self.program.hidden, row)
            if self.program.embed_scale != 1.0:
                for i in range(self.program.hidden):
                    row[i] = row[i] * self.program.embed_scale
        for r in range(self.program.n_ropes):
            spec = &self.program.ropes[r]
            for t in range(n):
                for i in range(spec.half):
                    cl_sincos(<double>(self.pos + t) * <double>spec.inv_freq[i], &s, &c)
                    self.cos[r][t * spec.half + i] = <float>(c * spec.factor)
                    self.sin[r][t * spec.half + i] = <float>(s * spec.factor)
        return 0

    cdef void _attention(self, const attn_layer *l, int32_t n) noexcept nogil:
        cdef mm_job jobs[4]
        cdef runtime *rt = &self.rt
        cdef int32_t i, width = l.heads * l.head_dim, m = 2 if l.k_eq_v else 3
        cdef float *cos = self.cos[l.rope] if l.rope >= 0 else NULL
        cdef float *sin = self.sin[l.rope] if l.rope >= 0 else NULL
        memset(jobs, 0, sizeof(jobs))
        enter(rt, ST_NORM)
        norm(rt, self.x, self.ldx, l.norm, l.norm_eps, self.program.hidden, &self.normed, n)
        enter(rt, ST_ATTN_PROJ)
        jobs[0].m = &l.q
        jobs[0].y = self.attn.q
        jobs[0].ldy = self.attn.ldq
        jobs[0].bias = l.q_bias
        jobs[1].m = &l.k
        jobs[1].y = self.attn.k
        jobs[1].ldy = self.attn.ldk
        jobs[1].bias = l.k_bias
        jobs[2].m = &l.v
        jobs[2].y = self.attn.v
        jobs[2].ldy = self.attn.ldk
        jobs[2].bias = l.v_bias
        if l.gated:
            jobs[m].m = &l.gate
            jobs[m].y = self.attn.gate
            jobs[m].ldy = self.attn.ldq
            m += 1
        matmul(rt, &self.normed, n, jobs, m)
        enter(rt, ST_ATTN)
        attend(rt, l, &self.views[l.slot], &self.attn, cos, sin, self.pos, n)
        if width < self.program.max_heads_dim:  # the rest of the row may hold another layer's wider output
            for i in range(n):
                memset(self.attn.out.x + <size_t>i * self.attn.out.ldx + width, 0, (self.attn.out.ldx - width) * sizeof(float))
        enter(rt, ST_ATTN_PROJ)
        if l.o.int8_act:
            norm(rt, NULL, 0, NULL, 0.0, 0, &self.attn.out, n)
        jobs[0].m = &l.o
        jobs[0].y = self.x if l.post_norm == NULL else self.y
        jobs[0].ldy = self.ldx
        jobs[0].bias = l.o_bias
        jobs[0].add = l.post_norm == NULL
        matmul(rt, &self.attn.out, n, jobs, 1)
        if l.post_norm != NULL:
            self._add(l.post_norm, l.norm_eps, NULL, n)

    cdef void _add(self, const float *w, float eps, const ffn_layer *l, int32_t n) noexcept nogil:
        """x += norm(y), with w NULL without a norm; l: of a whole layer's end, with its branches and its scale."""
        cdef add_pass p
        memset(&p, 0, sizeof(p))
        enter(&self.rt, ST_NORM)
        p.rt = &self.rt
        p.x = self.x
        p.ldx = self.ldx
        p.y = self.y
        p.w = w
        p.eps = eps
        p.hidden = self.program.hidden
        if l != NULL:
            p.scale = l.scale
            if l.branches:
                p.y2 = self.ffn.y_shared
                p.y_norm = l.experts_post
                p.y2_norm = l.shared_post
        cl_pool_run(self.rt.pool, add_token, &p, n)

    cdef int32_t _feed_forward(self, const ffn_layer *l, const ffn_layer *next, int32_t n) noexcept nogil:
        """The second half of a layer: norms, router, experts, sum. next: of core/ffn. 0, -2, -3 as forward."""
        cdef int32_t rc
        enter(&self.rt, ST_NORM)
        norm(&self.rt, self.x, self.ldx, l.norm, l.norm_eps, self.program.hidden, &self.normed, n)
        self.ffn.routed = self.normed
        self.ffn.router = self.normed
        if l.branches:
            norm(&self.rt, self.x, self.ldx, l.experts_norm, l.norm_eps, self.program.hidden, &self.routed, n)
            norm(&self.rt, self.x, self.ldx, l.router_norm, l.norm_eps, self.program.hidden, &self.router, n)
            self.ffn.routed = self.routed
            self.ffn.router = self.router
        rc = ffn(&self.rt, l, next, &self.ffn, n)
        if rc == 0 and apart(l):
            self._add(l.post_norm, l.norm_eps, l, n)
        return rc

    cdef void _delta(self, const delta_layer *l, int32_t n) noexcept nogil:
        cdef mm_job jobs[4]
        cdef runtime *rt = &self.rt
        memset(jobs, 0, sizeof(jobs))
        enter(rt, ST_NORM)
        norm(rt, self.x, self.ldx, l.norm, l.norm_eps, self.program.hidden, &self.normed, n)
        enter(rt, ST_ATTN_PROJ)
        jobs[0].m = &l.qkv
        jobs[0].y = self.delta.qkv + <size_t>(l.taps - 1) * self.delta.ldc
        jobs[0].ldy = self.delta.ldc
        jobs[1].m = &l.z
        jobs[1].y = self.delta.z
        jobs[1].ldy = self.delta.ldz
        jobs[2].m = &l.beta
        jobs[2].y = self.delta.beta
        jobs[2].ldy = self.delta.ldh
        jobs[3].m = &l.alpha
        jobs[3].y = self.delta.decay
        jobs[3].ldy = self.delta.ldh
        matmul(rt, &self.normed, n, jobs, 4)
        enter(rt, ST_ATTN)
        delta_rule(rt, l, self.state + l.state, &self.delta, n)
        enter(rt, ST_ATTN_PROJ)
        jobs[0].m = &l.o
        jobs[0].y = self.x
        jobs[0].ldy = self.ldx
        jobs[0].add = True
        matmul(rt, &self.delta.out, n, jobs, 1)

    cdef int32_t forward(self, const int32_t *tokens, int32_t n) noexcept nogil:
        """Runs n <= chunk tokens through all layers; the residual stream of each stays in x. 0, -2 (router), -3 (record),
        -4 (the mapped file was cut), -5 (a row of the embedding cannot be read)."""
        cdef int32_t rc
        if self.dirty:
            rc = self._replay(self.pos)
            if rc:
                return rc
        self.program.store.begin()
        rc = self._pass(tokens, n)
        self.program.store.end()
        return rc

    cdef int32_t _pass(self, const int32_t *tokens, int32_t n) noexcept nogil:
        cdef layer *l
        cdef const ffn_layer *next
        cdef int32_t i, rc
        if self._begin(tokens, n):
            self.dirty = self.program.state_floats > 0  # the caller may go back to before earlier chunks
            return -5
        for i in range(self.program.n_layers):
            l = &self.program.layers[i]
            enter_layer(&self.rt, self.ns + (i + 1) * ST_COUNT)
            if l.recurrent:
                self._delta(&l.delta, n)
            else:
                self._attention(&l.attn, n)
            next = NULL
            if self.prefetch and i + 1 < self.program.n_layers and self.program.layers[i + 1].ffn.moe:
                next = &self.program.layers[i + 1].ffn
            rc = self._feed_forward(&l.ffn, next, n)
            if rc:
                self.status = i
                self.dirty = self.program.state_floats > 0
                enter_layer(&self.rt, self.ns)
                return rc
        enter_layer(&self.rt, self.ns)
        if cl_guard_lost(self.program.mapped):
            self.dirty = self.program.state_floats > 0
            return -4
        if tokens != self.history + self.pos:
            memcpy(self.history + self.pos, tokens, n * sizeof(int32_t))
        self.pos += n
        self.program.store.age(n)
        enter(&self.rt, ST_OTHER)
        return 0

    cdef int32_t experts(self, const int32_t *tokens, int32_t n) noexcept nogil:
        """The routed layers' norm, router and experts alone, on the embeddings of n <= chunk tokens: what `bench --moe-only` times.
        Neither attention nor position: pos stays. 0, -2, -3, -5 as forward."""
        cdef layer *l
        cdef int32_t i, rc = 0
        if self._begin(tokens, n):
            return -5
        self.program.store.begin()
        for i in range(self.program.n_layers):
            l = &self.program.layers[i]
            if not l.ffn.moe:
                continue
            rc = self._feed_forward(&l.ffn, NULL, n)
            if rc:
                self.status = i
                break
        if not rc:
            self.program.store.age(n)
        self.program.store.end()
        enter(&self.rt, ST_OTHER)
        return rc

    cdef int32_t head(self, int32_t t0, int32_t n) noexcept nogil:
        """Logits of the chunk's tokens t0 .. t0+n-1, n <= head_rows, into logits. 0 or -4 as forward."""
        cdef mm_job job
        cdef cap_pass c
        memset(&job, 0, sizeof(job))
        enter(&self.rt, ST_HEAD)
        norm(&self.rt, self.x + <size_t>t0 * self.ldx, self.ldx, self.program.output_norm, self.program.norm_eps, self.program.hidden,
             &self.normed, n)
        job.m = &self.program.output
        job.y = self.logits
        job.ldy = self.ld_logits
        matmul(&self.rt, &self.normed, n, &job, 1)
        if self.program.logit_softcap > 0.0:
            c.logits = self.logits
            c.ld = self.ld_logits
            c.vocab = self.program.vocab
            c.cap = self.program.logit_softcap
            c.per_row = (c.vocab + CAP_LOGITS - 1) / CAP_LOGITS
            cl_pool_run(self.rt.pool, cap_chunk, &c, n * c.per_row)
        enter(&self.rt, ST_OTHER)
        return -4 if cl_guard_lost(self.program.mapped) else 0

    cdef object error(self, int32_t rc):
        """What a code of forward means, as an exception."""
        if cl_guard_lost(self.program.mapped):
            from colibri_edge.file import FileError

            return FileError(f"{self.program.file.path} was cut while it was in use: pages of it are gone; copy the file again and load it anew")
        if rc == -3:
            return self.program.store.error()
        if rc == -5:
            return OSError(f"{self.program.file.path}: the embedding of token {self.status} cannot be read; the disk failed or the file was "
                           "cut while it was in use")
        return EngineError(f"layer {self.status}: the router's scores hold a NaN; the weights are damaged or overflow")

    cdef int _fail(self, int32_t rc) except -1 nogil:
        with gil:
            raise self.error(rc)

    cdef void _back_to(self, int32_t pos) noexcept nogil:
        """A call that fails leaves the position as it was, whatever it had computed of its tokens."""
        self.dirty = self.program.state_floats > 0
        self.pos = pos

    cdef int32_t feed_tokens(self, const int32_t *tokens, int32_t n, bint want_logits) noexcept nogil:
        """Feeds n tokens (checked by the caller); with want_logits the last one's logits stand in logits[0]. Codes as forward."""
        cdef int32_t t = 0, m = 0, rc = 0, start = self.pos
        while t < n and not rc:
            m = imin(self.chunk, n - t)
            rc = self.forward(tokens + t, m)
            t += m
        if not rc and want_logits and n > 0:
            rc = self.head(m - 1, 1)
        if rc:
            self._back_to(start)
        return rc

    def check_ids(self, tokens) -> object:
        """tokens as an int64 array; ValueError where an id is outside the vocabulary."""
        import numpy as np

        ids = np.ascontiguousarray(tokens, dtype=np.int64).reshape(-1)
        if len(ids) and (ids.min() < 0 or ids.max() >= self.program.vocab):
            bad = ids[(ids < 0) | (ids >= self.program.vocab)][0]
            raise ValueError(f"token id {bad} is outside the vocabulary of {self.program.vocab}")
        return ids

    def check_tokens(self, tokens) -> object:
        """tokens as an int32 array; ValueError where an id is outside the vocabulary or the context is full."""
        import numpy as np

        ids = self.check_ids(tokens)
        if self.pos + len(ids) > self.ctx:
            raise ValueError(f"{self.pos} + {len(ids)} tokens do not fit the context of {self.ctx}; load the model with a larger ctx")
        return ids.astype(np.int32)

    def feed(self, tokens, bint want_logits=True) -> None:
        """Appends tokens to the sequence; poll-free, one call may hold many chunks."""
        cdef const int32_t[::1] ids = self.check_tokens(tokens)
        cdef int32_t n = <int32_t>ids.shape[0], rc
        if n:
            with nogil:
                rc = self.feed_tokens(&ids[0], n, want_logits)
                if rc:
                    self._fail(rc)

    def feed_experts(self, tokens) -> None:
        """Runs tokens through the routed layers' experts alone (no attention, no output matrix). The sequence is as before."""
        cdef const int32_t[::1] ids = self.check_ids(tokens).astype("int32")
        cdef int32_t n = <int32_t>ids.shape[0], t = 0, m, rc
        with nogil:
            while t < n:
                m = imin(self.chunk, n - t)
                rc = self.experts(&ids[t], m)
                if rc:
                    self._fail(rc)
                t += m

    def logits_view(self):
        """The last fed token's logits, float32 [vocab]; overwritten by the next feed."""
        import numpy as np

        return np.frombuffer(_View.of(self, self.logits, self.program.vocab * sizeof(float)), np.float32)

    def all_logits(self, tokens, float[:, ::1] out not None) -> None:
        """Feeds tokens and writes the logits of each, out [tokens, vocab] float32."""
        cdef const int32_t[::1] ids = self.check_tokens(tokens)
        cdef int32_t n = <int32_t>ids.shape[0], t = 0, m, h, j, i, rc, start = self.pos
        if out.shape[0] != n or out.shape[1] != self.program.vocab:
            raise ValueError(f"out is [{out.shape[0]}, {out.shape[1]}], wanted [{n}, {self.program.vocab}]")
        with nogil:
            while t < n:
                m = imin(self.chunk, n - t)
                rc = self.forward(&ids[t], m)
                if rc:
                    self._back_to(start)
                    self._fail(rc)
                h = 0
                while h < m:
                    j = imin(self.head_rows, m - h)
                    rc = self.head(h, j)
                    if rc:
                        self._back_to(start)
                        self._fail(rc)
                    for i in range(j):
                        memcpy(&out[t + h + i, 0], self.logits + <size_t>i * self.ld_logits, self.program.vocab * sizeof(float))
                    h += j
                t += m

    def rewind(self, int pos) -> None:
        """Forgets all positions from pos on.

        Keys and values of the rest stay, so this costs nothing, unless the model has a recurrent state: that goes back to the nearest
        checkpoint (or the start) and the tokens from there to pos are computed again, with the same bits; the result becomes a
        checkpoint, so that the same way back is free the next time.
        """
        cdef int32_t rc
        if pos < 0 or pos > self.pos:
            raise ValueError(f"cannot rewind to {pos}, wanted 0 to {self.pos}")
        with nogil:
            rc = self.rewind_to(pos)
            if rc:
                self._fail(rc)

    cdef int32_t rewind_to(self, int32_t pos) noexcept nogil:
        """rewind() for a checked pos. Codes as forward() gives; pos is reached then too, and the next pass computes the state again."""
        if self.program.state_floats == 0 or (pos == self.pos and not self.dirty):
            self.pos = pos
            return 0
        return self._replay(pos)

    cdef int32_t _replay(self, int32_t pos) noexcept nogil:
        """Brings the recurrent state to pos <= self.pos: the last checkpoint before it, then the tokens in between."""
        cdef int32_t m, rc, i, best = -1, n = 0, at
        cdef size_t floats = self.program.state_floats
        for i in range(self.n_saved):    # those behind pos belong to tokens that are forgotten
            if self.saved_pos[i] <= pos:
                if n != i:
                    memcpy(self.saved + n * floats, self.saved + i * floats, floats * sizeof(float))
                    self.saved_pos[n] = self.saved_pos[i]
                if best < 0 or self.saved_pos[n] > self.saved_pos[best]:
                    best = n
                n += 1
        self.n_saved = n
        if self.kept > pos:
            self.kept = 0
        self.dirty = False
        if best < 0:
            memset(self.state, 0, floats * sizeof(float))
            self.pos = 0
        else:
            memcpy(self.state, self.saved + best * floats, floats * sizeof(float))
            self.pos = self.saved_pos[best]
        at = self.pos
        while self.pos < pos:
            m = imin(self.chunk, pos - self.pos)
            rc = self.forward(self.history + self.pos, m)
            if rc:
                self.pos = pos
                self.dirty = True
                return rc
        if self.pos > at:
            self._checkpoint(False)
        return 0

    cdef void _checkpoint(self, bint keep) noexcept nogil:
        """Saves the recurrent state as it is now; the checkpoint that is furthest behind makes room, but never the one to keep."""
        cdef size_t floats = self.program.state_floats
        cdef int32_t i, slot = -1
        if self.max_saved == 0 or self.pos == 0:
            return
        if keep:
            self.kept = self.pos
        for i in range(self.n_saved):
            if self.saved_pos[i] == self.pos:
                return
            if self.saved_pos[i] != self.kept and (slot < 0 or self.saved_pos[i] < self.saved_pos[slot]):
                slot = i
        if self.n_saved < self.max_saved:
            slot = self.n_saved
            self.n_saved += 1
        elif slot < 0:
            return
        memcpy(self.saved + slot * floats, self.state, floats * sizeof(float))
        self.saved_pos[slot] = self.pos

    def checkpoint(self, bint keep=False) -> None:
        """Notes this position as one that rewind() reaches at the cost of a copy. Models without a recurrent state need none.
        keep: until its tokens are forgotten, or another one is to be kept, no later checkpoint takes its place."""
        if not self.dirty:
            self._checkpoint(keep)

    @property
    def recurrent(self) -> bool:
        """Whether the model has a recurrent state, so that going back costs something."""
        return self.program.state_floats > 0

    @property
    def kv_name(self) -> str:
        """Type of the KV cache, as `kv` names it."""
        return next(name for name, kind in KV_TYPES.items() if kind == self.kv_type)

    def tokens(self) -> list:
        """The tokens fed so far."""
        return [self.history[i] for i in range(self.pos)]

    def state_views(self, int pos) -> list:
        """What a sequence of pos tokens is made of, as writable views of bytes in an order and of sizes that do not depend on ctx:
        tokens, the last logits, keys and values per layer and head, recurrent states."""
        cdef int64_t es = _kv_code_bytes(self.kv_type), n, m, scales
        cdef int32_t i, h
        cdef layer *l
        cdef kv_view *v
        views = []

        def add(int64_t address, int64_t size):
            if size:
                views.append(memoryview(_View.of(self, <void *><size_t>address, size)))

        add(<size_t>self.history, pos * sizeof(int32_t))
        add(<size_t>self.logits, self.program.vocab * sizeof(float))
        for i in range(self.program.n_layers):
            l = &self.program.layers[i]
            if l.recurrent:
                continue
            v = &self.views[i]
            n = <int64_t>round_up(pos, 8) * l.attn.head_dim * es
            m = <int64_t>pos * round_up(l.attn.head_dim, 8) * es
            scales = _kv_scale_bytes(self.kv_type, l.attn.head_dim)
            for h in range(l.attn.kv_heads):
                add(<size_t>(v.k + h * v.k_head), n)
                add(<size_t>(v.k + h * v.k_head + v.k_codes), round_up(pos, 8) * scales)
                add(<size_t>(v.v + h * v.v_head), m)
                add(<size_t>(v.v + h * v.v_head + v.v_codes), pos * scales)
        add(<size_t>self.state, self.program.state_floats * sizeof(float))
        return views

    cdef int _settle(self) except -1:
        """Brings the state in order after a pass that failed."""
        cdef int32_t rc = self._replay(self.pos) if self.dirty else 0
        if rc:
            self._fail(rc)
        return 0

    def _begin_at(self, int pos) -> None:
        """Takes over a sequence that was put into state_views(pos)."""
        self.n_saved = self.kept = 0
        self.dirty = False
        self.pos = pos
        self._checkpoint(False)

    def copy(self) -> Session:
        """A session of its own that goes on from here: same model, context, threads and chunk. It costs the memory of a session and the
        time to copy what is in use."""
        self._settle()
        cdef Session other = Session(self.program, self.ctx, self.rt.threads, self.kv_name,
                                     self.chunk, prefetch=self.prefetch, checkpoints=self.max_saved)
        for a, b in zip(other.state_views(self.pos), self.state_views(self.pos), strict=True):
            a[:] = b
        other._begin_at(self.pos)
        return other

    def save(self, path) -> int:
        """Writes the sequence to a file, which load() takes back on any machine; returns the file's bytes. Raises OSError."""
        from colibri_edge import session_file

        self._settle()
        return session_file.save(path, self.program.file.fingerprint, self.kv_name, self.pos,
                                 self.state_views(self.pos))

    def load(self, path) -> None:
        """Replaces the sequence by that of a file. Raises FileError where it is another model's, damaged, of another KV type, or longer
        than the context; the session is then empty if reading had begun, else as it was."""
        from colibri_edge import session_file

        with session_file.opened(path, self.program.file.fingerprint, self.kv_name, self.ctx) as f:
            self.rewind(0)
            try:
                f.read_into(self.state_views(f.pos))
                self._check_history(f.pos, path)
            except BaseException:
                memset(self.state, 0, self.program.state_floats * sizeof(float))
                raise
            self._begin_at(f.pos)

    def _check_history(self, int pos, path) -> None:
        """Token ids that were read: a replay and the embedding take them as they are."""
        from colibri_edge.file import FileError

        cdef int32_t i
        for i in range(pos):
            if not 0 <= self.history[i] < self.program.vocab:
                raise FileError(f"{path}: token {i} is {self.history[i]}, outside the vocabulary of {self.program.vocab}; save the session "
                                "again")

    def start_trace(self, int tokens) -> None:
        """Records which experts the next `tokens` tokens are routed to (routing(), anew)."""
        cdef int64_t room = <int64_t>tokens * self.program.n_routed * (1 + self.program.max_top_k)
        free(self.rt.trace)
        self.rt.trace = <int32_t *>calloc(max(1, room), sizeof(int32_t))
        if self.rt.trace == NULL:
            raise MemoryError(f"no memory to trace {tokens} tokens")
        self.rt.trace_room = room
        self.rt.trace_len = 0

    def routing(self) -> list:
        """The recorded routing: (routed layer, experts in rank order) in the order of the passes."""
        cdef int64_t i = 0
        top_k = [f["top_k"] for f in (layer["ffn"] for layer in self.program.topology["layers"]) if f["kind"] == "moe"]
        out = []
        while i < self.rt.trace_len:
            n = top_k[self.rt.trace[i]]
            out.append((self.rt.trace[i], tuple(self.rt.trace[i + 1 + j] for j in range(n))))
            i += 1 + n
        return out

    def start_moments(self) -> None:
        """From now on sums up the squares of what meets each column of the routed experts' matrices (moments(), anew)."""
        import numpy as np

        cdef int32_t i
        cdef float[::1] sums
        cdef const ffn_layer *l
        free(self.rt.moments)
        self.rt.moments = NULL
        cdef float **at = <float **>calloc(max(1, self.program.n_routed), sizeof(float *))
        if at == NULL:
            raise MemoryError("no memory for the sums of squares")
        self.moment_sums = []
        try:
            for i in range(self.program.n_layers):
                l = &self.program.layers[i].ffn
                if l.moe:
                    sums = np.zeros(l.router.cols + <int64_t>l.experts * l.routed.intermediate, np.float32)
                    self.moment_sums.append(sums)
                    at[l.routed.slot] = &sums[0]
        except MemoryError:
            free(at)
            raise
        self.rt.moments = at

    def moments(self) -> list:
        """Of each layer with routed experts, in rising order: (sums of squares of their input [hidden], of each expert's activated
        row [experts, intermediate]), float32, since start_moments()."""
        import numpy as np

        out, kinds = [], [f for f in (layer["ffn"] for layer in self.program.topology["layers"]) if f["kind"] == "moe"]
        for f, sums in zip(kinds, self.moment_sums or [], strict=False):
            x = np.array(sums)
            hidden = len(x) - f["experts"] * f["intermediate"]
            out.append((x[:hidden], x[hidden:].reshape(f["experts"], f["intermediate"])))
        return out

    def timing(self) -> dict:
        """Seconds spent per stage since the session was made."""
        layers = self.layer_timing()
        return {name: self.ns[i] * 1e-9 + sum(layer[name] for layer in layers) for i, name in enumerate(STAGES)}

    def layer_timing(self) -> list:
        """Seconds spent per stage in each layer since the session was made."""
        return [{name: self.ns[(n + 1) * ST_COUNT + i] * 1e-9 for i, name in enumerate(STAGES)} for n in range(self.program.n_layers)]


cdef int64_t _kv_code_bytes(int32_t kind) noexcept nogil:
    return 1 if kind == CL_KV_Q8 else 2 if kind == CL_KV_F16 else 4


cdef int64_t _kv_scale_bytes(int32_t kind, int32_t head_dim) noexcept nogil:
    """Of one position of one head's keys, or values."""
    return 2 * ((head_dim + 31) / 32) if kind == CL_KV_Q8 else 0


cdef int64_t _kv_layer_bytes(const layer *l, int64_t ctx, int32_t kind) noexcept nogil:
    if l.recurrent:
        return 0
    return ctx * l.attn.kv_heads * (_kv_code_bytes(kind) * (l.attn.head_dim + round_up(l.attn.head_dim, 8))
                                    + 2 * _kv_scale_bytes(kind, l.attn.head_dim))


cdef class _View:
    """Bytes of a session's memory, which lives as long as they are looked at."""
    cdef Session owner
    cdef void *at
    cdef Py_ssize_t nbytes

    @staticmethod
    cdef _View of(Session owner, void *at, Py_ssize_t nbytes):
        cdef _View v = _View()
        v.owner, v.at, v.nbytes = owner, at, nbytes
        return v

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.at, self.nbytes, 0, flags)


cdef void *_take(uint8_t *base, int64_t *n, int64_t nbytes) noexcept nogil:
    cdef int64_t at = n[0]
    n[0] = at + (nbytes + ALIGN - 1) // ALIGN * ALIGN
    return base + at if base != NULL else NULL
