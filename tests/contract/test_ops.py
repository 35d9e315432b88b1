"""One contract for every row of the op table; a new op is tested by being declared."""

import inspect

import numpy as np
import pytest

import entrenar as en
from entrenar.autograd.samples import fortran, reversed_, strided

from .calls import DIFFERENTIABLE, OURS, cotangents, edges_of, gradients, is_input, leaves, outputs, samples_of

every_op = pytest.mark.parametrize("fn", OURS.values(), ids=[k.partition(":")[2] for k in OURS])
every_differentiable = pytest.mark.parametrize(
    "fn", DIFFERENTIABLE.values(), ids=[k.partition(":")[2] for k in DIFFERENTIABLE]
)


def equal(a, b):
    np.testing.assert_array_equal(np.asarray(a, np.float64), np.asarray(b, np.float64))


@every_op
def test_it_is_documented_and_sampled(fn):
    assert inspect.getdoc(fn)
    assert samples_of(fn)


@every_differentiable
def test_samples_reach_an_empty_array(fn):
    arrays = [a for s in fn.op.samples(np.random.default_rng(0)) for i, a in enumerate(s.args) if is_input(fn.op, i, a)]
    assert any(a.size > 1 for a in arrays)
    if fn.op.broadcasts or fn.op.inputs == ("x",):
        assert any(a.size == 0 for a in arrays) or any(np.size(fn(*s.args, **s.kwargs)) == 0 for s in samples_of(fn))


@every_op
def test_arrays_and_tensors_agree_and_inputs_are_left_alone(fn):
    for s in samples_of(fn):
        before = [np.array(a) if isinstance(a, np.ndarray) else a for a in s.args]
        plain = fn(*s.args, **s.kwargs)
        wrapped = fn(*leaves(fn, s.args)[0], **s.kwargs)
        for p, w in zip(
            plain if isinstance(plain, tuple) else (plain,),
            wrapped if isinstance(wrapped, tuple) else (wrapped,),
            strict=True,
        ):
            value = w.data if isinstance(w, en.Tensor) else w
            np.testing.assert_allclose(
                np.asarray(p, np.float64), np.asarray(value, np.float64), rtol=1e-12, atol=1e-300
            )
        for a, b in zip(s.args, before, strict=True):
            if isinstance(a, np.ndarray):
                np.testing.assert_array_equal(a, b)


@every_differentiable
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gradients_have_the_dtype_and_shape_of_their_input(fn, dtype):  # case 55
    wanted = en.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for s in samples_of(fn):
        kwargs = {k: wanted if isinstance(v, np.dtype) else v for k, v in s.kwargs.items()}
        made, inputs = leaves(fn, s.args, wanted)
        if not inputs:
            continue
        ys = outputs(fn(*made, **kwargs))
        gs = en.grad(ys, inputs, gradient=cotangents(ys), allow_unused=True)
        for y in ys:
            assert y.dtype == wanted, s.label
        for x, g in zip(inputs, gs, strict=True):
            assert g is not None, s.label
            assert (g.dtype, g.shape) == (x.dtype, x.shape), s.label


@every_differentiable
def test_strided_reversed_and_fortran_inputs_and_cotangents_change_nothing(fn):  # cases 177-182
    for s in samples_of(fn):
        ys, expected = gradients(fn, s.args, s.kwargs, change=lambda a: np.array(a, order="C"))
        gs = cotangents(ys)
        for layout in (strided, reversed_, fortran):
            if any(g.ndim == 0 for g in gs) and layout is strided:
                continue
            again, got = gradients(
                fn,
                s.args,
                s.kwargs,
                [layout(g) if g.ndim else g for g in gs],
                change=lambda a, layout=layout: layout(a) if a.ndim else a,
            )
            for y, z in zip(ys, again, strict=True):
                np.testing.assert_allclose(z.data, y.data, rtol=1e-13, atol=1e-13)
            for a, b in zip(expected, got, strict=True):
                np.testing.assert_allclose(b.data, a.data, rtol=1e-12, atol=1e-12)


