# The engine for cimport (C API): a session's state and one forward pass.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from colibri_edge.core.attention cimport attn_buffers, attn_layer, kv_view
from colibri_edge.core.delta cimport delta_buffers, delta_layer
from colibri_edge.core.ffn cimport expert_stack, ffn_buffers, ffn_layer
from colibri_edge.core.store cimport Store, cl_read
from colibri_edge.core.runtime cimport activations, matrix, runtime

ctypedef struct rope_spec:
    int32_t half
    float factor             # attention factor: multiplies cos and sin
    const float *inv_freq    # [half]

ctypedef struct layer:
    bint recurrent           # delta instead of attn
    attn_layer attn
    delta_layer delta
    ffn_layer ffn


cdef class Program:
    cdef object file                 # keeps the mapping alive
    cdef list keep                   # padded copies of vectors
    cdef readonly str weights        # "map", "ram" or "stream"
    cdef const uint8_t *mapped       # the file's mapping, watched (colibri/guard.h); NULL for a plan without a file
    cdef uint8_t *image              # "ram": the file's bytes; "stream": those before the routed experts
    cdef int64_t image_bytes
    cdef layer *layers
    cdef rope_spec *ropes
    cdef readonly Store store        # records of routed experts
    cdef const uint8_t **single      # [layers]: the one record of a dense FFN or a shared expert
    cdef readonly int32_t n_layers, n_ropes, n_routed, hidden, vocab, context, max_heads_dim, max_kv_dim
    cdef readonly int32_t max_experts, max_top_k, max_intermediate, max_rope_half
    cdef readonly size_t attn_scratch    # floats that a thread needs for the attention of any layer
    cdef readonly int32_t max_mixed, max_keys, max_taps, max_value_dim, max_value_heads  # of gated delta rule layers
    cdef readonly int64_t state_floats                                        # of all layers' recurrent states
    cdef readonly bint float_weights, has_gate, has_apart, has_branches
    cdef readonly dict topology
    cdef matrix embed
    cdef readonly bint embed_rows    # rows of the embedding are read from the file as tokens ask for them
    cdef uint64_t embed_at           # where it lies in the file
    cdef matrix output
    cdef const float *output_norm
    cdef float norm_eps, embed_scale, logit_softcap
    cdef int _load_image(self, file) except -1
    cdef int _read_image(self, file) except -1
    cdef int _open_store(self, int slots, str policy, bint direct) except -1
    cdef object view(self, str name, record=*)
    cdef int _matrix(self, matrix *m, str name) except -1
    cdef int _matrix_f32(self, matrix *m, str name) except -1
    cdef const float *_vector(self, str name) except? NULL
    cdef int _attention(self, layer *l, int32_t n, dict a) except -1
    cdef int _delta(self, layer *l, int32_t n, dict a) except -1
    cdef int _ffn(self, ffn_layer *l, int32_t n, dict f) except -1
    cdef int _stack(self, expert_stack *s, int32_t n, str name, dict f) except -1


cdef class Session:
    cdef readonly Program program
    cdef readonly int32_t n_threads
    cdef runtime rt
    cdef int64_t *ns        # [n_layers + 1][ST_COUNT]: outside of the layers, then each layer
    cdef uint8_t *arena
    cdef readonly int64_t arena_bytes
    cdef uint8_t *kv
    cdef readonly int64_t kv_bytes
    cdef float *state                # recurrent states of all layers; see core/delta
    cdef readonly int64_t state_bytes
    cdef int32_t *history            # [ctx]: the tokens fed
    cdef readonly int32_t max_saved, n_saved
    cdef float *saved                # [max_saved][state_floats]: checkpoints
    cdef int32_t *saved_pos          # [max_saved]: after how many tokens each was made
    cdef int32_t kept                # position of the one that makes no room for others; 0: none
    cdef bint dirty                  # a failed pass left the recurrent state half way
    cdef kv_view *views
    cdef readonly int32_t pos, ctx, chunk, kv_type
    cdef int32_t room                # positions of the KV cache: ctx, a multiple of eight
    cdef list moment_sums            # what rt.moments points into
    cdef float *x                    # [chunk][ldx]
    cdef size_t ldx
    cdef activations normed
    cdef activations routed          # what experts and router read where they have norms of their own
    cdef activations router
    cdef float *y                    # [chunk][ldx]: an output that is normalised before it is added
    cdef attn_buffers attn
    cdef delta_buffers delta
    cdef ffn_buffers ffn
    cdef float **cos                 # [ropes]: [chunk][half]
    cdef float **sin
    cdef float *logits               # [head_rows][ld_logits]
    cdef size_t ld_logits
    cdef int32_t head_rows
    cdef int32_t status
    cdef bint prefetch
    cdef int _allocate_kv(self) except -1
    cdef int _allocate_state(self) except -1
    cdef cl_read *row_reads          # [ROWS_AHEAD], where rows of the embedding are read
    cdef int64_t _layout(self, uint8_t *base) except -1
    cdef int32_t _embed_from_file(self, const int32_t *tokens, int32_t n) noexcept nogil
    cdef int32_t _begin(self, const int32_t *tokens, int32_t n) noexcept nogil
    cdef void _attention(self, const attn_layer *l, int32_t n) noexcept nogil
    cdef void _add(self, const float *w, float eps, const ffn_layer *l, int32_t n) noexcept nogil
    cdef int32_t _feed_forward(self, const ffn_layer *l, const ffn_layer *next, int32_t n) noexcept nogil
    cdef void _delta(self, const delta_layer *l, int32_t n) noexcept nogil
    cdef object error(self, int32_t rc)
    cdef int _fail(self, int32_t rc) except -1 nogil
    cdef void _back_to(self, int32_t pos) noexcept nogil
    cdef int32_t forward(self, const int32_t *tokens, int32_t n) noexcept nogil
    cdef int32_t _pass(self, const int32_t *tokens, int32_t n) noexcept nogil
    cdef int32_t experts(self, const int32_t *tokens, int32_t n) noexcept nogil
    cdef int32_t head(self, int32_t t0, int32_t n) noexcept nogil
    cdef void _checkpoint(self, bint keep) noexcept nogil
    cdef int _settle(self) except -1
    cdef int32_t _replay(self, int32_t pos) noexcept nogil
    cdef int32_t rewind_to(self, int32_t pos) noexcept nogil
    cdef int32_t feed_tokens(self, const int32_t *tokens, int32_t n, bint want_logits) noexcept nogil
