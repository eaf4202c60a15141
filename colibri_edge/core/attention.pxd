# Softmax attention of one layer over its KV cache.
from libc.stdint cimport int32_t, int64_t, uint8_t

from colibri_edge.core.runtime cimport activations, matrix, runtime

cdef enum qk_norm:
    QK_NONE, QK_HEAD, QK_FULL

ctypedef struct attn_layer:
    const float *norm                # [hidden] padded to 8
    matrix q
    matrix k
    matrix v
    matrix o
    bint gated                       # the heads' outputs are multiplied by sigmoid of a gate, [heads*head_dim, hidden]
    matrix gate
    const float *q_bias              # each padded to 8, or NULL
    const float *k_bias
    const float *v_bias
    const float *o_bias
    const float *q_norm              # [head_dim] or [heads*head_dim], or NULL
    const float *k_norm
    bint k_eq_v                      # values are the keys' projection before norm and rotation
    bint v_norm                      # RMS norm without weights over each head's values
    const float *sinks               # [heads]: one more score per head, without a value, or NULL
    const float *post_norm           # [hidden] padded to 8: of the output projection, before it is added; or NULL
    int32_t qk_norm_kind
    int32_t heads
    int32_t kv_heads
    int32_t head_dim
    int32_t rope                     # index, -1 none
    int32_t rope_dim
    int32_t window                   # 0 none
    float scale
    float softcap
    float norm_eps
    int32_t slot                     # which layer of the KV cache

# One layer's keys [kv_heads][ctx/8][head_dim][8] and values [kv_heads][ctx][v_stride], of kv_type. q8: the scales of a head stand
# behind its codes, halves [ctx/8][head_dim/32 rounded up][8] and [ctx][head_dim/32 rounded up].
ctypedef struct kv_view:
    uint8_t *k
    uint8_t *v
    size_t k_head                    # bytes of one head's keys
    size_t v_head
    size_t k_codes                   # q8: bytes of one head's codes, after which its scales stand
    size_t v_codes
    int32_t kv_type

ctypedef struct attn_buffers:
    float *q                         # [tokens][ldq]
    float *k                         # [tokens][ldk]
    float *v
    size_t ldq
    size_t ldk
    float *gate                      # [tokens][ldq]: projection of the output gate
    activations out                  # heads*head_dim, padded

cdef void attend(runtime *rt, const attn_layer *l, const kv_view *kv, attn_buffers *b, const float *cos, const float *sin,
                 int32_t pos, int32_t nt) noexcept nogil
