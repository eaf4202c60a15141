"""Hit rates of eviction policies on recorded or made routing, beside the best possible (Belady 1966: evict what is used last), and what
they come to on the disk and on the clock.

    python benchmarks/cache_policies.py MODEL.colibri [TEXT] [--tokens 400]      routing of a model that decodes
    python benchmarks/cache_policies.py MODEL.colibri --run                      the same, and each budget run for real
    python benchmarks/cache_policies.py --trace FILE --record 3354624            a trace of `run --trace`
    python benchmarks/cache_policies.py --zipf 1.0 --layers 12 --experts 128 --top-k 8      made: Zipf popularity per layer
    python benchmarks/cache_policies.py MODEL.colibri --zipf 1.0 --run           made, replayed by the reader of that model's file

Budgets are shares of all experts. The policies are those of core/store, simulated (the store itself is exact for any of them). MB/token:
bytes that the default policy misses. tok/s with --run: the model decoding with that many slots; for made routing, its reads alone.
"""
import argparse
import time

import numpy as np

SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
GROWTH = 1.02   # per token, as core/store
DEFAULT = "next"
RARE, NEWER = 256, 0.3      # as core/store
POLICIES = ("next", "lfu", "lru", "belady")


def zipf_trace(layers: int, experts: int, top_k: int, tokens: int, s: float, seed: int = 1):
    """Per token and layer top_k experts, drawn without replacement by popularity 1/rank^s; each layer ranks its experts anew."""
    rng = np.random.default_rng(seed)
    p = 1.0 / np.arange(1, experts + 1) ** s
    p /= p.sum()
    order = [rng.permutation(experts) for _ in range(layers)]
    return [[tuple(order[n][rng.choice(experts, top_k, replace=False, p=p)]) for n in range(layers)] for _ in range(tokens)]


def prompt_ids(m, text: str) -> list[int]:
    """Tokens of the text; of a model without tokenizer some fixed ones."""
    if m.file.tokenizer is None:
        return [(7 + 13 * i) % m.program.vocab for i in range(16)]
    return m.tokenizer.encode(text)


def decode(m, ids: list[int], tokens: int) -> float:
    """Greedy decoding of that many tokens after ids; seconds of the decoding."""
    vocab = m.tokenizer.vocab_size if m.file.tokenizer is not None else m.program.vocab
    m.session.rewind(0)
    m.session.feed(ids)
    start = time.perf_counter()
    for _ in range(tokens):
        m.session.feed((int(m.session.logits_view()[:vocab].argmax()),))
    return time.perf_counter() - start


def load(path: str, tokens: int, slots: int | None = None, policy: str = DEFAULT):
    """The model resident, or with that many slots."""
    from colibri_edge import limits
    from colibri_edge.engine import Program, Session
    from colibri_edge.file import ColibriFile
    from colibri_edge.model import Model, default_kv

    file = ColibriFile(path)
    program = Program(file, "map") if slots is None else Program(file, "stream", slots, policy)
    ctx = min(tokens + 512, program.context)
    return Model(file, program, Session(program, ctx, limits.default_threads(), default_kv(program)))


def model_trace(path: str, text: str, tokens: int):
    """Routing of greedy decoding after `text`: per token and layer the experts."""
    m = load(path, tokens)
    m.session.start_trace(tokens + 512)
    ids = prompt_ids(m, text)
    decode(m, ids, tokens)
    rows = m.session.routing()
    layers = max(n for n, _ in rows) + 1
    rows = rows[len(ids) * layers:]
    return [[experts for _, experts in rows[i:i + layers]] for i in range(0, len(rows), layers)]


def file_trace(path: str):
    """Decoding as `run --trace` recorded it."""
    from colibri_edge import trace

    t = trace.read(path)
    n = len(t.experts)
    rows = t.rows[t.prompt_tokens * n:]
    return [[experts for _, experts in rows[i:i + n]] for i in range(0, len(rows) - n + 1, n)], sum(t.experts)


