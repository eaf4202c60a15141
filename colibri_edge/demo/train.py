"""Train the demo model and write it as an ordinary Hugging Face folder.

Owns: the tokenizer, the model's shape, the training loop, fake quantisation, export.  Needs torch, transformers and
tokenizers, which the package itself does not.

    python -m colibri_edge.demo.train --out DIR [--minutes 60] [--resume DIR/last.pt]

Byte-level BPE of 2,048 tokens with Qwen's splitting rule, in which each digit is a token of its own: a number is
copied digit by digit.  The model is a Qwen3MoeForCausalLM; sequences are sorted by length, padded on the right (causal
attention needs no mask then) and the loss is taken on answers only.  A share of the sequences holds several turns, so
that the model does not mind a history, and some a system message, so that it does not mind one.  From `--qat` of the
way on, the forward pass sees weights as q4_0 stores them and the gradient goes straight through to the float32
weights, so that quantising them costs next to nothing.  The export is bfloat16, as models are published; last.pt keeps float32.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from . import clause, forward, task
from .quantise import fake, shares

VOCAB, CONTEXT = 2048, 512
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END, PAD = SPECIALS[2], SPECIALS[0]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SYSTEMS = (
    "You are a helpful assistant.",
    "You control the house.",
    "You control a smart home with tools. Answer in JSON.",
    "You are the voice assistant of a house.",
    "Answer with one JSON tool call.",
    "You are colibri.",
    "Be brief.",
)

KNOWN = (" ".join(clause.say_words(i, random.Random(0)) for i in range(100)).replace("-", " ")).split()


def make_tokenizer(n: int = 60_000, seed: int = 1) -> Tokenizer:
    """Byte-level BPE trained on n training draws; nothing held out is in its corpus."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=list(SPECIALS),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )

    def corpus():
        for d in task.training(n, seed, typos=0.0):
            yield f"user\n{d.prompt}\nassistant\n{d.expected}\n"
        for s in SYSTEMS:
            yield f"system\n{s}\n"
        for word in KNOWN:  # words that may be rare in the draws and have to be single tokens
            yield from (f" {word} {word.capitalize()}",) * 60

    tok.train_from_iterator(corpus(), trainer)
    return tok


def new_model(layers: int = 4, hidden: int = 256, inter: int = 128, seed: int = 0) -> Qwen3MoeForCausalLM:
    """A model with fresh weights."""
    config = Qwen3MoeConfig(
        vocab_size=VOCAB,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=inter,
        intermediate_size=inter,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        tie_word_embeddings=True,
        max_position_embeddings=CONTEXT,
        rope_theta=10000.0,
        router_aux_loss_coef=0.0,
        bos_token_id=None,
        eos_token_id=SPECIALS.index(END),
        pad_token_id=SPECIALS.index(PAD),
    )
    torch.manual_seed(seed)
    model = Qwen3MoeForCausalLM(config)
    for name, p in model.named_parameters():
        if p.dim() >= 2:
            last = "o_proj" in name or "down_proj" in name
            torch.nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if last else 0.02)
    return model


def dialogue(turns: list[tuple[str, str]], system: str = "") -> tuple[str, list[tuple[int, int]]]:
    """The text of a dialogue and the spans of its answers, each with the end mark."""
    text, spans = f"<|im_start|>system\n{system}<|im_end|>\n" if system else "", []
    for prompt, answer in turns:
        text += f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        spans.append((len(text), len(text) + len(answer) + len(END)))
        text += f"{answer}<|im_end|>\n"
    return text, spans


def batches(tok: Tokenizer, seed: int, size, chunk: int = 1024):
    """Endless (ids (B, T), targets (B, T) with -100 off the answers), about `size()` tokens each."""
    rng = random.Random(seed)
    while True:
        texts, spans = [], []
        draws = list(task.training(chunk, rng.randrange(1 << 40)))
        while draws:
            take = 1 if rng.random() < 0.88 else rng.randint(2, 4)
            mine, draws = draws[:take], draws[take:]
            system = rng.choice(SYSTEMS) if rng.random() < 0.04 else ""
            text, answer = dialogue([(d.prompt, d.expected) for d in mine], system)
            texts.append(text)
            spans.append(answer)
        rows = [row(enc, answer) for enc, answer in zip(tok.encode_batch(texts), spans, strict=True)]
        rows = sorted((r for r in rows if len(r[0]) < CONTEXT), key=lambda r: len(r[0]))
        groups, start, tokens = [], 0, size()
        for i, r in enumerate(rows):
            if (i + 1 - start) * len(r[0]) > tokens and i > start:
                groups.append(rows[start:i])
                start = i
        rng.shuffle(groups)
        for group in groups:
            shape = len(group), max(len(r[0]) for r in group)
            ids, target = torch.full(shape, SPECIALS.index(PAD)), torch.full(shape, -100)
            for i, (a, b) in enumerate(group):
                ids[i, : len(a)], target[i, : len(b)] = torch.tensor(a), torch.tensor(b)
            yield ids, target


def row(enc, answers) -> tuple[list[int], list[int]]:
    """(inputs, next tokens with -100 off the answers) of one encoded dialogue."""
    target = [-100] * len(enc.ids)
    for start, end in answers:
        for i, (a, b) in enumerate(enc.offsets):
            if a >= start and b <= end:
                target[i - 1] = enc.ids[i]
    return enc.ids[:-1], target[:-1]  # the newline after the last answer is never a target


