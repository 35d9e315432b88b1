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
        Tensor=Tensor, Node=Node, Meta=Meta, ndarray=np.ndarray, new=object.__new__, mode=mode, next_seq=next_seq,
        settle=settle, forward=op.forward, op=op, runtime=runtime, fit=runtime.fit, coerce=runtime.coerce,
        plain=runtime.plain, outputs=runtime.outputs,
        **{f"default_{k}": v for k, v in op.defaults.items()},
    )
    exec(compile(call_source(op), f"<call of {op.key}>", "exec"), space)
    made = space.pop("call")
    if hasattr(op, "rules"):
        space.update({f"rule_{x}": rule for x, (rule, _) in op.rules.items()})
        space["rule"] = op.joint and op.joint[0]
        exec(compile(pull_source(op), f"<pullback of {op.key}>", "exec"), space)
        op.pull = space.pop("pull")
    op.call.__code__ = made.__code__
    op.call.__defaults__, op.call.__kwdefaults__ = made.__defaults__, made.__kwdefaults__


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
            text += f"=default_{p.name}" if p.name in op.keywords else "=None"
        shown.append(text)
    return ", ".join([*shown, "**extra"] if op.keywords else shown)


def passed(op: Any, inputs: list[str]) -> str:
    """The arguments of the forward: these inputs by position, keywords by name."""
    return ", ".join([*inputs, *(f"{k}={k}" for k in op.keywords)])


def call_source(op: Any) -> str:
    """Source of the op as it is called: unwrap, compute, and, where a gradient may be wanted, record."""
    ins, variadic = op.inputs, op.variadic
    out = [f"def call({parameters(op)}):"]
    if op.keywords:
        again = ", ".join([*(f"*{x}" if variadic else f"{x}={x}" for x in ins), "**runtime.rename(op, extra, {"
                          + ", ".join(f"{k!r}: {k}" for k in op.keywords) + "})"])
        out.append(f"    if extra: return op.call({again})")
    if not hasattr(op, "rules"):
        return _fused_source(op, out)
    if op.autocast:
        names = f"tuple({ins[0]})" if variadic else f"({', '.join(ins)},)"
        target = ins[0] if variadic else f"{', '.join(ins)},"
        out.append(f"    if mode().autocast is not None: {target} = runtime.cast_low(op, {names})")
    run = "forward({})"
    if has_kernels(op.key):
        run = "runtime.dispatch(op, ({},), {{" + ", ".join(f"{k!r}: {k}" for k in op.keywords) + "}})"
    if variadic:
        return _variadic_source(op, out, run)
    served = has_kernels(op.key)

    def args(names: list[str]) -> str:
        return ", ".join(names) if served else passed(op, names)

    values = [f"v_{x}" for x in ins]
    if len(ins) == 1:
        x = ins[0]
        out += [f"    if isinstance({x}, Tensor): v_{x} = {x}.data; r_{x} = {x}.tracked",
                f"    elif {x}.__class__ is ndarray: return {run.format(args([x]))}",
                f"    else: return plain(op, ({x},), {_dict(op)})"]
    else:
        out += [f"    t_{x} = isinstance({x}, Tensor)" for x in ins]
        out.append(f"    if {' and '.join(f't_{x}' for x in ins)}:")
        out += [f"        v_{x} = {x}.data; r_{x} = {x}.tracked" for x in ins]
        out.append(f"    elif {' or '.join(f't_{x}' for x in ins)}:")
        out.append(f"        {', '.join(values)} = coerce(op, ({', '.join(ins)}))")
        out += [f"        r_{x} = t_{x} and {x}.tracked" for x in ins]
        out.append(f"    elif {' and '.join(f'{x}.__class__ is ndarray' for x in ins)}: return {run.format(args(list(ins)))}")
        out.append(f"    else: return plain(op, ({', '.join(ins)}), {_dict(op)})")
    out += [f"    y = {run.format(args(values))}",
            "    if y.__class__ is not ndarray: y = settle(y)"]
    wanted = [x for x in ins if x not in op.nondiff]
    if wanted:
        out.append(f"    if {' or '.join(f'r_{x}' for x in wanted)}:")
        parents = ", ".join("None" if x in op.nondiff else
                            f"(({x} if {x}.node is None else {x}.node) if r_{x} else None)" for x in ins)
        out += _record(op, parents, [_kept(op, name) for name in op.saved_names])
    out += _untracked()
    return "\n".join(out)


def _dict(op: Any) -> str:
    return "{" + ", ".join(f"{k!r}: {k}" for k in op.keywords) + "}"


def _untracked() -> list[str]:
    return ["    if y.__class__ is tuple: return runtime.untracked(y)",
            "    out = new(Tensor); out.data = y; out.grad = None; out.node = None; out.tracked = False",
            "    return out"]


