"""Models of published shapes with random weights, for ceilings and plans: nothing they say makes sense.

    python benchmarks/random_shape.py gemma-4-26b-a4b gemma4.colibri                       # 13.3 GiB at q4_0
    python benchmarks/random_shape.py qwen3.5-397b-a17b layer.colibri --layers 1 --vocab 32768
    python benchmarks/random_shape.py qwen3.5-397b-a17b FOLDER --headers                   # config.json and index only, for `plan`

Owns: the settings of the published config.json files, as far as they say a shape. --headers takes the tensors' names from transformers.
"""
import argparse
import json
from pathlib import Path

from colibri_edge.convert.synthetic import topology_of, write_random

SHAPES = {
    "gemma-4-26b-a4b": {
        "model_type": "gemma4_text", "hidden_size": 2816, "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 256, "num_global_key_value_heads": 2, "global_head_dim": 512, "attention_k_eq_v": True, "sliding_window": 1024,
        "intermediate_size": 2112, "enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
        "hidden_size_per_layer_input": 0, "vocab_size": 262144, "final_logit_softcapping": 30.0, "tie_word_embeddings": True,
        "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6, "max_position_embeddings": 262144},
    "qwen3.5-397b-a17b": {
        "model_type": "qwen3_5_moe_text", "hidden_size": 4096, "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 2,
        "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 64, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512, "num_experts_per_tok": 10,
        "moe_intermediate_size": 1024, "shared_expert_intermediate_size": 1024, "vocab_size": 248320, "tie_word_embeddings": False,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 262144},
}


def headers(config: dict, folder: Path) -> None:
    """config.json and an index of one shard that is not there: what a plan needs before a download."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    plain = {k: v for k, v in config.items() if k != "model_type"}
    with torch.device("meta"):
        names = list(AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **plain)).state_dict())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": "bfloat16"}, indent=1))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(names, "model.safetensors")}, indent=1))


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("shape", choices=SHAPES)
    p.add_argument("out", type=Path)
    p.add_argument("--format", default="q4_0")
    p.add_argument("--layers", type=int, help="fewer of them")
    p.add_argument("--vocab", type=int, help="fewer tokens")
    p.add_argument("--headers", action="store_true", help="a folder to plan from instead of a model")
    a = p.parse_args()
    config = dict(SHAPES[a.shape])
    if a.layers:
        config["num_hidden_layers"] = a.layers
    if a.vocab:
        config["vocab_size"] = a.vocab
    if a.headers:
        headers(config, a.out)
    else:
        print(f"{write_random(a.out, topology_of(config), a.format) / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
