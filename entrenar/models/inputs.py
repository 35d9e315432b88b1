"""What goes into a model, checked once: ids, positions, and the mask as attention takes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import Array
from ..autograd.tensor import raw


def token_ids(model: str, input_ids: Any, limit: int, start: int = 0) -> Array:
    """ids (B, T) as an array.

    Raises ValueError for another shape, and for more than ``limit`` tokens together with ``start`` earlier ones.
    """
    ids = np.asarray(raw(input_ids))
    if ids.ndim != 2 or ids.shape[1] == 0:
        raise ValueError(f"{model} takes ids of shape (B, T) with T of at least 1, got shape {ids.shape}")
    if start + ids.shape[1] > limit:
        raise ValueError(f"{model} has {limit} positions, got {start + ids.shape[1]} tokens")
    return ids


def positions(model: str, position_ids: Any, shape: tuple[int, int], start: int, limit: int) -> Array:
    """Positions (T,), or (B, T) if given so; those after ``start`` tokens if None.

    Raises ValueError for a shape that does not fit, TypeError for what is not integers, IndexError outside the limit.
    """
    if position_ids is None:
        return np.arange(start, start + shape[1])
    at = np.asarray(raw(position_ids))
    if at.dtype.kind not in "iu":
        raise TypeError(f"{model}: position_ids are integers, got dtype {at.dtype}")
    if at.shape not in (shape, shape[1:], (1, shape[1])):
        raise ValueError(f"{model}: position_ids have shape {at.shape}, expected that of the ids, {shape}")
    if at.size and not (at.min() >= 0 and at.max() < limit):
        raise IndexError(f"{model}: a position of {at.min()} to {at.max()} is outside [0, {limit})")
    return at


def attention_mask(model: str, mask: Any, shape: tuple[int, int], keys: int) -> Array | None:
    """Booleans to broadcast to (B, H, T, S), True where a query may look; None if nothing is masked.

    mask: (B, S), 1 for tokens and 0 for padding; or (B, T, S) booleans for a mask of each query's own (packed texts).
    S counts the cached tokens too.  Raises ValueError for another shape or numbers other than 0 and 1.
    """
    if mask is None:
        return None
    given = np.asarray(raw(mask))
    rows = (shape[0], keys), (*shape, keys)
    if given.shape not in rows:
        raise ValueError(f"{model}: attention_mask has shape {given.shape}, expected {rows[0]} or {rows[1]}")
    seen = given.astype(bool)
    if given.dtype.kind != "b" and not np.array_equal(seen, given):
        wrong = given[seen != given]
        raise ValueError(f"{model}: attention_mask holds {wrong.flat[0]!r}: expected 1 (a token) or 0 (padding)")
    if seen.all():
        return None
    return seen[:, None, None, :] if seen.ndim == 2 else seen[:, None]


def left_padded_positions(mask: Any) -> Array:
    """Positions (B, S) that count the tokens of each row alone: padding in front does not move them."""
    return np.maximum(np.cumsum(np.asarray(raw(mask)), axis=1) - 1, 0)
