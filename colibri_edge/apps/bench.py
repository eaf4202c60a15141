"""`colibri-edge bench`: prefill and decode rates of a model, beside what this machine could do at most.

Owns: the rows (test names as in the field: pp128 a prompt of 128 tokens, tg32 32 tokens one by one, "@ d4096" at that depth) and
the ceilings. A decode row is held against the read probe, counted in active weight bytes; a prefill row against the integer
probe, counted in multiply-adds. Refuses: sampling, text, single measurements without a spread.
"""
from __future__ import annotations

import json
import time
from functools import partial

from colibri_edge.apps.common import MAX_THREADS, MODEL_HELP, OK, USAGE, Fail, size, table, whole

PASSES = 2   # of one probe over its GiB; the better one is what the machine gave in that tenth of a second

HELP = "measure prefill and decode rates"
EXAMPLES = """\
examples:
  colibri-edge bench model.colibri
  colibri-edge bench model.gguf -p 128,512 -n 32 -t 2 -r 5
  colibri-edge bench model.colibri -p 0 -n 32 -d 0,4096 --json
  colibri-edge bench model.colibri --moe-only

With --moe-only a token goes through the routed layers' norm, router and experts and nothing else: "moe pp128" 128 tokens at once,
"moe tg32" 32 tokens one by one.

tok/s is the median of the repetitions, after one that is not counted. "of the ceiling" holds decode against this machine's read
bandwidth (active weight bytes) and prefill against its integer rate (multiply-adds), each the median of probes before, between and
after the row's repetitions; "tile_share" in the JSON holds prefill against a plain micro-kernel of one register of
rows (8; 16 with AVX-512) x 4 tokens.
"""


def add_arguments(p) -> None:
    p.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    p.add_argument("-p", "--prompt", default="128,512", metavar="N,N", help="prompt lengths, 0 for none (default 128,512)")
    p.add_argument("-n", "--tokens", default="32", metavar="N,N", help="tokens to decode, 0 for none (default 32)")
    p.add_argument("-d", "--depth", default="0", metavar="N,N", help="tokens already in the context (default 0)")
    p.add_argument("-t", "--threads", type=whole(1, MAX_THREADS), metavar="THREADS", help="threads (default: what pays here)")
    p.add_argument("-r", "--repetitions", type=whole(1, 1000), default=3, metavar="R", help="counted repetitions (default 3)")
    p.add_argument("--chunk", type=whole(1), default=512, metavar="N", help="tokens of one prefill pass (default 512)")
    p.add_argument("--kv", choices=("auto", "f32", "f16", "q8_0"), default="auto", help="type of the KV cache")
    p.add_argument("--weights", choices=("auto", "map", "ram"), default="auto", help="read weights in place or from huge pages")
    p.add_argument("--ram", type=size, metavar="SIZE", help="ceiling on memory, such as 2GiB")
    p.add_argument("--moe-only", action="store_true", help="the experts' forward pass alone: no attention, no output matrix")
    p.add_argument("--no-probe", action="store_true", help="leave out the ceilings (they take a few seconds and 1 GiB)")
    p.add_argument("--json", action="store_true", help='print {"rows": [...], "machine": {...}}')


def _numbers(text: str, what: str) -> list[int]:
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = [-1]
    if any(not 0 <= v <= 1 << 20 for v in values):
        raise Fail(f"{what} is {text!r}, wanted whole numbers of 0 or more, such as 128,512", USAGE)
    return values


