"""`colibri-edge plan`: what a model takes under a ceiling and how fast it would decode here, before it is loaded or even downloaded.

Owns: the table of needs (budget.py computes it), the probes of memory and disk, the formula of the expected rate, the ladder of
other ceilings, the settings to take. Refuses: to load weights, and to promise: the rate is an estimate (docs/performance.md).

    seconds a token = sum over formats (active bytes / rate of a matrix-vector product)  +  passes * (cost of an empty pass)
                      +  bytes of recurrent states, read and written / the best of these rates
                      +  missed expert bytes / rate of random reads of one record

How often an expert is found in memory: by the model's usage file where there is one (`MODEL.usage`), else as if all experts were
asked for alike, which is the worst that a router can do.
"""
from __future__ import annotations

import contextlib
import json
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from colibri_edge.apps.common import ERROR, MAX_THREADS, MODEL_HELP, OK, Fail, mib, size, table, whole

HELP = "show what a model needs and how fast it would run, before loading or downloading it"
EXAMPLES = """\
examples:
  colibri-edge plan model.colibri --ram 2GiB
  colibri-edge plan first-megabytes.gguf --ram 4GiB --ctx 8192      the first 20 MB of a GGUF file are enough
  colibri-edge plan ./folder --quant q4_0 --json                    so are config.json and model.safetensors.index.json
  colibri-edge plan model.gguf --ram 6GiB --memory-rate 11GB --disk-rate 780MB     for another machine

Exit code 1 when the model does not fit; the last line then says which context or quantisation would.
"""
PASSES = 10                 # passes through the thread pool for each layer of a token
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
ROUNDS = 8                  # of the probes: memory that others use too gives rates a fifth apart from one tenth of a second to the next
DISK_BYTES = 192 << 20      # read by the probe in all rounds
MADE_BYTES = 128 << 20      # of the file that is made for it where the weights are not here


def add_arguments(p) -> None:
    p.add_argument("model", metavar="MODEL", help=MODEL_HELP.split(";")[0] + "; headers without weights will do")
    p.add_argument("--ram", type=size, metavar="SIZE", help="ceiling on memory, such as 2GiB (default: what is free here)")
    p.add_argument("--ctx", type=whole(1, 1 << 30), metavar="N", help="context (default: the model's own, at most 4096)")
    p.add_argument("--kv", choices=("auto", "f32", "f16", "q8_0"), default="auto", help="type of the KV cache")
    p.add_argument("--quant", metavar="F", help="plan for weights stored as floats converted to this format, such as q4_0; "
                        "not for .colibri files")
    p.add_argument("-t", "--threads", type=whole(1, MAX_THREADS), metavar="N", help="threads (default: what pays here)")
    p.add_argument("--memory-rate", type=size, metavar="SIZE", help="bytes a second of memory, instead of a probe")
    p.add_argument("--disk-rate", type=size, metavar="SIZE", help="bytes a second of random reads, instead of a probe")
    p.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")


@dataclass(frozen=True, slots=True)
class Rates:
    """products: {(format, columns): weight bytes a second}; dispatch_s: of one empty pass; disk: bytes a second, None where unknown."""

    products: dict[tuple[str, int], float]
    dispatch_s: float
    disk: float | None


@dataclass(frozen=True, slots=True)
class Work:
    """What one token costs. products: {(format, columns): weight bytes}; expert_bytes: of routed records that it asks for; layers;
    experts: routed ones in all; asked: of them by one token; record: bytes of the largest; state_bytes: of recurrent states, read and
    written."""

    products: dict[tuple[str, int], int]
    expert_bytes: int
    layers: int
    experts: int
    asked: int
    record: int
    state_bytes: int = 0


def work(file, state_floats: int = 0) -> Work:
    """Counts the work of one token of a ColibriFile or Outline with recurrent states of that many numbers."""
    topo, products, asked_bytes, asked, experts, record = file.topology, {}, 0, 0, 0, 0

    def add(fmt: str, cols: int, nbytes: int) -> None:
        products[fmt, cols] = products.get((fmt, cols), 0) + nbytes

    for name, t in file.tensors.items():
        if t.kind == "matrix" and (name != "embed" or topo["tied"]):
            add(t.format, t.shape[1], t.length)
        elif t.kind == "experts":
            used = 1
            if name.endswith(".experts"):
                used = topo["layers"][int(name.split(".")[1])]["ffn"]["top_k"]
                asked, asked_bytes, experts, record = asked + used, asked_bytes + used * t.stride, experts + t.count, max(record, t.stride)
            for p in t.parts:
                if len(p.shape) == 2:
                    add(p.format, p.shape[1], used * p.length)
    return Work(products, asked_bytes, len(topo["layers"]), experts, asked, record, 2 * 4 * state_floats)