def _record(op: Any, parents: str, kept: list[str]) -> list[str]:
    keywords = f"({', '.join(op.keywords)},)" if op.keywords else "()"
    return ["        m = mode()",
            "        if m.grad:",
            "            node = new(Node); node.op = op; node.seq = next_seq(); node.scope = m.scope",
            f"            node.parents = ({parents},)",
            f"            node.saved = ({', '.join(kept)},)" if kept else "            node.saved = ()",
            f"            node.keywords = {keywords}",
            "            if m.anomaly is not None: m.anomaly.recorded(node, y)",
            "            if y.__class__ is tuple: return outputs(node, y)",
            "            node.shape = y.shape; node.dtype = y.dtype",
            "            out = new(Tensor); out.data = y; out.grad = None; out.node = node; out.tracked = True",
            "            return out"]


def _kept(op: Any, name: str) -> str:
    """How a saved value is taken: only if an input whose pullback names it needs a gradient."""
    users = [x for x, (_, names) in op.rules.items() if name in names]
    needed = " or ".join(f"r_{x}" for x in users)
    if name == "y":
        value = "y"
    elif name.endswith("_meta"):
        x = name.removesuffix("_meta")
        value = f"(None if v_{x} is None else (v_{x}.shape, v_{x}.dtype))"
    else:
        value = f"v_{name}"
    if op.joint or len(users) == sum(x not in op.nondiff for x in op.inputs):
        return value  # someone needs it, or nothing is recorded at all
    return f"({value} if {needed} else None)"


def _variadic_source(op: Any, out: list[str], run: str) -> str:
    (xs,) = op.inputs
    keywords = ", ".join(f"{k}={k}" for k in op.keywords)
    stars = f"*v, {keywords}" if keywords and "dispatch" not in run else "*v"
    out += [f"    v, tensors = runtime.unwrap(op, {xs})",
            f"    y = {run.format(stars)}",
            "    if not tensors: return y",
            "    if y.__class__ is not ndarray: y = settle(y)"]
    if op.differentiable:
        kept = {"y": "y", xs: "v", f"{xs}_meta": "tuple((a.shape, a.dtype) for a in v)"}
        out.append(f"    if any(x.tracked for x in {xs} if isinstance(x, Tensor)):")
        out += _record(op, f"*map(runtime.edge, {xs})", [kept[name] for name in op.saved_names])
    return "\n".join(out + _untracked())


def _fused_source(op: Any, out: list[str]) -> str:
    names = op.inputs[0] if op.variadic else f"({', '.join(op.inputs)},)"
    kernels = "runtime.fused_kernel" if has_kernels(op.key) else "runtime.fused_inline"
    out.append(f"    return {kernels}(op, {names}, {_dict(op)})")
    return "\n".join(out)


def pull_source(op: Any) -> str:
    """Source of the pullback on arrays: call each wanted rule, fit its result to the input, add it up by edge."""
    out = ["def pull(node, parents, g, cot):"]
    if op.saved_names:
        out.append(f"    {', '.join(op.saved_names)}, = node.saved")
    used = {n for _, names in op._all_rules() for n in names}
    used_keywords = [k if k in used else "_" for k in op.keywords]
    if any(k != "_" for k in used_keywords):
        out.append(f"    {', '.join(used_keywords)}, = node.keywords")
    for name in op.saved_names:
        if name.endswith("_meta"):
            many = f"tuple(Meta(*m) for m in {name})"
            out.append(f"    if {name} is not None: {name} = {many if op.variadic else f'Meta(*{name})'}")
    if op.joint or op.variadic:
        rule, names = op.joint or next(iter(op.rules.values()))
        call = "rule" if op.joint else f"rule_{op.inputs[0]}"
        if "needs" in names:
            out.append("    needs = tuple(p is not None for p in parents)")
        out += [f"    ds = {call}({', '.join(names)})",
                "    runtime.deposit_all(op, ds, node, parents, cot)"]
        return "\n".join(out)
    own = "" if op.key.startswith("entrenar:") else "; d = runtime.owned(d, node)"
    for i, x in enumerate(op.inputs):
        if x in op.rules:
            out += [f"    p = parents[{i}]",
                    "    if p is not None:",
                    f"        d = rule_{x}({', '.join(op.rules[x][1])})" + own,
                    f"        if d.__class__ is not ndarray or d.shape != p.shape or d.dtype is not p.dtype: "
                    f"d = fit(d, p, op, {x!r})",
                    "        q = cot.get(p)",
                    "        cot[p] = d if q is None else q + d"]
    return "\n".join(out if len(out) > 1 else [*out, "    pass"])
