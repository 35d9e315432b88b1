"""An embedding with a row for padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autograd import Tensor
from ..autograd.tensor import raw
from ..nn import Embedding, init
from ..nn.layers import empty
from ..ops.elementwise import where


class PaddedEmbedding(Embedding):
    """An embedding whose row ``padding`` starts at 0 and gets no gradient, as PyTorch's padding_idx; None: no such row.

    The weights are left empty, to be drawn by the model (then ``clear_padding``).
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding: int | None) -> None:
        super().__init__(num_embeddings, embedding_dim, weight=empty(num_embeddings, embedding_dim))
        self.padding = padding

    def clear_padding(self) -> None:
        """Set the padding's row to 0, if there is one."""
        if self.padding is not None:
            init.zeros_(Tensor(self.weight.data[self.padding]))  # a view: written in place

    def forward(self, ids: Any) -> Tensor:
        """ids: integers of any shape S -> (*S, embedding_dim)."""
        rows = super().forward(ids)
        blank = None if self.padding is None else np.asarray(raw(ids)) == self.padding
        if blank is None or not blank.any():
            return rows
        return where(blank[..., None], rows.detach(), rows)
