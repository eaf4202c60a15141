"""The file of a routing trace: which experts each token chose in each layer.

Owns: its text format, writing and reading. One JSON object on the first line, then one line for each token and sparse layer, in the
order of the passes: the number of the sparse layer (0 is the first), then its experts, likeliest first.

    {"format": "colibri-trace", "version": 1, "model": "olmoe", "layers": [0, 1, ..], "experts": [64, 64, ..], "prompt_tokens": 7}
    0 12 3 44 ..

Refuses: lines that do not fit the first one.
"""
from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np


class TraceError(ValueError):
    """A file that is no trace, or a damaged one; the message says where."""


@dataclass(frozen=True, slots=True)
class Trace:
    """layers: their numbers in the model; experts: how many each has; rows: (sparse layer, experts in rank order)."""

    model: str
    layers: list[int]
    experts: list[int]
    prompt_tokens: int
    rows: list[tuple[int, tuple[int, ...]]]

    def use(self) -> list[np.ndarray]:
        """How often each expert was chosen: one int64 [experts] a layer."""
        out = [np.zeros(n, np.int64) for n in self.experts]
        for layer, chosen in self.rows:
            np.add.at(out[layer], list(chosen), 1)
        return out


def write(path, topology: dict, prompt_tokens: int, rows: Iterable[tuple[int, tuple[int, ...]]]) -> None:
    """Writes a trace. Raises OSError."""
    sparse = [(n, layer["ffn"]["experts"]) for n, layer in enumerate(topology["layers"]) if layer["ffn"]["kind"] == "moe"]
    head = {"format": "colibri-trace", "version": 1, "model": topology["model_type"], "layers": [n for n, _ in sparse],
            "experts": [e for _, e in sparse], "prompt_tokens": prompt_tokens}
    with open(path, "w", encoding="ascii") as f:
        f.write(json.dumps(head) + "\n")
        f.writelines(f"{layer} {' '.join(map(str, chosen))}\n" for layer, chosen in rows)


def read(path: str | os.PathLike) -> Trace:
    """Reads a trace. Raises TraceError or OSError."""
    with open(path, "rb") as f:
        first = f.readline(1 << 20)
        try:
            head = json.loads(first)
            layers, experts, prompt = head["layers"], head["experts"], head["prompt_tokens"]
            good = head["format"] == "colibri-trace" and head["version"] == 1 and len(layers) == len(experts) and type(prompt) is int
            good = good and all(type(n) is int and 0 < n <= 65536 for n in experts) and all(type(n) is int for n in layers)
        except (ValueError, KeyError, TypeError, RecursionError):
            good = False
        if not good:
            raise TraceError(f"{Path(path)} is no trace of version 1; `colibri-edge run --trace FILE` writes one")
        rows = []
        for number, line in enumerate(f, 2):
            try:
                layer, *chosen = map(int, line.split())
                if not chosen or not 0 <= layer < len(experts) or not all(0 <= e < experts[layer] for e in chosen):
                    raise ValueError
            except ValueError:
                raise TraceError(f"{path} line {number} is {line[:60]!r}, wanted a sparse layer below {len(experts)} and its experts"
                                 ) from None
            rows.append((layer, tuple(chosen)))
    return Trace(str(head.get("model")), layers, experts, prompt, rows)
