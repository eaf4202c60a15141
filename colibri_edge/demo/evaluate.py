"""Exact match of the trained demo model on the held-out set, in float32 and with quantised weights.

Owns: greedy decoding with the Hugging Face classes, the count, a list of things a visitor might type.  Needs torch and
transformers.

    python -m colibri_edge.demo.evaluate DIR/hf [-n 600] [--seed 0] [--formats f32,q8_0,q4_0] [--typos] [--show 20]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from . import task
from .quantise import fake, shares

VISITOR = (
    "dim the kitchen lamp to 30% at seven",
    "turn on the lights in the bedroom",
    "set the heating to 21 degrees",
    "what's the temperature in the garage?",
    "set a timer for 10 minutes",
    "lock the front door",
    "play some jazz in the living room",
    "close the blinds at 8 pm and turn off all the lights",
    "order me a pizza",
    "Turn the living room lights blue",
    "wake me up at quarter past six",
    "is the garage door closed?",
    "volume up",
    "remind me to water the plants at 6pm",
    "It's cold in here",
    "good morning",
    "what can you do?",
    "kitchen light on",
    "run the pump in the garden for 5 minutes",
    "vacuum the living room please",
    "tell me a joke",
    "turn off everything",
    "open the curtains halfway",
    "set the bedroom to 19.5 degrees at 10 pm",
    "how humid is the bathroom?",
    "next song",
    "warn me if the humidity in the basement goes above 70%",
    "turn on the tv and dim the lights to 20 percent",
)


@torch.no_grad()
def answers(model, tokenizer, prompts: list[str], batch: int = 100, limit: int = 160) -> list[str]:
    """The model's greedy answer to each prompt.  Prompts of similar length go together, padded on the left."""
    encoded = []
    for prompt in prompts:
        turn = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        encoded.append(tokenizer(text, add_special_tokens=False).input_ids)
    order, out = sorted(range(len(prompts)), key=lambda i: len(encoded[i])), [""] * len(prompts)
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        width = len(encoded[part[-1]])
        ids = torch.full((len(part), width), tokenizer.pad_token_id)
        for line, i in enumerate(part):
            ids[line, width - len(encoded[i]) :] = torch.tensor(encoded[i])
        seen = (ids != tokenizer.pad_token_id).long()
        done = model.generate(ids, attention_mask=seen, do_sample=False, max_new_tokens=limit)
        for i, line in zip(part, done, strict=True):
            out[i] = tokenizer.decode(line[width:], skip_special_tokens=True)
    return out


def load(folder, kind: str = "f32"):
    """(model, tokenizer) with the weights rounded to `kind`; the tied embedding never goes below q8_0."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if kind != "f32":
        for p, form in shares(model, kind):
            p.data = fake(p.data, form)
    return model, AutoTokenizer.from_pretrained(folder)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(prog="python -m colibri_edge.demo.evaluate", description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("-n", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", default="f32,q8_0,q4_0")
    parser.add_argument("--typos", action="store_true", help="one or two typing slips in every prompt")
    parser.add_argument("--train-draws", action="store_true", help="fresh training draws in place of the held-out set")
    parser.add_argument("--show", type=int, default=0, help="print so many wrong answers of each format")
    parser.add_argument("--visitor", action="store_true", help="print the answers to what a visitor might type")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    pairs = (
        [(d.prompt, d.expected) for d in task.training(args.n, 10**9 + args.seed)]
        if args.train_draws
        else task.held_out(args.n, args.seed, args.typos)
    )
    for kind in args.formats.split(","):
        model, tokenizer = load(args.folder, kind)
        start = time.time()
        got = answers(model, tokenizer, [p for p, _ in pairs])
        wrong = [(p, e, g) for (p, e), g in zip(pairs, got, strict=True) if g != e]
        print(
            f"{kind}: {len(pairs) - len(wrong)} of {len(pairs)} exact, {100 - 100 * len(wrong) / len(pairs):.2f} % "
            f"({time.time() - start:.0f} s)"
        )
        if args.show:
            tools = Counter(c.get("tool", "refusal") for _, e, _ in wrong for c in task.validate(e))
            print("  in the wrong ones:", json.dumps(dict(tools.most_common(12))))
        for p, e, g in wrong[: args.show]:
            print(f"  prompt {p}\n    want {e}\n    got  {g}")
        if args.visitor:
            for p, g in zip(VISITOR, answers(model, tokenizer, list(VISITOR)), strict=True):
                print(f"  {p}\n    {g}")


if __name__ == "__main__":
    main()
