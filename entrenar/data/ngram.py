"""Bigram and trigram tables with Witten-Bell smoothing: the baseline that a language model must beat.

Witten and Bell, "The zero-frequency problem" (IEEE Trans. Inf. Theory 37, 1991), method C, interpolated: with N(h)
tokens and T(h) kinds of token seen after history h,
p(w | h) = (count(h w) + T(h) p(w | shorter h)) / (N(h) + T(h)), down to the uniform distribution.
"""

from __future__ import annotations

import numpy as np

from ..array import Array


class NGram:
    """A table of order n (2 bigram, 3 trigram) over ``vocab_size`` tokens.  Raises ValueError if codes pass 63 bits."""

    def __init__(self, tokens: Array, order: int, vocab_size: int) -> None:
        if order < 1 or vocab_size < 1 or vocab_size**order >= 2**63:
            raise ValueError(f"NGram: order {order} over {vocab_size} tokens is out of range")
        tokens = np.asarray(tokens, np.int64)
        self.order, self.vocab_size = order, vocab_size
        self._tables = []
        for n in range(1, order + 1):
            codes, counts = np.unique(self._codes(tokens, n), return_counts=True)
            histories, starts = np.unique(codes // vocab_size, return_index=True)
            total = np.add.reduceat(counts, starts) if len(starts) else np.zeros(0, np.int64)
            kinds = np.diff(np.append(starts, len(codes)))
            self._tables.append((codes, counts, histories, total, kinds))

    def _codes(self, tokens: Array, n: int) -> Array:
        """One integer per window of n tokens."""
        code = np.zeros(max(len(tokens) - n + 1, 0), np.int64)
        for i in range(n):
            code = code * self.vocab_size + tokens[i : i + len(code)]
        return code

    def probabilities(self, tokens: Array) -> Array:
        """p(token i | the ones before it) for every token but the first ``order - 1``, float64."""
        tokens = np.asarray(tokens, np.int64)
        p = np.full(len(tokens), 1.0 / self.vocab_size)
        for n, (codes, counts, histories, total, kinds) in enumerate(self._tables, 1):
            code = self._codes(tokens, n)
            p = p[len(p) - len(code) :]
            seen = _look_up(codes, counts, code)
            after = code // self.vocab_size
            t, k = _look_up(histories, total, after), _look_up(histories, kinds, after)
            p = np.where(t > 0, (seen + k * p) / np.maximum(t + k, 1), p)
        return p

    def loss(self, tokens: Array) -> float:
        """Mean negative log likelihood per token, in nats."""
        return float(-np.log(self.probabilities(tokens)).mean())


def _look_up(keys: Array, values: Array, wanted: Array) -> Array:
    """values at sorted ``keys``, 0 where a key is not there."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)
