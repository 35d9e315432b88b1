"""Batches of token windows: a seeded order per epoch, and a cursor that can be saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..array import Array, Generator
from ..io import DataError


class TokenBatches:
    """Endless batches (inputs, targets), both [B, T] int64, targets one token on, from one long array of tokens.

    Each epoch cuts the tokens into windows of ``seq_len`` at its own offset and visits them in its own order;
    both depend on (seed, epoch) only.  The last batch of an epoch may be short.
    Raises DataError if there is not one window.
    """

    def __init__(self, tokens: Array, batch_size: int, seq_len: int, seed: int = 0) -> None:
        for name, value in (("batch_size", batch_size), ("seq_len", seq_len)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if len(tokens) < seq_len + 1:
            raise DataError(f"{len(tokens)} tokens are too few: one window of seq_len={seq_len} needs {seq_len + 1}")
        self.tokens, self.batch_size, self.seq_len, self.seed = tokens, batch_size, seq_len, seed
        self.epoch, self.position = 0, 0  # position counts windows within the epoch
        self._starts = self._order()

    def _order(self) -> Array:
        generator = Generator(self.seed).fork(f"epoch {self.epoch}")
        spare = (len(self.tokens) - 1) % self.seq_len
        offset = int(generator.integers(0, spare + 1, ())) if spare else 0
        count = (len(self.tokens) - 1 - offset) // self.seq_len
        return offset + generator.permutation(count) * self.seq_len

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return self

    def __next__(self) -> tuple[Array, Array]:
        if self.position >= len(self._starts):
            self.epoch, self.position = self.epoch + 1, 0
            self._starts = self._order()
        starts = self._starts[self.position : self.position + self.batch_size]
        self.position += len(starts)
        return windows(self.tokens, starts, self.seq_len)

    def skip_epoch(self) -> None:
        """Leave out what is left of this epoch."""
        self.position = len(self._starts)

    def state_dict(self) -> dict[str, int]:
        """Where the stream stands: seed, epoch and position."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place that ``state_dict`` gave.  Raises ValueError for another seed."""
        if int(state["seed"]) != self.seed:
            raise ValueError(
                f"the saved data position belongs to seed {state['seed']}, this stream has seed {self.seed}"
            )
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self._starts = self._order()


class Windows:
    """Every window of ``tokens`` once, in order, in batches: for validation.  Can be walked again and again.

    limit: at most so many batches, spread evenly.
    """

    def __init__(self, tokens: Array, batch_size: int, seq_len: int, limit: int | None = None) -> None:
        if len(tokens) < seq_len + 1:
            raise DataError(f"{len(tokens)} tokens are too few: one window of seq_len={seq_len} needs {seq_len + 1}")
        starts = np.arange((len(tokens) - 1) // seq_len) * seq_len
        self._batches = [starts[i : i + batch_size] for i in range(0, len(starts), batch_size)]
        if limit is not None and limit < len(self._batches):
            self._batches = [
                self._batches[i] for i in np.linspace(0, len(self._batches) - 1, limit).round().astype(int)
            ]
        self.tokens, self.seq_len = tokens, seq_len

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return (windows(self.tokens, starts, self.seq_len) for starts in self._batches)


def windows(tokens: Array, starts: Array, seq_len: int) -> tuple[Array, Array]:
    """(inputs, targets) of the windows that begin at ``starts``."""
    at = starts[:, None] + np.arange(seq_len)
    return tokens[at], tokens[at + 1]
