"""Hit rates of eviction policies on recorded or made routing, beside the best possible (Belady 1966: evict what is used last).

    python benchmarks/cache_policies.py MODEL.colibri [TEXT] [--tokens 400]      routing of a model that decodes
    python benchmarks/cache_policies.py --zipf 1.0 --layers 12 --experts 128 --top-k 8      made: Zipf popularity per layer

Budgets are shares of all experts. LRU and LFU are those of core/store, simulated (the store itself is exact for any of them).
"""
import argparse

import numpy as np

SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
GROWTH = 1.02   # per token, as core/store


def zipf_trace(layers: int, experts: int, top_k: int, tokens: int, s: float, seed: int = 1):
    """Per token and layer top_k experts, drawn without replacement by popularity 1/rank^s; each layer ranks its experts anew."""
    rng = np.random.default_rng(seed)
    p = 1.0 / np.arange(1, experts + 1) ** s
    p /= p.sum()
    order = [rng.permutation(experts) for _ in range(layers)]
    return [[tuple(order[n][rng.choice(experts, top_k, replace=False, p=p)]) for n in range(layers)] for _ in range(tokens)]


def model_trace(path: str, text: str, tokens: int):
    """Routing of greedy decoding after `text`: per token and layer the experts."""
    from colibri_edge.model import Model

    m = Model.load(path, ctx=min(tokens + 512, Model.load(path).program.context))
    ids = m.tokenizer.encode(text)
    m.session.feed(ids)
    m.session.start_trace(tokens)
    for _ in range(tokens):
        logits = m.session.logits_view()
        m.session.feed((int(logits[: m.tokenizer.vocab_size].argmax()),))
    rows = m.session.routing()
    layers = max(n for n, _ in rows) + 1
    return [[experts for _, experts in rows[i:i + layers]] for i in range(0, len(rows), layers)]


def simulate(trace, slots: int, policy: str) -> float:
    """Share of uses found in memory."""
    uses = [(n, e) for token in trace for n, experts in enumerate(token) for e in experts]
    following, last = [0] * len(uses), {}
    for i in range(len(uses) - 1, -1, -1):
        following[i] = last.get(uses[i], len(uses))
        last[uses[i]] = i
    held, count, hits, i, weight, clock = {}, {}, 0, 0, 1.0, 0
    for token in trace:
        for n, experts in enumerate(token):
            clock += 1
            need = {(n, e) for e in experts}
            for e in experts:
                key = (n, e)
                count[key] = count.get(key, 0.0) + weight
                hits += key in held
                if key not in held and len(held) >= slots:
                    free = [k for k in held if k not in need]
                    value = {"lru": lambda k: held[k][0], "lfu": lambda k: count[k], "belady": lambda k: -held[k][1]}[policy]
                    del held[min(free, key=value)]
                held[key] = (clock, following[i])
                i += 1
        weight *= GROWTH
    return hits / len(uses)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", nargs="?")
    ap.add_argument("text", nargs="?", default="turn on the lights in the bedroom and then tell me the temperature outside")
    ap.add_argument("--tokens", type=int, default=400)
    ap.add_argument("--zipf", type=float)
    ap.add_argument("--layers", type=int, default=12)
    ap.add_argument("--experts", type=int, default=128)
    ap.add_argument("--top-k", type=int, default=8)
    a = ap.parse_args()
    if a.zipf is None and not a.model:
        ap.error("a model or --zipf is needed")
    if a.zipf is not None:
        trace, experts = zipf_trace(a.layers, a.experts, a.top_k, a.tokens, a.zipf), a.layers * a.experts
    else:
        from colibri_edge.file import ColibriFile

        trace = model_trace(a.model, a.text, a.tokens)
        experts = sum(t.count for t in ColibriFile(a.model).tensors.values() if t.name.endswith(".experts"))
    print(f"{len(trace)} tokens, {len(trace[0])} layers, {experts} experts\nshare   LRU    LFU    best")
    for share in SHARES:
        slots = max(int(share * experts), len(trace[0][0]))
        row = [simulate(trace, slots, p) for p in ("lru", "lfu", "belady")]
        print(f"{share:5.0%}  " + "  ".join(f"{x:5.1%}" for x in row))


if __name__ == "__main__":
    main()
