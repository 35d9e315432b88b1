"""Planted faults: each takes the right (f, vjp) of an op and returns one that is wrong in one known way."""

from __future__ import annotations

import numpy as np

import entrenar as en


def right(name, **kwargs):
    """The sound pair of an op: f on arrays, vjp by the tape."""
    op = getattr(en, name)

    def f(*arrays):
        return np.asarray(op(*arrays, **kwargs))

    def vjp(g, *arrays):
        tensors = [en.Tensor(np.array(a), requires_grad=True) if np.asarray(a).dtype.kind == "f" else a for a in arrays]
        wanted = [t for t in tensors if isinstance(t, en.Tensor)]
        got = iter(en.grad(op(*tensors, **kwargs), wanted, gradient=np.array(g)))
        return tuple(next(got).data.copy() if isinstance(t, en.Tensor) else None for t in tensors)

    return f, vjp


def on_first(change):
    """A fault that changes the gradient of the first input."""
    return lambda f, vjp: (f, lambda g, *xs: (change(vjp(g, *xs)[0]), *vjp(g, *xs)[1:]))


sign = on_first(lambda d: -d)
constant_factor = on_first(lambda d: d * 0.5)
detached = on_first(lambda d: np.zeros_like(d))
dtype = on_first(lambda d: d.astype(np.float32))
transposed = on_first(lambda d: np.ascontiguousarray(np.swapaxes(d, -1, -2)))


def swapped_inputs(f, vjp):
    def wrong(g, *xs):
        first, second, *rest = vjp(g, *xs)
        return (second, first, *rest)

    return f, wrong


def missing_broadcast_sum(f, vjp):
    """The gradient of a stretched input is taken from one slice instead of summed."""

    def wrong(g, *xs):
        ds = list(vjp(g, *xs))
        shape = np.shape(g)
        for i, x in enumerate(xs):
            if np.shape(x) != shape:
                full = vjp(g, *(np.broadcast_to(v, shape) if j == i else v for j, v in enumerate(xs)))[i]
                lead = full.ndim - np.ndim(x)
                part = full[(0,) * lead]
                ds[i] = part[tuple(slice(0, n) for n in np.shape(x))]
        return tuple(ds)

    return f, wrong


def missing_broadcast_shape(f, vjp):
    """The gradient of a stretched input keeps the shape of the output."""

    def wrong(g, *xs):
        shape = np.shape(g)
        return tuple(
            vjp(g, *(np.broadcast_to(v, shape) if j == i else v for j, v in enumerate(xs)))[i] for i, _ in enumerate(xs)
        )

    return f, wrong


def overwritten_duplicates(f, vjp):
    """Where several outputs read one element, only the last one's cotangent arrives."""

    def wrong(g, *xs):
        x, rest = xs[0], xs[1:]
        places = np.asarray(f(np.arange(x.size, dtype=float).reshape(x.shape), *rest)).round().astype(int)
        d = np.zeros(x.size)
        d[places.ravel()] = np.asarray(g).ravel()
        return (d.reshape(x.shape), *vjp(g, *xs)[1:])

    return f, wrong


def missing_term(f, vjp):
    """The diagonal of the Jacobian is right, the rest is forgotten."""

    def wrong(g, *xs):
        x = xs[0]
        d = np.zeros(x.size)
        flat = np.asarray(g).ravel()
        for i in range(min(x.size, flat.size)):
            one = np.zeros(flat.size)
            one[i] = flat[i]
            d[i] = vjp(one.reshape(np.shape(g)), *xs)[0].ravel()[i]
        return (d.reshape(x.shape), *vjp(g, *xs)[1:])

    return f, wrong


def stale_saved_value(f, vjp):
    """The pullback uses what the latest forward saved, whichever point it is asked about."""
    saved = []

    def forward(*xs):
        saved[:] = [np.array(x) for x in xs]
        return f(*xs)

    return forward, lambda g, *xs: vjp(g, *(saved or xs))


def mutated_cotangent(f, vjp):
    def wrong(g, *xs):
        ds = vjp(g, *xs)
        if np.asarray(g).flags.writeable:
            np.multiply(g, 2, out=g)
        return ds

    return f, wrong


def stride_assumption(f, vjp):
    """The memory of the cotangent is read in order, whatever its strides say."""

    def wrong(g, *xs):
        g = np.asarray(g)
        if g.flags.c_contiguous:
            return vjp(g, *xs)
        base = g if g.base is None else g.base
        memory = np.resize(np.asarray(base).ravel(order="K"), g.size)
        return vjp(np.nan_to_num(memory).reshape(g.shape), *xs)

    return f, wrong
