# Feed-forward of one layer: dense, mixture of experts, shared expert.
from libc.stdint cimport int32_t, int64_t, uint8_t

from colibri_edge.core.dispatch cimport expert_groups
from colibri_edge.core.runtime cimport activations, matrix, runtime

# A stack of experts of one shape. Expert e's matrices lie at record[e] + the part's offset.
ctypedef struct expert_stack:
    const uint8_t **record   # [count]: address of each record (core/store)
    int32_t count
    int32_t intermediate
    int32_t activation
    bint clamped             # the gate is gpt-oss's, with alpha and limit, whatever activation says
    float alpha
    float limit
    bint interleaved         # gate_up alternates row groups of gate and up; else gate and up stand apart
    bint gated
    matrix gate              # interleaved: the view of gate_up, all 2*I8/8 groups
    matrix up
    matrix down
    size_t gate_at
    size_t up_at
    size_t down_at
    size_t gate_bias_at      # [intermediate]; 0: no bias (a record begins with a matrix)
    size_t up_bias_at
    size_t down_bias_at      # [hidden]
    int32_t slot             # number of the stack in the store

ctypedef struct ffn_layer:
    const float *norm
    float norm_eps
    bint moe
    matrix router
    const float *router_bias     # [experts] padded to 8, or NULL
    const float *expert_scale    # [experts]: factor on a chosen expert's weight, or NULL
    bint branches                # experts and router have norms of their own, and both branches one after them (Gemma 4)
    const float *router_norm     # [hidden] padded to 8
    const float *experts_norm
    const float *experts_post
    const float *shared_post
    const float *post_norm       # of the FFN's output, before it is added; or NULL
    const float *scale           # [1]: factor on the residual stream after the layer, or NULL
    int32_t experts
    int32_t top_k
    bint renormalise
    expert_stack routed      # or the dense FFN
    bint has_shared
    expert_stack shared
    bint has_shared_gate
    matrix shared_gate

ctypedef struct ffn_buffers:
    activations input        # [tokens] normalised hidden state
    activations routed       # what the experts read; input where the layer has no branches
    activations router       # what the router reads; likewise
    float *y                 # [tokens][ldx]: output that is normalised before it is added (apart() tells)
    float *y_shared          # the shared branch's, where there are branches
    float *scores            # [tokens][ld_scores]
    size_t ld_scores
    float *gate              # [tokens][8]: shared gate
    int32_t *ids             # [tokens][top_k]
    float *weights
    activations hidden       # [tokens*top_k + tokens]: activated intermediate rows; the shared expert's rows follow
    expert_groups groups
    int32_t *mark            # [experts]: for counting distinct ones
    int32_t *first           # [experts + 3]: first chunk of each unit of the up pass
    float *x                 # residual stream [tokens][ldx]
    size_t ldx
    int32_t hidden_size
    activations ahead        # [1] and what follows: of the next layer's router, applied early
    float *ahead_scores      # [ld_scores]
    int32_t *ahead_ids       # [top_k]
    float *ahead_weights

cdef inline bint apart(const ffn_layer *l) noexcept nogil:
    """Whether the output goes to y first: add_output of the engine norms it and adds it."""
    return l.branches or l.post_norm != NULL or l.scale != NULL

cdef size_t ffn_scratch(int32_t max_tokens, int32_t top_k) noexcept nogil
cdef void bind_expert(const expert_stack *s, const matrix *part, size_t at, int32_t e, matrix *out) noexcept nogil
cdef int32_t ffn(runtime *rt, const ffn_layer *l, const ffn_layer *next, ffn_buffers *b, int32_t nt) noexcept nogil
