"""Checkpoints: a folder with everything that decides what a run does next.

model.safetensors      weights and buffers by name
optimizer.safetensors  state arrays, named "<slot>/<parameter>"
state.json             step, tokens, data position, generators, optimizer options and counts, schedule, metrics, hash
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..array import default_generator
from ..autograd.tensor import raw
from ..io import DataError, atomic_folder, load_tensors, save_tensors
from .metrics import MetricsTracker

if TYPE_CHECKING:
    from .trainer import Trainer

FORMAT = 1
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"


def save_checkpoint(path: Path, trainer: Trainer) -> tuple[Path, str]:
    """Write the folder ``path``, whole or not at all; (path, state hash)."""
    weights, slots, state = _everything(trainer)
    digest = _digest(weights, slots, state)
    with atomic_folder(path) as folder:
        save_tensors(folder / MODEL, weights, {"format": "entrenar"})
        save_tensors(folder / OPTIMIZER, slots, {"format": "entrenar"})
        text = json.dumps({**state, "metrics": trainer.metrics.summary(), "hash": digest}, indent=1)
        (folder / STATE).write_text(text + "\n", encoding="utf-8")
    return path, digest


def load_checkpoint(path: Path, trainer: Trainer) -> None:
    """Put a trainer where the one that wrote ``path`` was.

    Raises DataError for a damaged or foreign folder, ValueError for another model or optimizer.
    """
    state = read_state(path)
    weights, _ = load_tensors(path / MODEL)
    slots, _ = load_tensors(path / OPTIMIZER)
    digest = _digest(weights, slots, {k: v for k, v in state.items() if k not in ("metrics", "hash")})
    if digest != state["hash"]:
        raise DataError(
            f"{path}: the state hash is {digest[:12]}, {STATE} says {state['hash'][:12]}: the checkpoint was changed"
        )
    _put_back(trainer, weights, slots, state)
    trainer.metrics.load_summary(state["metrics"])


@contextmanager
def as_if_never(trainer: Trainer) -> Iterator[None]:
    """What happens inside leaves no trace: weights, optimizer, step, data, generators and metrics are put back."""
    weights, slots, state = _everything(trainer)
    weights, slots = ({name: array.copy() for name, array in arrays.items()} for arrays in (weights, slots))
    held = {name: getattr(trainer, name) for name in ("metrics", "schedule", "_in_a_row")}
    mode = trainer.model.training
    trainer.metrics = MetricsTracker()
    try:
        yield
    finally:
        _put_back(trainer, weights, slots, state)
        vars(trainer).update(held)
        trainer.optimizer.zero_grad()
        trainer.model.train(mode)


def _put_back(trainer: Trainer, weights: Mapping[str, Any], slots: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    trainer.model.load_state_dict(weights)
    trainer.optimizer.load_state_dict(_optimizer_state(state["optimizer"], slots))
    trainer.step, trainer.tokens = state["step"], state["tokens"]
    if trainer.batches is not None:
        trainer.batches.load_state_dict(state["data"])
    default_generator.set_state(tuple(state["random"]["default"]))


def read_state(path: Path) -> dict[str, Any]:
    """state.json of a checkpoint.  Raises DataError if it is missing, damaged or of another format."""
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: no checkpoint: {STATE}: {error.strerror or error}") from None
    except ValueError as error:
        raise DataError(f"{path / STATE}: not JSON: {error}") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise DataError(f"{path / STATE}: not a checkpoint of format {FORMAT}")
    return state


def state_hash(trainer: Trainer) -> str:
    """sha256 over weights, optimizer state, step, data position and generators: equal if what comes next is equal."""
    return _digest(*_everything(trainer))


def _everything(trainer: Trainer) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    weights = {name: raw(tensor) for name, tensor in trainer.model.state_dict().items()}
    saved = trainer.optimizer.state_dict()
    names = {
        n: name for group in saved["param_groups"] for n, name in zip(group["params"], group["names"], strict=True)
    }
    slots = {
        f"{slot}/{names[n]}": value
        for n, entry in saved["state"].items()
        for slot, value in entry.items()
        if slot != "step"
    }
    state = {
        "format": FORMAT,
        "step": trainer.step,
        "tokens": trainer.tokens,
        "data": None if trainer.batches is None else trainer.batches.state_dict(),
        "random": trainer.random_state(),
        "schedule": None if trainer.schedule is None else vars(trainer.schedule),
        "optimizer": {
            "kind": type(trainer.optimizer).__name__,
            "param_groups": saved["param_groups"],
            "steps": {str(n): entry["step"] for n, entry in saved["state"].items()},
        },
    }
    return weights, slots, json.loads(json.dumps(state))  # as it will be read back: tuples are lists


def _optimizer_state(saved: Mapping[str, Any], slots: Mapping[str, Any]) -> dict[str, Any]:
    """The optimizer's state dict from the two files."""
    groups = [{k: tuple(v) if k == "betas" else v for k, v in group.items()} for group in saved["param_groups"]]
    names = {n: name for group in groups for n, name in zip(group["params"], group["names"], strict=True)}
    state: dict[int, dict[str, Any]] = {int(n): {"step": step} for n, step in saved["steps"].items()}
    numbers = {name: n for n, name in names.items()}
    for key, value in slots.items():
        slot, _, name = key.partition("/")
        state[numbers[name]][slot] = value
    return {"state": state, "param_groups": groups}


def _digest(weights: Mapping[str, Any], slots: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    for arrays in (weights, slots):
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name])
            digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
            digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
