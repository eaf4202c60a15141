"""Tiny random models of the real transformers classes, and what the tests do with them.

Owns: `TINY` (at least three models per family), `build(tiny, folder)`, the references `reference_logits` and `greedy`,
`dequantised_copy(colibri, folder)` (the same model in transformers on a .colibri file's weights) and
`write_gguf(folder, path, types)`. Weights are redrawn from a fixed seed with a spread that makes tokens vary.
transformers, torch and gguf are test dependencies; nothing here is imported at run time.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

E = 12
CLASSES = {"llama": "Llama", "qwen3": "Qwen3", "mixtral": "Mixtral", "qwen2_moe": "Qwen2Moe", "qwen3_moe": "Qwen3Moe",
           "olmoe": "Olmoe", "qwen3_next": "Qwen3Next", "qwen3_5_moe": "Qwen3_5Moe",
           "gpt_oss": "GptOss", "gemma2": "Gemma2", "gemma3": "Gemma3Text", "gemma4": "Gemma4Text"}
ZERO_CENTRED = ("qwen3_next", "qwen3_5_moe_text")           # their norms multiply by 1 + w
CONFIGS = {"qwen3_5_moe": "Qwen3_5MoeTextConfig"}         # where it is not the class's name with Config
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 128}
LOCAL = {"rope_type": "default", "rope_theta": 10000.0}
MODELS = {"Gemma3Text": "Gemma3", "Gemma4Text": "Gemma4"}      # where the model's class is not named like its configuration's
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}


@dataclass(frozen=True)
class Tiny:
    """name: family-variant. config: arguments of the configuration class. layout: how the folder is written:
    "single", "sharded", "fused" (3-D expert tensors), "old" (sharded, the configuration in the old spelling),
    "multimodal" (the text part of a checkpoint with a vision tower).
    dtype: of the file's tensors."""

    name: str
    config: dict = field(hash=False)
    layout: str = "single"
    dtype: str = "float32"

    @property
    def family(self) -> str:
        return self.name.split("-")[0]


def _t(name: str, layout: str = "single", dtype: str = "float32", **config) -> Tiny:
    base = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": None,
            "eos_token_id": None, "pad_token_id": None}
    return Tiny(name, base | config, layout, dtype)


