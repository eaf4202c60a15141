"""`colibri-edge info`: what a model file holds and what it needs, without loading its weights.

Owns: `describe(path)`, the object that `--json` prints, and its rendering for people.
"""
from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from colibri_edge.apps.common import MODEL_HELP, OK, Fail, mib, table

HELP = "show what a model is made of and how much memory it needs"
EXAMPLES = """\
examples:
  colibri-edge info demo
  colibri-edge info model.colibri --json
"""
CONTEXTS = (512, 2048, 4096, 8192, 32768, 131072)


def add_arguments(p) -> None:
    p.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    p.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")


def main(args) -> int:
    block = _is_block(args.model)
    facts = describe_block(args.model) if block else describe(args.model)
    print(json.dumps(facts, ensure_ascii=False) if args.json else (render_block if block else render)(facts))
    return OK


def _is_block(model: str) -> bool:
    """Whether MODEL is a version 1 file: one MoE block."""
    from colibri_edge.file import FileError, format_version

    try:
        return Path(model).is_file() and format_version(model) == 1
    except (FileError, OSError):
        return False        # `describe` says what it is or what is wrong


def describe_block(path: str) -> dict:
    """The facts of a block, with the slots of the pool that a forward works in (docs/block.md has the formula)."""
    from colibri_edge.block import BlockError, MoEBlock

    try:
        return MoEBlock(path).info()
    except BlockError as e:
        raise Fail(str(e)) from None


def render_block(f: dict) -> str:
    """The facts of a block as tables."""
    rows = [
        ("experts", f"{f['num_experts']}, top {f['top_k']}{', renormalised' if f['renormalise'] else ''}"),
        ("hidden size", f["hidden_size"]), ("intermediate size", f["intermediate_size"]),
        ("activation", f["activation"] + (", gated" if f["gated"] else "")),
        ("pool", f"{mib(f['pool_bytes'])} for {f['max_batch']} tokens and {f['threads']} threads"),
    ]
    slots = [("slot", "size"), *((name, mib(size)) for name, _, size in f["pool"] if size)]
    return (f"{f['path']}: one MoE block, {mib(f['file_bytes'])}\n{table(rows, left=2, indent='  ')}\n\n"
            f"{table(slots, indent='  ')}")


def describe(model: str) -> dict:
    """The facts of a model, as plain values. Raises FileError, ConvertError or OSError."""
    from colibri_edge.budget import need
    from colibri_edge.convert.cache import resolve
    from colibri_edge.engine import Program
    from colibri_edge.file import ColibriFile
    from colibri_edge.model import default_kv

    file = ColibriFile(resolve(model))
    program = Program(file)
    topo = file.topology
    kv = default_kv(program)
    most = topo["context_length"]
    contexts = sorted({c for c in CONTEXTS if c < most} | {min(most, CONTEXTS[-1])})
    formats, weights, nbytes, active = _weights(file)
    return {
        "path": str(file.path), "bytes": file.size, "model_type": topo["model_type"],
        "hidden_size": topo["hidden_size"], "vocab_size": topo["vocab_size"], "context_length": most,
        "tied_embeddings": topo["tied"],
        "layers": [_layer(layer) for layer in topo["layers"]],
        "weights": weights, "weights_active": active, "bits_per_weight": round(8 * nbytes / weights, 3),
        "formats": {f: {"matrices": n, "weights": w, "bytes": b} for f, (n, w, b) in formats.items()},
        "tokenizer": _tokenizer(file), "chat_template": bool(file.meta.get("chat_template")),
        "generation": file.meta.get("generation", {}), "source": file.meta.get("source", {}),
        "memory": [{"context": c, "kv": kv, **need(file, program, c, kv)} for c in contexts],
    }


def _layer(layer: dict) -> dict:
    """One layer's sizes, flat, so that equal layers can be counted."""
    a, f = layer["attn"], layer["ffn"]
    sizes = ("key_heads", "key_dim", "value_heads", "value_dim") if a["kind"] == "delta" else ("heads", "kv_heads", "head_dim", "window")
    out = {"attention": a["kind"], **{k: a[k] for k in sizes}, "ffn": f["kind"], "intermediate": f["intermediate"]}
    if f["kind"] == "moe":
        shared = f["shared"]["intermediate"] if f["shared"] else 0
        out |= {"experts": f["experts"], "top_k": f["top_k"], "shared_intermediate": shared}
    return out


