# cython: language_level=3, freethreading_compatible=True
"""Expert dispatch: which tokens go to which expert, so that each expert's weights are walked once.

Owns: the counting sort and the order by load. Refuses: allocation, weights and kernels (the back ends' business).
"""
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset


cdef size_t groups_bytes(int32_t max_tokens, int32_t top_k, int32_t n_experts) noexcept nogil:
    """Bytes that groups_init takes: 4 * (3 T k + 4 E + 1)."""
    return sizeof(int32_t) * (3 * <size_t>max_tokens * <size_t>top_k + 4 * <size_t>n_experts + 1)


cdef void groups_init(expert_groups *g, void *mem, int32_t max_tokens, int32_t top_k, int32_t n_experts) noexcept nogil:
    """Lays the arrays into mem [groups_bytes], aligned to 4."""
    cdef size_t pairs = <size_t>max_tokens * <size_t>top_k, e = <size_t>n_experts
    cdef int32_t *p = <int32_t *>mem
    g.n = 0
    g.pair = p
    g.token = p + pairs
    g.where = p + 2 * pairs
    g.expert = p + 3 * pairs
    g.order = g.expert + e
    g.cursor = g.order + e
    g.start = g.cursor + e
    memset(g.cursor, 0, e * sizeof(int32_t))


cdef void group_by_expert(const int32_t *ids, int32_t n_tokens, int32_t top_k, int32_t n_experts,
                          expert_groups *g) noexcept nogil:
    """ids [n_tokens][top_k], each in [0, n_experts) -> g. O(T * k + E); experts without a token cost one look."""
    cdef int32_t pairs = n_tokens * top_k, p, e, at = 0, n = 0, count
    for p in range(pairs):
        g.cursor[ids[p]] += 1
    for e in range(n_experts):
        count = g.cursor[e]
        if count:
            g.expert[n] = e
            g.start[n] = at
            g.cursor[e] = at
            at += count
            n += 1
    g.start[n] = at
    g.n = n
    for p in range(pairs):
        e = ids[p]
        at = g.cursor[e]
        g.cursor[e] = at + 1
        g.pair[at] = p
        g.token[at] = p // top_k
        g.where[p] = at
    for e in range(n):
        g.cursor[g.expert[e]] = 0


cdef inline bint _lighter(const expert_groups *g, int32_t a, int32_t b) noexcept nogil:
    cdef int32_t la = g.start[a + 1] - g.start[a], lb = g.start[b + 1] - g.start[b]
    return la < lb or (la == lb and a > b)


cdef inline void _sink(expert_groups *g, int32_t i, int32_t n) noexcept nogil:
    cdef int32_t v = g.order[i], c
    while True:
        c = 2 * i + 1
        if c >= n:
            break
        if c + 1 < n and _lighter(g, g.order[c + 1], g.order[c]):
            c += 1
        if not _lighter(g, g.order[c], v):
            break
        g.order[i] = g.order[c]
        i = c
    g.order[i] = v


cdef void order_by_load(expert_groups *g) noexcept nogil:
    """g.order = group numbers by size, heaviest first, ties to the lower expert. Heap sort: no allocation, O(n log n)."""
    cdef int32_t i, v
    for i in range(g.n):
        g.order[i] = i
    for i in range(g.n // 2 - 1, -1, -1):
        _sink(g, i, g.n)
    for i in range(g.n - 1, 0, -1):
        v = g.order[0]
        g.order[0] = g.order[i]
        g.order[i] = v
        _sink(g, 0, i)


def group(const int32_t[:, ::1] ids not None, int n_experts) -> list:
    """[(expert, [pair, ...])] of ids (T, top_k), heaviest first; the face of this module for tests."""
    cdef int32_t t = <int32_t>ids.shape[0], k = <int32_t>ids.shape[1], i, j
    cdef expert_groups g
    cdef void *mem
    for i in range(t):
        for j in range(k):
            if not 0 <= ids[i, j] < n_experts:
                raise ValueError(f"expert {ids[i, j]} of token {i}: want 0 to {n_experts - 1}")
    mem = malloc(groups_bytes(t, k, n_experts))
    if mem == NULL:
        raise MemoryError
    groups_init(&g, mem, t, k, n_experts)
    if t and k:
        group_by_expert(&ids[0, 0], t, k, n_experts, &g)
    order_by_load(&g)
    out = []
    for i in range(g.n):
        j = g.order[i]
        out.append((g.expert[j], [g.pair[p] for p in range(g.start[j], g.start[j + 1])]))
        for p in range(g.start[j], g.start[j + 1]):
            assert g.where[g.pair[p]] == p and g.token[p] == g.pair[p] // k
    free(mem)
    return out
