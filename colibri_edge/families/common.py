"""What the families share: reading configurations without guessing, and building a topology.

Owns: `HFConfig` and `GGUFConfig` (typed access that remembers which keys were read), `finish()` (any key nobody read
and nobody knows to be harmless is an error that names it), `Spec`, `attention()` and `topology()`.
Refuses: missing and mistyped values, unknown activations, quantised checkpoints, remote code, unknown settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..convert.source import ConvertError
from ..topology import MAX_DIM, MAX_EXPERTS, MAX_LAYERS

REQUIRED = object()
MOST = {"num_hidden_layers": MAX_LAYERS, "block_count": MAX_LAYERS, "num_experts": MAX_EXPERTS, "num_local_experts": MAX_EXPERTS,
        "expert_count": MAX_EXPERTS}        # what lists are made of, long before the tensors are compared with it

ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
               "relu": "relu"}

# Keys of config.json that cannot change logits: identity, training, caching, text generation, output selection.
HARMLESS = set("""
    architectures model_type torch_dtype dtype transformers_version _name_or_path name_or_path use_cache
    initializer_range attention_dropout hidden_dropout resid_pdrop embd_pdrop output_router_logits router_aux_loss_coef
    router_jitter_noise pretraining_tp bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id cls_token_id
    decoder_start_token_id output_attentions output_hidden_states return_dict return_dict_in_generate output_scores
    id2label label2id num_labels problem_type task_specific_params finetuning_task tokenizer_class prefix torchscript
    use_bfloat16 chunk_size_feed_forward keys_to_ignore_at_inference gradient_checkpointing _attn_implementation
    attn_implementation _flash_attn_2_enabled use_flash_attn _commit_hash unsloth_version unsloth_fixed
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences forced_bos_token_id forced_eos_token_id remove_invalid_values suppress_tokens
    begin_suppress_tokens exponential_decay_length_penalty tf_legacy_loss license
""".split())  # noqa: SIM905 (a list of 70 quoted words reads worse)

# Generic keys that are harmless with this value only.
ONLY = {"is_encoder_decoder": False, "is_decoder": False, "add_cross_attention": False, "tie_encoder_decoder": False,
        "pruned_heads": {}, "quantization_config": None, "auto_map": None, "partial_rotary_factor": 1.0,
        "use_parallel_residual": False, "attention_multiplier": 1.0, "is_causal": True}

HINTS = {"quantization_config": "the checkpoint is quantised; convert the original floats or a GGUF file",
         "auto_map": "the model needs code of its own, which may compute something else"}


@dataclass
class Spec:
    """What a configuration means. topology: docs/format.md. ropes: float32[dim/2] each. biases: of q, k, v, o, those
    the configuration demands; None: those that the file has. mlp_bias: likewise for the FFN's three matrices."""

    topology: dict
    ropes: list[np.ndarray]
    biases: tuple[str, ...] | None = ()
    mlp_bias: bool = False
    uses: set[str] = field(default_factory=set)


def refuse_unknown(where: str, data, known: set[str]) -> None:
    """Raise for the first key that is not known and not null."""
    left = sorted(str(k) for k in data if k not in known and data[k] is not None)
    if left:
        more = f" (nor are {', '.join(left[1:6])})" if left[1:] else ""
        raise ConvertError(f"{where}: the setting {left[0]} = {str(data[left[0]])[:60]!r} is not known{more}; it may "
                           "change results, and colibri-edge does not guess: set it to null if it does not matter")


