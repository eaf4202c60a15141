# Gated delta rule with a causal convolution: linear attention of one layer over its recurrent state.
from libc.stdint cimport int32_t

from colibri_edge.core.runtime cimport activations, matrix, runtime

ctypedef struct delta_layer:
    const float *norm                # [hidden] padded to 8
    float norm_eps
    matrix qkv                       # [2*key_heads*key_dim + value_heads*value_dim, hidden]: queries, keys, values
    matrix z                         # [value_heads*value_dim, hidden]: output gate
    matrix beta                      # [value_heads, hidden]
    matrix alpha                     # [value_heads, hidden]
    matrix o                         # [hidden, value_heads*value_dim]
    const float *conv                # [taps][ldw]
    size_t ldw
    const float *rate                # [value_heads]: -exp(A_log), below zero
    const float *dt_bias             # [value_heads]
    const float *out_norm            # [value_dim]
    int32_t key_heads
    int32_t value_heads
    int32_t key_dim
    int32_t value_dim
    int32_t taps                     # of the convolution
    float q_scale                    # 1 / sqrt(key_dim)
    bint tiled                       # value head h uses key head h % key_heads, else h / (value_heads / key_heads)
    int32_t channels                 # rows of qkv
    size_t state                     # where the layer's state begins, in floats; see delta_state_floats

ctypedef struct delta_buffers:
    float *qkv                       # [taps-1 + tokens][ldc]: earlier inputs of the convolution, then the chunk's
    size_t ldc
    float *keys                      # [2*key_heads][tokens][key_dim]: queries, then keys, of unit length
    float *z                         # [tokens][ldz]
    size_t ldz
    float *beta                      # [tokens][ldh]: rate of learning, after sigmoid
    float *decay                     # [tokens][ldh]
    size_t ldh
    activations out                  # value_heads*value_dim, padded

cdef size_t delta_state_floats(const delta_layer *l) noexcept nogil
cdef void delta_rule(runtime *rt, const delta_layer *l, float *state, delta_buffers *b, int32_t nt) noexcept nogil