def work_per_token(file, moe_only: bool = False) -> dict:
    """What one token costs: active weight bytes and multiply-adds, without and with the output matrix; with moe_only those of routed
    layers' routers and experts, and no output matrix."""
    t = file.topology
    layers = head = macs = 0
    for name, e in file.tensors.items():
        if name in ("embed", "output"):
            continue
        if moe_only and not _of_experts(name, t):
            continue
        if e.kind == "matrix":
            layers += e.length
            macs += e.shape[0] * e.shape[1]
        elif e.kind == "experts":
            n = int(name.split(".")[1])
            used = t["layers"][n]["ffn"]["top_k"] if name.endswith(".experts") else 1
            layers += used * sum(p.length for p in e.parts)
            macs += used * sum(p.shape[0] * p.shape[1] for p in e.parts if len(p.shape) == 2)
    if moe_only:
        return {"bytes": layers, "head_bytes": 0, "macs": macs, "head_macs": 0}
    head = file.tensors["embed" if t["tied"] else "output"].length
    return {"bytes": layers, "head_bytes": head, "macs": macs, "head_macs": t["vocab_size"] * t["hidden_size"]}


def _of_experts(name: str, topology: dict) -> bool:
    """Whether a tensor belongs to a routed layer's router or experts."""
    layer, _, part = name.removeprefix("layers.").partition(".")
    return layer.isdigit() and topology["layers"][int(layer)]["ffn"]["kind"] == "moe" and not part.startswith("attn")


def _tokens(n: int, vocab: int) -> list[int]:
    return [(7 + 13 * i) % vocab for i in range(n)]


def _prefill(model, n: int, depth: int) -> float:
    """Seconds for a prompt of n tokens at that depth."""
    model.session.rewind(depth)
    start = time.perf_counter()
    model.session.feed(_tokens(n, model.program.vocab))
    return time.perf_counter() - start


def _decode(model, n: int, depth: int) -> list[float]:
    """Seconds of each of n tokens at that depth."""
    model.session.rewind(depth)
    times = []
    for token in _tokens(n, model.program.vocab):
        start = time.perf_counter()
        model.session.feed((token,))
        times.append(time.perf_counter() - start)
    return times


def _experts(model, n: int, at_once: int) -> list[float]:
    """Seconds of each pass when n tokens go through the experts, at_once at a time."""
    tokens, times = _tokens(n, model.program.vocab), []
    for i in range(0, n, at_once):
        start = time.perf_counter()
        model.session.feed_experts(tokens[i:i + at_once])
        times.append(time.perf_counter() - start)
    return times


def _repeat(times: int, run, probe) -> tuple[list, dict]:
    """Results of so many runs, after one that is not counted, and the medians of what probe() found before each and at the end: in turn,
    because what a neighbour takes of the machine changes within seconds."""
    import statistics  # slow to load, and the command line imports this module

    results, found = [], []
    for _ in range(times + 1):
        found.append(probe())
        results.append(run())
    found.append(probe())
    return results[1:], {k: statistics.median(f[k] for f in found) for k in found[0]}


def _row(test: str, rates: list[float], n: int, model, isa: str) -> dict:
    import statistics

    return {"test": test, "tok_s": statistics.median(rates), "tok_s_min": min(rates), "tok_s_max": max(rates), "n": n,
            "threads": model.session.threads, "isa": isa, "weights": model.program.weights}


def measure_experts(model, prompts: list[int], decodes: list[int], repetitions: int, isa: str, probe=dict) -> list[dict]:
    """All rows of --moe-only."""
    rows = []
    for kind, n in [("pp", n) for n in prompts if n] + [("tg", n) for n in decodes if n]:
        runs, ceilings = _repeat(repetitions, partial(_experts, model, n, n if kind == "pp" else 1), probe)
        rows.append(_row(f"moe {kind}{n}", [n / sum(r) for r in runs], n, model, isa) | ceilings | (_spread(runs) if kind == "tg" else {}))
    return rows