class _Config:
    """Typed access to a flat mapping; keys read are remembered."""

    def __init__(self, data, where: str):
        self.data, self.where, self.read = data, where, set()

    def fail(self, key: str, v, want: str):
        raise ConvertError(f"{self.where}: {key} is {str(v)[:80]!r}, wanted {want}")

    def get(self, key, default=REQUIRED):
        """The value of a key, or of the first present among several; null counts as absent."""
        keys = (key,) if isinstance(key, str) else key
        self.read.update(keys)
        found = [(k, self.data[k]) for k in keys if self.data.get(k) is not None]
        if len({str(v) for _, v in found}) > 1:
            raise ConvertError(f"{self.where}: {found[0][0]} is {found[0][1]} and {found[1][0]} is {found[1][1]}; "
                               "they should agree")
        if found:
            return found[0][1]
        if default is REQUIRED:
            raise ConvertError(f"{self.where} lacks {keys[0]}; take the configuration of the original model")
        return default

    def integer(self, key, default=REQUIRED, low: int = 1, high: int | None = None):
        v = self.get(key, default)
        if high is None:
            high = MOST.get(key if isinstance(key, str) else key[0], 1 << 30)
        if v is None:
            return None
        if type(v) is not int or not low <= v <= high:
            self.fail(str(key), v, f"a whole number from {low} to {high}")
        return v

    def number(self, key, default=REQUIRED, low: float = 0.0, high: float = 1e30):
        v = self.get(key, default)
        if v is None:
            return None
        if type(v) not in (int, float) or not low <= v <= high:
            self.fail(str(key), v, f"a number from {low:g} to {high:g}")
        return float(v)

    def boolean(self, key, default=REQUIRED) -> bool:
        v = self.get(key, default)
        if type(v) is not bool:
            self.fail(str(key), v, "true or false")
        return v

    def only(self, key: str, value, why: str = "") -> None:
        """The key may be absent or have this value."""
        v = self.get(key, value)
        if v != value or (isinstance(v, bool) != isinstance(value, bool)):
            raise ConvertError(f"{self.where}: {key} is {str(v)[:80]!r}, colibri-edge serves {value!r} only"
                               + (f"; {why}" if why else ""))


