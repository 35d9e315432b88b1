"""What a training step takes: token ids, targets, and how much each of them counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..array import Array

IGNORED = -100  # a target that does not count, as cross_entropy has it


class Batch(NamedTuple):
    """Texts for ``model.loss(batch.ids, batch.targets, **batch.options())``.

    ids: (B, T) int64.  targets: (B, T) int64, the token after each, -100 where none counts.  weights: (B, T) float32,
    how much each target counts, None if all that count do so alike.  attention_mask: (B, T) booleans, False for
    padding, or (B, T, T) booleans, which token may look where; None if nothing is masked.  position_ids: (B, T) int64,
    None if they count from 0 along each row.
    """

    ids: Array
    targets: Array
    weights: Array | None = None
    attention_mask: Array | None = None
    position_ids: Array | None = None

    @property
    def tokens(self) -> int | float:
        """How many targets count; with weights, what they sum to: the divisor of the mean loss."""
        counted = self.targets != IGNORED
        if self.weights is None:
            return int(np.count_nonzero(counted))
        return float(np.sum(self.weights, where=counted, dtype=np.float64))

    def options(self) -> dict[str, Any]:
        """The keyword arguments of ``model.loss`` that this batch needs."""
        given = {"mask": self.weights, "attention_mask": self.attention_mask, "position_ids": self.position_ids}
        return {name: value for name, value in given.items() if value is not None}
