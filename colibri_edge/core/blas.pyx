# cython: language_level=3, freethreading_compatible=True
"""Which BLAS serves the float32 experts: the one of the package scipy-openblas32, found here, loaded when a block first needs it.

Owns: the search. Refuses: loading at import (a block of few tokens never calls a BLAS). COLIBRI_EDGE_BLAS=path names another
OpenBLAS. Results of a BLAS are outside the exactness contract: they depend on the CPU (docs/block.md).
"""
import os

HINT = "Install the package scipy-openblas32 (pip install scipy-openblas32), or name a library with COLIBRI_EDGE_BLAS=path."


def find() -> str:
    """Path of the library, or ""; nothing is loaded."""
    named = os.environ.get("COLIBRI_EDGE_BLAS")
    if named is not None:
        return named
    from importlib.util import find_spec

    spec = find_spec("scipy_openblas32")
    if spec is None or not spec.submodule_search_locations:
        return ""
    folder = os.path.join(list(spec.submodule_search_locations)[0], "lib")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for name in names:
        if "openblas" in name and name.endswith((".so", ".dylib", ".dll")):
            return os.path.join(folder, name)
    return ""


def threads() -> int:
    """Threads the loaded BLAS would use now; 0 when it is not loaded."""
    return cl_blas_threads()


def set_threads(int n) -> None:
    """Sets the loaded BLAS's own threads (for tests of the hold)."""
    cl_blas_set_threads(n)


def loaded() -> bool:
    """Whether a block has needed the BLAS in this process."""
    return bool(cl_blas_loaded())


cl_blas_locate(os.fsencode(find()), HINT.encode())
