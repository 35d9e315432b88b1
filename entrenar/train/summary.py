"""How large a run is: parameters, optimizer state, and what the tape keeps for one batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..array import default_generator
from ..autograd import Tensor
from ..autograd.tape import base_of, reachable
from ..nn import Module
from ..optim import Optimizer


def model_summary(model: Any, optimizer: Optimizer, loss: Tensor, scale: float = 1.0) -> Mapping[str, Any]:
    """What model_summary.json holds; MB are 2**20 bytes.

    loss: of a batch, still with its tape; the activations it keeps, times ``scale``, are those of a full batch.
    """
    parameters = list(model.parameters())
    return {
        "total_params_M": round(sum(p.size for p in parameters) / 1e6, 6),
        "dtype": ", ".join(sorted({p.dtype.name for p in parameters})),
        "weights_mem_MB": _megabytes(sum(p.nbytes for p in parameters)),
        "optimizer_mem_MB": _megabytes(optimizer.state_bytes()),
        "est_activations_MB": _megabytes(kept_bytes(loss, model) * scale),
    }


def measured_summary(model: Any, optimizer: Optimizer, seq_len: int, batch_size: int) -> Mapping[str, Any]:
    """``model_summary`` from one sequence of zeros; the default generator is left where it was."""
    before = default_generator.state()
    ids = np.zeros((1, seq_len), np.int64)
    loss = model.train().loss(ids, ids, reduction="sum")
    default_generator.set_state(before)
    return model_summary(model, optimizer, loss, batch_size)


def kept_bytes(loss: Tensor, model: Module) -> int:
    """Bytes of the arrays that the tape of ``loss`` saved, views of one memory counted once, parameters not at all."""
    own = {id(base_of(p.data)) for p in model.parameters()}
    kept: dict[int, int] = {}
    for node in reachable([loss.node]):
        for value in node.saved or ():
            for array in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(array, np.ndarray) and id(base_of(array)) not in own:
                    kept[id(base_of(array))] = base_of(array).nbytes
    return sum(kept.values())


def _megabytes(count: float) -> float:
    return round(count / 2**20, 3)
