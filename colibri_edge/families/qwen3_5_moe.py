"""qwen3_5_moe: qwen3_next's layers with sparse FFNs throughout; the text part of a multimodal checkpoint.

Owns: config.json of model_type qwen3_5_moe (settings in text_config, tensors under model.language_model or language_model) and
qwen3_5_moe_text, and GGUF architecture qwen35moe, whose value heads run over all key heads in turn ("tiled"). Selected experts'
weights always sum to one. The vision tower (model.visual.*, vision_tower.*) and the extra layers that predict several tokens (mtp.*)
are left out.
Refuses: what qwen3_next refuses.
"""

from __future__ import annotations

from . import deltanet, names, qwen3_next
from .common import GGUFConfig, HFConfig, Spec, moe, text_part, text_tensors, topology

MODEL_TYPE, GGUF_ARCH, SPARSE = "qwen3_5_moe", "qwen35moe", True
TOWERS = ("visual.", "vision_tower.", "mtp.")


def from_hf(cfg: HFConfig) -> Spec:
    cfg = text_part(cfg)
    context = cfg.integer("max_position_embeddings", 32768)
    layers, rope, dim = deltanet.hf_layers(cfg, context)
    act = cfg.activation()
    if act != "silu":
        cfg.fail("hidden_act", act, "silu, which the convolution takes")
    shared = {"intermediate": cfg.integer("shared_expert_intermediate_size", 512), "gate": True}
    ffn = moe(cfg.integer(("num_experts", "num_local_experts"), 256), cfg.integer("num_experts_per_tok", 8),
              cfg.integer("moe_intermediate_size", 512), act, True, shared)
    cfg.only("norm_topk_prob", True)
    topo, ropes = topology(MODEL_TYPE, cfg.integer("hidden_size", 2048), cfg.integer("vocab_size", 248320), context,
                           cfg.number("rms_norm_eps", 1e-6), cfg.boolean("tie_word_embeddings", False), rope, dim,
                           [(a, ffn) for a in layers])
    cfg.only("mlp_only_layers", [])
    cfg.only("attn_output_gate", True)
    cfg.only("mamba_ssm_dtype", "float32")
    cfg.finish("mtp_num_hidden_layers mtp_use_dedicated_embeddings intermediate_size")
    return Spec(topo, ropes)


def from_gguf(cfg: GGUFConfig) -> Spec:
    return qwen3_next.from_gguf(cfg, MODEL_TYPE, tiled=True)


def hf_tensors(spec: Spec, tensors: dict) -> dict:
    """The language model's tensors, wherever the checkpoint has it."""
    text = text_tensors(tensors, TOWERS)
    return names.hf(spec, text, norm=deltanet.norm_change(spec.topology, text))


def gguf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.gguf(spec, tensors)
