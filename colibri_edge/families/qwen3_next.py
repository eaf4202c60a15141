"""qwen3_next: gated delta rule layers, every fourth with gated attention instead, sparse FFNs beside a gated shared expert.

Owns: config.json of model_type qwen3_next and GGUF architecture qwen3next. layer_types (or full_attention_interval) says which layers
attend, mlp_only_layers and decoder_sparse_step which have experts. Only partial_rotary_factor of a head's channels is rotated. The
extra layers that predict several tokens (mtp.*) are left out, as transformers does.
Refuses: biases of attention.
"""

from __future__ import annotations

from . import deltanet, names
from .common import GGUFConfig, HFConfig, Spec, dense, moe, topology
from .qwen3_moe import sparse_layers

MODEL_TYPE, GGUF_ARCH, SPARSE = "qwen3_next", "qwen3next", True


def from_hf(cfg: HFConfig) -> Spec:
    context = cfg.integer("max_position_embeddings", 32768)
    layers, rope, dim = deltanet.hf_layers(cfg, context)
    act, inter = cfg.activation(), cfg.integer("intermediate_size", 5632)
    if act != "silu":
        cfg.fail("hidden_act", act, "silu, which the convolution takes")
    experts = cfg.integer(("num_experts", "num_local_experts"), low=0)
    kinds = sparse_layers(cfg, len(layers), experts)
    shared = {"intermediate": cfg.integer("shared_expert_intermediate_size"), "gate": True}
    sparse = moe(experts, cfg.integer("num_experts_per_tok"), cfg.integer("moe_intermediate_size"), act,
                 cfg.boolean("norm_topk_prob", True), shared) if experts else None
    topo, ropes = topology(MODEL_TYPE, cfg.integer("hidden_size"), cfg.integer("vocab_size"), context,
                           cfg.number("rms_norm_eps", 1e-6), cfg.boolean("tie_word_embeddings", False), rope, dim,
                           [(a, sparse if k else dense(inter, act)) for a, k in zip(layers, kinds, strict=True)])
    cfg.finish("mtp_num_hidden_layers num_nextn_predict_layers")
    return Spec(topo, ropes)


def from_gguf(cfg: GGUFConfig, model_type: str = MODEL_TYPE, tiled: bool = False) -> Spec:
    context = cfg.integer("context_length")
    layers, rope, dim = deltanet.gguf_layers(cfg, context, tiled)
    cfg.only("expert_weights_scale", 1.0)
    cfg.integer("expert_shared_count", None)
    shared = {"intermediate": cfg.integer("expert_shared_feed_forward_length"), "gate": True}
    ffn = moe(cfg.integer("expert_count"), cfg.integer("expert_used_count"), cfg.integer("expert_feed_forward_length"), "silu",
              cfg.boolean("expert_weights_norm", True), shared)
    topo, ropes = topology(model_type, cfg.integer("embedding_length"), cfg.rows("token_embd.weight"), context,
                           cfg.number("attention.layer_norm_rms_epsilon"), "output.weight" not in cfg.tensors, rope, dim,
                           [(a, ffn) for a in layers])
    cfg.finish("feed_forward_length")
    return Spec(topo, ropes)


def hf_tensors(spec: Spec, tensors: dict) -> dict:
    text = {n: t for n, t in tensors.items() if not n.startswith("mtp.")}
    return names.hf(spec, text, norm=deltanet.norm_change(spec.topology, text))


def gguf_tensors(spec: Spec, tensors: dict) -> dict:
    return names.gguf(spec, tensors)
