"""colibri-edge beside other engines on the same weights: every engine in turn, round after round, medians and ratios.

    python benchmarks/versus.py model.colibri --engine "ik=python ik_bench.py model.gguf -t 2 -p {p} -n {n} -r 1 --thp" \\
        --engine "llama.cpp=python llama_bench.py model.gguf -t 2 -p {p} -n {n} -r 1" -p 128,512 -n 64 --rounds 5
    python benchmarks/versus.py model.colibri --build pinned=OTHER_VENV/bin/python
    python benchmarks/versus.py model.colibri --weights map,ram

Another engine is a command whose last line of output is JSON with "pp" and "tg", tokens a second; {p} and {n} are put in.
Rows are named as `colibri-edge bench` names them: pp a prompt, tg tokens one by one after a prompt of the first length of -p. Each
round starts every engine anew, so that no one has the machine's good minute to itself, and other engines stand between our own builds: a
shared machine gives less memory bandwidth for a while after it gave much. A ratio is the median over the rounds of
ours / theirs in that round; the share of the ceiling is against the probe of the same round (bench --help).
"""
import argparse
import itertools
import json
import shlex
import statistics
import subprocess
import sys


def ours(python: str, model: str, weights: str, a) -> dict:
    """One round of colibri-edge: {row: tok/s} and {row: (share of the ceiling, of plain tiles)}."""
    out = subprocess.check_output([python, "-m", "colibri_edge", "bench", model, "-p", a.prompt, "-n", str(a.tokens), "-t", str(a.threads),
                                   "-r", str(a.repetitions), "--weights", weights, "-d", a.depth, "--json"])
    rows = json.loads(out)["rows"]
    return {r["test"]: r["tok_s"] for r in rows}, {r["test"]: (r["ceiling_share"], r.get("tile_share")) for r in rows}


def figures(command: str, p: int | str, n: int) -> dict:
    """What another engine's command says of a prompt of p and n tokens: {"pp": tok/s, "tg": tok/s}."""
    filled = command.replace("{p}", str(p)).replace("{n}", str(n))
    out = subprocess.run(shlex.split(filled), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def theirs(command: str, a) -> dict:
    """One round of another engine: {row: tok/s}; decode is taken after the first prompt length."""
    rates = {}
    for i, p in enumerate(a.prompt.split(",")):
        found = figures(command, p, 1 if i else a.tokens)
        rates[f"pp{p}"] = found["pp"]
        if i == 0:
            rates[f"tg{a.tokens}"] = found["tg"]
    return rates


def percent(shares: list) -> str:
    """Their median; nothing where there are none."""
    return f"{statistics.median(shares):.0%}" if shares and None not in shares else ""


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model", help="a .colibri file")
    p.add_argument("-p", "--prompt", default="128,512")
    p.add_argument("-n", "--tokens", type=int, default=64)
    p.add_argument("-d", "--depth", default="0")
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("-r", "--repetitions", type=int, default=1, help="of ours within a round, after one that is not counted")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--weights", default="auto", help="auto, map, ram, or several: each is an engine")
    p.add_argument("--build", action="append", default=[], metavar="NAME=PYTHON", help="another installation of colibri-edge")
    p.add_argument("--engine", action="append", default=[], metavar="NAME=COMMAND")
    a = p.parse_args()
    own = {f"colibri-edge {w}": (lambda w=w: ours(sys.executable, a.model, w, a)) for w in a.weights.split(",")}
    for text in a.build:
        name, _, python = text.partition("=")
        own[name] = lambda python=python: ours(python, a.model, a.weights.split(",")[0], a)
    others = {}
    for text in a.engine:
        name, _, command = text.partition("=")
        others[name] = lambda command=command: (theirs(command, a), {})
    engines = own | others
    turns = [name for pair in itertools.zip_longest(own, others) for name in pair if name]
    seen, shares = {name: [] for name in engines}, {name: [] for name in engines}
    for i in range(a.rounds):
        for name in turns:
            rates, share = engines[name]()
            seen[name].append(rates)
            shares[name].append(share)
            print(f"round {i + 1} {name}: " + " ".join(f"{k} {v:.1f}" for k, v in rates.items()), file=sys.stderr, flush=True)
    first = next(iter(engines))
    print("| test | engine | tok/s (median) | least to most | of the ceiling | of plain tiles | ours / this one |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for row in seen[first][0]:
        for name in engines:
            values = [r[row] for r in seen[name] if row in r]
            if not values:
                continue
            held = [s[row] for s in shares[name] if row in s]
            rates = f"{statistics.median(values):.1f} | {min(values):.1f} to {max(values):.1f}"
            ratio = [x[row] / y[row] for x, y in zip(seen[first], seen[name], strict=True)] if name != first else []
            print(f"| {row} | {name} | {rates} | {percent([h[0] for h in held])} | {percent([h[1] for h in held])} | "
                  f"{f'{statistics.median(ratio):.2f}' if ratio else ''} |")


if __name__ == "__main__":
    main()
