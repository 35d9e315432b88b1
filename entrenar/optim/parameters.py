"""Reading what users pass as parameters: tensors, or (name, tensor) pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..autograd import Tensor


def named(params: Any, who: str) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of each parameter; one without a name is called "parameter <n> of shape <shape>".

    params: a tensor, tensors, or (name, tensor) pairs as ``Module.named_parameters()`` gives.  Raises TypeError, naming
    ``who`` asked and the position, for anything else.
    """
    every: Iterable[Any] = [params] if isinstance(params, Tensor) else params
    if not isinstance(every, Iterable):
        raise TypeError(f"{who}: expected tensors or (name, tensor) pairs, got {params!r:.80}")
    for n, item in enumerate(every):
        name, tensor = item if isinstance(item, tuple) and len(item) == 2 else (None, item)
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{who}: parameter {n} is {type(tensor).__name__} {tensor!r:.60}, expected a Tensor")
        yield name if isinstance(name, str) else f"parameter {n} of shape {tensor.shape}", tensor
