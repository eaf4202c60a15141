"""Model families: what a configuration means, and which source tensor fills which place.

    config.json or GGUF metadata  --families/<model_type>.py-->  Spec (topology, RoPE tables, which biases)
    Spec + source tensor names    --families/names.py-------->   bindings: target tensor -> rows of source tensors

A family is one small module with MODEL_TYPE, GGUF_ARCH, SPARSE (whether it has experts; None: with or without), from_hf(cfg) and
from_gguf(cfg), which give a Spec, and hf_tensors(spec, tensors) and gguf_tensors(spec, tensors), which give its bindings. To add one:
write the module, add its name to FAMILIES, add a tiny configuration to tests/tinymodels.py.
Owns: the registry. Refuses: model types and architectures that no module serves.
"""

from __future__ import annotations

from importlib import import_module

from ..convert.source import ConvertError

FAMILIES = ("llama", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss", "gemma2", "gemma3", "gemma4",
            "qwen3_next", "qwen3_5_moe")
ALIASES = {"qwen3_5_moe_text": "qwen3_5_moe", "gemma3_text": "gemma3", "gemma4_text": "gemma4"}    # model types that another module serves


def family(model_type: str):
    """The module of one model type."""
    return import_module(f"{__name__}.{model_type}")


def for_hf(model_type) -> object:
    """The family of a config.json's model_type."""
    if isinstance(model_type, str):
        model_type = ALIASES.get(model_type, model_type)
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ConvertError(f"model_type is {str(model_type)[:60]!r}, wanted one of {', '.join(FAMILIES)}; this family "
                           "is not served yet")
    return family(model_type)


def for_gguf(fields) -> object:
    """The family of a GGUF file's metadata: the one whose architecture it is, with or without experts."""
    arch = fields.get("general.architecture")
    experts = fields.get(f"{arch}.expert_count", 0) or 0
    for name in FAMILIES:
        module = family(name)
        if arch == module.GGUF_ARCH and module.SPARSE in (None, bool(experts)):
            return module
    known = sorted({family(n).GGUF_ARCH for n in FAMILIES})
    raise ConvertError(f"general.architecture is {str(arch)[:60]!r} with {str(experts)[:20]} experts, wanted one of "
                       f"{', '.join(known)}; this family is not served yet")
