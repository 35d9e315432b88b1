"""Modules that hold modules: Sequential and ModuleList.  Their children are named "0", "1", ..."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .module import Module


class ModuleList(Module):
    """A list of modules that its owner's parameters and state dict include.  It has no forward of its own."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        """Add a module at the end and return self.  Raises TypeError for anything else."""
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__} holds Modules, got {type(module).__name__}")
        setattr(self, str(len(self)), module)
        self._named(self._scope)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Append each of ``modules``."""
        for module in modules:
            self.append(module)
        return self

    def _named(self, name: str) -> None:
        super()._named(name)
        for i, child in enumerate(self):
            child._named(f"{name}.{i}" if name else str(i))

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[Any]:
        return self.children()

    def __getitem__(self, index: int | slice) -> Any:
        found: Any = list(self.children())[index]
        return type(self)(*_arguments(self, found)) if isinstance(index, slice) else found

    def __setitem__(self, index: int, module: Module) -> None:
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__} holds Modules, got {type(module).__name__}")
        setattr(self, str(range(len(self))[index]), module)
        self._named(self._scope)


class Sequential(ModuleList):
    """Modules applied one after the other: ``Sequential(a, b)(x)`` is ``b(a(x))``."""

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: Any) -> Any:
        """x through every module in order."""
        for module in self:
            x = module(x)
        return x


def _arguments(container: ModuleList, modules: list[Module]) -> tuple[Any, ...]:
    """A Sequential takes its modules one by one, a ModuleList as one iterable."""
    return tuple(modules) if isinstance(container, Sequential) else (modules,)
