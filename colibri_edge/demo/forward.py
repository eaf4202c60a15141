"""The forward pass of Qwen3MoeForCausalLM for training on a small CPU, on the parameters of the Hugging Face class.

Owns: the same arithmetic with fewer and larger operations: one product for q, k and v, one rotation for q and k, query
heads of a group as rows of one product, tokens sorted by expert.  Refuses: caches, padding masks (pad on the right).
`python -m colibri_edge.demo.forward` compares it with the class and times both.
"""

from __future__ import annotations

import time

import torch
from torch.nn import functional as F  # noqa: N812


class Norm(torch.autograd.Function):
    """RMS norm over the last axis, x (..., D) and w (D,) or (heads, D), with few passes over x."""

    @staticmethod
    def forward(ctx, x, w, eps):
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = torch.rsqrt(size.square() / x.shape[-1] + eps)
        unit = x * inverse
        ctx.save_for_backward(unit, w, inverse)
        return unit * w

    @staticmethod
    def backward(ctx, grad):
        unit, w, inverse = ctx.saved_tensors
        product = grad * unit
        grad_w = product.reshape(-1, *w.shape).sum(0)
        along = (product * w).sum(-1, keepdim=True) if w.dim() > 1 else (product @ w).unsqueeze(-1)
        return torch.addcmul(grad * w, unit, along, value=-1 / unit.shape[-1]).mul_(inverse), grad_w, None


def rotation(config, length: int) -> torch.Tensor:
    """exp(i angle), (1, length, 1, head_dim / 2)."""
    half = config.head_dim // 2
    theta = config.rope_parameters["rope_theta"]
    angle = torch.arange(length)[:, None] * theta ** (-torch.arange(half) / half)
    return torch.polar(torch.ones_like(angle), angle)[None, :, None, :]


def attention(layer, config, x, turn, mask):
    """x (B, T, H) normed -> (B, T, heads * head_dim), before the output product.

    The class rotates the pairs (i, i + d/2).  Here the rows of q and k are put in the order 0, d/2, 1, d/2 + 1, ... so
    that a pair is a complex number; products of q and k do not see it.
    """
    b, t, h = x.shape
    n, g, d = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    a = layer.self_attn
    pairs = torch.arange(d).view(2, d // 2).t().reshape(-1)
    rows = torch.cat((a.q_proj.weight, a.k_proj.weight)).view(n + g, d, h)[:, pairs].view(-1, h)
    qkv = F.linear(x, torch.cat((rows, a.v_proj.weight))).view(b, t, n + 2 * g, d)
    scale = torch.cat((a.q_norm.weight.expand(n, d) * d**-0.5, a.k_norm.weight.expand(g, d)))[:, pairs]
    qk = Norm.apply(qkv[:, :, : n + g], scale, config.rms_norm_eps)
    qk = torch.view_as_real(torch.view_as_complex(qk.view(b, t, n + g, d // 2, 2)) * turn).view(b, t, n + g, d)
    q = qk[:, :, :n].view(b, t, g, n // g, d).permute(0, 2, 3, 1, 4).reshape(b * g, n // g * t, d)
    k = qk[:, :, n:].permute(0, 2, 3, 1).reshape(b * g, d, t)
    v = qkv[:, :, n + g :].transpose(1, 2).reshape(b * g, t, d)
    p = torch.baddbmm(mask, q, k).softmax(-1)
    return torch.bmm(p, v).view(b, g, n // g, t, d).permute(0, 3, 1, 2, 4).reshape(b, t, n * d)


def moe(block, config, x):
    """x (N, H) normed -> (output (N, H), router logits (N, experts), chosen experts (N, k))."""
    logits = F.linear(x, block.gate.weight)
    score, chosen = logits.softmax(-1).topk(config.num_experts_per_tok, -1)
    score = score / score.sum(-1, keepdim=True)
    order = chosen.reshape(-1).argsort(stable=True)
    counts = torch.bincount(chosen.reshape(-1), minlength=config.num_experts).tolist()
    token = order // config.num_experts_per_tok
    parts = []
    weights = zip(block.experts.gate_up_proj.unbind(0), block.experts.down_proj.unbind(0), strict=True)
    for rows, (gate_up, down) in zip(x.index_select(0, token).split(counts), weights, strict=True):
        gate, up = F.linear(rows, gate_up).chunk(2, -1)
        parts.append(F.linear(F.silu(gate) * up, down))
    y = torch.cat(parts) * score.reshape(-1).index_select(0, order)[:, None]
    return torch.zeros_like(x).index_add(0, token, y), logits, chosen


def hidden_states(model, ids, keep=None):
    """ids (B, T) -> (states after the last norm (B * T, H), [(router logits, chosen experts)] of each layer).

    With `keep`, flat positions in ids, only these rows are computed beyond the last attention, and returned.
    """
    config = model.config
    b, t = ids.shape
    turn = rotation(config, t)
    mask = torch.full((t, t), float("-inf")).triu(1).repeat(config.num_attention_heads // config.num_key_value_heads, 1)
    x, routing, last = F.embedding(ids.ravel(), model.model.embed_tokens.weight), [], model.model.layers[-1]
    eps = config.rms_norm_eps
    for layer in model.model.layers:
        y = attention(layer, config, Norm.apply(x, layer.input_layernorm.weight, eps).view(b, t, -1), turn, mask)
        y = y.view(b * t, -1)
        if layer is last and keep is not None:
            x, y = x.index_select(0, keep), y.index_select(0, keep)
        x = x + F.linear(y, layer.self_attn.o_proj.weight)
        y, logits, chosen = moe(layer.mlp, config, Norm.apply(x, layer.post_attention_layernorm.weight, eps))
        x = x + y
        routing.append((logits, chosen))
    return Norm.apply(x, model.model.norm.weight, eps), routing


def main() -> None:
    """Compare states and gradients with the class, and time both."""
    from .train import new_model

    torch.set_num_threads(1)
    model = new_model()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05 * torch.randn_like(p)
    ids = torch.randint(0, model.config.vocab_size, (40, 41))
    keep = torch.randperm(ids.numel())[: ids.numel() // 2].sort().values
    ways = {
        "class": lambda: model.model(input_ids=ids, use_cache=False).last_hidden_state.view(ids.numel(), -1)[keep],
        "forward": lambda: hidden_states(model, ids, keep)[0],
    }
    got = {}
    for name, way in ways.items():
        states = way()
        (states * torch.linspace(-1, 1, states.shape[-1])).pow(3).mean().backward()
        got[name] = {"states": states.detach(), **{k: p.grad for k, p in model.named_parameters()}}
        model.zero_grad(set_to_none=True)
    worst = max((float((got["class"][k] - v).norm() / v.norm()), k) for k, v in got["forward"].items())
    print(f"largest relative difference of states and gradients: {worst[0]:.1e} ({worst[1]})")
    for name, way in list(ways.items()) * 2:
        cpu = time.process_time()
        for _ in range(3):
            way().square().mean().backward()
        print(f"{name}: {3 * ids.numel() / (time.process_time() - cpu):.0f} tokens a second of processor time")


if __name__ == "__main__":
    main()
