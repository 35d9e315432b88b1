"""What every causal language model here does, whatever its blocks are: logits, loss, cache, generation, files."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import Array
from ..autograd import Tensor
from ..autograd.tensor import raw
from ..ops.layers import linear
from ..ops.linear_losses import linear_cross_entropy
from .cache import Cache
from .inputs import attention_mask as checked_mask, positions, token_ids
from .published import Published


class Decoder(Published):
    """A causal language model.  A subclass defines ``states``, ``head`` and ``new_cache``."""

    config: Any

    def states(self, ids: Array, at: Array, mask: Array | None, cache: Cache | None) -> Tensor:
        """The normalised states (B, T, width) of checked ids, positions and mask.  Every decoder defines it."""
        raise NotImplementedError(f"{type(self).__name__} does not define states")

    def head(self) -> Tensor:
        """The projection to the vocabulary (vocab_size, width).  Every decoder defines it."""
        raise NotImplementedError(f"{type(self).__name__} does not define head")

    def new_cache(self, batch: int = 1, capacity: int | None = None) -> Cache:
        """Empty keys and values of ``batch`` texts of at most ``capacity`` tokens (all positions if None)."""
        raise NotImplementedError(f"{type(self).__name__} does not define new_cache")

    def forward(
        self, input_ids: Any, attention_mask: Any = None, cache: Cache | None = None, position_ids: Any = None
    ) -> Tensor:
        """Logits (B, T, vocab_size) for ids (B, T), integers.

        attention_mask: (B, S), 1 for tokens and 0 for padding, S = cached tokens + T; or booleans (B, T, S), which
        query may look where (causality is added).  A query that sees nothing has finite logits without meaning.
        cache: keys and values of earlier tokens (``new_cache``), extended by this call; only under no_grad.
        position_ids: (B, T); from the number of cached tokens on if None, padding or not, as transformers' forward.
        Raises ValueError for shapes that do not fit or more tokens than positions, TypeError for ids that are not
        integers, IndexError for an id outside the vocabulary.
        """
        return linear(self.hidden(input_ids, attention_mask, cache, position_ids), self.head())

    def hidden(
        self, input_ids: Any, attention_mask: Any = None, cache: Cache | None = None, position_ids: Any = None
    ) -> Tensor:
        """What the head projects: the normalised states (B, T, width).  Arguments and errors as ``forward``'s."""
        name, start = type(self).__name__, 0 if cache is None else cache.length
        limit = self.config.positions if cache is None else min(self.config.positions, cache.capacity)
        ids = token_ids(name, input_ids, limit, start)
        at = positions(name, position_ids, ids.shape, start, self.config.positions)
        return self.states(ids, at, checked_mask(name, attention_mask, ids.shape, start + ids.shape[1]), cache)

    def loss(
        self,
        input_ids: Any,
        targets: Any,
        mask: Any = None,
        attention_mask: Any = None,
        reduction: str = "mean",
        position_ids: Any = None,
    ) -> Tensor:
        """Cross entropy of the logits against ``targets`` (B, T), already shifted by the caller; -100 is ignored.

        mask: (B, T) booleans or weights of the tokens' losses; the mean is over the weights.  attention_mask,
        position_ids: as ``forward``'s.  reduction: "mean" over the tokens that count (0 if there are none), "sum", or
        "none" (B, T).
        """
        targets = np.asarray(raw(targets))
        x = self.hidden(input_ids, attention_mask, None, position_ids)
        for label, given in (("targets", targets), ("mask", mask)):
            if given is not None and np.shape(raw(given)) != x.shape[:2]:
                raise ValueError(
                    f"{type(self).__name__}.loss: {label} has shape {np.shape(raw(given))}, expected that of the ids, "
                    f"{x.shape[:2]}"
                )
        if mask is None:
            return linear_cross_entropy(x, self.head(), targets, reduction=reduction)
        weights = np.asarray(raw(mask))
        kept = weights != 0
        targets = np.where(kept, targets, -100)
        if weights.dtype.kind == "b" or (weights[kept] == 1).all():
            return linear_cross_entropy(x, self.head(), targets, reduction=reduction)
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError(f"{type(self).__name__}.loss: mask holds a negative or non-finite weight")
        rows = linear_cross_entropy(x, self.head(), targets, reduction="none") * weights.astype(x.dtype)
        if reduction == "none":
            return rows
        total = float(np.sum(weights, where=targets != -100, dtype=np.float64)) if reduction == "mean" else 1.0
        return rows.sum() * (1.0 / total if total else 0.0)

    def generate(self, input_ids: Any, max_new_tokens: int, **options: Any) -> np.ndarray[Any, Any]:
        """The prompt followed by drawn tokens; see ``en.models.generate``."""
        from .generation import generate

        return generate(self, input_ids, max_new_tokens, **options)
