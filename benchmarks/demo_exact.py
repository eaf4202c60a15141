"""Share of the demo task's held-out commands that a model answers with exactly the right tool call.

    python benchmarks/demo_exact.py [MODEL ...] [-n 600] [--seed 0] [--typos] [--show 10]

Owns: the figures in the README: our engine, greedy, through the model's chat template. MODEL is what `colibri-edge run` takes;
default demo. (colibri_edge.demo.evaluate counts the same with torch, while training.)
"""
from __future__ import annotations

import argparse
import time

from colibri_edge import Model


def wrong_answers(model: Model, pairs: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """(prompt, wanted, got) of each answer that differs."""
    wrong = []
    for prompt, want in pairs:
        answer = model.chat([{"role": "user", "content": prompt}], 200, temperature=0)
        got = "".join(t.text for t in answer)
        if got != want:
            wrong.append((prompt, want, got))
    return wrong


def main() -> None:
    from colibri_edge.demo import task

    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("models", nargs="*", default=["demo"], metavar="MODEL")
    p.add_argument("-n", type=int, default=600, help="held-out commands (default 600)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--typos", action="store_true", help="with slips of the finger in every command")
    p.add_argument("--show", type=int, default=0, help="print so many wrong answers")
    args = p.parse_args()
    pairs = task.held_out(args.n, args.seed, args.typos)
    print("| model | size | exact match | seconds a command |\n|---|---|---|---|")
    for name in args.models:
        model = Model.load(name)
        start = time.perf_counter()
        wrong = wrong_answers(model, pairs)
        seconds = (time.perf_counter() - start) / len(pairs)
        right = len(pairs) - len(wrong)
        print(f"| {model.file.path.stem} | {model.file.size / 1e6:.1f} MB | {right} of {len(pairs)}, {right / len(pairs):.1%} "
              f"| {seconds:.3f} |")
        for prompt, want, got in wrong[:args.show]:
            print(f"  prompt {prompt}\n    want {want}\n    got  {got}")


if __name__ == "__main__":
    main()
