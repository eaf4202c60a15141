"""`colibri-edge trace`: a picture of which experts a run used, layer by layer.

Owns: the command; heatmap.py draws. Refuses: traces without a layer that has experts.
"""
from __future__ import annotations

import json
import math
from pathlib import Path

from colibri_edge.apps.common import OK, table, whole

HELP = "draw which experts a recorded run used"
EXAMPLES = """\
examples:
  colibri-edge run demo -p "turn on the porch light" --trace lamp.trace
  colibri-edge trace lamp.trace -o lamp.png
  colibri-edge trace lamp.trace --json
"""


def add_arguments(p) -> None:
    p.add_argument("trace", metavar="FILE", help="a trace of `run --trace FILE`")
    p.add_argument("-o", "--output", metavar="PNG", help="where to draw it (default: FILE with .png)")
    p.add_argument("--cell", type=whole(1, 64), metavar="N", help="pixels of one expert's square (default: what makes some 1000 in all)")
    p.add_argument("--json", action="store_true", help="print the counts as one JSON object instead, and draw only with -o")


def main(args) -> int:
    from colibri_edge import trace
    from colibri_edge.apps.heatmap import draw, png, summary

    t = trace.read(args.trace)
    if not t.experts:
        raise trace.TraceError(f"{args.trace}: the model {t.model} has no layer with experts, so there is nothing to draw")
    use = t.use()
    rows = summary(t.layers, use)
    target = args.output or (None if args.json else str(Path(args.trace).with_suffix(".png")))
    if target:
        Path(target).write_bytes(png(draw(t.layers, use, args.cell)))
    if args.json:
        print(json.dumps({"model": t.model, "prompt_tokens": t.prompt_tokens, "layers": rows}))
        return OK
    cells = [("layer", "experts", "uses", "never used", "busiest eighth", "entropy, bits", "of at most")]
    cells += [(r["layer"], r["experts"], r["uses"], r["unused"], f"{r['busiest_eighth']:.0%}", f"{r['entropy_bits']:.2f}",
               f"{math.log2(r['experts']):.2f}") for r in rows]
    print(f"{table(cells)}\n{target}: a row for each layer, a column for each expert")
    return OK