def expected(w: Work, rates: Rates, hit_rate: float, extra_bytes: int = 0) -> dict:
    """Seconds of a token and their parts. extra_bytes: read from memory besides, such as a KV cache at its end."""
    fastest = max(rates.products.values())
    compute = sum(n / rates.products[key] for key, n in w.products.items()) + PASSES * w.layers * rates.dispatch_s
    compute += (w.state_bytes + extra_bytes) / fastest
    missed = round(w.expert_bytes * (1 - hit_rate))
    if missed and not rates.disk:
        return {"hit_rate": hit_rate, "missed_bytes": missed, "compute_s": compute, "disk_s": None, "decode_tok_s": None}
    disk = missed / rates.disk if missed else 0.0
    return {"hit_rate": hit_rate, "missed_bytes": missed, "compute_s": compute, "disk_s": disk, "decode_tok_s": 1 / (compute + disk)}


def _without_noise(counts: list[int]) -> list[float]:
    """Expected uses of a layer's experts, from the uses that were counted. A short run makes any router look uneven: of the counts'
    variance, the mean is what chance alone gives (Poisson), so each count moves by that share towards the mean (empirical Bayes; Efron
    and Morris 1973, J. Amer. Statist. Assoc. 68)."""
    mean = sum(counts) / max(1, len(counts))
    variance = sum((n - mean) ** 2 for n in counts) / max(1, len(counts))
    real = max(0.0, 1.0 - mean / variance) if variance else 0.0
    return [mean + real * (n - mean) for n in counts]


def hit_rate(file, slots: int) -> tuple[float, str]:
    """(share of uses found in memory with that many slots, where it comes from: "usage" or "even choice")."""
    from colibri_edge import budget, usage

    stacks = sorted(budget.routed(file), key=lambda t: int(t.name.split(".")[1]))
    total = sum(t.count for t in stacks)
    counts = usage.read(usage.beside(file.path), [t.count for t in stacks]).counts
    if counts is not None:
        uses = sorted((n for row in counts for n in _without_noise(row)), reverse=True)
        if sum(uses):
            return min(1.0, sum(uses[:slots]) / sum(uses)), "usage"
    return min(1.0, slots / total) if total else 1.0, "even choice"


def probe(file, w: Work, threads: int, args, huge: bool) -> Rates:
    """Measures this machine, or takes what the user says of another one."""
    from colibri_edge import _native

    ids = {name: f[0] for name, f in _native.formats().items()}
    products, dispatch, disk = [], [], []
    with _disk(file, w) if w.record and not args.disk_rate else contextlib.nullcontext() as read:
        for _ in range(ROUNDS):
            if not args.memory_rate:
                found = _native.probe_decode(threads, [(ids[f], cols) for f, cols in w.products], huge)
                dispatch.append(found.pop("dispatch_s"))
                products.append(found)
            if read:
                disk.append(read())
    return Rates({(f, cols): _median([p[ids[f], cols] for p in products]) or float(args.memory_rate) for f, cols in w.products},
                 _median(dispatch), _median(disk) or (float(args.disk_rate) if args.disk_rate else None))


def _median(rates: list[float]) -> float:
    """Of the rounds, so that one hiccup does not count; 0 where there was none."""
    return statistics.median(rates) if rates else 0.0


