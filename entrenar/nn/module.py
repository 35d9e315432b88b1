"""Module and Parameter: a model is an object whose attributes are parameters, buffers and other modules.

Nothing is registered in a second place: the tree is read off the attributes, in the order in which they were assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..array import EntrenarError, as_array, as_dtype, is_float
from ..autograd import Tensor, scope
from ..autograd.modes import mode
from ..autograd.tensor import raw
from ..autograd.trees import flatten

M = TypeVar("M", bound="Module")
PreHook = Callable[["Module", tuple[Any, ...]], Any]
Hook = Callable[["Module", tuple[Any, ...], Any], Any]


class StateDictError(EntrenarError, ValueError):
    """A state dict does not fit the model: every missing, unexpected and misshapen name is in the message."""


class LoadReport(NamedTuple):
    """What ``load_state_dict(strict=False)`` left out."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Parameter(Tensor):
    """A leaf tensor that a Module lists among its parameters.

    data: array-like or Tensor (memory is shared, as in PyTorch); floats only if ``requires_grad``.
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True, dtype: Any = None) -> None:
        super().__init__(data, requires_grad, dtype)


class Module:
    """Base of every layer and model: define ``__init__`` (assign parameters and modules) and ``forward``."""

    training: bool = True
    _buffers: dict[str, bool] = {}  # name -> saved in the state dict; copied on first registration
    _pre_hooks: tuple[PreHook, ...] = ()
    _hooks: tuple[Hook, ...] = ()
    _scope: str = ""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes.  Every module defines it."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not mode().grad:
            return self._run(args, kwargs)
        with scope(self._scope or type(self).__name__):  # only what is recorded needs to be told where it came from
            return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for pre in self._pre_hooks:
            changed = pre(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        y = self.forward(*args, **kwargs)
        for hook in self._hooks:
            changed = hook(self, args, y)
            if changed is not None:
                y = changed
        return y

    # attributes -------------------------------------------------------------------------------------------------
    def __setattr__(self, name: str, value: Any) -> None:
        old = self.__dict__.get(name)
        if isinstance(old, Parameter) and not (value is None or isinstance(value, Parameter)):
            raise TypeError(
                f"{type(self).__name__}.{name} is a parameter, got {type(value).__name__}: assign "
                "nn.Parameter(...) or None, or overwrite its values with .write(...)"
            )
        if name in self._buffers and not (value is None or isinstance(value, Tensor)):
            raise TypeError(
                f"{type(self).__name__}.{name} is a buffer: assign a Tensor or None, got {type(value).__name__}"
            )
        if isinstance(value, (list, tuple, dict)) and any(
            isinstance(v, (Module, Parameter)) for v in flatten(value)[0]
        ):
            raise TypeError(
                f"{type(self).__name__}.{name}: parameters inside a {type(value).__name__} would be lost to "
                "the optimizer and to the state dict; use nn.ModuleList or nn.Sequential, or attributes"
            )
        if isinstance(value, Module):
            value._named(name)
        object.__setattr__(self, name, value)

    def _named(self, name: str) -> None:
        """Learn the name to record under (the last one given)."""
        object.__setattr__(self, "_scope", name)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """A tensor of the state that is not trained; ``persistent=False`` keeps it out of the state dict."""
        if name in self.__dict__ and name not in self._buffers:
            raise ValueError(f"{type(self).__name__} already has an attribute {name!r}")
        self._buffers = {**self._buffers, name: persistent}
        setattr(self, name, tensor if tensor is None or isinstance(tensor, Tensor) else Tensor(tensor))

    # the tree ---------------------------------------------------------------------------------------------------
    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the modules directly below."""
        return ((name, value) for name, value in list(vars(self).items()) if isinstance(value, Module))

    def children(self) -> Iterator[Module]:
        """The modules directly below."""
        return (child for _, child in self.named_children())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this module ("") and all below it, parents first; a shared one once."""
        seen: set[int] = set()
        for name, module in self._every_module(prefix):
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def _every_module(self, prefix: str) -> Iterator[tuple[str, Module]]:
        yield prefix, self
        for name, child in self.named_children():
            yield from child._every_module(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        return (module for _, module in self.named_modules())

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter); a shared parameter comes once, under its first name."""
        return _once(self._named_leaves(prefix, lambda module, name, value: isinstance(value, Parameter)))

    def parameters(self) -> Iterator[Parameter]:
        """The parameters, in the order of ``named_parameters``."""
        return (parameter for _, parameter in self.named_parameters())

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) of the buffers."""
        return _once(self._named_leaves(prefix, lambda module, name, value: name in module._buffers))

    def buffers(self) -> Iterator[Tensor]:
        """The buffers, in the order of ``named_buffers``."""
        return (buffer for _, buffer in self.named_buffers())

    def _named_leaves(self, prefix: str, wanted: Callable[[Module, str, Any], bool]) -> Iterator[tuple[str, Any]]:
        for path, module in self._every_module(prefix):
            for name, value in list(vars(module).items()):
                if isinstance(value, Tensor) and wanted(module, name, value):
                    yield (f"{path}.{name}" if path else name), value

    # state ------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Tensor]:
        """Dotted name -> detached tensor (the same memory) of every parameter and persistent buffer, aliases too."""
        return {name: tensor.detach() for name, tensor in self._state()}

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) of what ``state_dict`` holds, the tensors themselves; a shared one once."""
        return _once(self._state())

    def _state(self) -> Iterator[tuple[str, Tensor]]:
        return self._named_leaves(
            "", lambda module, name, value: isinstance(value, Parameter) or module._buffers.get(name, False)
        )

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> LoadReport:
        """Overwrite parameters and buffers with ``state`` (tensors or arrays); a float dtype is cast to the target's.

        strict: missing and unexpected names are errors; a wrong shape or kind always is.  All names that do not fit are
        listed in one StateDictError, and then nothing has been loaded.
        """
        report = self.check_state(state, strict)
        for name, tensor in self._state():
            if name in state:
                tensor.write(as_array(raw(state[name])))
        return report

    def check_state(self, state: Mapping[str, Any], strict: bool = True) -> LoadReport:
        """What ``load_state_dict`` would raise or return, nothing loaded."""
        own = dict(self._state())
        missing = [name for name in own if name not in state]
        unexpected = [name for name in state if name not in own]
        values = {name: as_array(raw(state[name])) for name in own if name in state}
        wrong = [
            f"{name}: shape {value.shape}, expected {own[name].shape}"
            for name, value in values.items()
            if value.shape != own[name].shape
        ]
        wrong += [
            f"{name}: dtype {value.dtype}, expected {own[name].dtype}"
            for name, value in values.items()
            if value.dtype != own[name].dtype and not (is_float(value.dtype) and is_float(own[name].dtype))
        ]
        faults = [("shape or dtype", wrong)]
        if strict:
            faults = [("missing", missing), ("unexpected", unexpected), *faults]
        told = [f"{kind} ({len(names)}): {', '.join(names)}" for kind, names in faults if names]
        if told:
            raise StateDictError(
                f"the state dict does not fit {type(self).__name__}, nothing was loaded; " + "; ".join(told)
            )
        return LoadReport(missing, unexpected)

    # modes and conversions --------------------------------------------------------------------------------------
    def train(self: M, training: bool = True) -> M:
        """Set ``training`` here and below (dropout drops, batch_norm uses the batch)."""
        for module in self.modules():
            module.training = bool(training)
        return self

    def eval(self: M) -> M:
        """``train(False)``."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Set ``requires_grad`` of every parameter."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters (sets them to None)."""
        for parameter in self.parameters():
            parameter.grad = None

    def to(self: M, *targets: Any, dtype: Any = None, device: str | None = None) -> M:
        """Move parameters and buffers to a device and/or their floats to a float dtype, in place; gradients too.

        ``to("float64")``, ``to(np.float16)``, ``to("cuda")``.  Raises TypeError for a dtype that is not a float.
        """
        for target in (*targets, dtype, device):
            if target is None:
                continue
            place = isinstance(target, str) and target.partition(":")[0] in ("cpu", "cuda")
            found = target if place else as_dtype(target)
            if not place and not is_float(found):
                raise TypeError(f"Module.to needs a float dtype, got {found}")
            for _, tensor in _once(self._named_leaves("", lambda *_: True)):
                for owner in (tensor, tensor.grad):
                    if owner is not None and (place or is_float(owner.dtype)):
                        owner.data = owner.detach().to(found).data
        return self

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call ``fn`` on every module, children first."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # hooks ------------------------------------------------------------------------------------------------------
    def register_forward_pre_hook(self, hook: PreHook) -> Callable[[], None]:
        """Call ``hook(module, args)`` before forward; what it returns, if not None, replaces args.

        Returns a function that removes the hook.
        """
        self._pre_hooks = (*self._pre_hooks, hook)
        return lambda: object.__setattr__(self, "_pre_hooks", tuple(h for h in self._pre_hooks if h is not hook))

    def register_forward_hook(self, hook: Hook) -> Callable[[], None]:
        """Call ``hook(module, args, output)`` after forward; what it returns, if not None, replaces the output.

        Returns a function that removes the hook.
        """
        self._hooks = (*self._hooks, hook)
        return lambda: object.__setattr__(self, "_hooks", tuple(h for h in self._hooks if h is not hook))

    # looks ------------------------------------------------------------------------------------------------------
    def extra_repr(self) -> str:
        """What stands between the parentheses of a layer without children."""
        return ""

    def __repr__(self) -> str:
        head, extra = type(self).__name__, self.extra_repr()
        lines = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.named_children()]
        if not lines:
            return f"{head}({extra})"
        return f"{head}({extra}\n  " + "\n  ".join(lines) + "\n)"


def _once(items: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The items whose value was not seen before."""
    seen: set[int] = set()
    for name, value in items:
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value


def count_parameters(module: Module, trainable: bool = False) -> int:
    """How many numbers the parameters hold; only those that require a gradient if ``trainable``."""
    return int(np.sum([p.size for p in module.parameters() if p.tracked or not trainable], dtype=np.int64))
