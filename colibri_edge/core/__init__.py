"""Typed Cython cores, one routing, one pool and one dispatch for blocks and whole models. No Python object on the token path."""