class HFConfig(_Config):
    """config.json."""

    def __init__(self, data: dict):
        super().__init__(data, "config.json")

    def activation(self, key: str = "hidden_act", default: str = "silu") -> str:
        v = self.get(key, default)
        if not isinstance(v, str) or v not in ACTIVATIONS:
            self.fail(key, v, f"one of {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[v]

    def finish(self, harmless: str = "") -> None:
        """Refuse every key that was not read, is not null and is not known to be harmless."""
        for key, value in ONLY.items():
            if key not in self.read:
                self.only(key, value, HINTS.get(key, ""))
        refuse_unknown(self.where, self.data, self.read | HARMLESS | set(harmless.split()))


class GGUFConfig(_Config):
    """The keys `<architecture>.*` of a GGUF file, without the prefix. Everything else there cannot change logits."""

    def __init__(self, fields, tensors):
        arch = fields["general.architecture"]
        keys = [k for k in fields if k.startswith(arch + ".")]
        super().__init__({k[len(arch) + 1:]: fields[k] for k in keys}, f"GGUF metadata {arch}")
        self.tensors = tensors

    def rows(self, name: str) -> int:
        """Rows of a source tensor: the vocabulary size has no key of its own."""
        if name not in self.tensors:
            raise ConvertError(f"the GGUF file lacks the tensor {name}; download it again")
        return self.tensors[name].rows

    def finish(self, harmless: str = "") -> None:
        for key, value in {"use_parallel_residual": False, "attention.causal": True, "expert_gating_func": 1,
                           "attention.max_alibi_bias": 0.0, "nextn_predict_layers": 0, "logit_scale": 1.0,
                           "embedding_scale": 1.0, "residual_scale": 1.0, "expert_group_count": 1,
                           "expert_group_used_count": 1, "leading_dense_block_count": 0,
                           "interleave_moe_layer_step": 1, "moe_every_n_layers": 1}.items():
            self.only(key, value)
        refuse_unknown(self.where, self.data, self.read | {"tensor_data_layout", "vocab_size"} | set(harmless.split()))


def heads(cfg: HFConfig, kv_default=REQUIRED, head_dim_default=None) -> tuple[int, int, int]:
    """(heads, key-value heads, channels of a head)."""
    n = cfg.integer("num_attention_heads")
    kv = cfg.integer("num_key_value_heads", kv_default) or n
    hd = cfg.integer("head_dim", head_dim_default)
    if hd is None:
        hd, rest = divmod(cfg.integer("hidden_size"), n)
        if rest:
            cfg.fail("hidden_size", cfg.integer("hidden_size"), f"a multiple of num_attention_heads, {n}")
    if n % kv:
        cfg.fail("num_key_value_heads", kv, f"a divisor of num_attention_heads, {n}")
    if hd % 2:
        cfg.fail("head_dim", hd, "an even number")
    return _fitting(cfg, n, kv, hd)


def gguf_heads(cfg: GGUFConfig) -> tuple[int, int, int]:
    """(heads, key-value heads, channels of a head)."""
    n = cfg.integer("attention.head_count")
    kv = cfg.integer("attention.head_count_kv", n)
    hd = cfg.integer("attention.key_length", cfg.integer("embedding_length") // n)
    cfg.only("attention.value_length", hd, "keys and values of different widths are not served")
    cfg.only("rope.dimension_count", hd, "partly rotated heads are not served for this family")
    if n % kv or hd % 2:
        raise ConvertError(f"{cfg.where}: {n} heads, {kv} key-value heads, {hd} channels; wanted a whole ratio and an "
                           "even width")
    return _fitting(cfg, n, kv, hd)


def _fitting(cfg: _Config, n: int, kv: int, hd: int) -> tuple[int, int, int]:
    if n * hd > MAX_DIM:
        raise ConvertError(f"{cfg.where}: {n} heads of {hd} channels; a model file takes {MAX_DIM} at most")
    return n, kv, hd


def attention(n: int, kv: int, hd: int, qk_norm=None, window: int = 0) -> dict:
    """The `attn` entry of a layer; scores are scaled by head_dim ** -0.5."""
    return {"kind": "full", "heads": n, "kv_heads": kv, "head_dim": hd, "scale": 1.0 / math.sqrt(hd), "rope": 0,
            "window": window, "qk_norm": qk_norm}


def gated(n: int, kv: int, hd: int, qk_norm=None) -> dict:
    """The same with the heads' outputs times the sigmoid of a projection of their own."""
    return attention(n, kv, hd, qk_norm) | {"kind": "gated"}


def delta(key_heads: int, value_heads: int, key_dim: int, value_dim: int, taps: int, tiled: bool = False) -> dict:
    """The `attn` entry of a gated delta rule layer. tiled: value head h uses key head h % key_heads, else neighbours share one."""
    if value_heads % key_heads:
        raise ConvertError(f"the configuration has {value_heads} value heads over {key_heads} key heads, wanted a whole ratio")
    return {"kind": "delta", "key_heads": key_heads, "value_heads": value_heads, "key_dim": key_dim, "value_dim": value_dim, "taps": taps,
            "pairing": "tiled" if tiled else "grouped"}


def text_part(cfg: HFConfig) -> HFConfig:
    """The configuration of the language model inside a multimodal one; a plain configuration as it is. Images, sound and their towers
    are left out: with text alone they change nothing."""
    inner = cfg.data.get("text_config")
    if inner is None:
        return cfg
    if not isinstance(inner, dict):
        cfg.fail("text_config", inner, "an object")
    tied = cfg.data.get("tie_word_embeddings")
    if tied is not None and inner.get("tie_word_embeddings") not in (None, tied):
        raise ConvertError(f"{cfg.where}: tie_word_embeddings is {tied} outside and {inner['tie_word_embeddings']} inside text_config; "
                           "they should agree")
    return HFConfig(inner if tied is None else inner | {"tie_word_embeddings": tied})


def text_tensors(tensors: dict, towers: tuple[str, ...] = ()) -> dict:
    """The language model's tensors by the names of a plain checkpoint. transformers has them under model.language_model, older
    versions and MLX under language_model. towers: beginnings of names that are left out, with or without `model.`."""
    text = {}
    for name, t in tensors.items():
        for inner in ("model.language_model.", "language_model.model.", "language_model."):
            if name.startswith(inner):
                name = ("" if inner == "language_model." else "model.") + name[len(inner):]
                break
        if not name.removeprefix("model.").startswith(towers):
            text[name] = t
    return text


def moe(experts: int, top_k: int, intermediate: int, activation: str, renormalise: bool, shared=None) -> dict:
    """The `ffn` entry of a sparse layer."""
    if top_k > experts:
        raise ConvertError(f"the configuration selects {top_k} of {experts} experts, wanted at most {experts}")
    return {"kind": "moe", "experts": experts, "top_k": top_k, "intermediate": intermediate, "activation": activation,
            "renormalise": renormalise, "shared": shared}


def dense(intermediate: int, activation: str) -> dict:
    """The `ffn` entry of a dense layer."""
    return {"kind": "dense", "intermediate": intermediate, "activation": activation}


def topology(model_type: str, hidden: int, vocab: int, context: int, eps: float, tied: bool, rope, head_dim: int,
             layers: list[tuple[dict, dict]]) -> tuple[dict, list[np.ndarray]]:
    """(topology, RoPE tables) of a model with one RoPE. rope: (inverse frequencies, attention factor)."""
    inv, factor = rope
    return {"model_type": model_type, "hidden_size": hidden, "vocab_size": vocab, "context_length": context,
            "norm_eps": eps, "tied": tied, "embed_scale": 1.0, "logit_softcap": 0.0,
            "ropes": [{"tensor": "rope.0", "dim": head_dim, "attention_factor": factor}],
            "layers": [{"attn": a, "ffn": f} for a, f in layers]}, [inv.astype(np.float32)]
