"""What `colibri-edge plan` says beside what a run gives: both in turn under each ceiling, round after round, medians.

    python benchmarks/planned.py MODEL --ram 1GiB,2GiB,3GiB [--learn 300] [--rounds 3]

--learn: tokens decoded beforehand to leave a usage file, other ones than the measured runs decode (0: plan without one). The usage file
that was there is put aside and put back. Each plan and each run is a process of its own. Columns: tokens a second, share of the uses found
in memory, milliseconds of computing and of the disk a token.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from colibri_edge import usage
from colibri_edge.convert.cache import resolve
from colibri_edge.model import Model

PROMPT = 64


def learn(path: str, ram: str, tokens: int, ctx: int) -> None:
    """Leaves the usage file of a prompt and that many tokens after it."""
    m = Model.load(path, ram=ram, ctx=ctx)
    ids = [(i * 104729 + 11) % m.program.vocab for i in range(PROMPT + tokens)]
    m.session.feed(ids[:PROMPT])
    for token in ids[PROMPT:]:
        m.session.feed((token,))
    note = m.save_usage()
    if note:
        raise SystemExit(note)


def call(*command: str) -> dict:
    return json.loads(subprocess.check_output([sys.executable, *command]))


def pair(path: str, ram: str, a) -> tuple[dict, dict]:
    """{figure: value} of the plan and of the run after it."""
    p = call("-m", "colibri_edge", "plan", path, "--ram", ram, "--ctx", str(a.ctx), "--json")["expected"]
    r = call(str(Path(__file__).with_name("ceiling.py")), path, "--ram", ram, "--ctx", str(a.ctx), "--forced", "--learned",
             "--warm", str(a.warm), "--tokens", str(a.tokens))
    run_ms = 1e3 / r["decode_tok_s"]
    return ({"tok_s": p["decode_tok_s"], "found": p["hit_rate"], "compute": p["compute_s"] * 1e3, "disk": p["disk_s"] * 1e3},
            {"tok_s": r["decode_tok_s"], "found": r["hit_rate"], "compute": r["compute_s"] * 1e3, "disk": run_ms - r["compute_s"] * 1e3})


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("model")
    ap.add_argument("--ram", required=True, help="ceilings, separated by commas")
    ap.add_argument("--learn", type=int, default=300)
    ap.add_argument("--tokens", type=int, default=64)
    ap.add_argument("--warm", type=int, default=64, help="tokens of each run before its clock starts (ceiling.py)")
    ap.add_argument("--ctx", type=int, default=512)
    ap.add_argument("--rounds", type=int, default=3)
    a = ap.parse_args()
    path = str(resolve(a.model))
    kept, there = usage.beside(path), usage.beside(path).with_suffix(".usage-kept")
    if kept.exists():
        kept.rename(there)
    try:
        if a.learn:
            learn(path, a.ram.split(",")[0], a.learn, a.ctx)
        print("| ceiling | plan, tok/s | measured | plan / measured | each round | found | computing, ms | disk, ms |\n"
              "|---|--:|--:|--:|--:|--:|--:|--:|")
        for ram in a.ram.split(","):
            pairs = [pair(path, ram, a) for _ in range(a.rounds)]
            plan, run = ({k: statistics.median(p[i][k] for p in pairs) for k in pairs[0][i]} for i in (0, 1))
            each = [p["tok_s"] / r["tok_s"] for p, r in pairs]
            print(f"| {ram} | {plan['tok_s']:.3g} | {run['tok_s']:.3g} | {statistics.median(each) - 1:+.0%} | "
                  + ", ".join(f"{e - 1:+.0%}" for e in each) + f" | {plan['found']:.0%}, {run['found']:.0%} | "
                  + " | ".join(f"{plan[k]:.1f}, {run[k]:.1f}" for k in ("compute", "disk")) + " |", flush=True)
    finally:
        kept.unlink(missing_ok=True)
        if there.exists():
            there.rename(kept)


if __name__ == "__main__":
    main()
