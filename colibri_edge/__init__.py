"""colibri-edge: mixture-of-experts language models on small CPUs.

    apps -> text, model -> engine -> core -> (pxd) -> include <- csrc        families, convert: files and data

Cython owns control flow per token, C owns loops over elements; see docs/numerics.md for the exactness contract.
"""
from colibri_edge._native import available_isas, isa

__version__ = "0.1.0"
__all__ = ["__version__", "available_isas", "isa", "show_config"]


def show_config() -> dict:
    """What this build is and what it chose on this machine: version, isa, isas, constants, formats, default threads."""
    from colibri_edge import _native

    return {
        "version": __version__,
        "isa": _native.isa(),
        "isas": _native.available_isas(),
        "constants": _native.constants(),
        "formats": list(_native.formats()),
        "default_threads": _native.default_threads(),
    }
