"""Hugging Face folders: config.json and safetensors in, a model out, and back.  Strict: nothing is skipped."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..array import as_dtype, is_float, nearest
from ..io import DataError, hub_folder, open_weights, save_weights
from ..io.mapped import read_json
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
    lists every missing, unexpected and misshapen tensor; TypeError for a dtype that is no float.
    """
    if isinstance(ignore, str):
        raise TypeError(f"from_pretrained: ignore takes a list of names, got {ignore!r}: write ignore=[{ignore!r}]")
    wanted = None if dtype is None else as_dtype(dtype)
    if wanted is not None and not is_float(wanted):
        raise TypeError(f"from_pretrained: dtype must be a float dtype, got {wanted}")
    folder = hub_folder(name_or_folder, cache_dir=cache_dir, revision=revision)
    given = read_config(folder)
    family = given["model_type"]
    if family not in MODELS:
        raise DataError(
            f"{folder / CONFIG}: model_type {family!r} is not supported: known are {sorted(MODELS)}."
            f"{nearest(family, MODELS)}"
        )
    config_class, cls = MODELS[family]
    try:
        config = config_class.from_hf(given, ignore)
    except (ValueError, TypeError) as error:
        raise DataError(f"{folder / CONFIG}: {str(error).removeprefix(f'{CONFIG}: ')}") from None
    with open_weights(folder) as weights:
        if (layers := config.attribute("num_hidden_layers")) > len(weights):
            raise DataError(
                f"{folder}: {CONFIG} names {layers} layers, but the weights have {len(weights)} tensors only"
            )
        try:
            with init.left_empty():
                model = cls(config)  # type: ignore[call-arg]
        except (MemoryError, ValueError) as error:  # no dimension or array can be so large
            raise DataError(f"{folder / CONFIG}: no model can have these sizes: {error}") from None
        try:
            _fill(model, weights, wanted)
        except StateDictError as error:
            raise DataError(f"{folder}: {error}") from None
    return model.eval()


def read_config(folder: Path) -> dict[str, Any]:
    """The content of config.json.  Raises DataError if it is missing, no JSON object, or names no model_type."""
    path = folder / CONFIG
    try:
        given = read_json(path, path.read_bytes(), "the configuration")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not isinstance(given.get("model_type"), str):
        raise DataError(f"{path}: model_type must be one of {sorted(MODELS)}, got {given.get('model_type')!r:.60}")
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


def _fill(model: Published, weights: Weights, dtype: np.dtype[Any] | None) -> None:
    """Check all names, shapes and dtypes, then copy tensor by tensor."""
    foreign = [f"{name}: {weights.entry(name).dtype}" for name in weights if not _held(weights.entry(name).dtype)]
    if foreign:
        raise StateDictError(
            f"{len(foreign)} tensors are of a dtype that is not computed with: {', '.join(foreign)}. "
            "Save the model in float32, float16 or bfloat16"
        )
    names = model.plain(weights)
    for name in weights:  # a tied head and its table were compared
        weights.release(name)
    model.check_state(_Shapes(weights, names))
    held = {weights.entry(name).dtype for name in names.values()}
    target = _widest(held) if dtype is None else dtype
    for own, tensor in model.named_tensors():
        name = names[own]
        values = np.empty(tensor.shape, target if is_float(tensor.dtype) else tensor.dtype)
        weights.copy_to(name, values)
        tensor.data = values


def _held(dtype: np.dtype[Any]) -> bool:
    """Whether a tensor can be of a dtype of the format."""
    try:
        as_dtype(dtype)
    except TypeError:
        return False
    return True


def _widest(dtypes: Collection[np.dtype[Any]]) -> np.dtype[Any]:
    """The float dtype that holds all of these without rounding."""
    floats = [dtype for dtype in dtypes if is_float(dtype)]
    if len(set(floats)) == 1:
        return floats[0]
    return np.result_type(np.float32, *(dtype for dtype in floats if dtype.itemsize > 2))


def save_pretrained(model: Published, folder: str | Path, max_shard_bytes: int | None = None) -> None:
    """Write config.json and model.safetensors (or shards of at most ``max_shard_bytes``, with their index).

    Names, layouts and fields are Hugging Face's; a tied head is not written.  A failure leaves what the folder had; a
    kill leaves the old model, the new one, or (between two renames) a folder that ``from_pretrained`` refuses.
    Raises StateDictError for a model whose tensors are not those that its config describes: it could not be loaded.
    """
    if folder == "":
        raise ValueError("save_pretrained: the name of the folder is empty")
    folder = Path(folder)
    state = dict(model.state_dict())
    family = MODELS.get(model.config.MODEL_TYPE, (None, type(model)))[1]
    with init.left_empty():
        described: Any = family(model.config)  # type: ignore[call-arg]
    try:
        described.check_state(state)
    except StateDictError as error:
        told = str(error).partition("; ")[2]
        raise StateDictError(
            f"{folder}: nothing was written: the tensors are not those that the config describes; {told}"
        ) from None
    dtype = _widest({tensor.dtype for tensor in state.values()})
    content = {**model.config.to_hf(), "torch_dtype": str(dtype)}
    save_weights(
        folder,
        {model.published_name(name): tensor for name, tensor in state.items()},
        metadata={"format": "pt"},
        beside={CONFIG: json.dumps(content, indent=2, sort_keys=True) + "\n"},
        **({} if max_shard_bytes is None else {"max_shard_bytes": max_shard_bytes}),
    )
