<<<<<<< HEAD
"""Typed Cython cores, one routing, one pool and one dispatch for blocks and whole models. No Python object on the token path."""
=======
"""Typed Cython between the engine and the kernels: router, dispatch, matrix passes, attention, feed-forward.

    engine -> ffn -> router, dispatch, matmul        engine -> attention        all -> runtime.pxd (structs) -> _native.pxd (C)
"""
>>>>>>> b666db2 (wip)
