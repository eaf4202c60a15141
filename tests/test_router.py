"""Router, dispatch and pool: the choice, the weights, ties, refusals, and what the build options change."""

import numpy as np
import pytest

from colibri_edge._native import constants
from colibri_edge.core import dispatch, pool, router

C = constants()
TOLERANCE = 2e-5 if C["router_exp"] == "lut" else 1e-6


def route(scores, k, renormalise):
    ids = np.empty((len(scores), k), np.int32)
    weights = np.empty((len(scores), k), np.float32)
    router.route_scores(np.ascontiguousarray(scores, np.float32), k, renormalise, ids, weights)
    return ids, weights


def reference(scores, k, renormalise):
    s = scores.astype(np.float64)
    ids = np.argsort(-s, axis=1, kind="stable")[:, :k]
    with np.errstate(invalid="ignore"):
        p = np.exp(s - s.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    w = np.take_along_axis(p, ids, 1)
    return ids, w / w.sum(1, keepdims=True) if renormalise else w


@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("experts", [1, 2, 7, 8, 9, 16, 60, 128, 257])
def test_choice_and_weights(experts, renormalise):
    """Softmax over all, gather, divide only if asked: k = 1, 2, E (FAULT 15)."""
    s = np.random.default_rng(experts).standard_normal((50, experts)).astype(np.float32) * 3
    for k in sorted({1, min(2, experts), min(8, experts), experts}):
        if k > C["max_top_k"] or experts > C["max_experts"]:
            continue
        ids, w = route(s, k, renormalise)
        want_ids, want = reference(s, k, renormalise)
        assert np.array_equal(ids, want_ids)
        assert np.abs(w - want).max() < TOLERANCE
        if not renormalise and 1 < k < experts:
            assert w.sum(1).max() < 1 + TOLERANCE
        if renormalise:
            assert np.abs(w.sum(1) - 1).max() < 1e-6


def test_ties_go_to_the_lower_id():
    s = np.array([[1, 3, 3, 0, 3, 2, 2], [0] * 7, [5, 5, 5, 5, 5, 5, 6]], np.float32)
    ids, w = route(s, 2, True)
    assert ids.tolist() == [[1, 2], [0, 1], [6, 0]]
    assert (w[0] == 0.5).all() and (w[1] == 0.5).all()
    rng = np.random.default_rng(0)
    s = rng.integers(0, 3, (200, min(40, C["max_experts"]))).astype(np.float32)
    k = min(16, C["max_top_k"])
    assert np.array_equal(route(s, k, False)[0], reference(s, k, False)[0])


def test_infinities_and_nan():
    inf, nan = np.inf, np.nan
    ids, w = route(np.array([[-inf, 2, -inf, 1, -inf]]), 2, True)
    assert ids.tolist() == [[1, 3]] and np.isfinite(w).all()
    ids, w = route(np.array([[-inf, -inf, 7, -inf, -inf]]), 2, False)
    assert ids.tolist() == [[2, 0]] and w.tolist() == [[1, 0]]  # a -inf only where nothing finite is left
    for bad in ([0, nan, 1], [nan] * 3, [0, inf, 1], [-inf] * 3):
        for renormalise in (False, True):
            with pytest.raises(FloatingPointError):
                route(np.array([bad]), 1, renormalise)
    s = np.array([[3e38, -3e38, 0, 1]])
    ids, w = route(s, 2, False)
    assert w.tolist() == [[1, 0]]
    assert C["router_softmax"] or ids.tolist() == [[0, 3]]  # there, probabilities that are zero tie: the lower id wins


def test_arguments_are_checked():
    for k in (0, 4, -1):
        with pytest.raises(ValueError, match=f"top_k={k} of 3 experts"):
            router.route_scores(
                np.zeros((1, 3), np.float32), k, True, np.zeros((1, 3), np.int32), np.zeros((1, 3), np.float32)
            )


def test_both_exponentials():
    """The table: relative error under 9e-6 inside [-10, 10], its ends included; outside, the polynomial."""
    x = np.concatenate([np.linspace(-10, 10, 400001), [-10, 10, np.nextafter(np.float32(10), np.float32(0))]]).astype(
        np.float32
    )
    table, poly = np.empty_like(x), np.empty_like(x)
    router.exp_table(x, table)
    router.exp_poly(x, poly)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(table / exact - 1).max() < 9e-6
    assert np.abs(poly / exact - 1).max() < 2e-7
    x = np.array([-87, -50, -10.001, 10.001, 80, -200, 200, -np.inf, np.inf, np.nan], np.float32)
    table, poly = np.empty_like(x), np.empty_like(x)
    router.exp_table(x, table)
    router.exp_poly(x, poly)
    assert np.array_equal(table, poly, equal_nan=True) and table[-5] == 0 and table[-3] == 0 and table[-2] == np.inf


def test_groups():
    rng = np.random.default_rng(3)
    for tokens, k, experts in ((1, 1, 1), (1, 8, 8), (5, 2, 12), (64, 4, 16), (3, 2, 300)):
        ids = np.stack([rng.permutation(experts)[:k] for _ in range(tokens)]).astype(np.int32)
        groups = dispatch.group(ids, experts)
        want = {e: [p for p in range(tokens * k) if ids.flat[p] == e] for e in set(ids.flat)}
        assert dict(groups) == want
        loads = [(-len(pairs), e) for e, pairs in groups]
        assert loads == sorted(loads)  # heaviest first, ties to the lower expert
    assert dispatch.group(np.empty((0, 2), np.int32), 4) == []
    with pytest.raises(ValueError, match="expert 4 of token 0: want 0 to 3"):
        dispatch.group(np.array([[4]], np.int32), 4)


def test_arena():
    a = pool.Arena()
    line = C["cache_line"]
    assert [a.reserve("x", 5), a.reserve("nothing", 0), a.reserve("y", line + 1)] == [0, 1, 2]
    a.allocate()
    assert a.table() == [("x", 0, 5), ("nothing", line, 0), ("y", line, line + 1)] and a.nbytes == 3 * line
    with pytest.raises(RuntimeError, match="no slot for 'late'"):
        a.reserve("late", 1)
    with pytest.raises(RuntimeError, match="no slot for 'huge'"):
        b = pool.Arena()
        b.reserve("big", 1 << 62)
        b.reserve("huge", (1 << 64) - 1)
