"""Perplexity of a model over a text, by colibri-edge or by llama.cpp (llama-cpp-python) on the same GGUF file.

    python benchmarks/perplexity.py MODEL TEXT... [--engine colibri|llama.cpp] [--window 512] [--ids FILE]

Windows of `window` tokens do not overlap; the first token of each is not predicted. --ids: token ids as JSON, so that both
engines see the same tokens. Prints one JSON line.
"""
import argparse
import json
import math
from pathlib import Path

import numpy as np


def nll(logits: np.ndarray, ids) -> float:
    """Sum of -log p(ids[i+1]) under logits[i], in float64."""
    x = logits[:-1].astype(np.float64)
    m = x.max(axis=1)
    z = m + np.log(np.exp(x - m[:, None]).sum(axis=1))
    return float((z - x[np.arange(len(x)), ids[1:]]).sum())


def colibri_logits(path: str, threads: int | None):
    """ids -> logits through colibri-edge."""
    from colibri_edge import Model

    return Model.load(path, threads=threads).logits


def llama_logits(path: str, threads: int | None, window: int):
    """ids -> logits through llama.cpp."""
    import llama_cpp

    m = llama_cpp.Llama(path, n_ctx=window, n_batch=window, n_threads=threads or 2, n_threads_batch=threads or 2, logits_all=True,
                        verbose=False)

    def logits(ids):
        m.reset()
        m.eval(list(ids))
        return np.array(m.scores[:len(ids)])

    return logits


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("text", nargs="*", type=Path)
    ap.add_argument("--engine", choices=("colibri", "llama.cpp"), default="colibri")
    ap.add_argument("--window", type=int, default=512)
    ap.add_argument("--ids", type=Path)
    ap.add_argument("-t", "--threads", type=int)
    a = ap.parse_args()
    if a.ids:
        ids = json.loads(a.ids.read_text())
    else:
        from colibri_edge import Model

        ids = Model.load(a.model).tokenizer.encode("".join(t.read_text() for t in a.text), add_special=False)
    logits = colibri_logits(a.model, a.threads) if a.engine == "colibri" else llama_logits(a.model, a.threads, a.window)
    total = count = 0
    for i in range(0, len(ids) - a.window + 1, a.window):
        part = ids[i:i + a.window]
        total += nll(logits(part), np.array(part))
        count += len(part) - 1
    print(json.dumps({"engine": a.engine, "tokens": count, "nll": total / count, "perplexity": math.exp(total / count)}))


if __name__ == "__main__":
    main()
