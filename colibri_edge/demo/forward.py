"""The forward pass of Qwen3MoeForCausalLM for training on a small CPU, on the parameters of the Hugging Face class.

Owns: the same arithmetic with fewer and larger operations: one product for q, k and v, one rotation for q and k, query
heads of a group as rows of one product, tokens sorted by expert.  Refuses: caches, padding masks (pad on the right).
`python -m colibri_edge.demo.forward` compares it with the class and times both.
"""

from __future__ import annotations

import time

import torch
from torch.nn import functional as F  # noqa: N812


def rotation(config, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(cos, sin), each (1, length, 1, head_dim / 2)."""
    half = config.head_dim // 2
    theta = config.rope_parameters["rope_theta"]
    angle = torch.arange(length)[:, None] * theta ** (-torch.arange(half) / half)
    return angle.cos()[None, :, None, :], angle.sin()[None, :, None, :]


def attention(layer, config, x, cos, sin, mask):
    """x (B, T, H) normed -> (B, T, H)."""
    b, t, h = x.shape
    n, g, d = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    a = layer.self_attn
    qkv = F.linear(x, torch.cat((a.q_proj.weight, a.k_proj.weight, a.v_proj.weight))).view(b, t, n + 2 * g, d)
    qk = qkv[:, :, : n + g]
    scale = torch.cat((a.q_norm.weight.expand(n, d) * d**-0.5, a.k_norm.weight.expand(g, d)))
    qk = qk * torch.rsqrt(qk.square().mean(-1, keepdim=True) + config.rms_norm_eps) * scale
    left, right = qk.chunk(2, -1)
    qk = torch.cat((left * cos - right * sin, right * cos + left * sin), -1)
    q = qk[:, :, :n].view(b, t, g, n // g, d).permute(0, 2, 3, 1, 4).reshape(b * g, n // g * t, d)
    k = qk[:, :, n:].permute(0, 2, 3, 1).reshape(b * g, d, t)
    v = qkv[:, :, n + g :].transpose(1, 2).reshape(b * g, t, d)
    p = torch.baddbmm(mask, q, k).softmax(-1)
    y = torch.bmm(p, v).view(b, g, n // g, t, d).permute(0, 3, 1, 2, 4).reshape(b, t, n * d)
    return F.linear(y, a.o_proj.weight)


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
    for rows, (gate_up, down) in zip(x[token].split(counts), weights, strict=True):
        gate, up = F.linear(rows, gate_up).chunk(2, -1)
        parts.append(F.linear(F.silu(gate) * up, down))
    y = torch.cat(parts) * score.reshape(-1)[order][:, None]
    return torch.zeros_like(x).index_add(0, token, y), logits, chosen


def norm(x, module):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + module.variance_epsilon) * module.weight


def hidden_states(model, ids):
    """ids (B, T) -> (states after the last norm (B, T, H), [(router logits, chosen experts)] of each layer)."""
    config = model.config
    b, t = ids.shape
    cos, sin = rotation(config, t)
    mask = torch.full((t, t), float("-inf")).triu(1).repeat(config.num_attention_heads // config.num_key_value_heads, 1)
    x, routing = F.embedding(ids, model.model.embed_tokens.weight), []
    for layer in model.model.layers:
        x = x + attention(layer, config, norm(x, layer.input_layernorm), cos, sin, mask)
        y, logits, chosen = moe(layer.mlp, config, norm(x, layer.post_attention_layernorm).view(b * t, -1))
        x = x + y.view_as(x)
        routing.append((logits, chosen))
    return norm(x, model.model.norm), routing


def main() -> None:
    from .train import new_model

    model = new_model().eval()
    ids = torch.randint(0, model.config.vocab_size, (40, 51))
    with torch.no_grad():
        want = model.model(input_ids=ids, use_cache=False).last_hidden_state
        got = hidden_states(model, ids)[0]
    print(f"largest difference {float((want - got).abs().max()):.1e} at a spread of {float(want.std()):.2f}")
    ways = {
        "class": lambda: model.model(input_ids=ids, use_cache=False).last_hidden_state,
        "forward": lambda: hidden_states(model, ids)[0],
    }
    for _ in range(2):
        for name, way in ways.items():
            cpu, wall = time.process_time(), time.time()
            for _ in range(5):
                way().square().mean().backward()
            print(f"{name}: {time.process_time() - cpu:.2f} s of processor time, {time.time() - wall:.2f} s")


if __name__ == "__main__":
    main()
