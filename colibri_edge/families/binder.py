"""Hands out tensors of a source by name and keeps account of them.

Owns: `Binder`. Refuses: a tensor that is missing, has another shape, or that nobody uses.
"""

from __future__ import annotations

import re

from ..convert.source import ConvertError, Rows

IGNORABLE = re.compile(r".*(rotary_emb\.inv_freq|rotary_emb\.(cos|sin)_cached|attn_rot_embd\.weight|attn_rot_embd)$")


class Binder:
    """Hands out rows of source tensors, checks shapes, remembers what was used."""

    def __init__(self, tensors: dict, where: str):
        self.tensors, self.where, self.used = tensors, where, set()

    def has(self, name: str) -> bool:
        return name in self.tensors

    def take(self, names, shape: tuple[int, ...], target: str):
        """The source tensor of the first of these names that exists; its shape must be `shape`."""
        names = (names,) if isinstance(names, str) else names
        name = next((n for n in names if n in self.tensors), None)
        if name is None:
            raise ConvertError(f"{self.where} lacks {' or '.join(names)}, wanted for {target} {list(shape)}; the "
                               "download is incomplete, or the configuration belongs to another model")
        t = self.tensors[name]
        if t.shape is None:     # from an index, which tells none (convert/outline.py)
            t.shape = tuple(shape)
        if tuple(t.shape) != tuple(shape):
            raise ConvertError(f"{self.where}: {name} has shape {list(t.shape)}, the configuration asks for "
                               f"{list(shape)}; it belongs to another model")
        self.used.add(name)
        return t

    def rows(self, names, shape: tuple[int, ...], target: str, order=None, change=None) -> Rows:
        """All rows of that tensor, perhaps fewer or in another order, or (vectors) with other values; see Rows."""
        r = self.take(names, shape, target).all()
        r.change = change
        if order is not None:
            r.order, r.count = order, len(order)
        return r

    def finish(self, also: set[str]) -> None:
        """Fatal when a source tensor was not used."""
        left = sorted(n for n in self.tensors if n not in self.used and n not in also and not IGNORABLE.match(n))
        if left:
            raise ConvertError(f"{self.where}: nothing uses the tensor {left[0]} "
                               f"{list(self.tensors[left[0]].shape or ())} ({len(left)} such tensors); the configuration "
                               "does not describe this model, or it has parts that colibri-edge does not know")
