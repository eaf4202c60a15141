"""The program that made golden.json, and that checks it: hashes of the logits of small models, one for each weight format and one for
each family whose layers do more than those of the first.

    python make_golden.py            print the hashes as JSON
    python make_golden.py --check    compare with golden.json; exit 1 on a difference (runs without pytest, under an emulator too)

The models are random (colibri_edge.convert.synthetic: the same bytes everywhere). Their sizes are odd on purpose: hidden 72 and
expert width 172 leave tails in every block; a dense layer, a shared expert and a window stand among plain MoE layers.
"""
import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from colibri_edge import isa
from colibri_edge.convert.synthetic import splitmix64, topology, write_random
from colibri_edge.model import Model
from colibri_edge.topology import FORMATS

HERE = Path(__file__).parent
KV = ("f32", "f16", "q8_0")
TOKENS = 70  # more than one block of 64 positions


def golden_topology() -> dict:
    """Three layers: MoE with a shared expert, dense, MoE with a sliding window."""
    t = topology("qwen2_moe", hidden=72, layers=3, heads=4, kv_heads=2, head_dim=18, vocab=301, experts=12, top_k=3,
                 intermediate=172, dense={1: 100}, shared=44, renormalise=False, qk_norm="head", tied=False)
    t["layers"][2]["attn"]["window"] = 13
    t["layers"][2]["ffn"]["shared"] = None
    t["layers"][2]["ffn"]["renormalise"] = True
    return t


def family_topologies() -> dict[str, dict]:
    """A small topology of each of these families, again with odd sizes."""
    def t(qk_norm, **kw):
        return topology("golden", hidden=72, layers=3, heads=4, kv_heads=2, head_dim=18, vocab=301, experts=12, top_k=3, intermediate=44,
                        qk_norm=qk_norm, **kw)

    gpt, gemma = t(None), t("head", shared=100, shared_gate=False, tied=True)
    for n, layer in enumerate(gpt["layers"]):
        layer["attn"] |= {"sinks": True, "window": 13 * (n % 2 == 0)}
        layer["ffn"] |= {"activation": "swiglu_clamped", "alpha": 1.702, "limit": 0.75, "router_bias": True}
    gemma |= {"embed_scale": 72 ** 0.5, "logit_softcap": 3.0}
    gemma["ropes"].append({"tensor": "rope.1", "dim": 20, "attention_factor": 1.0})
    for n, layer in enumerate(gemma["layers"]):
        layer["attn"] |= {"window": 13, "v_norm": True, "post_norm": True, "scale": 1.0, "softcap": 20.0}
        if n == 1:
            layer["attn"] |= {"kv_heads": 1, "head_dim": 20, "rope": 1, "window": 0, "k_eq_v": True}
        layer["ffn"] |= {"activation": "gelu_tanh", "branches": True, "expert_scale": True, "post_norm": True}
        layer["scale"] = True
    return {"gpt_oss": gpt, "gemma4": gemma}


def write_family(folder, name: str) -> Path:
    """The golden model of one family, in q4_0 with biases where its graph takes them."""
    path = Path(folder) / f"golden-{name}.colibri"
    write_random(path, family_topologies()[name], "q4_0", seed=12, spread=0.12, biases=name == "gpt_oss")
    return path


def delta_topology() -> dict:
    """Three layers: gated delta rule with tails in every dimension, one whose value heads share keys in turn, gated attention."""
    linear = {"key_heads": 2, "value_heads": 6, "key_dim": 13, "value_dim": 37, "taps": 4}
    t = topology("qwen3_next", hidden=72, layers=3, heads=4, kv_heads=2, head_dim=18, vocab=301, experts=12, top_k=3, intermediate=44,
                 shared=36, rope_dim=6, delta=linear, interval=3)
    t["layers"][1]["attn"] |= {"value_heads": 4, "value_dim": 16, "taps": 2, "pairing": "tiled"}
    return t


FAMILIES = {"delta": delta_topology}    # operators that golden_topology() has not: names are family/format


def write_model(folder, fmt: str) -> Path:
    """The golden model of one format, or of one of FAMILIES in a format."""
    family, _, name = fmt.rpartition("/")
    path = Path(folder) / f"golden-{family}{name}.colibri"
    write_random(path, FAMILIES[family]() if family else golden_topology(), name, seed=11, spread=0.12)
    return path


def prompt() -> np.ndarray:
    """Token ids, int64 (70,)."""
    return (splitmix64(5, TOKENS) % np.uint64(301)).astype(np.int64)


def logits_hash(path, **load) -> str:
    """SHA-256 of the little-endian float32 logits of the prompt."""
    x = Model.load(path, **load).logits(prompt())
    if not np.isfinite(x).all():
        raise SystemExit(f"{path}: logits are not finite")
    return hashlib.sha256(x.astype("<f4").tobytes()).hexdigest()


def hashes(formats=None) -> dict[str, str]:
    """Format and KV type -> hash."""
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for fmt in formats or NAMES:
            path = write_model(folder, fmt)
            for kv in KV:
                out[f"{fmt}/{kv}"] = logits_hash(path, kv=kv)
        for name in () if formats else family_topologies():
            path = write_family(folder, name)
            for kv in KV:
                out[f"{name}/{kv}"] = logits_hash(path, kv=kv)
    return out


NAMES = [*FORMATS, *(f"{family}/{fmt}" for family in FAMILIES for fmt in ("f32", "q4_0"))]


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--check", action="store_true", help="compare with golden.json")
    args = ap.parse_args()
    got = hashes()
    if not args.check:
        print(json.dumps(got, indent=1))
        return 0
    want = json.loads((HERE / "golden.json").read_text())
    bad = sorted(k for k in want.keys() | got.keys() if want.get(k) != got.get(k))
    for k in bad:
        print(f"golden {k} ({isa()}): {got.get(k)}, wanted {want.get(k)}")
    print(f"{len(want) - len(bad)} passed, {len(bad)} failed")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
