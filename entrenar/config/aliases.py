"""Axolotl's names for keys that are here too: read as these keys, and told.  A name is a row of the table."""

from __future__ import annotations

from typing import Any

from ..io.yaml import Document
from .schema import OptimizerConfig

AXOLOTL = {  # its name, at the top of the file: the key here
    "learning_rate": "optimizer.lr",
    "weight_decay": "optimizer.weight_decay",
    "adam_beta1": "optimizer.betas.0",
    "adam_beta2": "optimizer.betas.1",
    "adam_epsilon": "optimizer.eps",
    "lr_scheduler": "scheduler.name",
    "warmup_steps": "scheduler.warmup_steps",
    "cosine_min_lr_ratio": "scheduler.min_lr_ratio",
    "micro_batch_size": "data.batch_size",
    "sequence_len": "data.seq_len",
    "val_set_size": "data.held_out",
    "gradient_accumulation_steps": "training.accumulation",
    "max_steps": "training.steps",
    "max_grad_norm": "training.max_grad_norm",
    "output_dir": "training.output",
    "seed": "training.seed",
    "eval_steps": "training.eval_every",
    "save_steps": "training.save_every",
    "save_total_limit": "training.keep",
    "logging_steps": "training.log_every",
}
WORDS = {  # a section here, a word there: what the word is
    "optimizer": "optimizer.name",
}
VALUES = {  # its values of a key that have another name here
    "optimizer.name": {"adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw"},
    "scheduler.name": {"constant_with_warmup": "constant"},
}
LISTS: dict[str, tuple[float, ...]] = {  # keys that are lists here, and one name each there: what is not given
    "optimizer.betas": OptimizerConfig.model_fields["betas"].default,
}


def read_aliases(document: Document, tree: dict[str, Any]) -> list[str]:
    """Put what stands under another's names where it belongs, in ``tree``; what to tell of it, a line each.

    ``document.positions`` gets the places, so that a fault is told where the value stands.
    Raises ConfigError if a key is given under two names.
    """
    told: list[str] = []
    taken = {path: _name(path) for path in document.positions}
    words = {name: key for name, key in WORDS.items() if isinstance(tree.get(name), str)}
    for name, key in {**words, **AXOLOTL}.items():
        if name not in tree:
            continue
        path = _path(key)
        if other := taken.get(path, taken.get(_whole(path))):
            raise document.error((name,), f"{name} and {other} are the same key: give one of them")
        taken[path] = name
        value, place = tree.pop(name), document.positions[(name,)]
        meant = VALUES.get(key, {}).get(value, value) if isinstance(value, str) else value
        _put(document, tree, path, meant)
        document.positions[path] = place
        document.positions.setdefault(_whole(path), place)
        told.append(f"{name} is read as {_name(path)}{'' if meant == value else f', {value} as {meant}'}")
    return told


def _path(key: str) -> tuple[Any, ...]:
    return tuple(int(part) if part.isdigit() else part for part in key.split("."))


def _whole(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key that a path is, or is an item of."""
    return path[:-1] if isinstance(path[-1], int) else path


def _name(path: tuple[Any, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _put(document: Document, tree: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    section, key, *item = path
    if tree.get(section) is None:
        tree[section] = {}
    if not isinstance(tree[section], dict):
        raise document.error((section,), f"{section}: expected a section, got {tree[section]!r}")
    if item:
        tree[section].setdefault(key, list(LISTS[f"{section}.{key}"]))[item[0]] = value
    else:
        tree[section][key] = value
