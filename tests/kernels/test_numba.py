"""Every Numba kernel against the composite it stands for: values, derivatives of order 1 to 3, NaN, dtypes, threads."""

import numpy as np
import pytest

import entrenar as en
from entrenar.autograd import OPS
from entrenar.kernels import BACKENDS, KERNELS, REFERENCE, SERVED, pool

from ..contract.calls import cotangents, gradients, is_input, leaves, outputs, samples_of

inf, nan = np.inf, np.nan
SERVED_OPS = sorted(BACKENDS["numba"].ops)
every_kernel = pytest.mark.parametrize(
    "fn", [OPS[k] for k in SERVED_OPS], ids=[k.partition(":")[2] for k in SERVED_OPS]
)


def close(a, b, rtol, what):
    scale = max(1.0, float(np.nanmax(np.abs(np.where(np.isfinite(b), b, 0)), initial=0)))
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale, err_msg=what)


def both(run):
    """What run gives with the kernels, and by the composite."""
    with np.errstate(all="ignore"), en.backend("numba"):
        by_kernel = run()
    with np.errstate(all="ignore"), en.backend(REFERENCE):
        return by_kernel, run()


@every_kernel
def test_forward_and_pullback_have_a_kernel_that_really_runs(fn):
    s = samples_of(fn)[0]
    with en.backend("numba"):
        y = fn(*leaves(fn, s.args)[0], **s.kwargs)
    assert {k.backend for name in (fn.op.key, f"{fn.op.key}.vjp") for k in KERNELS.get(name, ())} == {"numba"}
    assert "numba" in SERVED[fn.op.key]
    assert [n.op.name for n in en.tape(*outputs(y)).nodes if n.op.name != "item"] == [fn.op.name]


@every_kernel
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 3e-5)])
def test_values_and_gradients(fn, dtype, rtol):
    for s in samples_of(fn):

        def run(s=s):
            made, wanted = leaves(fn, s.args, dtype)
            ys = outputs(fn(*made, **s.kwargs))
            return [t.data for t in (*ys, *en.grad(ys, wanted, gradient=cotangents(ys)))]

        for a, b in zip(*both(run), strict=True):
            assert a.dtype == b.dtype == dtype
            close(a, b, rtol, s.label)


@every_kernel
@pytest.mark.parametrize("order", [2, 3])
def test_higher_derivatives(fn, order):
    for s in samples_of(fn):

        def run(s=s):
            made, xs = leaves(fn, s.args)
            rng = np.random.default_rng(0)
            total = sum((y * en.tensor(rng.normal(size=y.shape))).sum() for y in outputs(fn(*made, **s.kwargs)))
            for _ in range(order - 1):
                gs = en.grad(total, xs, create_graph=True, allow_unused=True)
                total = sum((g * en.tensor(rng.normal(size=g.shape))).sum() for g in gs if g is not None)
                if not total.requires_grad:  # what is left is linear
                    return []
            return [np.zeros(()) if g is None else g.data for g in en.grad(total, xs, allow_unused=True)]

        for a, b in zip(*both(run), strict=True):
            close(a, b, 1e-11, s.label)


@every_kernel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_nan_and_infinities_are_those_of_the_composite(fn, dtype):
    rng = np.random.default_rng(1)
    for s in samples_of(fn):
        for bad in (nan, inf, -inf, 3e4):
            args = [a.astype(dtype) if is_input(fn.op, i, a) else a for i, a in enumerate(s.args)]
            i = next(i for i, a in enumerate(args) if is_input(fn.op, i, a))
            if not args[i].size:
                continue
            args[i] = args[i].copy()
            args[i].flat[rng.integers(args[i].size)] = bad

            def run(args=args, s=s):
                ys, gs = gradients(fn, args, s.kwargs)
                return [t.data for t in (*ys, *gs)]

            for a, b in zip(*both(run), strict=True):
                close(a, b, 3e-5 if dtype is np.float32 else 1e-11, f"{s.label} with {bad}")


NO_FLOAT16 = {  # whose products no processor has
    *("gelu_linear", "norm_linear", "linear_loss", "swiglu_linear"),
    *("rms_norm_linear", "rms_norm_linear_pair", "rms_norm_linear_triple"),
}