@every_differentiable
def test_a_stride_0_cotangent_is_like_its_copy(fn):
    for s in samples_of(fn):
        made, wanted = leaves(fn, s.args)
        ys = outputs(fn(*made, **s.kwargs))
        thin = [np.broadcast_to(np.array(0.75), y.shape) for y in ys]
        a = en.grad(ys, wanted, gradient=thin, retain_graph=True)
        b = en.grad(ys, wanted, gradient=[g.copy() for g in thin])
        for p, q in zip(a, b, strict=True):
            np.testing.assert_allclose(p.data, q.data, rtol=1e-13, atol=1e-13)


@every_differentiable
def test_pullbacks_on_tensors_and_on_arrays_agree(fn):
    for s in samples_of(fn):
        _, first = gradients(fn, s.args, s.kwargs)
        _, graph = gradients(fn, s.args, s.kwargs, create_graph=True)
        for a, b in zip(first, graph, strict=True):
            np.testing.assert_allclose(b.data, a.data, rtol=1e-12, atol=1e-13, err_msg=s.label)


@every_differentiable
def test_a_pullback_is_linear_and_zero_at_zero(fn):
    for s in samples_of(fn):
        ys, once = gradients(fn, s.args, s.kwargs)
        gs = cotangents(ys)
        _, twice = gradients(fn, s.args, s.kwargs, [2 * g for g in gs])
        _, none = gradients(fn, s.args, s.kwargs, [0 * g for g in gs])
        for a, b, z in zip(once, twice, none, strict=True):
            np.testing.assert_allclose(b.data, 2 * a.data, rtol=1e-12, atol=1e-14)
            assert not z.data.any()


@every_differentiable
def test_gradients_own_their_memory(fn):
    for s in samples_of(fn):
        made, wanted = leaves(fn, s.args, change=np.array)
        ys = outputs(fn(*made, **s.kwargs))
        gs = cotangents(ys)
        en.backward(ys, gs)
        arrays = [t.grad.data for t in wanted]
        for i, a in enumerate(arrays):
            assert a.flags.writeable
            for other in [*arrays[:i], *gs, *(t.data for t in wanted), *(y.data for y in ys)]:
                assert not np.shares_memory(a, other)


@every_op
def test_edge_points_have_the_values_decided(fn):
    for s in edges_of(fn):
        made, wanted = leaves(fn, s.args)
        with np.errstate(all="ignore"):
            y = fn(*made, **s.kwargs)
            if s.value is not None:
                first = y[0] if isinstance(y, tuple) else y
                np.testing.assert_allclose(
                    first.data if isinstance(first, en.Tensor) else first, s.value, rtol=1e-14, err_msg=s.label
                )
            if s.grads is None:
                continue
            ys = outputs(y)
            gs = [np.ones(t.shape) for t in ys] if s.cotangent is None else [np.asarray(s.cotangent, np.float64)]
            got = iter(en.grad(ys, wanted, gradient=gs, allow_unused=True))
        for i, expected in enumerate(s.grads):
            if is_input(fn.op, i, s.args[i]):
                g = next(got)
                if expected is not None:
                    equal_or_close(g.data, expected, s.label)


def equal_or_close(got, expected, label):
    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=0, err_msg=label)


@every_op
def test_python_rejects_unknown_keywords_by_name(fn):
    s = samples_of(fn)[0]
    with pytest.raises(TypeError, match="nonsense"):
        fn(*s.args, **s.kwargs, nonsense=1)


def test_every_public_op_is_at_the_top_level():
    from entrenar.ops import PUBLIC

    for name in PUBLIC:
        assert getattr(en, name) is PUBLIC[name]
    for name in ("exp", "sum", "matmul", "layer_norm", "cross_entropy", "scaled_dot_product_attention"):
        assert name in PUBLIC
