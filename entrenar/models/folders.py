"""Hugging Face folders: config.json and safetensors in, a model out, and back.  Strict: nothing is skipped."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..array import as_dtype, is_float, nearest
from ..io import DataError, atomic_write, hub_folder, open_weights, save_weights
from ..io.shards import Weights
from ..nn import StateDictError, init
from .published import Published
from .table import MODELS

CONFIG = "config.json"


def from_pretrained(
    name_or_folder: str | Path,
    dtype: Any = None,
    *,
    ignore: Collection[str] = (),
    cache_dir: str | Path | None = None,
    revision: str | None = None,
) -> Any:
    """The model of a folder, or of a name on the hub (downloaded on first use), in eval mode.

    dtype: of the weights; the widest of the file's if None.  ignore: options of config.json known not to matter.
    Weights are copied from the mapped file in blocks: the file and the model are never in memory together.
    Raises DataError for a missing or damaged file, an unknown model_type, an option that is not supported, and one that
    lists every missing, unexpected and misshapen tensor.
    """
    folder = hub_folder(name_or_folder, cache_dir=cache_dir, revision=revision)
    given = read_config(folder)
    family = given.get("model_type")
    if family not in MODELS:
        raise DataError(
            f"{folder / CONFIG}: model_type {family!r} is not supported: known are {sorted(MODELS)}."
            f"{nearest(str(family), MODELS)}"
        )
    config_class, cls = MODELS[family]
    try:
        config = config_class.from_hf(given, ignore)
    except (ValueError, TypeError) as error:
        raise DataError(f"{folder / CONFIG}: {str(error).removeprefix(f'{CONFIG}: ')}") from None
    with open_weights(folder) as weights:
        with init.left_empty():
            model = cls(config)  # type: ignore[call-arg]
        try:
            _fill(model, weights, dtype)
        except StateDictError as error:
            raise DataError(f"{folder}: {error}") from None
    return model.eval()


def read_config(folder: Path) -> dict[str, Any]:
    """The content of config.json.  Raises DataError if it is missing or no JSON object."""
    path = folder / CONFIG
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from None
    if not isinstance(given, dict):
        raise DataError(f"{path}: expected an object, got {type(given).__name__}")
    return given


class _Shapes(Mapping[str, Any]):
    """The file's tensors as shape and dtype only: checking a model against them reads no data."""

    def __init__(self, weights: Weights, names: Mapping[str, str]) -> None:
        self.weights, self.names = weights, names

    def __getitem__(self, name: str) -> Any:
        entry = self.weights.entry(self.names[name])
        return np.broadcast_to(np.zeros((), entry.dtype), entry.shape)

    def __iter__(self) -> Any:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _fill(model: Published, weights: Weights, dtype: Any) -> None:
    """Check all names, shapes and dtypes, then copy tensor by tensor."""
    names = model.plain(weights)
    for name in weights:  # a tied head and its table were compared
        weights.release(name)
    model.check_state(_Shapes(weights, names))
    held = {weights.entry(name).dtype for name in names.values()}
    target = as_dtype(dtype) if dtype is not None else _widest(held)
    if not is_float(target):
        raise TypeError(f"from_pretrained: dtype must be a float dtype, got {target}")
    for own, tensor in model.named_tensors():
        name = names[own]
        values = np.empty(tensor.shape, target if is_float(tensor.dtype) else tensor.dtype)
        weights.copy_to(name, values)
        tensor.data = values


def _widest(dtypes: Collection[np.dtype[Any]]) -> np.dtype[Any]:
    """The float dtype that holds all of these without rounding."""
    floats = [dtype for dtype in dtypes if is_float(dtype)]
    if len(set(floats)) == 1:
        return floats[0]
    return np.result_type(np.float32, *(dtype for dtype in floats if dtype.itemsize > 2))


def save_pretrained(model: Published, folder: str | Path, max_shard_bytes: int | None = None) -> None:
    """Write config.json and model.safetensors (or shards of at most ``max_shard_bytes``, with their index).

    Names, layouts and fields are Hugging Face's; a tied head is not written.  Each file appears whole or not at all.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {model.published_name(name): tensor for name, tensor in model.state_dict().items()}
    options = {} if max_shard_bytes is None else {"max_shard_bytes": max_shard_bytes}
    save_weights(folder, state, metadata={"format": "pt"}, **options)
    content = {**model.config.to_hf(), "torch_dtype": str(next(iter(state.values())).dtype)}
    atomic_write(folder / CONFIG, json.dumps(content, indent=2, sort_keys=True) + "\n")
