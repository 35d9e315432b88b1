"""What an optimizer remembers: its arrays, strict state dicts, and a hash of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..array import FLOAT32, Array, DType, as_array, as_dtype, is_low, to_device, xp
from ..autograd import Tensor
from ..autograd.tensor import raw

if TYPE_CHECKING:
    from .optimizer import Optimizer


def filled(like: Array, shape: tuple[int, ...], group: Mapping[str, Any], value: float) -> Array:
    """A state array for the parameter ``like``, contiguous."""
    made = xp(like).empty(shape, state_dtype(like.dtype, group))  # NumPy asks for huge pages, in zeros it doesn't
    made.fill(value)
    return made


def state_dtype(dtype: DType, group: Mapping[str, Any]) -> DType:
    """What the group asks for; else the parameter's, float32 where that has 16 bits."""
    if group.get("state_dtype"):
        return as_dtype(group["state_dtype"])
    return FLOAT32 if is_low(dtype) else dtype


def saved(optimizer: Optimizer) -> dict[str, Any]:
    """``Optimizer.state_dict``."""
    state, groups, index = {}, [], 0
    for group in optimizer.param_groups:
        numbers = list(range(index, index + len(group["params"])))
        index += len(numbers)
        groups.append({**group, "params": numbers, "names": list(group["names"])})
        for n, p in zip(numbers, group["params"], strict=True):
            if p in optimizer.state:
                state[n] = dict(optimizer.state[p])
    return {"state": state, "param_groups": groups}


def load(optimizer: Optimizer, state_dict: Mapping[str, Any]) -> None:
    """``Optimizer.load_state_dict``."""
    who, groups, state = type(optimizer).__name__, state_dict["param_groups"], state_dict["state"]
    sizes, own_sizes = ([len(g["params"]) for g in every] for every in (groups, optimizer.param_groups))
    if sizes != own_sizes:
        raise ValueError(f"{who}: the state dict has groups of {sizes} parameters, this optimizer {own_sizes}")
    faults: list[str] = []
    pairs, options = [], []
    for n, (theirs, ours) in enumerate(zip(groups, optimizer.param_groups, strict=True)):
        # JSON has no tuples
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in theirs.items() if k not in ("params", "names")}
        strange = (given.keys() - {"initial_lr"}) ^ optimizer.defaults.keys()
        faults += [f"group {n}: option {o!r}" for o in sorted(strange)]
        if (kept := theirs.get("state_dtype")) != (asked := ours.get("state_dtype")):
            faults.append(f"group {n}: state_dtype is {kept!r}, expected {asked!r}")
        if "names" in theirs and theirs["names"] != ours["names"]:
            faults.append(f"group {n}: names {theirs['names']}, expected {ours['names']}")
        options.append(given)
        group = {**ours, **given}
        pairs += [(*three, group) for three in zip(theirs["params"], ours["params"], ours["names"], strict=True)]
    known = {number for number, *_ in pairs}
    faults += [f"state of unknown parameter {n!r}" for n in state if n not in known]
    loaded: dict[Tensor, dict[str, Any]] = {}
    for number, p, name, group in pairs:
        if number in state:
            loaded[p] = _loaded(optimizer, state[number], p, name, group, faults)
    for n, (given, ours) in enumerate(zip(options, optimizer.param_groups, strict=True)):
        try:
            optimizer._check({**ours, **given})
        except ValueError as error:
            faults.append(f"group {n}: {error}")
    if faults:
        raise ValueError(f"{who}: the state dict does not fit, nothing was loaded: " + "; ".join(faults))
    for values, ours in zip(options, optimizer.param_groups, strict=True):
        ours.update(values)
    optimizer.state = loaded


def _loaded(
    optimizer: Optimizer, entry: Mapping[str, Any], p: Tensor, name: str, group: Mapping[str, Any], faults: list[str]
) -> dict[str, Any]:
    made: dict[str, Any] = {"step": int(entry.get("step", 0))}
    wanted = optimizer.slots_of(group, p.shape)
    faults += [f"{name}: unexpected {slot!r}" for slot in entry if slot not in (*wanted, "step")]
    faults += [f"{name}: missing {slot!r}" for slot in ("step", *wanted) if slot not in entry]
    for slot, shape in wanted.items():
        if slot not in entry:
            continue
        value, made[slot] = as_array(raw(entry[slot])), filled(p.data, shape, group, 0)
        for what in ("shape", "dtype"):
            if (got := getattr(value, what)) != (expected := getattr(made[slot], what)):
                faults.append(f"{name}: {slot} has {what} {got}, expected {expected}")
        if value.shape == shape:
            made[slot][...] = value
    return made


def state_sha256(optimizer: Optimizer) -> str:
    """``Optimizer.optimizer_state_sha256``."""
    cls = type(optimizer)
    steps = [entry["step"] for entry in optimizer.state.values()]
    digest = hashlib.sha256((cls.state_tag or f"entrenar:{cls.__name__.lower()}:optstate:v1").encode())
    digest.update(_u64(max(steps, default=0)))
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for slot in cls.slots:
        digest.update(cls.state_labels.get(slot, slot).encode() + _u64(len(params)))
        for p in params:
            value = optimizer.state.get(p, {}).get(slot)
            if value is None:
                digest.update(b"none")
                continue
            digest.update(b"some" + _u64(value.size))
            digest.update(np.ascontiguousarray(to_device(value, "cpu"), "<f4").reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _u64(n: int) -> bytes:
    return n.to_bytes(8, "little")
