"""How much of its decode rate an engine keeps at depth: colibri-edge beside other engines on the same weights, in turn.

    python benchmarks/depth.py model.colibri --engine "llama.cpp=python llama_bench.py model.gguf -t 2 -p {p} -n {n} -r 1" --rounds 5

An engine's command is that of versus.py; its "tg" counts the n tokens after a prompt of p. A round takes every engine at the
shallow depth and at the deep one; what it keeps is deep / shallow of that round, the figure at the end the median over the rounds.
"""
import argparse
import json
import statistics
import subprocess
import sys

from versus import figures


def ours(depth: int, a) -> float:
    """tok/s of a.tokens tokens at that depth."""
    out = subprocess.check_output([sys.executable, "-m", "colibri_edge", "bench", a.model, "-p", "0", "-n", str(a.tokens), "-d", str(depth),
                                   "-t", str(a.threads), "-r", str(a.repetitions), "--no-probe", "--json"])
    return json.loads(out)["rows"][0]["tok_s"]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model", help="a .colibri file")
    p.add_argument("-n", "--tokens", type=int, default=32)
    p.add_argument("-d", "--depth", default="128,4060", metavar="SHALLOW,DEEP")
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("-r", "--repetitions", type=int, default=1, help="of ours within a round, after one that is not counted")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--engine", action="append", default=[], metavar="NAME=COMMAND")
    a = p.parse_args()
    depths = [int(d) for d in a.depth.split(",")]
    engines = {"colibri-edge": lambda depth: ours(depth, a)}
    for text in a.engine:
        name, _, command = text.partition("=")
        engines[name] = lambda depth, command=command: figures(command, depth, a.tokens)["tg"]
    rates = {name: [] for name in engines}
    for i in range(a.rounds):
        for name, run in engines.items():
            rates[name].append([run(depth) for depth in depths])
            print(f"round {i + 1} {name}: " + " ".join(f"{r:.1f}" for r in rates[name][-1]), file=sys.stderr, flush=True)
    print(f"| engine | tok/s at {depths[0]} | at {depths[1]} | keeps (median) | least to most |\n|---|--:|--:|--:|--:|")
    for name, runs in rates.items():
        kept = [deep / shallow for shallow, deep in runs]
        print(f"| {name} | {statistics.median(r[0] for r in runs):.1f} | {statistics.median(r[1] for r in runs):.1f} | "
              f"{statistics.median(kept):.3f} | {min(kept):.3f} to {max(kept):.3f} |")


if __name__ == "__main__":
    main()