@every_kernel
@pytest.mark.parametrize(("dtype", "rtol"), [("float16", 2**-10), ("bfloat16", 2**-7)])
def test_16_bit_floats_are_computed_in_float32_and_rounded(fn, dtype, rtol):
    dtype = en.array.as_dtype(dtype)
    SERVED.pop(fn.op.key, None)
    for s in samples_of(fn):
        args = [a.astype(dtype) if is_input(fn.op, i, a) else a for i, a in enumerate(s.args)]

        def run(kind, args=args, s=s):
            made, wanted = leaves(fn, [a.astype(kind) if is_input(fn.op, i, a) else a for i, a in enumerate(args)])
            ys = outputs(fn(*made, **s.kwargs))
            gs = tuple(c.astype(dtype).astype(kind) for c in cotangents(ys))
            return [t.data for t in (*ys, *en.grad(ys, wanted, gradient=gs))]

        with np.errstate(all="ignore"):
            ours = run(dtype)
            with en.backend(REFERENCE):
                exact = run(np.float64)
        for a, b in zip(ours, exact, strict=True):
            assert a.dtype == dtype
            close(a.astype(np.float64), b, rtol, s.label)
    assert (fn.op.key in SERVED) != (dtype == np.float16 and fn.op.name in NO_FLOAT16)


LARGE = {
    "add_layer_norm": ((600, 70), (600, 70), (70,), (70,)),
    "add_rms_norm": ((600, 70), (600, 70), (70,)),
    "attention": ((2, 4, 600, 8), (2, 2, 600, 8), (2, 2, 600, 8)),
    "gelu_linear": ((600, 70), (80, 70), (80,)),
    "layer_norm": ((600, 70), (70,), (70,)),
    "norm_linear": ((600, 70), (70,), (70,), (80, 70), (80,)),
    "linear_loss": ((600, 70), (80, 70), (80,)),
    "rms_norm": ((600, 70), (70,)),
    "rms_norm_linear": ((600, 70), (70,), (80, 70), (80,)),
    "rms_norm_linear_pair": ((600, 70), (70,), (80, 70), (90, 70), (80,)),
    "rms_norm_linear_triple": ((600, 70), (70,), (80, 70), (90, 70), (30, 70), (80,)),
    "swiglu": ((600, 70), (600, 70)),
    "swiglu_linear": ((600, 70), (600, 70), (80, 70), (80,)),
    "rotate": ((600, 70), (600, 20), (600, 20)),
}
INTEGERS = {  # where they stand, how many
    "row_losses": (1, 600),
    "linear_loss": (2, 600),
    "embedding": (0, 900),
    "embedding_sum": (0, 600),
}


@every_kernel
def test_threads_change_no_bit(fn):
    rng = np.random.default_rng(0)
    args = [rng.normal(size=n).astype(np.float32) for n in LARGE.get(fn.op.name, ((600, 70),))]
    assert args[0].size > pool.WORTHWHILE
    kwargs = {k: v for k, v in samples_of(fn)[0].kwargs.items() if k != "causal"}
    if fn.op.name in INTEGERS:
        at, count = INTEGERS[fn.op.name]
        args.insert(at, rng.integers(0, 70, count))
    if fn.op.name == "embedding_sum":
        kwargs["count"] = 80
    if fn.op.name == "attention":
        kwargs["causal"] = True
    before, results = pool.threads(), []
    try:
        for count in (1, 3, 2):
            pool.limit(count)
            ys, gs = gradients(fn, args, kwargs)
            results.append([t.data.tobytes() for t in (*ys, *gs)])
    finally:
        pool.limit(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"causal": True},
        {"causal": True, "window": 3},
        {"window": 3},
        {"causal": True, "offset": 4},
        {"causal": True, "offset": -3},
    ],
)
def test_attention_in_several_blocks(monkeypatch, how):
    from entrenar.kernels.numba import attention as kernels

    monkeypatch.setattr(kernels, "BUFFER", 24)
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(2, 4, 7, 3)), rng.normal(size=(2, 2, 9, 3)), rng.normal(size=(2, 2, 9, 2))
    mask = rng.normal(size=(4, 1, 9))
    keep = rng.random((2, 4, 7, 9)) > 0.3
    kwargs = {"scale": 0.6, "causal": False, "window": None, "offset": 0, "dropout": 0.3, **how}

    def run():
        xs = [en.tensor(a, requires_grad=True) for a in (q, k, v)]
        y = OPS["entrenar:attention"](*xs, mask, keep, **kwargs)
        return [t.data for t in (y, *en.grad(y, xs, gradient=np.cos(np.arange(y.size)).reshape(y.shape)))]

    for a, b in zip(*both(run), strict=True):
        close(a, b, 1e-12, "")


def test_attention_keeps_no_scores():
    q = en.tensor(np.zeros((1, 2, 64, 4), np.float32), requires_grad=True)
    y = en.scaled_dot_product_attention(q, q, q, causal=True)
    kept, hints = y.node.saved
    assert max(a.size for a in (*kept, *hints.values.values()) if a is not None) == q.size
