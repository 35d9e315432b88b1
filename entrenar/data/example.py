"""One text as tokens, and how much of it is trained."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..array import Array
from ..io import DataError


class Example(NamedTuple):
    """A text as tokens.

    ids: (T,) integers.  weights: (T,) float32, how much the loss of predicting each token counts (that of the first is
    never predicted), None for 1 each.  place: where it is from, for errors.
    """

    ids: Array
    weights: Array | None = None
    place: str = "an example"


def as_example(given: Any, place: str) -> Example:
    """An Example, a pair (ids, weights) or an array of ids, checked, as an Example.

    Raises TypeError for ids that are no integers, ValueError for another shape and for weights that are negative or
    not finite, DataError as ``check_trained``.
    """
    if isinstance(given, Example):
        ids, weights, place = given.ids, given.weights, given.place
    else:
        ids, weights = given if isinstance(given, tuple) else (given, None)
    ids = np.asarray(ids)
    if ids.ndim != 1:
        raise ValueError(f"{place}: ids must have shape (T,), got {ids.shape}")
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{place}: ids must be integers, got {ids.dtype}")
    if weights is not None:
        weights = np.asarray(weights, np.float32)
        if weights.shape != ids.shape:
            raise ValueError(f"{place}: {len(ids)} ids have weights of shape {weights.shape}")
        if (wrong := np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))).size:
            raise ValueError(
                f"{place}: the weight of token {wrong[0]} is {weights[wrong[0]]}: expected a finite number, at least 0"
            )
    return check_trained(Example(ids, weights, place))


def check_trained(example: Example) -> Example:
    """The example.  Raises DataError naming its place if no token of it is trained."""
    ids, weights, place = example
    if len(ids) < 2:
        raise DataError(f"{place}: {len(ids)} token(s): nothing to predict")
    if weights is not None and not weights[1:].any():
        raise DataError(f"{place}: none of its {len(ids)} tokens is trained: every loss weight is 0")
    return example
