"""A GGUF file of the Qwen3.5-35B-A3B shape with random Q4_0 weights, for comparing engines: nothing it says makes sense.

    python benchmarks/random_qwen35.py VOCABULARY.gguf out.gguf --layers 12

The tokenizer is that of any GGUF file. Needs the package gguf. Tensor names: the gguf package's map for architecture qwen35moe.
"""
import argparse

import gguf
import numpy as np

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, EXPERTS, TOP_K, WIDTH = 2048, 16, 2, 256, 256, 8, 512
KEY_HEADS, VALUE_HEADS, STATE, KERNEL, EVERY = 16, 32, 128, 4, 4


def q4_0(rng, shape: tuple) -> np.ndarray:
    """Random blocks of 32 columns with a spread of about 0.02, as bytes [..., columns / 32 * 18]."""
    blocks = rng.integers(0, 256, (int(np.prod(shape)) // 32, 18), dtype=np.uint8)
    blocks[:, :2] = np.full(1, 0.02 / 4.6, np.float16).view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("vocabulary", help="a GGUF file whose tokenizer is taken")
    p.add_argument("out")
    p.add_argument("--layers", type=int, default=40)
    a = p.parse_args()
    rng = np.random.default_rng(0)
    fields = gguf.GGUFReader(a.vocabulary).fields
    w = gguf.GGUFWriter(a.out, "qwen35moe")
    w.add_block_count(a.layers)
    w.add_context_length(4096)
    w.add_embedding_length(HIDDEN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    w.add_rope_dimension_count(HEAD_DIM // 4)
    w.add_rope_dimension_sections([11, 11, 10, 0])
    w.add_rope_freq_base(1e7)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_expert_count(EXPERTS)
    w.add_expert_used_count(TOP_K)
    w.add_expert_feed_forward_length(WIDTH)
    w.add_expert_shared_feed_forward_length(WIDTH)
    w.add_ssm_conv_kernel(KERNEL)
    w.add_ssm_state_size(STATE)
    w.add_ssm_group_count(KEY_HEADS)
    w.add_ssm_time_step_rank(VALUE_HEADS)
    w.add_ssm_inner_size(VALUE_HEADS * STATE)
    w.add_full_attention_interval(EVERY)
    for key, field in fields.items():
        if key.startswith("tokenizer."):
            if field.types[0] == gguf.GGUFValueType.ARRAY:
                w.add_array(key, field.contents())
            else:
                w.add_key_value(key, field.contents(), field.types[0])

    def matrix(name: str, *shape: int) -> None:
        w.add_tensor(name + ".weight", q4_0(rng, shape), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def floats(name: str, *shape: int, at: float = 0.0, spread: float = 0.05) -> None:
        w.add_tensor(name, (at + spread * rng.standard_normal(shape)).astype(np.float32))

    vocabulary, values = len(fields["tokenizer.ggml.tokens"].data), VALUE_HEADS * STATE
    matrix("token_embd", vocabulary, HIDDEN)
    matrix("output", vocabulary, HIDDEN)
    floats("output_norm.weight", HIDDEN, at=1.0)
    for n in range(a.layers):
        b = f"blk.{n}."
        floats(b + "attn_norm.weight", HIDDEN, at=1.0)
        floats(b + "post_attention_norm.weight", HIDDEN, at=1.0)
        if (n + 1) % EVERY:
            mixed = 2 * KEY_HEADS * STATE + values
            matrix(b + "attn_qkv", mixed, HIDDEN)
            matrix(b + "attn_gate", values, HIDDEN)
            floats(b + "ssm_alpha.weight", VALUE_HEADS, HIDDEN)
            floats(b + "ssm_beta.weight", VALUE_HEADS, HIDDEN)
            floats(b + "ssm_conv1d.weight", mixed, KERNEL, spread=0.3)
            floats(b + "ssm_a", VALUE_HEADS, at=-1.0, spread=0.1)
            floats(b + "ssm_dt.bias", VALUE_HEADS)
            floats(b + "ssm_norm.weight", STATE, at=1.0)
            matrix(b + "ssm_out", HIDDEN, values)
        else:
            matrix(b + "attn_q", 2 * HEADS * HEAD_DIM, HIDDEN)
            matrix(b + "attn_k", KV_HEADS * HEAD_DIM, HIDDEN)
            matrix(b + "attn_v", KV_HEADS * HEAD_DIM, HIDDEN)
            matrix(b + "attn_output", HIDDEN, HEADS * HEAD_DIM)
            floats(b + "attn_q_norm.weight", HEAD_DIM, at=1.0)
            floats(b + "attn_k_norm.weight", HEAD_DIM, at=1.0)
        floats(b + "ffn_gate_inp.weight", EXPERTS, HIDDEN)
        floats(b + "ffn_gate_inp_shexp.weight", HIDDEN)
        for x, shape in (("gate", (WIDTH, HIDDEN)), ("up", (WIDTH, HIDDEN)), ("down", (HIDDEN, WIDTH))):
            matrix(f"{b}ffn_{x}_exps", EXPERTS, *shape)
            matrix(f"{b}ffn_{x}_shexp", *shape)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
