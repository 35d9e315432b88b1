"""PyTorch as oracle: value and gradients of every op that both libraries have."""

import re

import numpy as np
import pytest

from entrenar.ops import PUBLIC, creation

from . import rows_arrays, rows_elementwise, rows_nn
from .compare import LAYOUTS, compare

ROWS = [*rows_elementwise.ROWS, *rows_arrays.ROWS, *rows_nn.ROWS]
SEEDS = range(6)
OWN = {  # ops that PyTorch has under no name, or whose point is what PyTorch decides otherwise
    "stop_gradient": "detach, tested with the tape",
}


@pytest.mark.parametrize("row", ROWS, ids=[r.name for r in ROWS])
def test_value_and_gradients(row):
    compared = [compare(row, SEEDS, LAYOUTS, dtype) for dtype in (np.float64, np.float32)]
    assert all(compared)


def test_every_public_op_is_compared():
    covered = {re.split(r"[ ]", r.name)[0] for r in ROWS} | set(OWN)
    covered |= {"dropout", "scaled_dot_product_attention", "binary_cross_entropy_with_logits", "binary_cross_entropy"}
    assert {r.name for r in ROWS} >= {"dropout off", "attention", "bce logits"}
    assert sorted(n for n in PUBLIC if n not in creation.__all__ and n not in covered) == []
