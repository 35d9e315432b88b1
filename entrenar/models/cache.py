"""Keys and values of the tokens that a decoder has read, in buffers of fixed size: nothing is concatenated."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import Array


class LayerCache:
    """Keys and values (B, H, capacity, D) of the tokens one layer has seen; the first ``length`` are filled."""

    __slots__ = ("keys", "length", "values")

    def __init__(self, keys: Array, values: Array) -> None:
        self.keys, self.values, self.length = keys, values, 0

    def extend(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Append k and v (B, H, T, D); views of all keys and values so far."""
        end = self.length + k.shape[2]
        self.keys[:, :, self.length : end], self.values[:, :, self.length : end] = k, v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Cache(tuple[LayerCache, ...]):
    """A LayerCache per layer."""

    @classmethod
    def empty(cls, layers: int, shape: tuple[int, int, int, int], dtype: Any) -> Cache:
        """Buffers of ``shape`` (B, H, capacity, D) for that many layers."""
        return cls(LayerCache(np.empty(shape, dtype), np.empty(shape, dtype)) for _ in range(layers))

    @property
    def length(self) -> int:
        """Tokens seen so far."""
        return self[0].length

    @property
    def capacity(self) -> int:
        """Tokens that fit."""
        return int(self[0].keys.shape[2])

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return int(sum(layer.keys.nbytes + layer.values.nbytes for layer in self))
