"""One streamed run under a ceiling, held against the bound that computing and disk set.

    python benchmarks/ceiling.py MODEL --ram 2GiB [--prompt 64] [--tokens 32] [--warm 0] [--forced] [--learned] [--prefetch]
                                 [--policy lru] [--slots N]

    bound = 1 / (compute time of a token + bytes missed a token / probed disk rate)

Compute time: that of the run less what its threads waited for reads, a thread. "again": the same token at the same place again and again;
where its experts fit the slots, nothing is missed then, and it is a second figure for the computing. Disk rate: random reads of one
record by the engine's own reader, the best of the probe before and the one after. Put the process into a memory cgroup for a hard limit.

--forced: decodes tokens that go on like the prompt's instead of the likeliest ones; random weights often repeat one token for ever, and
then ask for the same experts again and again. --resident: all weights in memory, the rate that streaming with every expert in memory is
to reach.
"""
import argparse
import json
import statistics
import time

import numpy as np

from colibri_edge import _native, budget, limits
from colibri_edge.convert.cache import resolve
from colibri_edge.engine import Program, Session
from colibri_edge.file import ColibriFile
from colibri_edge.model import Model

AGAIN = 9


def disk(file: ColibriFile, reads: int = 160, ahead: int = 8) -> float:
    """Bytes a second of random reads of one record among the routed experts."""
    stacks = budget.routed(file)
    record = max(t.stride for t in stacks)
    reads = max(8, min(reads, (400 << 20) // record))
    return _native.probe_disk(file.path, min(t.offset for t in stacks), max(t.offset + t.length for t in stacks), record, reads, ahead)


def tokens(n: int, vocab: int) -> list[int]:
    return [(i * 7919) % vocab for i in range(n)]


def measure(session: Session, prompt: int, n: int, record: int, forced: bool = False, warm: int = 0) -> dict:
    """Prefill of `prompt` tokens, decode of `warm` given ones that are not counted, decode of n (greedy or forced), then the last token
    again: seconds and the store's figures of the decode."""
    p, store = session.program, session.program.store
    start = time.perf_counter()
    session.feed(tokens(prompt, p.vocab))
    prefill = time.perf_counter() - start
    for token in tokens(prompt + warm, p.vocab)[prompt:]:
        session.feed((token,))
    prompt += warm
    before, stages, start = store.stats(), session.timing(), time.perf_counter()
    for drawn in tokens(prompt + n, p.vocab)[prompt:]:
        token = drawn if forced else int(np.argmax(session.logits_view()))
        session.feed((token,))
    seconds = time.perf_counter() - start
    after, ended = store.stats(), session.timing()
    again = []
    for _ in range(AGAIN):
        session.rewind(prompt + n - 1)
        start = time.perf_counter()
        session.feed((token,))
        again.append(time.perf_counter() - start)
    uses = sum(after[k] - before[k] for k in ("expert_hits", "expert_misses"))
    return {"prefill_s": prefill, "decode_tok_s": n / seconds, "again_s": statistics.median(again[2:]),
            "compute_s": (seconds - (after["wait_s"] - before["wait_s"]) / session.threads) / n,
            "missed_bytes": (after["expert_misses"] - before["expert_misses"]) * record / n,
            "read_bytes": (after["bytes_read"] - before["bytes_read"]) / n, "wait_s": (after["wait_s"] - before["wait_s"]) / n,
            "hit_rate": 1 - (after["expert_misses"] - before["expert_misses"]) / max(1, uses), "direct": after["direct"],
            "guesses": after["guesses"] - before["guesses"], "guesses_used": after["guesses_used"] - before["guesses_used"],
            "stages": {k: round((ended[k] - stages[k]) / n, 6) for k in ended}}


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("--ram", default=None)
    ap.add_argument("--slots", type=int, help="so many experts in memory, instead of what --ram allows")
    ap.add_argument("--prompt", type=int, default=64)
    ap.add_argument("--tokens", type=int, default=32)
    ap.add_argument("--warm", type=int, default=0, help="tokens decoded before the clock runs, for the rate of a run that has settled")
    ap.add_argument("--ctx", type=int, default=512)
    ap.add_argument("--threads", type=int)
    ap.add_argument("--policy", default="next")
    ap.add_argument("--prefetch", action="store_true")
    ap.add_argument("--forced", action="store_true", help="decode given tokens")
    ap.add_argument("--learned", action="store_true", help="begin with MODEL.usage where it is there")
    ap.add_argument("--resident", action="store_true", help="nothing is streamed")
    a = ap.parse_args()
    file = ColibriFile(resolve(a.model))
    rate = disk(file)
    start = time.perf_counter()
    if a.resident:
        session = Session(Program(file, "ram"), a.ctx, a.threads or limits.default_threads())
    elif a.slots:
        session = Session(Program(file, "stream", a.slots, a.policy), a.ctx, a.threads or limits.default_threads(), prefetch=a.prefetch)
    else:
        session = Model.load(a.model, ram=a.ram, ctx=a.ctx, threads=a.threads, policy=a.policy, prefetch=a.prefetch,
                             learn=a.learned).session
    load = time.perf_counter() - start
    r = measure(session, a.prompt, a.tokens, max(t.stride for t in budget.routed(file)), a.forced, a.warm)
    rates = [rate, disk(file)]
    bound = 1 / (r["compute_s"] + r["missed_bytes"] / max(rates))
    r |= {"load_s": load, "weights": session.program.weights, "slots": session.program.store.n_slots, "disk_mb_s": [x / 1e6 for x in rates],
          "bound_tok_s": bound, "share_of_bound": r["decode_tok_s"] / bound, "peak_rss_mib": limits.peak_rss_bytes() / 2**20}
    print(json.dumps(r, indent=1))


if __name__ == "__main__":
    main()
