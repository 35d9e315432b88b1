"""Declaring a primitive: a forward on plain arrays and one pullback per differentiable input, in one place.

Reading the signature: a parameter is an *input* if it has a pullback, is named in ``nondiff``, or is positional and not
annotated as something other than an Array; every other parameter is a *keyword*.
"""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..array import nearest
from ..kernels import on_change
from . import runtime
from .codegen import boot_code, build

F = TypeVar("F", bound=Callable[..., Any])
Rule = Callable[..., Any]
OPS: dict[str, Callable[..., Any]] = {}  # "module:name" -> the op, as it is called
RESERVED = ("g", "y", "needs")


class Op:
    """What is known of a declared op; ``fn.op`` of the function that the decorator returns."""

    into: Mapping[str, tuple[Rule, tuple[str, ...]]] = {}

    def __init__(
        self,
        forward: Callable[..., Any],
        *,
        samples: Any,
        surrogate: Any,
        order: int,
        broadcasts: bool,
        promotes: bool,
        autocast: bool,
        nondiff: Iterable[str],
        ruled: Iterable[str],
    ) -> None:
        self.forward, self.name, self.doc = forward, forward.__name__, inspect.getdoc(forward) or ""
        self.module = forward.__module__ or "__main__"
        self.key = ("entrenar" if self.module.partition(".")[0] == "entrenar" else self.module) + ":" + self.name
        self.samples, self.surrogate, self.order = samples, surrogate, order
        self.broadcasts, self.promotes, self.autocast = broadcasts, promotes or broadcasts, autocast
        self.nondiff, self.differentiable = tuple(nondiff), True
        self.signature = inspect.signature(forward)
        self.inputs, self.keywords, self.variadic = read_signature(self, set(ruled))
        if samples is None and self.key.startswith("entrenar:"):
            raise TypeError(f"{self.name}: an op of entrenar states samples= (inputs that exercise it)")
        self.call = make_call(self)
        OPS[self.key] = self.call

    @property
    def defaults(self) -> dict[str, Any]:
        """Keyword -> default value, for those that have one."""
        found = self.signature.parameters
        return {k: found[k].default for k in self.keywords if found[k].default is not inspect.Parameter.empty}

    def __repr__(self) -> str:
        return f"<op {self.key}{self.signature}>"


