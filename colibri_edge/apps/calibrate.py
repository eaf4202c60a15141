"""`convert --calibrate FILE`: whether weights of the experts' columns, taken from a text, make a better file.

The text is cut into windows. On the even ones the source tells how large the activations are that meet each column of the
routed experts (Session.start_moments); the mean square is what an error in that column counts. On the odd ones the logits of
the plain file and of the weighted one are compared with the source's: the mean of KL(source || file) over positions, in nats.
Owns: both conversions, the comparison, and the choice. Refuses: texts of fewer than two windows, models without a tokenizer.

Importance-weighted least squares for single layers: Frantar et al. 2022 (arXiv:2210.17323) weigh with the whole second moment
of the input; this is its diagonal.
"""
from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

WINDOW, MOST = 128, 128           # tokens of a window; windows of a text that are used
PRIOR = 8.0                       # tokens that the mean over all experts counts for in an expert's own mean


@dataclass(frozen=True, slots=True)
class Calibration:
    """KL in nats over `tokens` positions, and which of both files was kept. report: of that conversion."""

    report: object
    tokens: int
    plain: float
    weighted: float

    @property
    def pays(self) -> bool:
        return self.weighted < self.plain


def windows(tokenizer, text: str) -> list[list[int]]:
    """Token ids of a text in windows of WINDOW (a short rest is left out), at most MOST, spread over the text."""
    ids = tokenizer.encode(text, add_special=False)
    start = tokenizer.encode("", add_special=True)                # what the tokenizer puts before each text
    n = WINDOW - len(start)
    cut = [start + ids[i:i + n] for i in range(0, len(ids) - n + 1, n)]
    if len(cut) < 2:
        raise ValueError(f"the text has {len(ids)} tokens, wanted at least {2 * n}; take a longer one")
    return cut if len(cut) <= MOST else [cut[i * len(cut) // MOST] for i in range(MOST)]


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Of float32 [n, vocabulary], in float64."""
    x = x.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def divergence(source, other, texts: list[list[int]]) -> float:
    """Mean KL(source || other) in nats over all positions of some windows."""
    total, n = 0.0, 0
    for ids in texts:
        a, b = source.logits(ids), other.logits(ids)
        for i in range(0, len(ids), 16):                          # a vocabulary can be long
            p, q = log_softmax(a[i:i + 16]), log_softmax(b[i:i + 16])
            total += float((np.exp(p) * (p - q)).sum())
            n += len(p)
    return total / n


def importance(model, texts: list[list[int]]) -> dict[str, dict[str, np.ndarray]]:
    """{"layers.N.experts": {"gate_up": float32[hidden], "down": float32[experts, intermediate]}}: mean squares.

    An expert that the texts reach seldom leans on the mean over all experts of its layer.
    """
    session = model.session
    session.start_moments()
    uses: dict[int, np.ndarray] = {}
    layers = [n for n, layer in enumerate(model.program.topology["layers"]) if layer["ffn"]["kind"] == "moe"]
    for ids in texts:
        session.rewind(0)
        session.start_trace(len(ids))
        session.feed(ids)
        for slot, chosen in session.routing():
            count = uses.setdefault(slot, np.zeros(model.program.topology["layers"][layers[slot]]["ffn"]["experts"]))
            count[list(chosen)] += 1
    out = {}
    for slot, (n, (inputs, rows)) in enumerate(zip(layers, session.moments(), strict=True)):
        count = uses[slot][:, None]
        mean = rows.sum(axis=0) / count.sum()
        out[f"layers.{n}.experts"] = {"gate_up": inputs, "down": ((rows + PRIOR * mean) / (count + PRIOR)).astype(np.float32)}
    model.reset()
    return out


def calibrate(src: Path, dst: Path, quant: str, text: str, progress=None) -> Calibration:
    """Converts with and without weights and keeps what is nearer to the source. Raises ValueError for an unfit text or model."""
    from colibri_edge.convert import convert
    from colibri_edge.file import MAGIC
    from colibri_edge.model import Model

    temp = {k: dst.with_name(f"{dst.name}.{k}-{os.getpid()}.colibri") for k in ("source", "plain", "weighted")}
    try:
        own = src.is_file() and src.open("rb").read(len(MAGIC)) == MAGIC
        reference = src if own else convert(src, temp["source"], None, progress).path
        source = Model.load(reference, ctx=WINDOW)
        if source.file.tokenizer_view() is None:
            raise ValueError(f"{src} has no tokenizer, so no text can calibrate it; leave --calibrate out")
        texts = windows(source.tokenizer, text)
        weights = importance(source, texts[::2])
        found = {}
        for kind, columns in (("plain", None), ("weighted", weights)):
            report = convert(reference, temp[kind], quant, progress, importance=columns)
            found[kind] = divergence(source, Model.load(temp[kind], ctx=WINDOW), texts[1::2]), report
        best = min(found, key=lambda k: found[k][0])
        os.replace(temp[best], dst)
        return Calibration(found[best][1], sum(map(len, texts[1::2])), found["plain"][0], found["weighted"][0])
    finally:
        source = None       # Windows removes no file that is mapped
        for path in temp.values():
            with contextlib.suppress(OSError):
                path.unlink()