def _weights(file) -> tuple[dict[str, list[int]], int, int, int]:
    """({format: [tensors, weights, bytes]}, weights, bytes, weights that one token uses) of the matrices."""
    formats: dict[str, list[int]] = {}
    weights = nbytes = active = 0
    layers = file.topology["layers"]
    for t in file.tensors.values():
        if t.kind == "vector":
            continue
        parts = [(p.format, p.shape, p.length) for p in t.parts or (t,) if len(p.shape) == 2]
        used = t.count
        if t.name.endswith(".experts"):
            used = layers[int(t.name.split(".")[1])]["ffn"]["top_k"]
        if t.name == "embed" and not file.topology["tied"]:
            used = 0
        for fmt, (rows, cols), length in parts:
            row = formats.setdefault(fmt, [0, 0, 0])
            row[0] += t.count
            row[1] += t.count * rows * cols
            row[2] += t.count * length
            weights += t.count * rows * cols
            nbytes += t.count * length
            active += used * rows * cols
    return formats, weights, nbytes, active


def _tokenizer(file) -> dict | None:
    view = file.tokenizer_view()
    if view is None:
        return None
    from colibri_edge.text.tokenizer import Tokenizer

    t = Tokenizer(view)
    ends = dict.fromkeys([*file.meta.get("generation", {}).get("eos_token_ids", []), *t.eos_ids])
    return {"tokens": t.vocab_size, "bytes": len(view), "end_ids": list(ends),
            "end_texts": [t.token_bytes(i).decode("utf-8", "replace") for i in ends]}


def render(f: dict) -> str:
    """The facts as tables."""
    kinds = Counter(json.dumps(layer) for layer in f["layers"])
    tok = f["tokenizer"]
    source = f["source"]
    rows = [
        ("model", f"{f['model_type']}{', from ' + str(source['name']) if source.get('name') else ''}"),
        ("weights", f"{f['weights'] / 1e6:.1f} M at {f['bits_per_weight']:.2f} bits each; a token uses "
                    f"{f['weights_active'] / 1e6:.1f} M of them"),
        ("hidden size", f"{f['hidden_size']}"),
        *((f"{n} layer{'s' * (n > 1)}", _line(json.loads(k))) for k, n in kinds.items()),
        ("context", f"{f['context_length']} tokens"),
        ("tokenizer", "none: token ids only" if tok is None else
         f"{tok['tokens']} tokens, embedding of {f['vocab_size']}; ends at "
         f"{', '.join(map(repr, tok['end_texts'])) or 'no token'}"),
        ("chat template", "yes" if f["chat_template"] else "no: use run --raw"),
    ]
    formats = [("format", "matrices", "weights", "size"),
               *((name, v["matrices"], f"{v['weights'] / 1e6:.2f} M", mib(v["bytes"]))
                 for name, v in f["formats"].items())]
    uses = [k for k in f["memory"][0] if k not in ("context", "kv")]
    memory = [("context", *uses, "in all"),
              *((m["context"], *(mib(m[k]) for k in uses), mib(sum(m[k] for k in uses))) for m in f["memory"])]
    return (f"{f['path']}: {mib(f['bytes'])}\n{table(rows, left=2, indent='  ')}\n\n{table(formats, indent='  ')}\n\n"
            f"  memory needed (KV cache {f['memory'][0]['kv']})\n{table(memory, left=0, indent='  ')}")


def _line(layer: dict) -> str:
    if layer["attention"] == "delta":
        attn = (f"gated delta rule {layer['value_heads']} heads of {layer['value_dim']} over {layer['key_heads']} of "
                f"{layer['key_dim']}")
    else:
        attn = f"attention {layer['heads']} heads over {layer['kv_heads']} of {layer['head_dim']}"
        if layer["window"]:
            attn += f", window {layer['window']}"
    if layer["ffn"] == "dense":
        return f"{attn}; dense, width {layer['intermediate']}"
    shared = f", one shared of width {layer['shared_intermediate']}" if layer["shared_intermediate"] else ""
    return (f"{attn}; {layer['experts']} experts of width {layer['intermediate']}, {layer['top_k']} a token"
            f"{shared}")
