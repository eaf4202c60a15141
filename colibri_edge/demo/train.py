"""Train the demo model and write it as an ordinary Hugging Face folder.

Owns: the tokenizer, the model's shape, the training loop, fake quantisation, export.  Needs torch, transformers and
tokenizers, which the package itself does not.

    python -m colibri_edge.demo.train --out DIR [--minutes 60] [--resume DIR/last.pt]

Byte-level BPE of 2,048 tokens with Qwen's splitting rule, in which each digit is a token of its own: a number is
copied digit by digit.  The model is a Qwen3MoeForCausalLM; sequences are sorted by length, padded on the right (causal
attention needs no mask then) and the loss is taken on answers only.  A share of the sequences holds several turns, so
that the model does not mind a history, and some a system message, so that it does not mind one.  From `--qat` of the
way on, the forward pass sees weights as q4_0 stores them and the gradient goes straight through to the float32
weights: the export is those float32 weights, and quantising them costs next to nothing.
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

from . import clause, task
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


def make_model(args, tok: Tokenizer) -> Qwen3MoeForCausalLM:
    config = Qwen3MoeConfig(
        vocab_size=VOCAB,
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=args.inter,
        intermediate_size=args.inter,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        tie_word_embeddings=True,
        max_position_embeddings=CONTEXT,
        rope_theta=10000.0,
        rms_norm_eps=1e-6,
        hidden_act="silu",
        router_aux_loss_coef=0.0,
        attention_bias=False,
        use_sliding_window=False,
        bos_token_id=None,
        eos_token_id=tok.token_to_id(END),
        pad_token_id=tok.token_to_id(PAD),
    )
    config._attn_implementation = "sdpa"
    torch.manual_seed(args.seed)
    model = Qwen3MoeForCausalLM(config)
    for name, p in model.named_parameters():
        if p.dim() >= 2:
            torch.nn.init.normal_(
                p, std=0.02 / math.sqrt(2 * args.layers) if "o_proj" in name or "down_proj" in name else 0.02
            )
    return model


def dialogue(turns: list[tuple[str, str]], system: str = "") -> tuple[str, list[tuple[int, int]]]:
    """The text of a dialogue and the spans of its answers, each with the end mark."""
    text, spans = f"<|im_start|>system\n{system}<|im_end|>\n" if system else "", []
    for prompt, answer in turns:
        text += f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        spans.append((len(text), len(text) + len(answer) + len(END)))
        text += f"{answer}<|im_end|>\n"
    return text, spans


def batches(tok: Tokenizer, seed: int, tokens: int, chunk: int = 4096):
    """Endless (ids [B, T], targets [B, T] with -100 off the answers), about `tokens` tokens each."""
    rng, pad = random.Random(seed), tok.token_to_id(PAD)
    while True:
        texts, spans = [], []
        draws = list(task.training(chunk, rng.randrange(1 << 40)))
        while draws:
            take = 1 if rng.random() < 0.88 else rng.randint(2, 5)
            mine, draws = draws[:take], draws[take:]
            text, answer = dialogue(
                [(d.prompt, d.expected) for d in mine], rng.choice(SYSTEMS) if rng.random() < 0.04 else ""
            )
            texts.append(text)
            spans.append(answer)
        rows = []
        for enc, answer in zip(tok.encode_batch(texts), spans, strict=True):
            target = [-100] * len(enc.ids)
            for start, end in answer:
                for i, (a, b) in enumerate(enc.offsets):
                    if a >= start and b <= end:
                        target[i - 1] = enc.ids[i]
            if len(enc.ids) <= CONTEXT:
                rows.append((enc.ids[:-1], target[:-1]))  # the newline after the last answer is never a target
        rows.sort(key=lambda r: len(r[0]))
        groups, start = [], 0
        for i, row in enumerate(rows):
            if (i + 1 - start) * len(row[0]) > tokens:
                groups.append(rows[start:i])
                start = i
        rng.shuffle(groups)
        for group in groups:
            width = max(len(r[0]) for r in group)
            ids = torch.full((len(group), width), pad)
            target = torch.full((len(group), width), -100)
            for i, (a, b) in enumerate(group):
                ids[i, : len(a)], target[i, : len(b)] = torch.tensor(a), torch.tensor(b)
            yield ids, target


def loss_of(model, ids, target, balance: float):
    """Cross entropy on the answers, plus the load-balancing loss of Switch Transformers (arXiv 2101.03961, eq. 4)."""
    out = model.model(input_ids=ids, use_cache=False, output_router_logits=True)
    keep = target.ravel() >= 0
    logits = model.lm_head(out.last_hidden_state.reshape(-1, out.last_hidden_state.shape[-1])[keep])
    ce = torch.nn.functional.cross_entropy(logits, target.ravel()[keep])
    real = ids.ravel() != model.config.pad_token_id
    aux, k, experts = 0.0, model.config.num_experts_per_tok, model.config.num_experts
    for router in out.router_logits:
        p = router.reshape(-1, experts)[real].float().softmax(-1)
        chosen = torch.zeros_like(p).scatter_(1, p.topk(k, -1).indices, 1.0)
        aux = aux + experts * (chosen.mean(0) / k * p.mean(0)).sum()
    return (
        ce + balance * aux,
        ce,
        aux / len(out.router_logits),
        (logits.argmax(-1) == target.ravel()[keep]).float().mean(),
    )


def export(model, tok: Tokenizer, folder: Path) -> None:
    """Write the Hugging Face folder."""
    folder.mkdir(parents=True, exist_ok=True)
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


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(prog="python -m colibri_edge.demo.train", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints, the log and hf/")
    parser.add_argument("--minutes", type=float, default=60, help="wall time after which the schedule has run down")
    parser.add_argument(
        "--steps", type=int, default=1_000_000, help="steps after which the schedule has run down, if sooner"
    )
    parser.add_argument("--tokens", type=int, default=4096, help="tokens in a batch")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--balance", type=float, default=0.002, help="weight of the load-balancing loss, per layer")
    parser.add_argument(
        "--qat", type=float, default=0.7, help="share of the schedule after which weights are seen as q4_0"
    )
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--inter", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--resume", type=Path, help="start from these weights, with a fresh schedule")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    saved = args.out / "tokenizer.json"
    tok = Tokenizer.from_file(str(saved)) if saved.exists() else make_tokenizer()
    tok.save(str(saved))
    model = make_model(args, tok)
    if args.resume:
        model.load_state_dict(torch.load(args.resume))
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    other = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": other, "weight_decay": 0.0}],
        lr=args.lr,
        betas=(0.9, 0.98),
        fused=True,
    )
    quantised = [(p, kind) for p, kind in shares(model)]
    start = last_save = time.time()
    seen, sums = 0, [0.0] * 4
    model.train()
    for step, (ids, target) in enumerate(batches(tok, args.seed + 1000, args.tokens)):
        done = max(step / args.steps, (time.time() - start) / 60 / args.minutes)
        if done >= 1:
            break
        rate = args.lr * min(1, (step + 1) / 150) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        master = []
        if done >= args.qat:
            for p, kind in quantised:
                master.append(p.data)
                p.data = fake(p.data, kind)
        loss, ce, aux, right = loss_of(model, ids, target, args.balance)
        loss.backward()
        for (p, _), weights in zip(quantised, master, strict=False):
            p.data = weights
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += ids.numel()
        sums = [a + float(b.detach()) for a, b in zip(sums, (ce, aux, right, norm), strict=True)]
        if (step + 1) % 20 == 0:
            took = time.time() - start
            print(
                f"step {step + 1} {took / 60:.1f} min {seen / 1e6:.2f} Mtok {seen / took:.0f} tok/s lr {rate:.1e} "
                f"loss {sums[0] / 20:.4f} aux {sums[1] / 20:.3f} right {sums[2] / 20:.4f} norm {sums[3] / 20:.2f}",
                flush=True,
            )
            sums = [0.0] * 4
        if time.time() - last_save > 180:
            last_save = time.time()
            torch.save(model.state_dict(), args.out / "last.tmp")
            (args.out / "last.tmp").replace(args.out / "last.pt")
    torch.save(model.state_dict(), args.out / "last.pt")
    export(model, tok, args.out / "hf")
    print(f"done: {step} steps, {seen:,} tokens, {(time.time() - start) / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