def _spread(runs: list[list[float]]) -> dict:
    """Median and 99th percentile of one token, in ms."""
    ordered = sorted(1e3 * s for r in runs for s in r)
    return {"p50_ms": ordered[len(ordered) // 2], "p99_ms": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]}


def measure(model, prompts: list[int], decodes: list[int], depths: list[int], repetitions: int, isa: str, probe=dict) -> list[dict]:
    """All rows; see bench --help. probe: {name: rate} of a ceiling, found anew at every call."""
    rows = []
    for depth in depths:
        model.reset()
        if depth:
            model.session.feed(_tokens(depth, model.program.vocab), False)
        at = f" @ d{depth}" if depth else ""
        for n in filter(None, prompts):
            times, ceilings = _repeat(repetitions, partial(_prefill, model, n, depth), probe)
            rows.append(_row(f"pp{n}{at}", [n / t for t in times], n, model, isa) | ceilings)
        for n in filter(None, decodes):
            runs, ceilings = _repeat(repetitions, partial(_decode, model, n, depth), probe)
            rows.append(_row(f"tg{n}{at}", [n / sum(r) for r in runs], n, model, isa) | ceilings | _spread(runs))
    return rows


def _ceilings(rows: list[dict], work: dict) -> None:
    """Adds to each row what it moved or computed a second and its share of its probes."""
    for row in rows:
        if "p50_ms" in row:
            row["gb_s"] = row["tok_s"] * (work["bytes"] + work["head_bytes"]) / 1e9
            row["ceiling_share"] = row["gb_s"] / row["read_gb_s"]
        else:
            row["gmac_s"] = row["tok_s"] * (work["macs"] + work["head_macs"] / row["n"]) / 1e9
            row["ceiling_share"] = row["gmac_s"] / row["int8_gmac_s"]
            row["tile_share"] = row["gmac_s"] / row["tile_gmac_s"]


def main(args) -> int:
    prompts, decodes, depths = _numbers(args.prompt, "-p"), _numbers(args.tokens, "-n"), _numbers(args.depth, "-d")
    import platform
    import statistics

    import colibri_edge
    from colibri_edge import _native
    from colibri_edge.model import Model

    if args.moe_only and any(depths):
        raise Fail("--moe-only knows no context, so -d has no meaning with it; leave it out", USAGE)
    need = max(depths) + max([*prompts, *decodes, 1])
    model = Model.load(args.model, threads=args.threads, ctx=need, kv=args.kv, chunk=args.chunk, weights=args.weights, ram=args.ram,
                       learn=False)
    model.settle()
    probe = dict if args.no_probe else lambda: _native.probe(model.session.threads, reps=PASSES)
    if args.moe_only:
        if not model.program.n_routed:
            raise Fail(f"{model.file.path} has no routed experts, so --moe-only has nothing to time")
        rows = measure_experts(model, prompts, decodes, args.repetitions, colibri_edge.isa(), probe)
    else:
        rows = measure(model, prompts, decodes, depths, args.repetitions, colibri_edge.isa(), probe)
    machine = {"machine": platform.machine(), "system": platform.system(), "threads": model.session.threads}
    probed = bool(rows) and not args.no_probe
    if probed:
        machine |= {k: statistics.median(r[k] for r in rows) for k in ("read_gb_s", "int8_gmac_s", "tile_gmac_s")}
        _ceilings(rows, work_per_token(model.file, args.moe_only))
    if args.json:
        print(json.dumps({"rows": rows, "machine": machine}))
        return OK
    head = ["test", "tok/s", "min", "max", "p50 ms", "p99 ms", "rate", "of the ceiling"]
    cells = [[r["test"], f"{r['tok_s']:.2f}", f"{r['tok_s_min']:.2f}", f"{r['tok_s_max']:.2f}",
              f"{r['p50_ms']:.2f}" if "p50_ms" in r else "", f"{r['p99_ms']:.2f}" if "p99_ms" in r else "",
              f"{r['gb_s']:.1f} GB/s" if "gb_s" in r else f"{r['gmac_s']:.1f} GMAC/s" if "gmac_s" in r else "",
              f"{100 * r['ceiling_share']:.0f} %" if "ceiling_share" in r else ""] for r in rows]
    print(table([head, *cells]))
    print(f"{model.session.threads} threads, {colibri_edge.isa()}, weights {model.program.weights}"
          + (f"; probe: {machine['read_gb_s']:.1f} GB/s, {machine['int8_gmac_s']:.0f} GMAC/s "
             f"(plain tiles of four tokens: {machine['tile_gmac_s']:.0f})" if probed else ""))
    return OK
