"""The MoE block against numpy, torch and the memory's read rate; what alignment, pinning, grouping and mapping bring.

    python benchmarks/bench_block.py [--hidden 2048 --inter 8192 --experts 16 --top-k 2] [--gated] [--batches 1,2,4,8]
                                     [--rounds 9] [--json] [--sections throughput,switches,router] [--file PATH]

Every round measures all contestants one after another on the same fresh tokens; medians over the rounds are printed,
and ratios are medians of the rounds' own ratios, so that a noisy neighbour hits all alike. "GB/s" counts the weights of
the distinct experts once.
numpy and torch group by expert as the block does, read the same memory (the mapped file), and use as many threads.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from colibri_edge import MoEBlock, _native, export_block
from colibri_edge.blockfile import read_block


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (
        ("hidden", 2048),
        ("inter", 8192),
        ("experts", 16),
        ("top-k", 2),
        ("rounds", 9),
        ("threads", 0),
    ):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--batches", type=lambda s: [int(b) for b in s.split(",")], default=list(range(1, 9)))
    p.add_argument("--sections", type=lambda s: s.split(","), default=["throughput", "switches", "router"])
    p.add_argument("--gated", action="store_true")
    p.add_argument("--json", action="store_true")
    p.add_argument("--file", help="an existing block file to measure")
    return p.parse_args()


def write(path, a):
    """A random block; experts are views of one draw, so that making the file takes seconds."""
    r = np.random.default_rng(0)

    def draw(rows, cols):
        one = r.standard_normal((rows, cols), dtype=np.float32) * np.float32(0.02)
        return [one for _ in range(a.experts)]

    d = {
        "router": r.standard_normal((a.hidden, a.experts), dtype=np.float32),
        "w1": draw(a.hidden, a.inter),
        "w2": draw(a.inter, a.hidden),
    }
    if a.gated:
        d["w3"] = draw(a.hidden, a.inter)
    export_block(d, path, top_k=a.top_k, activation="silu", renormalise=True)


def numpy_forward(b, x):
    s = x @ b.router
    ids = np.argsort(-s, axis=1)[:, : b.top_k]
    w = np.exp(np.take_along_axis(s, ids, 1) - s.max(1, keepdims=True))
    w /= w.sum(1, keepdims=True)
    out = np.zeros_like(x)
    for e in np.unique(ids):
        t, r = np.nonzero(ids == e)
        xt = x[t]
        h = xt @ b.w1[e]
        h /= 1 + np.exp(-h)
        if b.w3 is not None:
            h *= xt @ b.w3[e]
        np.add.at(out, t, w[t, r, None] * (h @ b.w2[e]))
    return out


def torch_forward(torch, b, x):
    f = torch.nn.functional
    with torch.inference_mode():
        s = x @ b["router"]
        w, ids = torch.topk(torch.softmax(s, -1), b["top_k"], -1)
        w = w / w.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e in torch.unique(ids).tolist():
            t, r = torch.where(ids == e)
            xt = x[t]
            h = f.silu(xt @ b["w1"][e])
            if b["w3"] is not None:
                h = h * (xt @ b["w3"][e])
            out.index_add_(0, t, (h @ b["w2"][e]) * w[t, r, None])
        return out


def to_torch(torch, b):
    """The same memory; the arrays are only read."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        as_tensor = torch.from_numpy
        return {
            "router": as_tensor(b.router),
            "w1": as_tensor(b.w1),
            "w2": as_tensor(b.w2),
            "w3": None if b.w3 is None else as_tensor(b.w3),
            "top_k": b.top_k,
        }


def seconds(fn, *args):
    time.sleep(0.05)  # the thread pools of the one before stop spinning
    t = time.perf_counter()
    fn(*args)
    return time.perf_counter() - t