class Simulation:
    """Values of all experts as arrays; the expert of the least value leaves. keys: (layer, expert) as layer * width + expert."""

    def __init__(self, trace):
        self.width = max(e for token in trace for experts in token for e in experts) + 1
        self.acquires = [np.array(experts) + n * self.width for token in trace for n, experts in enumerate(token)]
        self.layers = len(trace[0])
        self.size = self.width * self.layers
        flat = np.concatenate(self.acquires)
        self.following, last = np.empty(len(flat)), {}
        for i in range(len(flat) - 1, -1, -1):
            self.following[i] = last.get(flat[i], len(flat))
            last[flat[i]] = i

    def hits(self, slots: int, policy: str) -> float:
        """Share of uses found in memory."""
        held, last, count, gap = (np.zeros(self.size) for _ in range(4))
        gap[:] = RARE * self.layers
        future, used, hits, weight, free, i = np.zeros(self.size), np.zeros(self.size, np.int64), 0, 1.0, slots, 0
        for clock, keys in enumerate(self.acquires, 1):
            count[keys] += weight
            seen = used[keys] > 0
            gap[keys] = np.where(seen, (1 - NEWER) * np.minimum(gap[keys], clock) + NEWER * (clock - last[keys]), gap[keys])
            used[keys] += 1
            last[keys] = clock
            future[keys] = self.following[i:i + len(keys)]
            i += len(keys)
            present = held[keys] > 0
            hits += int(present.sum())
            for key in keys[~present]:
                if free:
                    free -= 1
                else:
                    if policy == "next":
                        due = last + gap
                        value = -np.where(due < clock, clock + (clock - due), due)
                    else:
                        value = {"lru": last, "lfu": count, "belady": -future}[policy]
                    value = np.where(held > 0, value, np.inf)
                    value[keys] = np.inf
                    held[int(value.argmin())] = 0
                held[key] = 1
            if clock % self.layers == 0:
                weight *= GROWTH
        return hits / i


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", nargs="?")
    ap.add_argument("text", nargs="?", default="turn on the lights in the bedroom and then tell me the temperature outside")
    ap.add_argument("--tokens", type=int, default=400)
    ap.add_argument("--trace", help="a file of `run --trace`")
    ap.add_argument("--record", type=int, default=0, help="bytes of one record, for MB/token of traces without a model")
    ap.add_argument("--zipf", type=float)
    ap.add_argument("--layers", type=int, default=12)
    ap.add_argument("--experts", type=int, default=128)
    ap.add_argument("--top-k", type=int, default=8)
    ap.add_argument("--run", action="store_true", help="run each budget for real, the resident model beside it")
    a = ap.parse_args()
    if a.zipf is None and not a.model and not a.trace:
        ap.error("a model, --trace or --zipf is needed")
    stacks = []
    if a.model:
        from colibri_edge import budget
        from colibri_edge.convert.cache import resolve
        from colibri_edge.file import ColibriFile

        a.model = str(resolve(a.model))
        stacks = sorted(budget.routed(ColibriFile(a.model)), key=lambda t: int(t.name.split(".")[1]))
        a.layers, a.experts, a.record = len(stacks), stacks[0].count, stacks[0].stride
    if a.zipf is not None:
        trace, experts = zipf_trace(a.layers, a.experts, a.top_k, a.tokens, a.zipf), a.layers * a.experts
    elif a.trace:
        trace, experts = file_trace(a.trace)
    else:
        trace, experts = model_trace(a.model, a.text, a.tokens), sum(t.count for t in stacks)
    sim, uses = Simulation(trace), sum(map(len, trace[0]))
    resident = None
    if a.run and a.zipf is None:
        m = load(a.model, a.tokens)
        ids = prompt_ids(m, a.text)
        resident = [a.tokens / decode(m, ids, a.tokens) for _ in range(3)]
    print(f"{len(trace)} tokens, {len(trace[0])} layers, {experts} experts of {a.record / 1e6:.3f} MB; default {DEFAULT}")
    print("share  " + "  ".join(f"{p:>6}" for p in POLICIES) + "  MB/token" + ("   tok/s  measured hits, MB/token" if a.run else ""))
    for share in SHARES:
        slots = max(round(share * experts), max(map(len, trace[0])))
        found = {p: sim.hits(slots, p) for p in POLICIES}
        missed = uses * a.record * (1 - found[DEFAULT]) / 1e6
        line = f"{share:5.0%}  " + "  ".join(f"{found[p]:6.1%}" for p in POLICIES) + f"  {missed:8.2f}"
        print(line + (run(a, trace, slots, resident) if a.run else ""), flush=True)
    if resident:
        print(f"resident: {' '.join(f'{r:.1f}' for r in resident)} tok/s")


def run(a, trace, slots: int, resident) -> str:
    """The budget for real: tok/s, hit rate and MB a token of the store."""
    from colibri_edge.core.store import Store

    if resident is None:
        from colibri_edge import budget
        from colibri_edge.file import ColibriFile

        store = Store(a.model, sorted(budget.routed(ColibriFile(a.model)), key=lambda t: int(t.name.split(".")[1])), None, slots)
        start = time.perf_counter()
        for token in trace:
            for n, experts in enumerate(token):
                store.touch(n, list(experts))
            store.pass_over()
        rate, s = len(trace) / (time.perf_counter() - start), store.stats()
        before = {k: 0 for k in s}
    else:
        m = load(a.model, a.tokens, slots)
        ids = prompt_ids(m, a.text)
        m.session.feed(ids)
        before = m.stats()
        rate = a.tokens / decode(m, ids, a.tokens)
        s = m.stats()
    hits, misses = (s[k] - before[k] for k in ("expert_hits", "expert_misses"))
    return f"  {rate:6.1f}  {hits / (hits + misses):6.1%} {misses * a.record / len(trace) / 1e6:8.2f}"


if __name__ == "__main__":
    main()