def loss_of(model, ids, target, balance: float):
    """Cross entropy on the answers, plus the load-balancing loss of Switch Transformers (arXiv 2101.03961, eq. 4)."""
    keep = (target.ravel() >= 0).nonzero().squeeze(1)
    states, routing = forward.hidden_states(model, ids, keep)
    wanted = target.ravel()[keep]
    logits = model.lm_head(states)
    ce = torch.nn.functional.cross_entropy(logits, wanted)
    aux, experts = 0.0, model.config.num_experts
    for router, chosen in routing:
        share = torch.bincount(chosen.ravel(), minlength=experts) / chosen.numel()
        aux = aux + experts * (share * router.softmax(-1).mean(0)).sum() / len(routing)
    right = (logits.detach().argmax(-1) == wanted).float().mean()
    return ce + balance * aux, ce, aux, right


def export(model, tok: Tokenizer, folder: Path) -> None:
    """Write the Hugging Face folder; the model's weights are bfloat16 from then on."""
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16)
    model.generation_config.update(
        do_sample=False,
        max_new_tokens=160,
        bos_token_id=None,
        pad_token_id=tok.token_to_id(PAD),
        eos_token_id=[tok.token_to_id(END), tok.token_to_id(PAD)],
    )
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())  # also under the names the published models use
    config.update(num_experts=model.config.num_experts, rope_theta=config["rope_parameters"]["rope_theta"])
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    (folder / "model.safetensors").chmod(0o644)
    tok.save(str(folder / "tokenizer.json"))
    added = {
        str(tok.token_to_id(s)): {
            "content": s,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for s in SPECIALS
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "Qwen2Tokenizer",
                "model_max_length": CONTEXT,
                "add_prefix_space": False,
                "add_bos_token": False,
                "bos_token": None,
                "unk_token": None,
                "eos_token": END,
                "pad_token": PAD,
                "errors": "replace",
                "clean_up_tokenization_spaces": False,
                "split_special_tokens": False,
                "additional_special_tokens": [SPECIALS[1], END],
                "added_tokens_decoder": added,
                "chat_template": TEMPLATE,
            },
            indent=1,
        )
        + "\n"
    )


def worker(rank: int, args, model, started: float) -> None:
    """Train the shared weights.  Workers do not wait for each other: each has its own data and its own moments."""
    torch.set_num_threads(args.threads)
    tok = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.05},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=args.lr,
        betas=(0.9, 0.98),
        fused=True,
    )
    quantised = list(shares(model))
    done = lambda: (time.time() - started) / 60 / args.minutes  # noqa: E731
    saved, seen, sums = time.time(), 0, [0.0] * 4
    size = lambda: int(args.tokens * (0.35 + 0.65 * min(1, done() / 0.6)))  # noqa: E731
    for step, (ids, target) in enumerate(batches(tok, args.seed * 100 + rank, size), 1):
        way = done()
        if way >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min(1, step / args.warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * way)))
        master = [p.data for p, _ in quantised]
        if way >= args.qat:
            for p, kind in quantised:
                p.data = fake(p.data, kind)
        loss, *figures = loss_of(model, ids, target, args.balance)
        loss.backward()
        for (p, _), weights in zip(quantised, master, strict=True):
            p.data = weights
        figures.append(torch.nn.utils.clip_grad_norm_(params, 1.0))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += ids.numel()
        sums = [a + float(b.detach()) for a, b in zip(sums, figures, strict=True)]
        if step % 50 == 0:
            ce, aux, right, size_of_step = (x / 50 for x in sums)
            print(
                f"worker {rank} step {step} {(time.time() - started) / 60:.1f} min {seen / 1e6:.2f} Mtok "
                f"loss {ce:.4f} aux {aux:.3f} right {right:.4f} norm {size_of_step:.2f} batch {ids.numel()}",
                flush=True,
            )
            sums = [0.0] * 4
        if rank == 0 and time.time() - saved > 150:
            saved = time.time()
            torch.save(model.state_dict(), args.out / "last.tmp")
            (args.out / "last.tmp").replace(args.out / "last.pt")
    print(f"worker {rank} done: {step} steps, {seen:,} tokens", flush=True)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(prog="python -m colibri_edge.demo.train", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and hf/")
    parser.add_argument("--minutes", type=float, default=60, help="wall time of the schedule")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens in a batch; a third of it at the start")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=100, help="steps")
    parser.add_argument("--balance", type=float, default=0.01, help="weight of the load-balancing loss")
    parser.add_argument("--qat", type=float, default=0.7, help="share of the schedule after which weights are q4_0")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--inter", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes on shared weights")
    parser.add_argument("--threads", type=int, default=1, help="threads of each")
    parser.add_argument("--resume", type=Path, help="start from these weights, with a fresh schedule")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    kept = args.out / "tokenizer.json"
    tok = Tokenizer.from_file(str(kept)) if kept.exists() else make_tokenizer()
    tok.save(str(kept))
    model = new_model(args.layers, args.hidden, args.inter, args.seed)
    if args.resume:
        model.load_state_dict(torch.load(args.resume))
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    model.share_memory()
    torch.multiprocessing.spawn(worker, (args, model, time.time()), nprocs=args.workers)
    torch.save(model.state_dict(), args.out / "last.pt")
    export(model, tok, args.out / "hf")


if __name__ == "__main__":
    main()
