"""Examples as the rows of a batch: one each, padded; or several each, packed so that none sees another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..array import Array
from .batch import IGNORED, Batch
from .example import Example


def first_fit(lengths: Array, capacity: int) -> list[list[int]]:
    """Rows of indices whose lengths sum to at most ``capacity``: each length, longest first, in the first row it fits.

    First-fit decreasing: at most 11/9 of the fewest rows, and 6/9 (Dosa 2007).  lengths: (N,), each at most capacity.
    """
    free = np.full(len(lengths), capacity, np.int64)
    rows: list[list[int]] = []
    for i in np.argsort(-np.asarray(lengths), kind="stable"):
        row = int(np.argmax(free[: len(rows) + 1] >= lengths[i]))
        if row == len(rows):
            rows.append([])
        rows[row].append(int(i))
        free[row] -= lengths[i]
    return rows


def padded_batch(examples: Sequence[Example], pad_id: int = 0) -> Batch:
    """A row per example, as wide as the longest.

    ids are all tokens but the last, targets all but the first; on the right ``pad_id`` and -100.  ``attention_mask``
    (B, T) is there if anything is padded.
    """
    batch, lengths = _filled([[example] for example in examples], pad_id)
    width = batch.ids.shape[1]
    ends = np.array([row[-1] for row in lengths])
    return batch if (ends == width).all() else batch._replace(attention_mask=np.arange(width) < ends[:, None])


def packed_batch(rows: Sequence[Sequence[Example]], pad_id: int = 0) -> Batch:
    """Several examples per row, side by side, as wide as the fullest row.

    Nothing crosses their borders: a token is trained to predict the next of its own example only, sees the tokens of
    its own example only (``attention_mask``, block diagonal; causality is the model's), and its position counts from
    the start of its example.  What is padded on the right is a block of its own, without targets.
    """
    batch, lengths = _filled(rows, pad_id)
    count, width = batch.ids.shape
    block = np.zeros((count, width), np.int32)
    starts = np.zeros((count, width), np.int64)
    for row, ends in enumerate(lengths):
        begins = [at for at in ends if at < width]  # also where the padding begins
        block[row, begins] = 1
        starts[row, begins] = begins
    block = np.cumsum(block, axis=1, dtype=np.int32)
    positions = np.arange(width) - np.maximum.accumulate(starts, axis=1)
    mask = block[:, :, None] == block[:, None, :]
    return batch._replace(attention_mask=mask, position_ids=positions)


def _filled(rows: Sequence[Sequence[Example]], pad_id: int) -> tuple[Batch, list[list[int]]]:
    """ids, targets and weights of rows of examples, and where each example ends."""
    lengths = [np.cumsum([len(example.ids) - 1 for example in row]).tolist() for row in rows]
    shape = len(rows), max(row[-1] for row in lengths)
    ids, targets = np.full(shape, pad_id, np.int64), np.full(shape, IGNORED, np.int64)
    weights: Array | None = None
    for n, (row, ends) in enumerate(zip(rows, lengths, strict=True)):
        start = 0
        for example, end in zip(row, ends, strict=True):
            ids[n, start:end] = example.ids[:-1]
            if example.weights is None:
                targets[n, start:end] = example.ids[1:]
            else:
                counts = example.weights[1:]
                targets[n, start:end] = np.where(counts != 0, example.ids[1:], IGNORED)
                if weights is None and not ((counts == 0) | (counts == 1)).all():
                    weights = np.ones(shape, np.float32)
                if weights is not None:
                    weights[n, start:end] = counts
            start = end
    if weights is not None:
        weights[targets == IGNORED] = 0
    return Batch(ids, targets, weights), lengths
