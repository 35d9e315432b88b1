"""What every optimizer shares: parameter groups, options within their ranges, and the pass over a parameter in blocks.

A row of the table is a class with a few named numbers and one ``update`` on plain arrays:

    @optimizer("sgd")
    class SGD(Optimizer):
        slots = ("momentum_buffer",)
        def update(self, p, g, step, group, momentum_buffer): ...

``update`` gets one block of a parameter at a time: blocks fit the cache, so that a whole update reads and writes each
array once however many elementary operations it takes, and its temporaries are never larger than a block.  A rule that
needs all of a parameter (its norm, its rows) defines ``apply`` instead.  A row may name a ``kernel`` that does the same
in one pass, on all threads; ``update`` or ``apply`` stays the reference it is checked against.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..array import FLOAT32, FLOAT64, Array, DType, is_bfloat16, is_low, nearest, wide, xp
from ..autograd import Tensor
from ..autograd.modes import mode
from ..autograd.tape import wrote
from ..autograd.tensor import raw
from .parameters import named
from .rounding import NO_KEY, key, noise, stochastic
from .state import filled, load, saved, state_dtype, state_sha256

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

    slots: ClassVar[tuple[str, ...]] = ()  # names of the state arrays
    ranges: ClassVar[dict[str, tuple[float, float]]] = {}  # option -> [low, high) it must lie in, beside lr
    several: ClassVar[dict[str, int]] = {}  # option -> how many numbers it is made of, where not one
    flags: ClassVar[tuple[str, ...]] = ()  # options that are True or False
    state_tag: ClassVar[str] = ""  # of the hash of the state; "": made of the class's name
    state_labels: ClassVar[dict[str, str]] = {}  # slot -> its name in that hash, where another

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
        who = type(self).__name__
        for option, count in self.several.items():
            if not isinstance(group[option], (tuple, list)) or len(group[option]) != count:
                raise ValueError(f"{who}: {option} must be {count} numbers, got {group[option]!r}")
        for option, (low, high) in {"lr": (0.0, math.inf), **self.ranges}.items():
            for value in group[option] if option in self.several else [group[option]]:
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value < high:
                    raise ValueError(f"{who}: {option} must be a number in [{low}, {high}), got {value!r}")
        for option in self.flags:
            if not isinstance(group[option], bool):
                raise ValueError(f"{who}: {option} must be True or False, got {group[option]!r}")

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
        fast = mode().backend in (None, "numba")
        passes, first = None, 0
        for group in self.param_groups:
            weights = group.get("stochastic_rounding", False)
            dithers = weights or group.get("state_dtype")
            numbers: dict[Any, Array] = {}
            for index, p in enumerate(group["params"], first):
                if p.grad is None:
                    continue
                data, g = p.data, raw(p.grad)
                state = self.state.setdefault(p, {"step": 0})
                state["step"] = step = state["step"] + 1
                slots = {}
                for slot, shape in self.slots_of(group, data.shape).items():
                    if slot not in state:
                        state[slot] = filled(data, shape, group, self.initial(slot, group))
                    slots[slot] = state[slot]
                random = key(group["seed"], step, index, weights) if dithers else NO_KEY
                if tiny:
                    g = (g.astype(FLOAT64) * scale).astype(g.dtype if g.dtype == FLOAT64 else FLOAT32)
                kernel = self.kernel(group, data.shape) if fast and isinstance(data, np.ndarray) else None
                if kernel is None:
                    self.apply(data, g, step, group, slots, factor, random)
                else:
                    c = numbers.get((step, data.dtype.num))
                    if c is None:
                        dtype = FLOAT32 if is_low(data.dtype) else data.dtype
                        c = numbers[step, data.dtype.num] = np.array([factor, *self.constants(group, step)], dtype)
                    if passes is None:
                        from ..kernels.numba.optimizers import Passes

                        passes = Passes()
                    passes.add(kernel, c, random, data, g, list(slots.values()), partial(self.rate, group))
                wrote(data)
            first += len(group["params"])
        if passes is not None:
            passes.run()

    def _check_shapes(self) -> None:
        for group in self.param_groups:
            for p, name in zip(group["params"], group["names"], strict=True):
                if p.grad is None:
                    continue
                shape = p.data.shape
                if p.grad.shape != shape:
                    raise ValueError(
                        f"{type(self).__name__}.step: {name} has shape {shape}, its gradient {p.grad.shape}"
                    )
                if p in self.state:
                    state = self.state[p]
                    for slot, expected in self.slots_of(group, shape).items():
                        if slot in state and state[slot].shape != expected:
                            raise ValueError(
                                f"{type(self).__name__}.step: {name} has shape {shape}, its {slot} {state[slot].shape}"
                            )

    def apply(
        self,
        p: Array,
        g: Array,
        step: int,
        group: Mapping[str, Any],
        slots: Mapping[str, Array],
        scale: float,
        key: Array,
    ) -> None:
        """One parameter: ``update`` on one block after the other, 16-bit floats as float32 ones.

        scale: of the gradient.  key: of the random bits (``rounding.key``).
        """
        start = 0
        for weights, gradient, *stored in blocks(p, g, *slots.values()):
            w, *parts = (wide(part) for part in (weights, *stored))
            gradient = self.gradient(gradient, w.dtype, scale)
            self.update(w, gradient, step, group, **dict(zip(slots, parts, strict=True)))
            bits = draws(key, start, w.size)
            for n, (target, value) in enumerate(zip(stored, parts, strict=True)):
                put(target, value, bits[n] if n < 2 else None)
            put(weights, w, bits[2] if key[2] else None)
            start += w.size

    def gradient(self, g: Array, dtype: DType, scale: float) -> Array:
        """A block of the gradient times ``scale`` in the dtype that is computed in; ``g`` itself is left as it is."""
        g = g.astype(dtype, copy=False)
        return g if scale == 1 else np.multiply(g, dtype.type(scale), out=self.scratch(g, 2))

    def update(self, p: Array, g: Array, step: int, group: Mapping[str, Any], **slots: Array) -> None:
        """Change ``p`` and the state arrays in place; ``g`` is read only, and ``step`` counts from 1."""
        raise NotImplementedError(f"{type(self).__name__} does not define update")

    def kernel(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> str | None:
        """The kernel in ``kernels.numba.optimizers`` that does what ``update`` does to such a parameter, or None."""
        return None

    def constants(self, group: Mapping[str, Any], step: int) -> tuple[float, ...]:
        """The numbers of the rule in the order in which its kernel takes them."""
        raise NotImplementedError(f"{type(self).__name__} does not define constants")

    def rate(self, group: Mapping[str, Any], *sums: float) -> float:
        """The last of the constants, from what the first pass of a kernel of two summed over the whole parameter."""
        raise NotImplementedError(f"{type(self).__name__} does not define rate")

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        if ("update" in own or "apply" in own) and "kernel" not in own:  # another rule than the inherited kernel's
            cls.kernel = Optimizer.kernel  # type: ignore[method-assign]

    def slots_of(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """The state arrays that a parameter of this group and shape needs, and their shapes."""
        return dict.fromkeys(self.slots, shape)

    def initial(self, slot: str, group: Mapping[str, Any]) -> float:
        """What a state array holds before the first step."""
        return 0.0

    def scratch(self, like: Array, index: int = 0) -> Array:
        """Memory for a temporary of ``like``'s shape and dtype; the same memory for the same ``index``."""
        key = (index, like.dtype, xp(like).__name__)
        found = self._scratch.get(key)
        if found is None or found.size < like.size:
            found = self._scratch[key] = xp(like).empty(like.size, like.dtype)
        return found[: like.size].reshape(like.shape)

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
        return saved(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over options and state; the state arrays are copied.

        Raises ValueError listing every group, option, name, slot and shape that does not fit; then nothing is loaded.
        """
        load(self, state_dict)

    def state_bytes(self) -> int:
        """Bytes that the state arrays take once every parameter has had a step."""
        return sum(
            math.prod(shape) * state_dtype(p.dtype, group).itemsize
            for group in self.param_groups
            for p in group["params"]
            for shape in self.slots_of(group, p.shape).values()
        )

    def optimizer_state_sha256(self) -> str:
        """sha256, in hexadecimal, of the state arrays: equal for two runs that did the same.

        Hashed are the tag, "aprender-train:adamw:optstate:v1" for AdamW and "entrenar:<class>:optstate:v1" for another
        class; the number of steps (of the parameter that has most) as u64; then for each kind of state array its name
        ("m" and "v" for AdamW, as in ``slots`` for another class), the number of parameters as u64, and for each of
        them "none", or "some", the number of elements as u64 and these as float32.  Numbers are little-endian;
        bfloat16 is widened exactly, float64 rounded.
        """
        return state_sha256(self)

    def __repr__(self) -> str:
        options = ", ".join(f"{k}={v}" for k, v in self.defaults.items())
        return f"{type(self).__name__}({sum(len(g['params']) for g in self.param_groups)} parameters, {options})"


def draws(key: Array, start: int, count: int) -> tuple[Array | None, ...]:
    """``rounding.noise``, or three times None for a step that rounds nothing stochastically."""
    return (None, None, None) if key is NO_KEY else noise(key, start, count)


def put(target: Array, value: Array, random: Array | None) -> None:
    """Store a result where it is not already: rounded to nearest, or to bfloat16 by ``random`` bits."""
    if target is not value:
        target[...] = value if random is None or not is_bfloat16(target.dtype) else stochastic(value, random)


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
