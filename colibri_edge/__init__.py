"""colibri-edge: mixture-of-experts language models on small CPUs.

    apps -> text, model -> engine -> core -> (pxd) -> include <- csrc        families, convert: files and data

Cython owns control flow per token, C owns loops over elements; see docs/numerics.md for the exactness contract.
Importing this package loads nothing else: what it exports is fetched at its first use.
"""
from __future__ import annotations

import os

__version__ = "0.1.0"

if hasattr(os, "add_dll_directory"):    # Windows has no RUNPATH: the modules of subpackages find colibri_core.dll by this
    os.add_dll_directory(os.path.dirname(os.path.abspath(__file__)))

# Exported name -> the module that holds it.
_EXPORTS = {
    "Generation": "model", "MoEBlock": "block", "Model": "model", "Token": "model", "available_isas": "_native",
    "isa": "_native", "export_block": "blockfile",
    "BlockError": "block", "ConvertError": "convert.source", "FileError": "topology",
}
__all__ = ["__version__", "convert", "show_config", *_EXPORTS]


def show_config() -> dict:
    """What this build is and what it chose on this machine: version, isa, isas, constants, formats, default threads."""
    from colibri_edge import _native, limits

    return {
        "version": __version__,
        "isa": _native.isa(),
        "isas": _native.available_isas(),
        "constants": _native.constants(),
        "formats": list(_native.formats()),
        "default_threads": limits.default_threads(),
    }


def __getattr__(name: str):
    from importlib import import_module

    if name == "convert":   # a package that can be called: convert(src, dst) and convert.cache are both good
        return import_module("colibri_edge.convert")
    if name not in _EXPORTS:
        raise AttributeError(f"module 'colibri_edge' has no attribute {name!r}")
    value = getattr(import_module(f"colibri_edge.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