def throughput(path, a):
    """Rows per batch: milliseconds of each, share of routing and dispatch, GB/s, ratios."""
    try:
        import torch
    except ImportError:
        torch = None
    block = MoEBlock(path, max_batch=max(a.batches), threads=a.threads or None)
    arrays = read_block(path)
    if torch:
        torch.set_num_threads(block.threads)
        tensors = to_torch(torch, arrays)
    expert_bytes = arrays.w1[0].nbytes + arrays.w2[0].nbytes + (arrays.w3[0].nbytes if a.gated else 0)
    rng = np.random.default_rng(1)
    for e in range(a.experts):  # touch every page once
        float(arrays.w1[e].ravel()[::1024].sum() + arrays.w2[e].ravel()[::1024].sum())
    for _ in range(40):  # the block has a mapping of its own: its pages too, or its first uses are page faults
        block.forward(rng.standard_normal((max(a.batches), a.hidden), dtype=np.float32))
    rows = []
    for n in a.batches:
        got = []
        for _ in range(a.rounds):
            x = rng.standard_normal((n, a.hidden), dtype=np.float32)
            out = np.empty_like(x)
            before = block.timing()
            ours = seconds(block.forward, x, out)
            after = block.timing()
            distinct = len(np.unique(block.last_routing()[0]))
            parts = {k: after[k] - before[k] for k in ("routing", "dispatch", "experts", "combine")}
            probe = _native.probe(block.threads, 1 << 28, 1)["read_gb_s"]
            got.append(
                {
                    "ours": ours,
                    "numpy": seconds(numpy_forward, arrays, x),
                    "probe": probe,
                    "gb_s": distinct * expert_bytes / ours / 1e9,
                    "torch": seconds(torch_forward, torch, tensors, torch.from_numpy(x)) if torch else float("nan"),
                    "share": (parts["routing"] + parts["dispatch"]) / ours,
                }
            )
        row = {
            "batch": n,
            **{f"{k}_ms": median(g[k] for g in got) * 1e3 for k in ("ours", "numpy", "torch")},
            "gb_s": median(g["gb_s"] for g in got),
            "of_probe": median(g["gb_s"] / g["probe"] for g in got),
            "x_numpy": median(g["numpy"] / g["ours"] for g in got),
            "x_torch": median(g["torch"] / g["ours"] for g in got),
            "routing_dispatch_share": median(g["share"] for g in got),
        }
        rows.append(row)
        if not a.json:
            print(
                "batch {batch}: {ours_ms:7.2f} ms   numpy {numpy_ms:7.2f} ms ({x_numpy:.2f}x)   "
                "torch {torch_ms:7.2f} ms ({x_torch:.2f}x)   "
                "{gb_s:5.1f} GB/s, {of_probe:.0%} of the probe   routing + dispatch "
                "{routing_dispatch_share:.2%}".format(
                    **row
                ),
                flush=True,
            )
    return rows


def switches(path, a):
    """Each property switched off in turn: ratio of its time to the default's (over 1: the property pays)."""
    rng = np.random.default_rng(2)
    settings = {
        "default (mapped)": {},
        "not grouped": {"_grouped": False},
        "pinned": {"pin": "auto"},
        "read into memory": {"load": "read"},
        "read, off the cache line by 4 bytes": {"load": "read", "_skew": 4},
        "one thread": {"threads": 1},
    }
    rows = []
    for n in sorted({1, max(a.batches)}):
        blocks = {k: MoEBlock(path, max_batch=n, **{"threads": a.threads or None, **kw}) for k, kw in settings.items()}
        times = {k: [] for k in blocks}
        for _ in range(a.rounds):
            # skewed loads, so that there is something to group: a few directions rule the router
            x = rng.standard_normal((1, a.hidden), dtype=np.float32) + 0.3 * rng.standard_normal(
                (n, a.hidden), dtype=np.float32
            )
            for k, b in blocks.items():
                b.forward(x)
                times[k].append(min(seconds(b.forward, x) for _ in range(2)))
        base = times["default (mapped)"]
        for k, t in times.items():
            row = {
                "batch": n,
                "setting": k,
                "ms": median(t) * 1e3,
                "ratio": median(v / b for v, b in zip(t, base, strict=True)),
            }
            rows.append(row)
            if not a.json:
                print(
                    "batch {batch}: {setting:38s} {ms:7.2f} ms   {ratio:.2f} of the default's time".format(**row),
                    flush=True,
                )
        del blocks
    return rows


def router(a):
    """Both exponentials: nanoseconds each (one call fills an array) and their largest relative error on [-10, 10]."""
    from colibri_edge.core import router as r

    x = np.linspace(-10, 10, 1 << 20).astype(np.float32)
    out = np.empty_like(x)
    rows = []
    for name, fn in (("polynomial", r.exp_poly), ("table", r.exp_table)):
        t = min(seconds(fn, x, out) for _ in range(a.rounds))
        error = float(np.abs(out / np.exp(x.astype(np.float64)) - 1).max())
        rows.append({"exp": name, "ns": t / len(x) * 1e9, "relative_error": error})
        if not a.json:
            print("exp by {exp:10s} {ns:6.2f} ns   relative error {relative_error:.1e}".format(**rows[-1]))
    return rows


def main():
    a = arguments()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(a.file or Path(folder) / "block.colibri")
        if not a.file:
            write(path, a)
        out = {"config": _native.constants() | {"isa": _native.isa()}}
        if "throughput" in a.sections:
            out["throughput"] = throughput(path, a)
        if "switches" in a.sections:
            out["switches"] = switches(path, a)
        if "router" in a.sections:
            out["router"] = router(a)
    if a.json:
        print(json.dumps(out))


if __name__ == "__main__":
    main()
