"""The demo model at every width: the table in the README.

    python benchmarks/demo_widths.py [FOLDER] [-n 600] [-m 300] [--seed 900]      (needs the extra `json`)

Owns: converting FOLDER (default models/demo, the trained weights) to each format, 2-bit experts also with calibration on training
examples, and the row of each: exact matches without the tool table, then exact, parsing and valid answers with it enforced.
"""
from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from demo_exact import counts, replies

from colibri_edge import Model
from colibri_edge.demo import task

WIDTHS = {"f32": "f32", "q8_0": "q8_0", "q4_k": "q4_k", "q4_0": "q4_0 (ships)", "q2": "q2 (2-bit experts)"}


def sample(n: int, seed: int) -> str:
    """n training examples as the chat template writes them."""
    return "".join(f"<|im_start|>user\n{d.prompt}<|im_end|>\n<|im_start|>assistant\n{d.expected}<|im_end|>\n"
                   for d in task.training(n, seed, typos=0.0))


def convert(folder: Path, target: Path, *options: str) -> None:
    subprocess.run([sys.executable, "-m", "colibri_edge", "convert", folder, target, *options], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def row(name: str, path: Path, free: list, bound: list) -> str:
    model, schema = Model.load(path), task.json_schema()
    exact, parsed, valid = counts(replies(model, free, None), free)
    with_table = ", ".join(map(str, counts(replies(model, bound, schema), bound)))
    return (f"| {name} | {model.file.size / 1e6:.1f} MB | {exact} of {len(free)}, {exact / len(free):.1%}; {parsed}; {valid} "
            f"| {with_table} of {len(bound)} |")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1] / "models" / "demo", metavar="FOLDER")
    p.add_argument("-n", type=int, default=600, help="held-out commands without the tool table (default 600)")
    p.add_argument("-m", type=int, default=300, help="held-out commands with it (default 300)")
    p.add_argument("--seed", type=int, default=900)
    args = p.parse_args()
    free, bound = task.held_out(args.n, args.seed), task.held_out(args.m, args.seed)
    print("| format | size | exact match; parses; valid | with the tool table enforced: exact, parses, valid |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temp:
        path, text = Path(temp) / "demo.colibri", Path(temp) / "sample.txt"
        for quant, name in WIDTHS.items():
            convert(args.folder, path, "--quant", quant)
            print(row(name, path, free, bound), flush=True)
        text.write_text(sample(800, 1))
        convert(args.folder, path, "--quant", "q2", "--calibrate", str(text))
        print(row("q2, calibrated", path, free, bound))


if __name__ == "__main__":
    main()
