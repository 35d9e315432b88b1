"""What every optimizer shares: parameter groups, state, strict state dicts, and the pass over a parameter in blocks.

A row of the table is a class with a few named numbers and one ``update`` on plain arrays:

    @optimizer("sgd")
    class SGD(Optimizer):
        slots = ("momentum_buffer",)
        def update(self, p, g, step, group, momentum_buffer): ...

``update`` gets one block of a parameter at a time: blocks fit the cache, so that a whole update reads and writes each
array once however many elementary operations it takes, and its temporaries are never larger than a block.  A row may
name a ``kernel`` that does the same in one pass, on all threads; ``update`` stays the reference it is checked against.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..array import FLOAT32, FLOAT64, Array, DType, as_array, as_dtype, is_bfloat16, is_low, nearest, wide, xp
from ..autograd import Tensor
from ..autograd.modes import mode
from ..autograd.tape import wrote
from ..autograd.tensor import raw
from .parameters import named
from .rounding import NO_KEY, key, noise, stochastic

BLOCK = 32768  # elements: a block of parameter, gradient, two moments and scratch in float32 is 0.75 MB, an L2 cache
FLOAT32_TINY = 2.0**-126  # below this a factor has lost bits as a float32
T = TypeVar("T", bound="type[Optimizer]")
OPTIMIZERS: dict[str, type[Optimizer]] = {}


def optimizer(name: str) -> Callable[[T], T]:
    """Enter the decorated class in the table under ``name`` (as configurations write it).

    Raises ValueError if the name is taken by another class.
    """

    def register(cls: T) -> T:
        if name in OPTIMIZERS and OPTIMIZERS[name].__qualname__ != cls.__qualname__:
            raise ValueError(f"optimizer {name!r} is already {OPTIMIZERS[name].__qualname__}")
        OPTIMIZERS[name] = cls
        return cls

    return register


class Optimizer:
    """Base of the optimizers.

    params: parameters, (name, parameter) pairs, or dicts {"params": ..., option: value} (groups).
    options: what a group may set for itself; ``lr`` is among them (0 freezes).  They are checked here and may be
    changed later in ``param_groups``.
    Raises ValueError for no parameters, a parameter given twice, or an option out of range; TypeError for an unknown
    option or something that is not a leaf requiring a gradient.
    """

    slots: ClassVar[tuple[str, ...]] = ()  # names of the state arrays, each of its parameter's shape
    ranges: ClassVar[dict[str, tuple[float, float]]] = {}  # option -> [low, high) it must lie in, beside lr

    def __init__(self, params: Any, **options: Any) -> None:
        self.defaults = options
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        self._scratch: dict[Any, Array] = {}
        given: list[Any] = [params] if isinstance(params, (Tensor, dict)) else list(params)
        if not given:
            raise ValueError(f"{type(self).__name__} got no parameters: is the model empty, or the iterator used up?")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Train more parameters, with options of their own; what is left out takes the optimizer's defaults."""
        if not isinstance(group, Mapping) or "params" not in group:
            raise TypeError(f"a parameter group is a dict with 'params' and options, got {group!r:.80}")
        for option in group:
            if option not in (*self.defaults, "params", "initial_lr"):
                raise TypeError(
                    f"{type(self).__name__} has no option {option!r}: known are {sorted(self.defaults)}."
                    + nearest(option, self.defaults)
                )
        pairs = list(named(group["params"], type(self).__name__))
        if not pairs:
            raise ValueError(f"{type(self).__name__}: parameter group {len(self.param_groups)} is empty")
        full = {**self.defaults, **group, "params": [p for _, p in pairs], "names": [name for name, _ in pairs]}
        full["initial_lr"] = group.get("initial_lr", full["lr"])
        self._check(full)
        seen = {
            id(p): name for other in self.param_groups for p, name in zip(other["params"], other["names"], strict=True)
        }
        for name, p in pairs:
            if not p.is_leaf:
                raise TypeError(
                    f"{type(self).__name__}: {name} was made by {p.node.op.name}: optimize the leaves it comes from"
                )
            if not p.requires_grad:
                raise TypeError(f"{type(self).__name__}: {name} does not require a gradient")
            if id(p) in seen:
                raise ValueError(f"{type(self).__name__}: {name} was given twice (also as {seen[id(p)]})")
            seen[id(p)] = name
        self.param_groups.append(full)

    def _check(self, group: Mapping[str, Any]) -> None:
        """Raise ValueError for an option out of range."""
        for option, (low, high) in {"lr": (0.0, math.inf), **self.ranges}.items():
            values = group[option] if isinstance(group[option], (tuple, list)) else [group[option]]
            for value in values:
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value < high:
                    raise ValueError(
                        f"{type(self).__name__}: {option} must be a number in [{low}, {high}), got {value!r}"
                    )

    # one step ---------------------------------------------------------------------------------------------------
    def step(self, *, scale: float = 1.0) -> None:
        """One update of every parameter that has a gradient; one without is left alone, its state too.

        scale: what gradients are multiplied with on the way, themselves unchanged: clipping without a pass of its own
        (``clip_factor``).  Raises ValueError for one that is not finite, and for a gradient or state of another shape
        than its parameter's; then nothing has changed.
        """
        if not math.isfinite(scale):
            raise ValueError(f"{type(self).__name__}.step: scale must be a finite number, got {scale!r}")
        self._check_shapes()
        tiny = 0 < abs(scale) < FLOAT32_TINY
        factor = 1.0 if tiny else scale
        passes, first = None, 0
        for group in self.param_groups:
            kernel = self.kernel(group) if mode().backend in (None, "numba") else None
            if kernel is not None and passes is None:
                from ..kernels.numba.optimizers import Passes

                passes = Passes()
            slots, weights = self.slots_of(group), group.get("stochastic_rounding", False)
            dithers = weights or group.get("state_dtype")
            numbers: dict[Any, Array] = {}
            for index, p in enumerate(group["params"], first):
                if p.grad is None:
                    continue
                data, g = p.data, raw(p.grad)
                state = self.state.get(p)
                if state is None:
                    state = self.state[p] = {"step": 0, **{slot: _zeros(data, group) for slot in slots}}
                state["step"] = step = state["step"] + 1
                arrays = [state[slot] for slot in slots]
                random = key(group["seed"], step, index, weights) if dithers else NO_KEY
                if tiny:
                    g = (g.astype(FLOAT64) * scale).astype(g.dtype if g.dtype == FLOAT64 else FLOAT32)
                if passes is None or kernel is None or not isinstance(data, np.ndarray):
                    self._by_blocks(data, g, step, group, dict(zip(slots, arrays, strict=True)), factor, random)
                else:
                    c = numbers.get((step, data.dtype.num))
                    if c is None:
                        dtype = FLOAT32 if is_low(data.dtype) else data.dtype
                        c = numbers[step, data.dtype.num] = np.array([factor, *self.constants(group, step)], dtype)
                    passes.add(kernel, c, random, data, g, arrays)
                wrote(data)
            first += len(group["params"])
        if passes is not None:
            passes.run()

    def _check_shapes(self) -> None:
        for group in self.param_groups:
            for p, name in zip(group["params"], group["names"], strict=True):
                if p.grad is not None:
                    shape = p.data.shape
                    for what, value in (("gradient", p.grad), *self.state.get(p, {}).items()):
                        if what != "step" and value.shape != shape:
                            raise ValueError(
                                f"{type(self).__name__}.step: {name} has shape {shape}, its {what} {value.shape}"
                            )

    def _by_blocks(
        self,
        p: Array,
        g: Array,
        step: int,
        group: Mapping[str, Any],
        slots: Mapping[str, Array],
        scale: float,
        key: Array,
    ) -> None:
        """The reference: ``update`` on one block after the other, 16-bit floats as float32 ones."""
        start = 0
        for weights, gradient, *stored in blocks(p, g, *slots.values()):
            w, *parts = (wide(part) for part in (weights, *stored))
            gradient = gradient.astype(w.dtype, copy=False)
            if scale != 1:
                gradient = np.multiply(gradient, w.dtype.type(scale), out=self.scratch(w, 2))
            self.update(w, gradient, step, group, **dict(zip(slots, parts, strict=True)))
            bits = noise(key, start, w.size) if key is not NO_KEY else ()
            for target, value, random in itertools.zip_longest((*stored, weights), (*parts, w), bits):
                if target is not value:
                    dithers = is_bfloat16(target.dtype) and (target is not weights or key[2])
                    target[...] = stochastic(value, random) if dithers else value
            start += w.size

    def update(self, p: Array, g: Array, step: int, group: Mapping[str, Any], **slots: Array) -> None:
        """Change ``p`` and the state arrays in place; ``g`` is read only, and ``step`` counts from 1."""
        raise NotImplementedError(f"{type(self).__name__} does not define update")

    def kernel(self, group: Mapping[str, Any]) -> str | None:
        """The name in ``kernels.numba.optimizers`` of the kernel that does what ``update`` does, None without one."""
        return None

    def constants(self, group: Mapping[str, Any], step: int) -> tuple[float, ...]:
        """The numbers of the rule in the order in which its kernel takes them."""
        raise NotImplementedError(f"{type(self).__name__} does not define constants")

    def __init_subclass__(cls) -> None:
        if "update" in vars(cls) and "kernel" not in vars(cls):  # another rule than the one of the inherited kernel
            cls.kernel = Optimizer.kernel  # type: ignore[method-assign]

    def slots_of(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        """The state arrays a parameter of this group needs."""
        return self.slots

    def scratch(self, like: Array, index: int = 0) -> Array:
        """Memory for a temporary of ``like``'s shape and dtype; the same memory for the same ``index``."""
        key = (index, like.dtype, xp(like).__name__)
        found = self._scratch.get(key)
        if found is None or found.size < like.size:
            found = self._scratch[key] = xp(like).empty(like.size, like.dtype)
        return found[: like.size].reshape(like.shape)

    def state_bytes(self) -> int:
        """Bytes that the state arrays take once every parameter has had a step."""
        return sum(
            len(self.slots_of(group)) * p.size * _state_dtype(p.dtype, group).itemsize
            for group in self.param_groups
            for p in group["params"]
        )

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters (sets them to None)."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    # state ------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """{"state": {index: {"step": n, slot: array}}, "param_groups": [{option: value, "params": [index], "names"}]}.

        Parameters are numbered through the groups, as in PyTorch.  The arrays are those of the optimizer, not copies.
        """
        state, groups, index = {}, [], 0
        for group in self.param_groups:
            numbers = list(range(index, index + len(group["params"])))
            index += len(numbers)
            groups.append({**group, "params": numbers, "names": list(group["names"])})
            state.update(
                {n: dict(self.state[p]) for n, p in zip(numbers, group["params"], strict=True) if p in self.state}
            )
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over options and state; the state arrays are copied.

        Raises ValueError listing every group, option, name, slot and shape that does not fit; then nothing is loaded.
        """
        groups, state = saved["param_groups"], saved["state"]
        faults = []
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError(
                f"{type(self).__name__}: the state dict has groups of {[len(g['params']) for g in groups]} "
                f"parameters, this optimizer {[len(g['params']) for g in self.param_groups]}"
            )
        pairs = []
        for n, (theirs, ours) in enumerate(zip(groups, self.param_groups, strict=True)):
            options = {k for k in theirs if k not in ("params", "names", "initial_lr")}
            faults += [f"group {n}: option {o!r}" for o in sorted(options ^ set(self.defaults))]
            if (kept := theirs.get("state_dtype")) != (asked := ours.get("state_dtype")):
                faults.append(f"group {n}: state_dtype is {kept!r}, expected {asked!r}")
            pairs += list(
                zip(
                    theirs["params"],
                    ours["params"],
                    ours["names"],
                    [{**ours, **theirs}] * len(ours["params"]),
                    strict=True,
                )
            )
            if "names" in theirs and theirs["names"] != ours["names"]:
                faults.append(f"group {n}: names {theirs['names']}, expected {ours['names']}")
        known = {number for number, *_ in pairs}
        faults += [f"state of unknown parameter {n!r}" for n in state if n not in known]
        loaded: dict[Tensor, dict[str, Any]] = {}
        for number, p, name, group in pairs:
            if number in state:
                loaded[p] = self._loaded(state[number], p, name, group, faults)
        if faults:
            raise ValueError(
                f"{type(self).__name__}: the state dict does not fit, nothing was loaded: " + "; ".join(faults)
            )
        for theirs, ours in zip(groups, self.param_groups, strict=True):
            ours.update({k: v for k, v in theirs.items() if k not in ("params", "names")})
        self.state = loaded

    def _loaded(
        self, entry: Mapping[str, Any], p: Tensor, name: str, group: Mapping[str, Any], faults: list[str]
    ) -> dict[str, Any]:
        made: dict[str, Any] = {"step": int(entry.get("step", 0))}
        wanted = self.slots_of(group)
        faults += [f"{name}: unexpected {slot!r}" for slot in entry if slot not in (*wanted, "step")]
        for slot in ("step", *wanted):
            if slot not in entry:
                faults.append(f"{name}: missing {slot!r}")
            elif slot != "step":
                value, made[slot] = as_array(raw(entry[slot])), _zeros(p.data, group)
                for what in ("shape", "dtype"):
                    if (got := getattr(value, what)) != (expected := getattr(made[slot], what)):
                        faults.append(f"{name}: {slot} has {what} {got}, expected {expected}")
                if value.shape == p.shape:
                    made[slot][...] = value
        return made

    def __repr__(self) -> str:
        options = ", ".join(f"{k}={v}" for k, v in self.defaults.items())
        return f"{type(self).__name__}({sum(len(g['params']) for g in self.param_groups)} parameters, {options})"


def _zeros(like: Array, group: Mapping[str, Any]) -> Array:
    """State for a parameter: its shape, contiguous."""
    made = xp(like).empty(like.shape, _state_dtype(like.dtype, group))  # NumPy asks for huge pages, in zeros it doesn't
    made.fill(0)
    return made


def _state_dtype(dtype: DType, group: Mapping[str, Any]) -> DType:
    """What the group asks for; else the parameter's, float32 where that has 16 bits."""
    if group.get("state_dtype"):
        return as_dtype(group["state_dtype"])
    return FLOAT32 if is_low(dtype) else dtype


def blocks(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Views of the arrays (all of one shape), BLOCK elements at a time; strided memory comes as one block."""
    if not all(a.flags.c_contiguous for a in arrays):
        yield arrays
        return
    flat = [a.reshape(-1) for a in arrays]
    if flat[0].size <= BLOCK:
        yield tuple(flat)
        return
    for start in range(0, flat[0].size, BLOCK):
        yield tuple(a[start : start + BLOCK] for a in flat)


def set_lr(target: Optimizer, lr: float, peak: float | None = None) -> None:
    """Set the learning rate of every group; a group that began with another than ``peak`` keeps its ratio to it."""
    for group in target.param_groups:
        own = group["initial_lr"]
        group["lr"] = lr if peak is None or own == peak or peak == 0 else own * (lr / peak)


def decay_groups(params: Iterable[Any], weight_decay: float) -> list[dict[str, Any]]:
    """Matrices, which decay, and biases and gains (fewer than 2 axes), which do not; an empty group is left out."""
    pairs = list(named(params, "decay_groups"))
    parts = [
        ([pair for pair in pairs if pair[1].ndim >= 2], weight_decay),
        ([pair for pair in pairs if pair[1].ndim < 2], 0.0),
    ]
    return [{"params": members, "weight_decay": decay} for members, decay in parts if members]
