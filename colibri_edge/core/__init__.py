"""Typed Cython between the engine and the kernels: one routing, one pool and one dispatch for blocks and whole models.

    engine -> ffn -> router, dispatch, matmul        engine -> attention        all -> runtime.pxd (structs) -> _native.pxd (C)
"""