def read_signature(op: Op, ruled: set[str]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """(inputs, keywords, whether the inputs are ``*xs``) of a forward; refuses reserved and unknown names."""
    inputs: list[str] = []
    keywords: list[str] = []
    variadic = False
    for name, p in op.signature.parameters.items():
        if name in RESERVED or name.endswith("_meta") or name.startswith("_"):
            raise TypeError(
                f"{op.name}: a parameter cannot be called {name!r}: "
                "g, y, needs, *_meta and names with a leading underscore are the engine's"
            )
        if p.kind is p.VAR_KEYWORD:
            raise TypeError(f"{op.name}: **{name} is not allowed: name every keyword")
        array_like = p.annotation is p.empty or "Array" in str(p.annotation)
        if (
            keywords
            and name not in keywords
            and p.kind is p.POSITIONAL_OR_KEYWORD
            and (name in ruled or name in op.nondiff)
        ):
            raise TypeError(f"{op.name}: input {name!r} stands after keyword {keywords[-1]!r}: inputs come first")
        if name in ruled or name in op.nondiff or (p.kind is not p.KEYWORD_ONLY and array_like):
            inputs.append(name)
            variadic = variadic or p.kind is p.VAR_POSITIONAL
        else:
            keywords.append(name)
    for name in [*ruled, *op.nondiff]:
        if name not in inputs:
            raise TypeError(f"{op.name}: {name!r} is not an input; inputs are {inputs}.{nearest(name, inputs)}")
    if not inputs or (variadic and len(inputs) > 1):
        raise TypeError(f"{op.name}: expected inputs, or one *inputs alone; got {inputs}")
    return tuple(inputs), tuple(keywords), variadic


class Primitive(Op):
    """An op with pullbacks of its own."""

    def __init__(
        self,
        forward: Callable[..., Any],
        vjp: Mapping[str, Rule] | Rule | None,
        into: Mapping[str, Rule],
        nondiff: Iterable[str],
        **options: Any,
    ) -> None:
        self.joint: tuple[Rule, tuple[str, ...]] | None = None
        self.rules: dict[str, tuple[Rule, tuple[str, ...]]] = {}
        rules: Mapping[str, Rule] = vjp if isinstance(vjp, Mapping) else {}
        super().__init__(forward, nondiff=nondiff, ruled=rules, **options)
        if vjp is None:
            self.nondiff, self.differentiable = self.inputs, False
        elif callable(vjp):
            self.joint = (vjp, self._names(vjp))
        else:
            self.rules = {name: (rule, self._names(rule)) for name, rule in vjp.items()}
            for name in self.inputs:
                if name not in self.rules and name not in self.nondiff:
                    raise TypeError(
                        f"{self.name}: no pullback for input {name!r}: give vjp=dict({name}=...), list it in nondiff=, "
                        "or, if it is no array, make it keyword-only"
                    )
        self.into = {name: (rule, self._names(rule, "total")) for name, rule in into.items()}
        for name, (_, names) in self.into.items():
            if name not in self.rules or not set(names) <= set(self.rules[name][1]):
                raise TypeError(f"{self.name}: into={name!r} asks for {names}, which the pullback of it does not")
        used = [n for _, names in self._all_rules() for n in names]
        self.saved_names = tuple(dict.fromkeys(n for n in used if n not in ("g", "needs") and n not in self.keywords))

    def pull_graph(self, node: Any, parents: Any, g: Any, cot: Any) -> None:
        """The pullback on Tensors (create_graph); ``pull``, on arrays, is generated."""
        runtime.pull_graph(self, node, parents, g, cot)

    def _all_rules(self) -> list[tuple[Rule, tuple[str, ...]]]:
        return [self.joint] if self.joint else list(self.rules.values())

    def _names(self, rule: Rule, *given: str) -> tuple[str, ...]:
        """The parameter names of a pullback after those ``given``: the list of what is saved for it."""
        names = tuple(inspect.signature(rule).parameters)[len(given) :]
        known = {*RESERVED, *self.inputs, *self.keywords, *(f"{x}_meta" for x in self.inputs)}
        for name in names:
            if name not in known:
                raise TypeError(
                    f"{self.name}: a pullback asks for {name!r}; known are {sorted(known)}.{nearest(name, known)}"
                )
        return names


def make_call(op: Op) -> Callable[..., Any]:
    """A plain function (so that a class attribute binds as a method) whose code is generated at its first call."""
    call = types.FunctionType(boot_code(), {"_op": op, "_build": build, "__builtins__": builtins}, op.name)
    call.__doc__, call.__module__, call.__qualname__ = op.doc, op.module, op.name
    call.__signature__ = op.signature  # type: ignore[attr-defined]
    call.op = op  # type: ignore[attr-defined]
    return call


def _rebuild(key: str) -> None:
    """Kernels of an op came or went: generate its call anew at the next use."""
    if key in OPS:
        call = OPS[key]
        call.__code__ = boot_code()


on_change(_rebuild)


def primitive(
    *,
    vjp: Mapping[str, Rule] | Rule | None,
    into: Mapping[str, Rule] | None = None,
    samples: Any = None,
    nondiff: Iterable[str] = (),
    broadcasts: bool = False,
    promotes: bool = False,
    autocast: bool = False,
    surrogate: Any = None,
    order: int = 2,
) -> Callable[[F], F]:
    """Declare the decorated forward as an op.

    vjp: {input: pullback}, or one joint pullback ``f(g, ..., needs)`` that returns a cotangent (or None) per input, or
        None for an op whose outputs carry no gradient.  The parameter names of a pullback are the list of what is
        saved: ``g`` cotangent, ``y`` output, inputs, ``x_meta`` (shape and dtype of x), keywords, ``needs``.
    into: {input: ``f(total, ...)``} for pullbacks that touch little of the input: adds the cotangent to ``total`` in
        place and returns True, or declines with False; the other names are among those of the pullback.  Called on
        arrays where something has been added up for the input already, so that many small reads of it cost little.
    samples: ``rng -> iterable of Sample``: inputs that exercise the op.
    nondiff: inputs without a derivative (indices, masks).
    broadcasts: the inputs broadcast; the engine sums each cotangent back to its input's shape and dtype.
    promotes: inputs of mixed dtypes are promoted; the engine casts each cotangent back.
    autocast: inputs are cast under ``en.autocast``.
    surrogate: a function of the same signature whose derivative this op's pullback is meant to be.
    order: the highest order of derivative that is meaningful.
    Raises TypeError for a missing pullback or a name that does not fit.
    """

    def declare(forward: F) -> F:
        op = Primitive(
            forward,
            vjp,
            into or {},
            nondiff,
            samples=samples,
            broadcasts=broadcasts,
            promotes=promotes,
            autocast=autocast,
            surrogate=surrogate,
            order=order,
        )
        return op.call  # type: ignore[return-value]

    return declare