@contextlib.contextmanager
def _disk(file, w: Work):
    """A function that measures the rate of random reads of records: in the model's own file, or, where its weights are not here, in a file
    made for it. None where that cannot be written."""
    from colibri_edge import _native, budget

    ahead = max(1, w.asked // max(1, w.layers))
    path, spans = Path(file.path), budget.routed(file)

    def reader(name, first: int, last: int, record: int):
        return lambda: _native.probe_disk(name, first, last, record, max(8, DISK_BYTES // ROUNDS // record), ahead)

    if getattr(file, "complete", True) and path.is_file() and path.suffix == ".colibri":
        yield reader(path, min(t.offset for t in spans), max(t.offset + t.length for t in spans), w.record)
        return
    with contextlib.ExitStack() as stack:
        try:
            f = stack.enter_context(tempfile.NamedTemporaryFile(dir=path if path.is_dir() else path.parent, prefix=".colibri-edge-probe-"))
            block = os.urandom(1 << 20)
            for _ in range(MADE_BYTES >> 20):
                f.write(block)
            f.flush()
            os.fsync(f.fileno())
        except OSError:
            yield None      # a full or read-only disk: the plan says that the rate is not known
            return
        yield reader(f.name, 0, MADE_BYTES, min(w.record, 4 << 20) // 4096 * 4096)


def make(args) -> dict:
    """The whole plan as plain values. Raises FileError, ConvertError, ValueError or OSError."""
    import colibri_edge
    from colibri_edge import budget, limits
    from colibri_edge.convert.outline import outline
    from colibri_edge.engine import Program
    from colibri_edge.model import DEFAULT_CONTEXT, default_kv

    file = outline(args.model, args.quant)
    program = Program(file)
    ctx = args.ctx or min(DEFAULT_CONTEXT, program.context)
    if ctx > program.context:
        raise ValueError(f"ctx is {ctx}, wanted 1 to {program.context}, the context that the model was made for")
    kv = default_kv(program) if args.kv == "auto" else args.kv
    threads = args.threads or limits.default_threads()
    ram = args.ram or limits.available_bytes()
    if ram is None:
        raise ValueError("this system does not tell how much memory is free; give --ram")
    out = {"model": str(file.path), "model_type": file.topology["model_type"], "bytes": file.size,
           "weights_here": getattr(file, "complete", True), "ctx": ctx, "kv": kv, "ram": ram, "fits": True}
    settings = {"ctx": ctx, "kv": kv, "chunk": None, "threads": threads}
    try:
        placed = budget.place(file, program, ram=ram, **settings)
    except budget.DoesNotFit as e:
        return out | {"fits": False, "need": e.rows, "refusal": str(e), "advice": e.advice}
    w = work(file, program.state_floats)
    rates = probe(file, w, threads, args, placed.weights == "stream")
    kv_bytes = placed.need["KV cache"]
    slots = w.experts if placed.weights == "map" else placed.slots
    share, source = hit_rate(file, slots)
    now = expected(w, rates, share)
    out |= {
        "need": placed.need, "sum": placed.total,
        "placement": {"weights": placed.weights, "experts": w.experts, "experts_in_memory": slots, "hit_rate_from": source},
        "machine": {"isa": colibri_edge.isa(), "threads": threads,
                    "product_gb_s": {f"{f}, {cols} columns": round(r / 1e9, 2) for (f, cols), r in rates.products.items()},
                    "dispatch_us": round(rates.dispatch_s * 1e6, 2), "disk_mb_s": rates.disk and round(rates.disk / 1e6, 1)},
        "expected": now | {"full_context_tok_s": expected(w, rates, share, kv_bytes)["decode_tok_s"]},
        "ladder": _ladder(file, w, rates, placed),
        "settings": {"threads": threads, "ram": ram, "ctx": ctx, "kv": kv, "chunk": placed.chunk,
                     "most_ctx": budget.most_context(file, program, ram=ram, kv=kv, chunk=budget.PREFILL_CHUNK, threads=threads)},
    }
    return out


def _ladder(file, w: Work, rates: Rates, placed) -> list[dict]:
    """Other ceilings: for shares of the experts in memory, the ceiling that holds them and the rate."""
    if not w.experts:
        return []
    from colibri_edge import budget

    rows, fixed = [], placed.total - placed.need["routed experts"]
    for share in SHARES:
        slots = max(budget.least_slots(file), round(share * w.experts))
        rate = expected(w, rates, hit_rate(file, slots)[0])
        held = sum(t.length for t in budget.routed(file)) if share == 1 else slots * w.record
        rows.append({"share": share, "ram": fixed + held, "hit_rate": rate["hit_rate"], "missed_bytes": rate["missed_bytes"],
                     "decode_tok_s": rate["decode_tok_s"]})
    return rows


def main(args) -> int:
    facts = make(args)
    if args.json:
        print(json.dumps(facts, ensure_ascii=False))
        return OK if facts["fits"] else ERROR
    if not facts["fits"]:
        raise Fail(facts["refusal"])
    print(render(facts))
    return OK


def _rate(x: float | None) -> str:
    return "unknown" if x is None else f"{x:.3g}"


def render(f: dict) -> str:
    """The plan as tables."""
    p, e, m, s = f["placement"], f["expected"], f["machine"], f["settings"]
    need = [(name if name != "routed experts" or p["weights"] == "map" else f"{p['experts_in_memory']} of {p['experts']} routed experts",
             mib(n)) for name, n in f["need"].items()]
    need += [("sum", mib(f["sum"])), ("ceiling", mib(f["ram"]))]
    lines = [f"{f['model']}: {f['model_type']}, {mib(f['bytes'])} as .colibri, context {f['ctx']}"
             + ("" if f["weights_here"] else " (planned from headers, the weights are not here)"),
             table(need, indent="  "), ""]
    products = ", ".join(f"{v} GB/s ({k})" for k, v in m["product_gb_s"].items())
    disk = f"disk {m['disk_mb_s']} MB/s" if m["disk_mb_s"] else "disk not known"
    lines += [f"this machine: {m['threads']} threads, {m['isa']}; products of one token {products}; {disk}",
              f"expected decode: {_rate(e['decode_tok_s'])} tok/s ({e['compute_s'] * 1e3:.1f} ms of computing"
              + (f", {mib(e['missed_bytes'])} from disk" if e["missed_bytes"] else "") + "); with a full context "
              f"{_rate(e['full_context_tok_s'])} tok/s"]
    if p["experts"]:
        by = "the usage file" if p["hit_rate_from"] == "usage" else "experts taken as asked for alike, the worst case"
        lines += [f"  {e['hit_rate']:.0%} of the uses found in memory, by {by}", ""]
        rows = [("experts in memory", "ceiling", "found", "from disk a token", "tok/s")]
        rows += [(f"{r['share']:.0%}", mib(r["ram"]), f"{r['hit_rate']:.0%}", mib(r["missed_bytes"]), _rate(r["decode_tok_s"]))
                 for r in f["ladder"]]
        lines += [table(rows, indent="  ")]
    lines += ["", f"settings: --ram {s['ram'] >> 20}M --ctx {s['ctx']} -t {s['threads']} --kv {s['kv']}"
              + (f"; a context of up to {s['most_ctx']} fits" if s["most_ctx"] > s["ctx"] else "")]
    return "\n".join(lines)
