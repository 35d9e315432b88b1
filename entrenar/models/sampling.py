"""How the next token is drawn from logits: penalty, temperature and filters, as transformers' logits processors do it.

In their order: repetition penalty, temperature, top-k, top-p, min-p; each sees what those before it have left.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..array import Array, Generator


@dataclass(frozen=True)
class Sampling:
    """What decides a draw.  None leaves a filter out.

    temperature: logits are divided by it; 0 takes the likeliest token (the first of several), whatever the filters.
    top_k: the k largest logits stay, and those that equal the smallest of them.
    top_p: the fewest likeliest tokens whose probabilities reach it (Holtzman et al. 2020, eq. 3).
    min_p: tokens at least ``min_p`` times as likely as the likeliest (Nguyen et al. 2024).
    repetition_penalty: logits of tokens that the text has are divided by it if positive, else multiplied (Keskar et
    al. 2019, section 4.1, with the sign taken care of); above 1 it discourages.
    Raises ValueError naming a value that is out of range or of another type.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    def __post_init__(self) -> None:
        if not (_real(self.temperature) and 0 <= self.temperature < math.inf):
            self._refuse("temperature", "must be at least 0, and finite")
        if self.top_k is not None and not (_integer(self.top_k) and self.top_k >= 1):
            self._refuse("top_k", "must be at least 1, an integer, or None")
        if self.top_p is not None and not (_real(self.top_p) and 0 < self.top_p <= 1):
            self._refuse("top_p", "must be in (0, 1], or None")
        if self.min_p is not None and not (_real(self.min_p) and 0 <= self.min_p <= 1):
            self._refuse("min_p", "must be in [0, 1], or None")
        penalty = self.repetition_penalty
        if penalty is not None and not (_real(penalty) and 0 < penalty < math.inf):
            self._refuse("repetition_penalty", "must be above 0, and finite, or None")

    def _refuse(self, name: str, expected: str) -> None:
        raise ValueError(f"generate: {name} {expected}, got {getattr(self, name)!r}")

    @property
    def penalises(self) -> bool:
        """Whether a draw depends on the tokens that the text has."""
        return self.repetition_penalty not in (None, 1)

    def draw(self, logits: Array, randoms: Sequence[Generator], used: Array | None = None) -> Array:
        """One token per row of ``logits`` (B, V), int64 (B,), each from its row's generator.

        used: booleans (B, V), the tokens that each text has, for the repetition penalty.
        Raises ValueError for logits without a finite largest one.
        """
        if self.temperature == 0:
            scores = self._penalised(logits, used)
            tokens = scores.argmax(axis=-1)
            _check(np.take_along_axis(scores, tokens[:, None], axis=-1))
            return tokens
        mass = np.cumsum(np.exp(self.scores(logits, used)), axis=-1)
        point = np.array([random.uniform(1, np.float64) for random in randoms]) * mass[:, -1:]
        return (mass <= point).sum(axis=-1)  # the first token whose cumulative mass exceeds the point

    def probabilities(self, logits: Array, used: Array | None = None) -> Array:
        """What ``draw`` draws from, float64 (B, V), for a temperature above 0."""
        mass = np.exp(self.scores(logits, used))
        return mass / mass.sum(axis=-1, keepdims=True)

    def scores(self, logits: Array, used: Array | None = None) -> Array:
        """Log-probabilities up to a constant, the largest 0 and those filtered out -inf, float64 (B, V)."""
        scores = self._penalised(logits, used)
        largest = scores.max(axis=-1, keepdims=True)
        _check(largest)
        with np.errstate(over="ignore"):  # a very low temperature: all but the likeliest become -inf
            scores = (scores - largest) / self.temperature
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            kth = np.partition(scores, -self.top_k, axis=-1)[:, -self.top_k, None]
            scores = np.where(scores < kth, -np.inf, scores)
        if self.top_p is not None and self.top_p < 1:
            scores = np.where(_nucleus(scores, self.top_p), scores, -np.inf)
        if self.min_p is not None:
            scores = np.where(np.exp(scores) < self.min_p, -np.inf, scores)
        return scores

    def _penalised(self, logits: Array, used: Array | None) -> Array:
        scores = np.asarray(logits, np.float64)
        factor = self.repetition_penalty
        if factor is not None and used is not None:
            scores = np.where(used, np.where(scores < 0, scores * factor, scores / factor), scores)
        return scores


def _nucleus(scores: Array, top_p: float) -> Array:
    """Booleans (B, V): the fewest likeliest tokens that together have a probability of at least ``top_p``.

    Of equal scores at the border the first tokens stay, as greedy takes the first of several.
    """
    order = np.sort(scores, axis=-1)
    mass = np.cumsum(np.exp(order), axis=-1)
    gone = np.minimum((mass <= (1 - top_p) * mass[:, -1:]).sum(axis=-1, keepdims=True), scores.shape[-1] - 1)
    border = np.take_along_axis(order, gone, axis=-1)
    above, tied = scores > border, scores == border
    wanted = scores.shape[-1] - gone - above.sum(axis=-1, keepdims=True)
    return above | (tied & (np.cumsum(tied, axis=-1) <= wanted))


def _check(largest: Array) -> None:
    """Nothing is drawn from NaN, infinity, or nothing at all."""
    if not np.isfinite(largest).all():
        row = int(np.flatnonzero(~np.isfinite(largest))[0])
        raise ValueError(f"generate: the largest logit of row {row} is {largest.flat[row]}: no token can be drawn")


def _integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
