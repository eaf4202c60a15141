"""Exact match of a converted demo model on the held-out set, by colibri-edge itself.

    python -m colibri_edge.demo.exact [MODEL] [-n 500] [--seed 100] [--show 5]

Greedy decoding through the chat template; an answer counts when its text is the expected JSON to the letter.
"""
from __future__ import annotations

import argparse

from . import task


def exact(model, n: int, seed: int) -> tuple[int, list[tuple[str, str, str]]]:
    """How many of n held-out prompts are answered exactly, and the others as (prompt, expected, answer)."""
    wrong = []
    for prompt, expected in task.held_out(n, seed):
        answer = model.chat([{"role": "user", "content": prompt}], max_tokens=200, temperature=0.0)
        for _ in answer:
            pass
        if answer.text != expected:
            wrong.append((prompt, expected, answer.text))
    return n - len(wrong), wrong


def main() -> None:
    from colibri_edge.model import Model

    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", nargs="?", default="demo")
    ap.add_argument("-n", type=int, default=500)
    ap.add_argument("--seed", type=int, default=100)
    ap.add_argument("--show", type=int, default=0, help="print that many wrong answers")
    a = ap.parse_args()
    right, wrong = exact(Model.load(a.model, ctx=512), a.n, a.seed)
    for prompt, expected, answer in wrong[:a.show]:
        print(f"{prompt}\n  wanted {expected}\n  got    {answer}")
    print(f"{a.model}: {right} of {a.n} held-out prompts exactly right, {100 * right / a.n:.1f} %")


if __name__ == "__main__":
    main()
