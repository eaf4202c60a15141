"""Share of the demo task's held-out commands that a model answers with exactly the right tool call.

    python benchmarks/demo_exact.py [MODEL ...] [-n 600] [--seed 0] [--typos] [--show 10] [--json-schema]

Owns: the figures in the README: our engine, greedy, through the model's chat template. MODEL is what `colibri-edge run` takes;
default demo. Two more columns count the answers that parse as JSON and those that the tool table allows (task.validate); with
--json-schema the engine enforces the table. (colibri_edge.demo.evaluate counts the same with torch, while training.)
"""
from __future__ import annotations

import argparse
import json
import time

from colibri_edge import Model
from colibri_edge.demo import task


def replies(model: Model, pairs: list[tuple[str, str]], schema: dict | None) -> list[str]:
    """The answer to each prompt."""
    out = []
    for prompt, _ in pairs:
        answer = model.chat([{"role": "user", "content": prompt}], 200, temperature=0, schema=schema)
        out.append("".join(t.text for t in answer))
    return out


def good(check, answer: str) -> bool:
    """Whether check(answer) raises no ValueError."""
    try:
        check(answer)
    except ValueError:
        return False
    return True


def counts(got: list[str], pairs: list[tuple[str, str]]) -> tuple[int, int, int]:
    """How many answers are exact, parse as JSON, are calls that the tool table allows."""
    exact = sum(text == want for text, (_, want) in zip(got, pairs, strict=True))
    return exact, sum(good(json.loads, t) for t in got), sum(good(task.validate, t) for t in got)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("models", nargs="*", default=["demo"], metavar="MODEL")
    p.add_argument("-n", type=int, default=600, help="held-out commands (default 600)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--typos", action="store_true", help="with slips of the finger in every command")
    p.add_argument("--show", type=int, default=0, help="print so many wrong answers")
    p.add_argument("--json-schema", action="store_true", help="enforce the tool table (needs the extra `json`)")
    args = p.parse_args()
    pairs = task.held_out(args.n, args.seed, args.typos)
    schema = task.json_schema() if args.json_schema else None
    print("| model | size | exact match | parse | valid | seconds a command |\n|---|---|---|---|---|---|")
    for name in args.models:
        model = Model.load(name)
        start = time.perf_counter()
        got = replies(model, pairs, schema)
        seconds = (time.perf_counter() - start) / len(pairs)
        wrong = [(prompt, want, text) for (prompt, want), text in zip(pairs, got, strict=True) if text != want]
        right, parsed, valid = counts(got, pairs)
        print(f"| {model.file.path.stem} | {model.file.size / 1e6:.1f} MB | {right} of {len(pairs)}, {right / len(pairs):.1%} "
              f"| {parsed} | {valid} | {seconds:.3f} |")
        for prompt, want, text in wrong[:args.show]:
            print(f"  prompt {prompt}\n    want {want}\n    got  {text}")


if __name__ == "__main__":
    main()
