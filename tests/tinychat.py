"""A tiny chat model with random weights, as a Hugging Face folder, written without torch.

Owns: `write_folder(folder)`: a qwen3_moe of 2 layers, 12 experts, top-2, with a byte-level BPE of 300 tokens and a
ChatML template. What it says means nothing, and is the same on every machine.
"""
from __future__ import annotations

import json
from pathlib import Path

import numpy as np

CONTEXT, HIDDEN, EXPERTS, WIDTH, LAYERS, ROWS = 160, 64, 12, 32, 2, 320
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
CORPUS = ["turn on the lamp in the kitchen", "close the blinds at seven", "set the heating to 21 degrees",
          "what is the temperature in the hall", "ünïcödé, 漢字 and 🐦 birds", "user assistant system"] * 4


def write_folder(folder: Path, *, template: bool = True, tokenizer: bool = True, context: int = CONTEXT) -> Path:
    """Writes the model; returns the folder."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": ROWS,
              "hidden_size": HIDDEN, "intermediate_size": 64, "moe_intermediate_size": WIDTH,
              "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
              "num_experts": EXPERTS,
              "num_experts_per_tok": 2, "norm_topk_prob": True, "max_position_embeddings": context,
              "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu",
              "decoder_sparse_step": 1, "mlp_only_layers": [], "attention_bias": False, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights(), folder / "model.safetensors")
    if tokenizer:
        train_tokenizer().save(str(folder / "tokenizer.json"))
        facts = {"eos_token": "<|im_end|>", "bos_token": None, "model_max_length": context}
        if template:
            facts["chat_template"] = TEMPLATE
        (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    return folder


def train_tokenizer():
    """A byte-level BPE of 300 tokens, the control tokens first."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIALS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return t


def weights() -> dict[str, np.ndarray]:
    """Random tensors by their Hugging Face names, with a spread that makes tokens vary."""
    rng = np.random.default_rng(5)

    def draw(*shape: int, spread: float | None = None) -> np.ndarray:
        return (rng.standard_normal(shape) * (spread or shape[-1] ** -0.5)).astype(np.float32)

    out = {"model.embed_tokens.weight": draw(ROWS, HIDDEN, spread=1.0),
           "lm_head.weight": draw(ROWS, HIDDEN, spread=0.4), "model.norm.weight": np.ones(HIDDEN, np.float32)}
    out["lm_head.weight"][:len(SPECIALS)] = 0       # an end token is never the likeliest: only limits end an answer
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        out |= {p + "input_layernorm.weight": np.ones(HIDDEN, np.float32),
                p + "post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
                p + "self_attn.q_norm.weight": np.ones(16, np.float32),
                p + "self_attn.k_norm.weight": np.ones(16, np.float32),
                p + "self_attn.q_proj.weight": draw(64, HIDDEN), p + "self_attn.k_proj.weight": draw(32, HIDDEN),
                p + "self_attn.v_proj.weight": draw(32, HIDDEN), p + "self_attn.o_proj.weight": draw(HIDDEN, 64),
                p + "mlp.gate.weight": draw(EXPERTS, HIDDEN, spread=0.5)}
        for e in range(EXPERTS):
            q = f"{p}mlp.experts.{e}."
            out |= {q + "gate_proj.weight": draw(WIDTH, HIDDEN), q + "up_proj.weight": draw(WIDTH, HIDDEN),
                    q + "down_proj.weight": draw(HIDDEN, WIDTH)}
    return out
