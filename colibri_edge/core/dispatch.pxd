from libc.stdint cimport int32_t

# The (token, rank) pairs of a pass, grouped by expert. Pair p = t * top_k + rank. All memory is the caller's.
ctypedef struct expert_groups:
    int32_t n           # experts that got at least one pair
    int32_t *expert     # [n] rising
    int32_t *start      # [n + 1] where each group begins in pair and token
    int32_t *pair       # [T * k] grouped by expert, rising inside a group
    int32_t *token      # [T * k] the pair's token
    int32_t *where      # [T * k] position of pair p in `pair`: the way back
    int32_t *order      # [n] group numbers, heaviest first (order_by_load)
    int32_t *cursor     # [E] zero between calls

cdef size_t groups_bytes(int32_t max_tokens, int32_t top_k, int32_t n_experts) noexcept nogil
cdef void groups_init(expert_groups *g, void *mem, int32_t max_tokens, int32_t top_k, int32_t n_experts) noexcept nogil
cdef void group_by_expert(const int32_t *ids, int32_t n_tokens, int32_t top_k, int32_t n_experts,
                          expert_groups *g) noexcept nogil
cdef void order_by_load(expert_groups *g) noexcept nogil
