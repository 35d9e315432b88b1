"""Writing an op's call and pullback out as Python source, specialised to its signature, at first use.

Generated code has no loop over inputs and makes no closure and no object but the output and its node.  Print what an op
became with ``print(source(en.mul))``.
"""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any

import numpy as np

from ..kernels import has_kernels
from . import runtime
from .modes import mode
from .tape import Meta, Node, next_seq
from .tensor import Tensor, settle


def _boot(*args: Any, **kwargs: Any) -> Any:
    _build(_op)  # type: ignore[name-defined]  # noqa: F821 - both live in the namespace of the op's call
    return _op.call(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821


def boot_code() -> CodeType:
    """The code every op starts with: generate, then call again."""
    return _boot.__code__


def build(op: Any) -> None:
    """Give ``op.call`` its generated code and ``op.pull`` its pullback."""
    space = op.call.__globals__
    space.update(
        _Tensor=Tensor,
        _Node=Node,
        _Meta=Meta,
        _ndarray=np.ndarray,
        _new=object.__new__,
        _mode=mode,
        _next_seq=next_seq,
        _settle=settle,
        _forward=op.forward,
        _runtime=runtime,
        _fit=runtime.fit_array,
        _add=runtime.added,
        _sole=runtime.sole,
        _coerce=runtime.coerce,
        _plain=runtime.plain,
        _outputs=runtime.outputs,
        **{f"_default_{k}": v for k, v in op.defaults.items()},
    )
    exec(compile(call_source(op), f"<call of {op.key}>", "exec"), space)
    made = space.pop("call")
    if hasattr(op, "rules"):
        space.update({f"_rule_{x}": rule for x, (rule, _) in op.rules.items()})
        space.update({f"_into_{x}": rule for x, (rule, _) in op.into.items()})
        space["_rule"] = op.joint and op.joint[0]
        exec(compile(pull_source(op), f"<pullback of {op.key}>", "exec"), space)
        op.pull = space.pop("pull")
    # the code last: another thread may be in the middle of the same first call, and the boot code needs no defaults
    op.call.__defaults__, op.call.__kwdefaults__ = made.__defaults__, made.__kwdefaults__
    op.call.__code__ = made.__code__


def source(fn: Any) -> str:
    """The generated source of an op, call and pullback."""
    return call_source(fn.op) + ("\n" + pull_source(fn.op) if hasattr(fn.op, "rules") else "")


def parameters(op: Any) -> str:
    """The parameter list of the forward, its defaults by name; ops with keywords also take their aliases (dim ...)."""
    shown, starred = [], False
    for p in op.signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        starred = starred or p.kind is p.VAR_POSITIONAL
        text = f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name
        if p.default is not inspect.Parameter.empty:
            text += f"=_default_{p.name}" if p.name in op.keywords else "=None"
        shown.append(text)
    return ", ".join([*shown, "**_extra"] if op.keywords else shown)


def passed(op: Any, inputs: list[str]) -> str:
    """The arguments of the forward: these inputs by position, keywords by name."""
    return ", ".join([*inputs, *(f"{k}={k}" for k in op.keywords)])


def call_source(op: Any) -> str:
    """Source of the op as it is called: unwrap, compute, and, where a gradient may be wanted, record."""
    ins, variadic = op.inputs, op.variadic
    out = [f"def call({parameters(op)}):"]
    if op.keywords:
        again = ", ".join(
            [
                *(f"*{x}" if variadic else f"{x}={x}" for x in ins),
                "**_runtime.rename(_op, _extra, {" + ", ".join(f"{k!r}: {k}" for k in op.keywords) + "})",
            ]
        )
        out.append(f"    if _extra: return _op.call({again})")
    if not hasattr(op, "rules"):
        return _fused_source(op, out)
    if op.autocast:
        names = f"tuple({ins[0]})" if variadic else f"({', '.join(ins)},)"
        target = ins[0] if variadic else f"{', '.join(ins)},"
        out.append(f"    if _mode().autocast is not None: {target} = _runtime.cast_low(_op, {names})")
    run = "_forward({})"
    if has_kernels(op.key):
        run = "_runtime.dispatch(_op, ({},), {{" + ", ".join(f"{k!r}: {k}" for k in op.keywords) + "}})"
    if variadic:
        return _variadic_source(op, out, run)
    served = has_kernels(op.key)

    def args(names: list[str]) -> str:
        return ", ".join(names) if served else passed(op, names)

    values = [f"_v_{x}" for x in ins]
    if len(ins) == 1:
        x = ins[0]
        out += [
            f"    if isinstance({x}, _Tensor): _v_{x} = {x}.data; _r_{x} = {x}.tracked",
            f"    elif {x}.__class__ is _ndarray: return {run.format(args([x]))}",
            f"    else: return _plain(_op, ({x},), {_dict(op)})",
        ]
    else:
        out += [f"    _t_{x} = isinstance({x}, _Tensor)" for x in ins]
        out.append(f"    if {' and '.join(f'_t_{x}' for x in ins)}:")
        out += [f"        _v_{x} = {x}.data; _r_{x} = {x}.tracked" for x in ins]
        out.append(f"    elif {' or '.join(f'_t_{x}' for x in ins)}:")
        out.append(f"        {', '.join(values)} = _coerce(_op, ({', '.join(ins)}))")
        out += [f"        _r_{x} = _t_{x} and {x}.tracked" for x in ins]
        out.append(
            f"    elif {' and '.join(f'{x}.__class__ is _ndarray' for x in ins)}: return {run.format(args(list(ins)))}"
        )
        out.append(f"    else: return _plain(_op, ({', '.join(ins)}), {_dict(op)})")
    out += [
        f"    try: y = {run.format(args(values))}",
        f"    except Exception as _error: _runtime.explain(_op, _error, ({', '.join(values)},)); raise",
        "    if y.__class__ is not _ndarray: y = _settle(y)",
    ]
    wanted = [x for x in ins if x not in op.nondiff]
    if wanted:
        out.append(f"    if {' or '.join(f'_r_{x}' for x in wanted)}:")
        parents = ", ".join(
            "None" if x in op.nondiff else f"(({x} if {x}.node is None else {x}.node) if _r_{x} else None)" for x in ins
        )
        out += _record(op, parents, [_kept(op, name) for name in op.saved_names])
    out += _untracked()
    return "\n".join(out)


def _dict(op: Any) -> str:
    return "{" + ", ".join(f"{k!r}: {k}" for k in op.keywords) + "}"


def _untracked() -> list[str]:
    return [
        "    if y.__class__ is tuple: return _runtime.untracked(y)",
        "    _out = _new(_Tensor); _out.data = y; _out.grad = None; _out.node = None; _out.tracked = False",
        "    return _out",
    ]


def _record(op: Any, parents: str, kept: list[str]) -> list[str]:
    keywords = f"({', '.join(op.keywords)},)" if op.keywords else "()"
    return [
        "        _m = _mode()",
        "        if _m.grad:",
        "            _node = _new(_Node); _node.op = _op; _node.seq = _next_seq(); _node.scope = _m.scope",
        f"            _node.parents = ({parents},)",
        f"            _node.saved = ({', '.join(kept)},)" if kept else "            _node.saved = ()",
        f"            _node.keywords = {keywords}",
        "            if _m.anomaly is not None: _m.anomaly.recorded(_node, y)",
        "            if y.__class__ is tuple: return _outputs(_node, y)",
        "            _node.shape = y.shape; _node.dtype = y.dtype",
        "            _out = _new(_Tensor); _out.data = y; _out.grad = None; _out.node = _node; _out.tracked = True",
        "            return _out",
    ]


def _kept(op: Any, name: str) -> str:
    """How a saved value is taken: only if an input whose pullback names it needs a gradient."""
    users = [x for x, (_, names) in op.rules.items() if name in names]
    needed = " or ".join(f"_r_{x}" for x in users)
    if name == "y":
        value = "y"
    elif name.endswith("_meta"):
        x = name.removesuffix("_meta")
        value = f"(None if _v_{x} is None else (_v_{x}.shape, _v_{x}.dtype))"
    else:
        value = f"_v_{name}"
    if op.joint or len(users) == sum(x not in op.nondiff for x in op.inputs):
        return value  # someone needs it, or nothing is recorded at all
    return f"({value} if {needed} else None)"


def _variadic_source(op: Any, out: list[str], run: str) -> str:
    (xs,) = op.inputs
    keywords = ", ".join(f"{k}={k}" for k in op.keywords)
    stars = f"*_v, {keywords}" if keywords and "dispatch" not in run else "*_v"
    out += [
        f"    _v, _tensors = _runtime.unwrap(_op, {xs})",
        f"    y = {run.format(stars)}",
        "    if not _tensors: return y",
        "    if y.__class__ is not _ndarray: y = _settle(y)",
    ]
    if op.differentiable:
        kept = {"y": "y", xs: "_v", f"{xs}_meta": "tuple((a.shape, a.dtype) for a in _v)"}
        out.append(f"    if any(x.tracked for x in {xs} if isinstance(x, _Tensor)):")
        out += _record(op, f"*map(_runtime.edge, {xs})", [kept[name] for name in op.saved_names])
    return "\n".join(out + _untracked())


def _fused_source(op: Any, out: list[str]) -> str:
    names = op.inputs[0] if op.variadic else f"({', '.join(op.inputs)},)"
    kernels = "_runtime.fused_kernel" if has_kernels(op.key) else "_runtime.fused_inline"
    out.append(f"    return {kernels}(_op, {names}, {_dict(op)})")
    return "\n".join(out)


def pull_source(op: Any) -> str:
    """Source of the pullback on arrays: call each wanted rule, fit its result to the input, add it up by edge."""
    out = ["def pull(_node, _parents, g, _cot):"]
    if op.saved_names:
        out.append(f"    {', '.join(op.saved_names)}, = _node.saved")
    used = {n for _, names in op._all_rules() for n in names}
    used_keywords = [k if k in used else "_" for k in op.keywords]
    if any(k != "_" for k in used_keywords):
        out.append(f"    {', '.join(used_keywords)}, = _node.keywords")
    for name in op.saved_names:
        if name.endswith("_meta"):
            many = f"tuple(_Meta(*_m) for _m in {name})"
            out.append(f"    if {name} is not None: {name} = {many if op.variadic else f'_Meta(*{name})'}")
    if op.joint or op.variadic:
        _, names = op.joint or next(iter(op.rules.values()))
        call = "_rule" if op.joint else f"_rule_{op.inputs[0]}"
        if "needs" in names:
            out.append("    needs = tuple(_p is not None for _p in _parents)")
        out += [f"    _ds = {call}({', '.join(names)})", "    _runtime.deposit_all(_op, _ds, _node, _parents, _cot)"]
        return "\n".join(out)
    own = "" if op.key.startswith("entrenar:") else "; _d = _runtime.owned(_d, _node)"
    for i, x in enumerate(op.inputs):
        if x in op.rules:
            wanted = "_p is not None"
            if x in op.into:
                names = ", ".join(("_q", *op.into[x][1]))
                wanted += f" and not ((_q := _cot.get(_p)) is not None and _sole(_q) and _into_{x}({names}))"
            out += [
                f"    _p = _parents[{i}]",
                f"    if {wanted}:",
                f"        _d = _rule_{x}({', '.join(op.rules[x][1])})" + own,
                "        if _d.__class__ is not _ndarray or _d.shape != _p.shape or _d.dtype is not _p.dtype:",
                f"            _d = _fit(_d, _p, _op, {x!r})",
                "        _q = _cot.get(_p)",
                "        _cot[_p] = _d if _q is None else _add(_q, _d)",
            ]
    return "\n".join(out if len(out) > 1 else [*out, "    pass"])
