"""Checkpoints: a folder with everything that decides what a run does next.

model.safetensors      weights and buffers by name
optimizer.safetensors  state arrays, named "<slot>/<parameter>"
state.json             step, tokens, data position, generators, optimizer options and counts, schedule, metrics, hash,
                       and digests of everything (``sealed``)

The state hash is sha256 over the digests of the tensors and all that decides what comes next: not the metrics.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..array import default_generator
from ..autograd.tensor import raw
from ..io import DataError, load_tensors
from .metrics import MetricsTracker
from .sealed import (
    FORMAT,
    MODEL,
    OPTIMIZER,
    STATE,
    Arrays,
    contents,
    damage,
    little,
    read_state,
    tensor_digests,
    write_sealed,
)

if TYPE_CHECKING:
    from .trainer import Trainer

ASIDE = ("metrics", "hash", "files")  # what state.json holds beside the state


class Snapshot(NamedTuple):
    """What a checkpoint of a trainer holds.  files: arrays by name of file, the trainer's own.  state: state.json."""

    files: Mapping[str, Arrays]
    state: dict[str, Any]


def snapshot(trainer: Trainer) -> Snapshot:
    """The checkpoint that a trainer would write now.  Its arrays change with the next step."""
    weights, slots, state = _everything(trainer)
    files = {MODEL: weights, OPTIMIZER: slots}
    digests = {name: tensor_digests(arrays) for name, arrays in files.items()}
    more = {
        "metrics": trainer.metrics.summary(),
        "hash": _digest(files, digests, state),
        "files": contents(files, digests),
    }
    return Snapshot(files, {**state, **more})


def save_checkpoint(path: Path, trainer: Trainer) -> tuple[Path, str]:
    """Write the folder ``path``, whole or not at all; (path, state hash)."""
    files, state = snapshot(trainer)
    write_sealed(path, files, state)
    return path, state["hash"]


def load_checkpoint(path: Path, trainer: Trainer) -> None:
    """Put a trainer where the one that wrote ``path`` was.

    Raises DataError for a damaged or foreign folder, ValueError for another model or optimizer.
    """
    state = read_state(path)
    if found := damage(path):
        raise DataError(f"the checkpoint was changed: {'; '.join(map(str, found))}")
    files = {name: load_tensors(path / name)[0] for name in (MODEL, OPTIMIZER)}
    digest = recorded_digest(files, state)
    if digest != state["hash"]:
        raise DataError(
            f"{path}: the state hash is {digest[:12]}, {STATE} says {state['hash'][:12]}: the checkpoint was changed"
        )
    weights, slots = files[MODEL], files[OPTIMIZER]
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


def state_hash(trainer: Trainer) -> str:
    """sha256 over weights, optimizer state, step, data position and generators: equal if what comes next is equal."""
    weights, slots, state = _everything(trainer)
    files = {MODEL: weights, OPTIMIZER: slots}
    return _digest(files, {name: tensor_digests(arrays) for name, arrays in files.items()}, state)


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


def _digest(files: Mapping[str, Arrays], digests: Mapping[str, Mapping[str, str]], state: Mapping[str, Any]) -> str:
    """The state hash: of what is in state.json, then of a line for each tensor."""
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    for file, arrays in files.items():
        for name, of_bytes in digests[file].items():
            array = arrays[name]
            digest.update(f"{file} {name} {array.dtype.name} {tuple(array.shape)} {of_bytes}\n".encode())
    return digest.hexdigest()


def recorded_digest(files: Mapping[str, Arrays], state: Mapping[str, Any]) -> str:
    """The state hash of what a checkpoint holds, as its format has it; that of the tensors from their digests."""
    own = {key: value for key, value in state.items() if key not in ASIDE}
    if state["format"] != FORMAT:
        return first_digest(files, own)
    return _digest(files, {name: state["files"][name]["tensors"] for name in files}, own)


def first_digest(files: Mapping[str, Arrays], state: Mapping[str, Any]) -> str:
    """The state hash of format 1."""
    digest = hashlib.sha256(json.dumps({**state, "format": 1}, sort_keys=True).encode())
    for arrays in files.values():
        for name in sorted(arrays):
            array = little(arrays[name])
            digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
            digest.update(array.reshape(-1).view("u1").data)
    return digest.hexdigest()