TINY = [
    _t("llama-plain"),
    _t("llama-llama3", "sharded", hidden_size=72, num_attention_heads=6, num_key_value_heads=3, intermediate_size=160,
       rope_parameters=LLAMA3, tie_word_embeddings=True, attention_bias=True, num_hidden_layers=3),
    _t("llama-linear", "old", "bfloat16", hidden_size=192, num_attention_heads=6, head_dim=48, rope_parameters=LINEAR),
    _t("qwen3-plain", head_dim=32, tie_word_embeddings=True),
    _t("qwen3-yarn", "sharded", hidden_size=72, num_key_value_heads=1, head_dim=20, attention_bias=True,
       rope_parameters=YARN),
    _t("qwen3-window", "old", "float16", hidden_size=128, head_dim=32, num_hidden_layers=3, use_sliding_window=True,
       sliding_window=16, max_window_layers=1),
    _t("mixtral-top2", num_local_experts=E, num_experts_per_tok=2),
    _t("mixtral-top1", "fused", hidden_size=72, num_local_experts=E, num_experts_per_tok=1, head_dim=20),
    _t("mixtral-all", "old", hidden_size=128, num_local_experts=E, num_experts_per_tok=E, sliding_window=20,
       tie_word_embeddings=True),
    _t("qwen2_moe-top2", moe_intermediate_size=172, shared_expert_intermediate_size=100, num_experts=E,
       num_experts_per_tok=2, num_hidden_layers=3, mlp_only_layers=[1], max_window_layers=0),
    _t("qwen2_moe-top1", "fused", hidden_size=72, moe_intermediate_size=44, shared_expert_intermediate_size=172,
       num_experts=E, num_experts_per_tok=1, norm_topk_prob=True, rope_parameters=LLAMA3),
    _t("qwen2_moe-all", "old", hidden_size=128, moe_intermediate_size=40, shared_expert_intermediate_size=64,
       num_experts=E, num_experts_per_tok=E, decoder_sparse_step=2, num_hidden_layers=4, tie_word_embeddings=True,
       use_sliding_window=True, sliding_window=16, max_window_layers=3),
    _t("qwen3_moe-top2", moe_intermediate_size=172, num_experts=E, num_experts_per_tok=2, norm_topk_prob=True,
       num_hidden_layers=3, mlp_only_layers=[0], head_dim=32),
    _t("qwen3_moe-top1", "fused", hidden_size=72, moe_intermediate_size=44, num_experts=E, num_experts_per_tok=1,
       rope_parameters=YARN, tie_word_embeddings=True),
    _t("qwen3_moe-all", "sharded", "bfloat16", hidden_size=192, moe_intermediate_size=40, num_experts=E,
       num_experts_per_tok=E, attention_bias=True, rope_parameters=LLAMA3, num_attention_heads=6),
    _t("qwen3_moe-norm1", "old", moe_intermediate_size=32, num_experts=E, num_experts_per_tok=1, norm_topk_prob=True),
    # three convolutions in four, prompt longer than one delta chunk of transformers (64), value heads in threes
    _t("qwen3_next-top2", num_hidden_layers=4, num_experts=E, num_experts_per_tok=2, moe_intermediate_size=40,
       shared_expert_intermediate_size=100, mlp_only_layers=[1], head_dim=32, linear_num_key_heads=2, linear_num_value_heads=6,
       linear_key_head_dim=20, linear_value_head_dim=12),
    _t("qwen3_next-top1", "fused", hidden_size=72, num_hidden_layers=3, num_experts=E, num_experts_per_tok=1, norm_topk_prob=False,
       moe_intermediate_size=44, shared_expert_intermediate_size=36, head_dim=24, full_attention_interval=2, linear_num_key_heads=3,
       linear_num_value_heads=3, linear_key_head_dim=7, linear_value_head_dim=33, linear_conv_kernel_dim=2, tie_word_embeddings=True,
       rope_parameters={"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}),
    _t("qwen3_next-all", "sharded", "bfloat16", num_hidden_layers=2, num_experts=E, num_experts_per_tok=E, moe_intermediate_size=36,
       shared_expert_intermediate_size=64, decoder_sparse_step=2, head_dim=32, full_attention_interval=5, linear_num_key_heads=1,
       linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=40, linear_conv_kernel_dim=5),
    _t("qwen3_5_moe-top2", "multimodal", num_hidden_layers=4, num_experts=E, num_experts_per_tok=2, moe_intermediate_size=36,
       shared_expert_intermediate_size=52, head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=24,
       linear_value_head_dim=16),
    _t("qwen3_5_moe-top1", "fused", hidden_size=72, num_hidden_layers=2, num_experts=E, num_experts_per_tok=1, moe_intermediate_size=44,
       shared_expert_intermediate_size=36, head_dim=24, layer_types=["full_attention", "linear_attention"], linear_num_key_heads=5,
       linear_num_value_heads=10, linear_key_head_dim=9, linear_value_head_dim=8, tie_word_embeddings=True),
    _t("qwen3_5_moe-all", "sharded", num_hidden_layers=3, num_experts=E, num_experts_per_tok=E, moe_intermediate_size=24,
       shared_expert_intermediate_size=64, head_dim=16, full_attention_interval=3, linear_num_key_heads=2, linear_num_value_heads=2,
       linear_key_head_dim=32, linear_value_head_dim=48, linear_conv_kernel_dim=3),
    _t("olmoe-top2", intermediate_size=172, num_experts=E, num_experts_per_tok=2),
    _t("olmoe-top1", "fused", hidden_size=72, intermediate_size=44, num_experts=E, num_experts_per_tok=1,
       norm_topk_prob=True),
    _t("olmoe-all", "old", hidden_size=128, intermediate_size=40, num_experts=E, num_experts_per_tok=E,
       num_key_value_heads=4, rope_parameters=LINEAR),
]
# Families whose layers hold more than test_families.py looks at: tests/test_windows.py.
WINDOWED = [
    _t("gpt_oss-top2", intermediate_size=44, num_hidden_layers=3, num_local_experts=E, num_experts_per_tok=2, head_dim=20,
       sliding_window=13, rope_parameters=YARN | {"truncate": False, "beta_fast": 32.0, "beta_slow": 1.0}),
    _t("gpt_oss-top1", "sharded", "bfloat16", hidden_size=72, intermediate_size=37, num_local_experts=E, num_experts_per_tok=1, head_dim=16,
       num_attention_heads=6, sliding_window=1, layer_types=["full_attention", "sliding_attention"], swiglu_limit=1.5,
       tie_word_embeddings=True),
    _t("gpt_oss-all", hidden_size=128, intermediate_size=40, num_local_experts=E, num_experts_per_tok=E, head_dim=32,
       num_key_value_heads=4, sliding_window=64, attention_bias=False, rope_parameters=LINEAR),
    _t("gemma4-top2", num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "full_attention"], head_dim=20,
       global_head_dim=32, num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0, enable_moe_block=True,
       num_experts=E, top_k_experts=2, moe_intermediate_size=44, intermediate_size=100, sliding_window=13, final_logit_softcapping=2.5),
    _t("gemma4-top1", "sharded", "bfloat16", hidden_size=72, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=3,
       head_dim=16, global_head_dim=16, hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=E, top_k_experts=1,
       moe_intermediate_size=37, intermediate_size=61, sliding_window=1, tie_word_embeddings=False,
       rope_parameters={"sliding_attention": LOCAL, "full_attention": LINEAR}),
    _t("gemma4-all", hidden_size=128, head_dim=32, global_head_dim=64, num_global_key_value_heads=2, attention_k_eq_v=True,
       hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=E, top_k_experts=E, moe_intermediate_size=40,
       intermediate_size=96, sliding_window=64, attention_bias=True, layer_types=["sliding_attention", "full_attention"]),
    _t("gemma4-dense", hidden_size_per_layer_input=0, num_hidden_layers=2, head_dim=16, global_head_dim=24, sliding_window=20,
       num_global_key_value_heads=4, attention_k_eq_v=True, layer_types=["sliding_attention", "full_attention"]),
    _t("gemma2-softcap", head_dim=20, num_hidden_layers=3, sliding_window=13, attn_logit_softcapping=1.5, final_logit_softcapping=2.0,
       query_pre_attn_scalar=24),
    _t("gemma2-plain", "sharded", "bfloat16", hidden_size=72, num_attention_heads=6, num_key_value_heads=1, head_dim=16, sliding_window=1,
       attn_logit_softcapping=None, final_logit_softcapping=None, attention_bias=True, rope_parameters=LLAMA3),
    _t("gemma2-all", hidden_size=128, head_dim=32, sliding_window=64, layer_types=["sliding_attention"] * 2, tie_word_embeddings=False),
    _t("gemma3-plain", num_hidden_layers=7, head_dim=20, sliding_window=13, query_pre_attn_scalar=24, final_logit_softcapping=2.0),
    _t("gemma3-linear", "sharded", "bfloat16", hidden_size=72, num_attention_heads=6, num_key_value_heads=1, head_dim=16,
       sliding_window=9, layer_types=["full_attention", "sliding_attention"], attention_bias=True,
       tie_word_embeddings=False, rope_parameters={"sliding_attention": LOCAL, "full_attention": LINEAR}),
    _t("gemma3-all", hidden_size=128, head_dim=32, num_hidden_layers=2, sliding_window=64, layer_types=["sliding_attention"] * 2),
]
# Widths that every GGUF type can hold: for the maps and formats of GGUF files.
WIDE = {
    "llama": _t("llama-wide", hidden_size=256, intermediate_size=256),
    "qwen3": _t("qwen3-wide", hidden_size=256, intermediate_size=256, head_dim=64, tie_word_embeddings=True),
    "mixtral": _t("mixtral-wide", hidden_size=256, intermediate_size=256, num_local_experts=E, num_experts_per_tok=2),
    "qwen2_moe": _t("qwen2_moe-wide", hidden_size=256, moe_intermediate_size=256, shared_expert_intermediate_size=256,
                    num_experts=E, num_experts_per_tok=2),
    "qwen3_moe": _t("qwen3_moe-wide", hidden_size=256, moe_intermediate_size=256, num_experts=E, num_experts_per_tok=2,
                    norm_topk_prob=True, head_dim=64),
    "qwen3_next": _t("qwen3_next-wide", hidden_size=256, moe_intermediate_size=256, shared_expert_intermediate_size=256, num_experts=E,
                     num_experts_per_tok=2, head_dim=64, full_attention_interval=2, linear_num_key_heads=2, linear_num_value_heads=4,
                     linear_key_head_dim=64, linear_value_head_dim=64),
    "qwen3_5_moe": _t("qwen3_5_moe-wide", hidden_size=256, moe_intermediate_size=256, shared_expert_intermediate_size=256,
                      num_experts=E, num_experts_per_tok=2, head_dim=64, full_attention_interval=2, linear_num_key_heads=2,
                      linear_num_value_heads=4, linear_key_head_dim=64, linear_value_head_dim=64),
    "olmoe": _t("olmoe-wide", hidden_size=256, intermediate_size=256, num_experts=E, num_experts_per_tok=2),
    "gpt_oss": _t("gpt_oss-wide", hidden_size=256, intermediate_size=256, num_local_experts=E, num_experts_per_tok=2, head_dim=64,
                  sliding_window=16, rope_parameters=YARN | {"truncate": False}),
    "gemma2": _t("gemma2-wide", hidden_size=256, intermediate_size=256, head_dim=64, query_pre_attn_scalar=64, sliding_window=16),
    "gemma3": _t("gemma3-wide", hidden_size=256, intermediate_size=256, head_dim=64, query_pre_attn_scalar=64, sliding_window=16,
                 layer_types=["sliding_attention"] * 2),
    "gemma4": _t("gemma4-wide", hidden_size=256, intermediate_size=256, head_dim=64, global_head_dim=128, attention_k_eq_v=True,
                 num_global_key_value_heads=1, hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=E, top_k_experts=2,
                 moe_intermediate_size=256, sliding_window=16, layer_types=["sliding_attention", "full_attention"],
                 final_logit_softcapping=30.0),
}
BY_NAME = {t.name: t for t in [*TINY, *WINDOWED, *WIDE.values()]}


def _redraw(model, seed: int) -> None:
    import torch

    gen = torch.Generator().manual_seed(seed)
    tied = model.config.tie_word_embeddings
    with torch.no_grad():
        for name, b in model.named_buffers():
            if name.endswith("layer_scalar"):
                b.copy_(0.7 + 0.6 * torch.rand(b.shape, generator=gen))
        for name, p in model.named_parameters():
            if "layernorm" in name or name.endswith(("norm.weight", ".scale", "per_expert_scale")):
                centre = p if model.config.model_type in ZERO_CENTRED else 1     # zero where norms are zero-centred
                p.copy_(centre + 0.2 * torch.randn(p.shape, generator=gen))
            elif name.endswith("A_log"):                           # from memories of a token to those of fifty
                p.copy_(5 * torch.rand(p.shape, generator=gen) - 4)
            elif name.endswith(("bias", "sinks")):
                p.copy_(0.2 * torch.randn(p.shape, generator=gen))
            elif "embed" in name:
                # a tied model repeats its last token unless the layers outweigh the embedding
                p.copy_((0.05 if tied else 1.0) * torch.randn(p.shape, generator=gen))
            elif ".gate.weight" in name or ".router." in name:                       # router: decided choices
                p.copy_(0.5 * torch.randn(p.shape, generator=gen))
            else:                                              # at least 0.05, so that tokens vary
                p.copy_(max(0.05, 0.75 * p.shape[-1] ** -0.5) * torch.randn(p.shape, generator=gen))


def build(tiny: Tiny, folder, seed: int = 1) -> Path:
    """Write the model as a Hugging Face folder; returns the folder."""
    import torch
    import transformers
    from safetensors.torch import save_file

    torch.set_num_threads(1)

    folder = Path(folder)
    config = getattr(transformers, CONFIGS.get(tiny.family, CLASSES[tiny.family] + "Config"))(**tiny.config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind = CLASSES[tiny.family]
        model = getattr(transformers, MODELS.get(kind, kind) + "ForCausalLM")(config)
        _redraw(model, seed)
        model = model.to(getattr(torch, tiny.dtype))
        model.generation_config.eos_token_id = [3, 7]
        if tiny.layout in ("fused", "multimodal"):
            folder.mkdir(parents=True, exist_ok=True)
            config.save_pretrained(folder)
            state = dict(model.state_dict())
            if config.tie_word_embeddings:
                state.pop("lm_head.weight")
            if tiny.layout == "multimodal":
                _wrap(folder / "config.json")
                state = {("model.language_model." + k[6:] if k.startswith("model.") else k): v for k, v in state.items()}
                state["model.visual.blocks.0.norm1.weight"] = torch.ones(8)
                state["mtp.norm.weight"] = torch.ones(8)
            save_file({k: v.contiguous() for k, v in state.items()}, folder / "model.safetensors", {"format": "pt"})
        else:
            size = "50GB" if tiny.layout == "single" else "200KB"
            model.save_pretrained(folder, max_shard_size=size)
    if tiny.layout == "old":
        _old_spelling(folder / "config.json")
    return folder


def _old_spelling(path: Path) -> None:
    """rope_parameters -> rope_theta and rope_scaling with `type`, dtype -> torch_dtype, num_local_experts ->
    num_experts where old configurations have it so."""
    c = json.loads(path.read_text())
    rope = c.pop("rope_parameters")
    c["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    c["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
    c["torch_dtype"] = c.pop("dtype")
    if c["model_type"] != "mixtral" and "num_local_experts" in c:
        c["num_experts"] = c.pop("num_local_experts")
    path.write_text(json.dumps(c, indent=1))


def _wrap(path: Path) -> None:
    """The configuration as that of a multimodal model, the text part inside."""
    text = json.loads(path.read_text())
    path.write_text(json.dumps({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
                                "image_token_id": 7, "tie_word_embeddings": text["tie_word_embeddings"],
                                "vision_config": {"depth": 1}, "text_config": text}, indent=1))


def load(folder):
    """The transformers model of a folder: float32, eager attention, one thread."""
    import torch
    import transformers

    torch.set_num_threads(1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                  attn_implementation="eager")
    model.config._experts_implementation = "eager"      # the grouped kernel refuses widths that are no multiple of four
    return model.eval()


def is_greedy(model, ids, tokens) -> bool:
    """Whether `tokens` is what greedy() would say after ids: one pass instead of one per token."""
    logits = reference_logits(model, [*ids, *tokens])
    return logits[len(ids) - 1:-1].argmax(axis=-1).tolist() == list(tokens)


def reference_logits(model, ids) -> np.ndarray:
    """float32[len(ids), vocab]; model: a folder or what load() returned."""
    import torch

    model = model if hasattr(model, "forward") else load(model)
    with torch.no_grad():
        return model(torch.tensor([list(ids)]), use_cache=False).logits[0].float().numpy()


@contextlib.contextmanager
def int8_activations(model):
    """Within it, the model's matrices see their inputs as the engine's quantised formats do: rounded to int8 in blocks
    of 32 columns with one float32 scale, max |x| / 127. Router, shared gate, and decay and rate of the delta rule stay float32."""
    import torch

    names = ("mlp.gate", "shared_expert_gate", "in_proj_ba", "in_proj_b", "in_proj_a")
    plain = {id(m.weight) for n, m in model.named_modules() if n.endswith(names)}
    real = torch.nn.functional.linear

    def linear(x, w, bias=None):
        if id(w) in plain:
            return real(x, w, bias)
        n = x.shape[-1]
        y = torch.nn.functional.pad(x, (0, -n % 32)).reshape(*x.shape[:-1], -1, 32)
        d = y.abs().amax(-1, keepdim=True) / 127
        y = torch.round(y / torch.where(d > 0, d, 1)) * d
        return real(y.reshape(*x.shape[:-1], -1)[..., :n], w, bias)

    model.config._experts_implementation = "eager"
    torch.nn.functional.linear = linear
    try:
        yield
    finally:
        torch.nn.functional.linear = real


def greedy(model, ids, n: int) -> list[int]:
    """n greedy tokens after ids, recomputed from scratch for each."""
    model = model if hasattr(model, "forward") else load(model)
    ids = list(ids)
    for _ in range(n):
        ids.append(int(reference_logits(model, ids)[-1].argmax()))
    return ids[-n:]


def prompt(n: int = 48, vocab: int = 320, seed: int = 5) -> list[int]:
    """n random token ids."""
    return np.random.default_rng(seed).integers(0, vocab, n).tolist()


# -- weights of a .colibri file back into transformers -----------------------------------------------------------------

def weights(f, name: str, part: str | None = None, record: int = 0) -> np.ndarray:
    """float32 array of a tensor, or of one part of one expert record, without padding."""
    from colibri_edge.convert.formats import dequantise
    from colibri_edge.topology import FORMATS

    t = f.tensor(name)
    if t.kind == "vector":
        return np.frombuffer(f.view(t), np.float32).copy()
    if t.kind == "matrix":
        fmt, (rows, cols), raw = t.format, t.shape, np.frombuffer(f.view(t), np.uint8)
    else:
        p = t.part(part)
        inter = t.shape[1]
        if p is None and part in ("gate", "up"):               # alternating row groups
            p = t.part("gate_up")
            raw = np.frombuffer(f.view(t, record), np.uint8)[p.offset:p.offset + p.length]
            raw = raw.reshape(-1, 2, FORMATS[p.format].group_bytes(p.shape[1]))[:, 0 if part == "gate" else 1]
            return dequantise(p.format, np.ascontiguousarray(raw), p.shape[1])[:inter]
        raw = np.frombuffer(f.view(t, record), np.uint8)[p.offset:p.offset + p.length]
        if len(p.shape) == 1:
            return raw.view(np.float32).copy()
        fmt, (rows, cols) = p.format, p.shape
    return dequantise(fmt, raw.reshape(-(-rows // 8), -1), cols)[:rows]


def _put_delta(put, f, p: str, s: str, a: dict, state: dict) -> None:
    """A gated delta rule layer, in the fused spelling (rows by key head) where the model has it."""
    kh, vh, dk, dv = a["key_heads"], a["value_heads"], a["key_dim"], a["value_dim"]
    qkv, z, beta, alpha = (weights(f, p + x) for x in ("qkv", "z", "beta", "alpha"))
    if s + "in_proj_qkvz.weight" in state:
        q, k, v = np.split(qkv, [kh * dk, 2 * kh * dk])
        put(s + "in_proj_qkvz.weight", np.concatenate([x.reshape(kh, -1, qkv.shape[1]) for x in (q, k, v, z)], axis=1))
        put(s + "in_proj_ba.weight", np.concatenate([x.reshape(kh, -1, qkv.shape[1]) for x in (beta, alpha)], axis=1))
    else:
        for name, x in (("qkv", qkv), ("z", z), ("b", beta), ("a", alpha)):
            put(f"{s}in_proj_{name}.weight", x)
    put(s + "conv1d.weight", weights(f, p + "conv").reshape(a["taps"], 2 * kh * dk + vh * dv).T)
    put(s + "A_log", np.log(-weights(f, p + "rate").astype(np.float64)).astype(np.float32))
    put(s + "dt_bias", weights(f, p + "dt_bias"))
    put(s + "norm.weight", weights(f, p + "out_norm"))
    put(s + "out_proj.weight", weights(f, p + "o"))


def dequantised_copy(colibri, folder):
    """The transformers model of `folder` with every weight taken from a .colibri file (a path or a ColibriFile)."""
    import torch

    from colibri_edge.file import ColibriFile

    f = colibri if hasattr(colibri, "tensors") else ColibriFile(colibri)
    model = load(folder)
    state = dict(model.named_parameters())
    done = set()

    def put(name: str, value: np.ndarray) -> None:
        with torch.no_grad():
            state[name].copy_(torch.from_numpy(np.ascontiguousarray(value)).reshape(state[name].shape))
        done.add(name)

    put("model.embed_tokens.weight", weights(f, "embed"))
    zero = np.float32(f.topology["model_type"] in ("qwen3_next", "qwen3_5_moe"))     # their norms are zero-centred in transformers
    put("model.norm.weight", weights(f, "output_norm") - zero)
    if not f.topology["tied"]:
        put("lm_head.weight", weights(f, "output"))
    for n, layer in enumerate(f.topology["layers"]):
        p, s = f"layers.{n}.", f"model.layers.{n}."
        put(s + "input_layernorm.weight", weights(f, p + "attn_norm") - zero)
        put(s + "post_attention_layernorm.weight", weights(f, p + "ffn_norm") - zero)
        if layer["attn"]["kind"] == "delta":
            _put_delta(put, f, p + "attn.", s + "linear_attn.", layer["attn"], state)
        gated = layer["attn"]["kind"] == "gated"
        for x in "qkvo" if layer["attn"]["kind"] != "delta" else "":
            if gated and x == "q":
                both = [weights(f, f"{p}attn.{y}").reshape(layer["attn"]["heads"], layer["attn"]["head_dim"], -1) for y in ("q", "gate")]
                put(s + "self_attn.q_proj.weight", np.concatenate(both, axis=1))
                put(s + "self_attn.q_norm.weight", weights(f, p + "attn.q_norm") - zero)
                continue
            put(f"{s}self_attn.{x}_proj.weight", weights(f, f"{p}attn.{x}"))
            if f"{p}attn.{x}_bias" in f.tensors:
                put(f"{s}self_attn.{x}_proj.bias", weights(f, f"{p}attn.{x}_bias"))
            if f"{p}attn.{x}_norm" in f.tensors:
                put(f"{s}self_attn.{x}_norm.weight", weights(f, f"{p}attn.{x}_norm") - zero)
        if layer["ffn"]["kind"] == "dense":
            for x in ("gate", "up", "down"):
                put(f"{s}mlp.{x}_proj.weight", weights(f, p + "mlp", x))
                if f.tensor(p + "mlp").part(x + "_bias"):
                    put(f"{s}mlp.{x}_proj.bias", weights(f, p + "mlp", x + "_bias"))
            continue
        put(s + "mlp.gate.weight", weights(f, p + "router"))
        each = range(layer["ffn"]["experts"])
        put(s + "mlp.experts.gate_up_proj", np.stack([np.concatenate(
            [weights(f, p + "experts", "gate", e), weights(f, p + "experts", "up", e)]) for e in each]))
        put(s + "mlp.experts.down_proj", np.stack([weights(f, p + "experts", "down", e) for e in each]))
        if layer["ffn"]["shared"]:
            put(s + "mlp.shared_expert_gate.weight", weights(f, p + "shared_gate"))
            for x in ("gate", "up", "down"):
                put(f"{s}mlp.shared_expert.{x}_proj.weight", weights(f, p + "shared", x))
    left = set(state) - done - ({"lm_head.weight"} if f.topology["tied"] else set())
    assert not left, f"not in the file: {sorted(left)}"
    return model


# -- the same model as GGUF --------------------------------------------------------------------------------------------

ARCHS = {"llama": "llama", "mixtral": "llama", "qwen3": "qwen3", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe",
         "olmoe": "olmoe", "qwen3_next": "qwen3next", "qwen3_5_moe_text": "qwen35moe",
         "gpt_oss": "gpt-oss", "gemma2": "gemma2", "gemma3": "gemma3", "gemma3_text": "gemma3", "gemma4_text": "gemma4"}


def _gemma_fields(w, c) -> int:
    """Metadata of architectures gemma3 and gemma4 as llama.cpp's converter writes it; returns the width of a global layer's heads."""
    layers = [c.per_layer_config[i] for i in range(c.num_hidden_layers)] if c.model_type == "gemma4_text" else [c] * c.num_hidden_layers
    w.add_sliding_window(c.sliding_window)
    if c.final_logit_softcapping:
        w.add_final_logit_softcapping(c.final_logit_softcapping)
    if c.model_type == "gemma2":
        w.add_rope_freq_base(c.rope_parameters["rope_theta"])
        w.add_attn_logit_softcapping(c.attn_logit_softcapping)
    else:
        w.add_rope_freq_base(c.rope_parameters["full_attention"]["rope_theta"])
        w.add_rope_freq_base_swa(c.rope_parameters["sliding_attention"]["rope_theta"])
        w.add_sliding_window_pattern([t == "sliding_attention" for t in c.layer_types])
    if c.model_type != "gemma4_text":
        w.add_head_count_kv(c.num_key_value_heads)
        return c.head_dim
    w.add_head_count_kv([x.num_key_value_heads for x in layers])
    w.add_key_length_swa(layers[0].head_dim)
    w.add_value_length_swa(layers[0].head_dim)
    w.add_rope_dimension_count_swa(layers[0].head_dim)
    w.add_shared_kv_layers(0)
    w.add_embedding_length_per_layer_input(0)
    if c.enable_moe_block:
        w.add_expert_count(c.num_experts)
        w.add_expert_used_count(c.top_k_experts)
        w.add_expert_feed_forward_length(c.moe_intermediate_size)
    return layers[-1].head_dim


def encode(x: np.ndarray, kind: str, rng) -> np.ndarray:
    """Rows of x as raw GGUF data of a type; where nobody here can quantise to it, random blocks of x's spread."""
    import gguf

    from colibri_edge.convert import formats

    kind = kind.upper()
    if kind in ("F32", "F16"):
        return x.astype(np.float32 if kind == "F32" else np.float16)
    if kind in ("Q4_K", "Q6_K"):
        flat = x.reshape(-1, x.shape[-1])
        flat = np.pad(flat, ((0, -len(flat) % 8), (0, 0)))
        raw = formats.unpack_r8(kind.lower(), formats.quantise(kind.lower(), flat), x.shape[-1])
        return raw[:x.size // x.shape[-1]].reshape(*x.shape[:-1], -1)
    if kind in ("Q5_K", "Q3_K", "Q2_K"):
        k, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
        raw = rng.integers(0, 256, (x.size // k, size), dtype=np.uint8)
        block = raw.reshape(-1).view(formats.GGML[kind.lower()])
        block["d"] = np.float16(1).view(np.uint16)
        if "dmin" in block.dtype.names:                            # the minima take the mean away
            block["dmin"] = np.float16({"Q5_K": 15.5, "Q2_K": 1.5}[kind]).view(np.uint16)
        spread = gguf.quants.dequantize(raw.reshape(-1, size)[:64], gguf.GGMLQuantizationType[kind]).std()
        for name in {"d", "dmin"} & set(block.dtype.names):
            block[name] = (block[name].view(np.float16) * np.float16(x.std() / spread)).view(np.uint16)
        return raw.reshape(*x.shape[:-1], -1)
    return gguf.quants.quantize(x.astype(np.float32), gguf.GGMLQuantizationType[kind])


def gguf_tensors(model, family: str, split: bool = False):
    """(GGUF name, float32 array) of every tensor; split: one tensor per expert, as older files have it."""
    state = {k: v.detach().float().numpy() for k, v in [*model.named_parameters(), *model.named_buffers()]}
    c = model.config
    hd = 0 if family.startswith("gemma") else getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads

    def permute(x, heads):
        if family not in ("llama", "mixtral"):
            return x
        return x.reshape(heads, 2, hd // 2, -1).swapaxes(1, 2).reshape(x.shape)

    zero = np.float32(family in ZERO_CENTRED)
    yield "token_embd.weight", state["model.embed_tokens.weight"]
    yield "output_norm.weight", state["model.norm.weight"] + (zero or family in ("gemma2", "gemma3_text"))
    if not c.tie_word_embeddings:
        yield "output.weight", state["lm_head.weight"]
    if family == "gemma4_text":       # one divisor per pair of channels of a global layer: 1 where it turns, 1e30 where it does not
        turns = state["model.rotary_emb.full_attention_inv_freq"] > 0
        yield "rope_freqs.weight", np.where(turns, np.float32(1), np.float32(1e30))
    for n in range(c.num_hidden_layers):
        s, b = f"model.layers.{n}.", f"blk.{n}."
        if family == "gpt_oss" or family.startswith("gemma"):
            yield from (_gguf_gpt_oss if family == "gpt_oss" else _gguf_gemma)(state, s, b, *([family] if family != "gpt_oss" else []))
            continue
        yield b + "attn_norm.weight", state[s + "input_layernorm.weight"] + zero
        yield b + ("post_attention_norm.weight" if zero else "ffn_norm.weight"), state[s + "post_attention_layernorm.weight"] + zero
        if s + "linear_attn.A_log" in state:
            yield from _gguf_delta(c, state, s + "linear_attn.", b, split)
        for x, name, heads in (("q", "attn_q", c.num_attention_heads), ("k", "attn_k", c.num_key_value_heads),
                               ("v", "attn_v", 0), ("o", "attn_output", 0)):
            for kind in ("weight", "bias"):
                w = state.get(f"{s}self_attn.{x}_proj.{kind}")
                if w is not None:
                    yield f"{b}{name}.{kind}", permute(w, heads) if heads else w
            if f"{s}self_attn.{x}_norm.weight" in state:
                yield f"{b}{name}_norm.weight", state[f"{s}self_attn.{x}_norm.weight"] + zero
        if s + "mlp.gate_proj.weight" in state:
            for x in ("gate", "up", "down"):
                yield f"{b}ffn_{x}.weight", state[f"{s}mlp.{x}_proj.weight"]
            continue
        yield b + "ffn_gate_inp.weight", state[s + "mlp.gate.weight"]
        both, down = state[s + "mlp.experts.gate_up_proj"], state[s + "mlp.experts.down_proj"]
        half = both.shape[1] // 2
        for x, w in (("gate", both[:, :half]), ("up", both[:, half:]), ("down", down)):
            if split:
                for e in range(len(w)):
                    yield f"{b}ffn_{x}.{e}.weight", w[e]
            else:
                yield f"{b}ffn_{x}_exps.weight", w
        if s + "mlp.shared_expert_gate.weight" in state:
            yield b + "ffn_gate_inp_shexp.weight", state[s + "mlp.shared_expert_gate.weight"][0]
            for x in ("gate", "up", "down"):
                yield f"{b}ffn_{x}_shexp.weight", state[f"{s}mlp.shared_expert.{x}_proj.weight"]


def _gguf_gpt_oss(state: dict, s: str, b: str):
    """Names of the gguf package's tensor map for architecture gpt-oss; experts [E, out, in], gate and up apart."""
    plain = {"attn_norm.weight": "input_layernorm.weight", "post_attention_norm.weight": "post_attention_layernorm.weight",
             "attn_sinks.weight": "self_attn.sinks", "ffn_gate_inp.weight": "mlp.router.weight", "ffn_gate_inp.bias": "mlp.router.bias"}
    for x, name in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output")):
        plain |= {f"{name}.{k}": f"self_attn.{x}_proj.{k}" for k in ("weight", "bias")}
    for ours, theirs in plain.items():
        if s + theirs in state:
            yield b + ours, state[s + theirs]
    both, bias = state[s + "mlp.experts.gate_up_proj"], state[s + "mlp.experts.gate_up_proj_bias"]
    for i, x in enumerate(("gate", "up")):
        yield f"{b}ffn_{x}_exps.weight", both[:, :, i::2].swapaxes(1, 2)
        yield f"{b}ffn_{x}_exps.bias", bias[:, i::2]
    yield b + "ffn_down_exps.weight", state[s + "mlp.experts.down_proj"].swapaxes(1, 2)
    yield b + "ffn_down_exps.bias", state[s + "mlp.experts.down_proj_bias"]


def _gguf_gemma(state: dict, s: str, b: str, family: str):
    """Names of llama.cpp's architectures gemma3 and gemma4, which keep norms as they are multiplied."""
    plain = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
             "post_ffw_norm": "post_feedforward_layernorm", "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
             "post_ffw_norm_1": "post_feedforward_layernorm_1", "post_ffw_norm_2": "post_feedforward_layernorm_2",
             "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "router.proj"}
    for ours, theirs in plain.items():
        w = state.get(f"{s}{theirs}.weight")
        if w is not None:
            yield f"{b}{ours}.weight", w + 1 if "norm" in ours and family != "gemma4_text" else w
    for ours, theirs in {"ffn_gate_inp.scale": "router.scale", "ffn_down_exps.scale": "router.per_expert_scale",
                         "ffn_gate_up_exps.weight": "experts.gate_up_proj", "ffn_down_exps.weight": "experts.down_proj",
                         "layer_output_scale.weight": "layer_scalar"}.items():
        if s + theirs in state:
            yield b + ours, state[s + theirs]


def _gguf_delta(c, state: dict, s: str, b: str, old: bool):
    """A gated delta rule layer. qwen3next keeps the order of value heads (and, in older files, the fused matrices); qwen35moe has them
    by their place within a key head first."""
    kh, vh, dk, dv = c.linear_num_key_heads, c.linear_num_value_heads, c.linear_key_head_dim, c.linear_value_head_dim
    fused = s + "in_proj_qkvz.weight" in state
    if fused:
        both, ba = state[s + "in_proj_qkvz.weight"].reshape(kh, -1, c.hidden_size), state[s + "in_proj_ba.weight"]
        parts = np.split(both, np.cumsum([dk, dk, vh // kh * dv]), axis=1)
        q, k, v, z = (x.reshape(-1, c.hidden_size) for x in parts)
    else:
        q, k, v = np.split(state[s + "in_proj_qkv.weight"], [kh * dk, 2 * kh * dk])
        z, beta, alpha = (state[f"{s}in_proj_{x}.weight"] for x in "zba")
    order = np.arange(vh) if fused else np.arange(vh).reshape(kh, -1).T.reshape(-1)
    each = (order[:, None] * dv + np.arange(dv)).reshape(-1)
    conv = state[s + "conv1d.weight"][:, 0]
    if fused and old:
        yield b + "ssm_in.weight", state[s + "in_proj_qkvz.weight"]
    else:
        yield b + "attn_qkv.weight", np.concatenate([q, k, v[each]])
        yield b + "attn_gate.weight", z[each]
    if fused:
        yield b + "ssm_ba.weight", ba
    else:
        yield b + "ssm_beta.weight", beta[order]
        yield b + "ssm_alpha.weight", alpha[order]
    yield b + "ssm_conv1d.weight", np.concatenate([conv[:2 * kh * dk], conv[2 * kh * dk:][each]])
    yield b + "ssm_a", -np.exp(state[s + "A_log"][order])
    yield b + "ssm_dt.bias", state[s + "dt_bias"][order]
    yield b + "ssm_norm.weight", state[s + "norm.weight"]
    yield b + "ssm_out.weight", state[s + "out_proj.weight"][:, each]


def write_gguf(folder, path, types="F32", *, split: bool = False, parts: int = 0, fields: dict | None = None,
               skip=(), extra: dict | None = None) -> Path:
    """Write the model of a Hugging Face folder as GGUF. types: one type for all matrices, or a function of the tensor's
    name. parts: write that many files, `path` without its ending in front. fields: more metadata, {key: value}.
    skip: tensors to leave out. extra: tensors to add, {name: float array}. Returns the (first) file."""
    import gguf

    path = Path(path)
    model = load(folder)
    c, family = model.config, model.config.model_type
    rng = np.random.default_rng(0)
    tensors = [t for t in gguf_tensors(model, family, split) if t[0] not in skip] + list((extra or {}).items())
    if parts:
        tensors_per = -(-len(tensors) // parts)
        path = path.with_suffix("")
        w = gguf.GGUFWriter(path.with_suffix(".gguf"), ARCHS[family], split_max_tensors=tensors_per)
    else:
        w = gguf.GGUFWriter(path, ARCHS[family])
    hd = 0 if family.startswith("gemma") else getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    if getattr(c, "intermediate_size", None):
        w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    if family.startswith("gemma"):
        hd = _gemma_fields(w, c)
    else:
        w.add_head_count_kv(c.num_key_value_heads)
        w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_key_length(hd)
    w.add_value_length(hd)
    share = 1.0 if family.startswith("gemma") else c.rope_parameters.get("partial_rotary_factor", 1.0)
    w.add_rope_dimension_count(int(hd * share))
    if family not in ("llama", "qwen3") and not family.startswith("gemma"):
        experts = getattr(c, "num_experts", None) or c.num_local_experts
        w.add_expert_count(experts)
        w.add_expert_used_count(c.num_experts_per_tok)
    if family == "gpt_oss":
        w.add_expert_feed_forward_length(c.intermediate_size)
        w.add_sliding_window(c.sliding_window)
    rope = c.rope_parameters if "rope_type" in c.rope_parameters else {"rope_type": "default"}
    if rope["rope_type"] != "default":
        w.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        w.add_rope_scaling_factor(rope["factor"])
        if rope["rope_type"] == "yarn":
            w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if family in ("qwen3_next", "qwen3_5_moe_text"):
        w.add_ssm_conv_kernel(c.linear_conv_kernel_dim)
        w.add_ssm_state_size(c.linear_key_head_dim)
        w.add_ssm_group_count(c.linear_num_key_heads)
        w.add_ssm_time_step_rank(c.linear_num_value_heads)
        w.add_ssm_inner_size(c.linear_num_value_heads * c.linear_value_head_dim)
        w.add_full_attention_interval(c.layer_types.index("full_attention") + 1)
    if family in ("qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text"):
        w.add_expert_feed_forward_length(c.moe_intermediate_size)
    if family in ("qwen2_moe", "qwen3_next", "qwen3_5_moe_text"):
        w.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)
    for key, value in (fields or {}).items():
        kind = (gguf.GGUFValueType.STRING if isinstance(value, str) else gguf.GGUFValueType.BOOL
                if isinstance(value, bool) else gguf.GGUFValueType.UINT32 if isinstance(value, int)
                else gguf.GGUFValueType.FLOAT32)
        if isinstance(value, list):
            w.add_array(key, value)
        else:
            w.add_key_value(key, value, kind)
    for name, x in tensors:
        plain = x.ndim == 1 or "ffn_gate_inp" in name or name.endswith(".bias") or "ssm_conv1d" in name
        kind = "F32" if plain else types if isinstance(types, str) else types(name)
        raw = np.ascontiguousarray(encode(x, kind, rng))
        w.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind.upper()])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file(progress=False)
    w.close()
    if parts:
        return sorted(path.parent.glob(path.name + "-00001-of-*.gguf"))[0]
    return path


# -- folders without torch ---------------------------------------------------------------------------------------------

def write_safetensors(path, tensors: dict) -> None:
    """{name: numpy array of float32, float16, uint16 (taken as bfloat16), float64, int64, uint32 or uint8} -> a .safetensors file."""
    names = {"float32": "F32", "float16": "F16", "uint16": "BF16", "float64": "F64", "int64": "I64", "uint32": "U32", "uint8": "U8"}
    head, blob = {}, b""
    for name, x in tensors.items():
        raw = np.ascontiguousarray(x).tobytes()
        head[name] = {"dtype": names[x.dtype.name], "shape": list(x.shape),
                      "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(head).encode()
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + blob)


def moe_config(**changes) -> dict:
    """config.json of a small qwen3_moe: hidden 64, 12 experts of width 24, top 2, two layers, vocabulary 320."""
    return {"model_type": "qwen3_moe", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96,
            "moe_intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 16, "num_experts": E, "num_experts_per_tok": 2, "norm_topk_prob": True, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 512, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
            "eos_token_id": 2} | changes


def moe_tensors(config: dict, fused: bool = False, seed: int = 0) -> dict:
    """Random float32 tensors of that configuration, by their Hugging Face names."""
    rng = np.random.default_rng(seed)
    h, inter, hd = config["hidden_size"], config["moe_intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * hd, config["num_key_value_heads"] * hd

    def r(*shape):
        return rng.standard_normal(shape, np.float32) * np.float32(0.1)

    out = {"model.embed_tokens.weight": r(config["vocab_size"], h), "model.norm.weight": 1 + r(h)}
    if not config["tie_word_embeddings"]:
        out["lm_head.weight"] = r(config["vocab_size"], h)
    for n in range(config["num_hidden_layers"]):
        s = f"model.layers.{n}."
        out |= {s + "input_layernorm.weight": 1 + r(h), s + "post_attention_layernorm.weight": 1 + r(h),
                s + "self_attn.q_proj.weight": r(q, h), s + "self_attn.k_proj.weight": r(kv, h),
                s + "self_attn.v_proj.weight": r(kv, h), s + "self_attn.o_proj.weight": r(h, q),
                s + "self_attn.q_norm.weight": 1 + r(hd), s + "self_attn.k_norm.weight": 1 + r(hd)}
        if n in config.get("mlp_only_layers", ()):
            width = config["intermediate_size"]
            out |= {s + "mlp.gate_proj.weight": r(width, h), s + "mlp.up_proj.weight": r(width, h),
                    s + "mlp.down_proj.weight": r(h, width)}
            continue
        out[s + "mlp.gate.weight"] = r(config["num_experts"], h)
        gate_up, down = r(config["num_experts"], 2 * inter, h), r(config["num_experts"], h, inter)
        if fused:
            out |= {s + "mlp.experts.gate_up_proj": gate_up, s + "mlp.experts.down_proj": down}
            continue
        for e in range(config["num_experts"]):
            out |= {f"{s}mlp.experts.{e}.gate_proj.weight": gate_up[e, :inter],
                    f"{s}mlp.experts.{e}.up_proj.weight": gate_up[e, inter:],
                    f"{s}mlp.experts.{e}.down_proj.weight": down[e]}
    return out


def write_folder(folder, config: dict, tensors: dict, **files: str) -> Path:
    """A Hugging Face folder of config.json, model.safetensors and more text files (name with _ for the last dot)."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors)
    for name, text in files.items():
        (folder / ".".join(name.rsplit("_", 1))).write_text(text)
    return folder
