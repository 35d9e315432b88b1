"""Every row of en.conventions(), by its key, against the value decided; ops run on every backend."""

import numpy as np
import pytest

import entrenar as en
from entrenar.kernels import BACKENDS

inf, nan = np.inf, np.nan
HOST = [None, *(b.name for b in BACKENDS.values() if b.device == "cpu")]


@pytest.fixture(params=HOST, autouse=True)
def backend(request):
    if request.param is None:
        yield
    else:
        with en.backend(request.param):
            yield


def leaf(values):
    return en.tensor(np.array(values, np.float64), requires_grad=True)


def grad(f, *values, cotangent=None):
    """Gradients of f (all its outputs with cotangent ones) at plain values, as lists."""
    xs = [leaf(v) for v in values]
    with np.errstate(all="ignore"):
        y = f(*xs)
        gs = en.grad(
            y,
            xs,
            gradient=np.ones(y.shape) if cotangent is None else np.array(cotangent, np.float64).reshape(y.shape),
            allow_unused=True,
        )
    return [None if g is None else g.tolist() for g in gs]


def same(got, expected):
    np.testing.assert_array_equal(np.array(got, float), np.array(expected, float))


SINGULAR = {
    "div": (lambda x: 1 / x, 0.0),
    "pow": (lambda x: x**-1.5, 0.0),
    "sqrt": (en.sqrt, 0.0),
    "rsqrt": (en.rsqrt, 0.0),
    "reciprocal": (en.reciprocal, 0.0),
    "log": (en.log, 0.0),
    "log1p": (en.log1p, -1.0),
    "log2": (en.log2, 0.0),
    "exp": (en.exp, 1000.0),
    "expm1": (en.expm1, 1000.0),
    "sinh": (en.sinh, 1000.0),
    "cosh": (en.cosh, 1000.0),
    "atanh": (en.atanh, 1.0),
    "acos": (en.acos, 1.0),
    "asin": (en.asin, 1.0),
    "acosh": (en.acosh, 1.0),
    "tan of inf": (en.tan, inf),
    "sqrt of negative": (en.sqrt, -1.0),
    "log of inf": (lambda x: en.log(x * 0.0), 1.0),
}


def test_zero_cotangent_gives_zero():
    for name, (f, point) in SINGULAR.items():
        assert grad(f, [point], cotangent=[0.0]) == [[0.0]], name


def test_zero_cotangent_where():  # cases 38, 39, 48
    same(grad(lambda x: en.where(x > 0, en.sqrt(x), x), [-1.0, -4.0]), [[1, 1]])
    np.testing.assert_allclose(
        grad(lambda x: en.where(x > 2, en.log2(x), 2 * x), [0.0, 2.0, 3.0])[0], [2, 2, 1 / (3 * np.log(2))]
    )
    same(grad(lambda x: en.atanh(x) * 0.0, [0.5]), [[0]])


def test_zero_cotangent_erases_no_higher_order():
    w, x = leaf(0.0), leaf(2.0)
    gx = en.grad(w * en.log(x), x, create_graph=True)
    assert gx.item() == 0
    assert en.grad(gx, w).item() == 0.5


def test_zero_cotangent_mul_is_ieee():
    with np.errstate(all="ignore"):
        same(grad(lambda a: a * inf, [1.0], cotangent=[0.0]), [[nan]])


def test_relu_at_0():
    same(grad(en.relu, [0.0, -1.0, 1.0]), [[0, 0, 1]])


def test_four_formulas_at_0():  # case 34
    same(grad(lambda x: en.maximum(x, 0.0), [0.0]), [[0.5]])
    same(grad(lambda x: en.clip(x, 0.0, None), [0.0]), [[1]])


def test_abs_at_0():
    same(grad(en.abs, [0.0, -2.0]), [[0, -1]])
    same(grad(en.sign, [0.0, -2.0]), [[0, 0]])


def test_maximum_ties():  # cases 32, 33
    same(grad(en.maximum, [1.0, 2.0], [1.0, 3.0]), [[0.5, 0], [0.5, 1]])
    same(grad(en.minimum, [1.0, 2.0], [1.0, 3.0]), [[0.5, 1], [0.5, 0]])
    same(grad(lambda x: en.maximum(x, x), [1.0]), [[1]])
    same(grad(lambda x: en.max(en.stack([x, x]), axis=0), [1.0]), [[1]])


def test_max_ties():  # cases 31, 33, 36
    same(grad(en.max, [1.0, 1.0]), [[0.5, 0.5]])
    same(grad(en.min, [1.0, 1.0, 2.0, 3.0]), [[0.5, 0.5, 0, 0]])
    same(grad(lambda x: en.max(x, axis=1), [[2.0, 2.0, 2.0], [1.0, 5.0, 0.0]]), [[[1 / 3] * 3, [0, 1, 0]]])
    many = en.ones(70_000, dtype=np.float16, requires_grad=True)
    en.max(many).backward()
    assert many.grad.data[0] == np.float16(1 / 70_000)
    assert np.isnan(en.max(leaf([1.0, nan])).item())
    assert en.nanmax(leaf([1.0, nan])).item() == 1
    same(grad(en.nanmax, [1.0, nan]), [[1, 0]])


def test_argmax_ties():
    y = en.argmax(leaf([1.0, 3.0, 3.0]))
    assert (y.item(), y.requires_grad, y.dtype.kind) == (1, False, "i")
    assert en.argmin(leaf([1.0, 1.0])).item() == 0


def test_clip_at_bound():
    same(grad(lambda x: en.clip(x, -1.0, 1.0), [-1.0, 1.0, 2.0, 0.0]), [[1, 1, 0, 1]])


def test_rounding():
    for f in (en.floor, en.ceil, en.round, en.sign):
        same(grad(f, [0.5, 2.0]), [[0, 0]])
        assert np.isnan(f(leaf([nan])).data[0])


def test_sqrt_at_0():
    same(grad(en.sqrt, [0.0]), [[inf]])
    same(grad(lambda x: x**0.5, [0.0]), [[inf]])


@pytest.mark.parametrize(("p", "d"), [(2.0, 0), (1.5, 0), (1.0, 1), (0.5, inf), (0.0, 0), (-1.0, -inf), (-0.5, -inf)])
def test_pow_at_0(p, d):
    same(grad(lambda x: x**p, [0.0]), [[d]])
    same(grad(lambda x: en.pow(x, leaf([p])), [0.0]), [[d]])


def test_pow_zero_is_constant_at_every_order():
    x = leaf([0.0, 2.0, -3.0])
    g = en.grad((x**0.0).sum(), x, create_graph=True)
    assert g.tolist() == [0, 0, 0]
    assert en.grad(g.sum(), x).tolist() == [0, 0, 0]


def test_pow_exponent_at_0():  # cases 42, 51
    np.testing.assert_allclose(grad(en.pow, [0.0, 2.0], [1.0, 1.0])[1], [0, 2 * np.log(2)])
    same(grad(en.pow, [0.0], [0.0])[1], [0])
    same(grad(en.pow, [0.0], [-1.0])[1], [nan])
    b, p = leaf(0.0), leaf(0.0)
    gp = en.grad(en.pow(b, p), p, create_graph=True)
    assert en.grad(gp, p, allow_unused=True).item() == 0


def test_pow_higher_orders_at_0():  # case 41
    for square in (lambda x: x**2, lambda x: en.pow(x, 2.0), lambda x: x * x):
        d = lambda x, square=square: en.exp(-square(x))
        values = []
        for _ in range(4):
            d = en.func.grad(d)
            values.append(d(leaf(0.0)).item())
        np.testing.assert_allclose(values, [0, -2, 0, 12], atol=1e-12)


def test_norm_at_0():  # cases 27, 35
    same(grad(en.norm, [0.0, 0.0]), [[0, 0]])
    np.testing.assert_allclose(grad(lambda x: en.norm(x, axis=1), [[0.0, 0.0], [3.0, 4.0]])[0], [[0, 0], [0.6, 0.8]])
    same(grad(lambda x: en.norm(x) ** 2, [0.0, 0.0]), [[0, 0]])
    same(grad(lambda x: en.norm(x, inf), [2.0, -2.0, 1.0]), [[0.5, -0.5, 0]])


def test_normalize_at_0():  # case 29
    assert en.normalize(leaf([0.0] * 3)).tolist() == [0, 0, 0]
    eps = 1e-12
    np.testing.assert_allclose(grad(lambda x: en.normalize(x, eps=eps), [0.0] * 3)[0], [1 / eps] * 3)


def test_std_of_constants():  # case 30
    same(grad(en.std, [1.0, 1.0]), [[0, 0]])
    same(grad(en.var, [1.0, 1.0]), [[0, 0]])
    same(grad(en.std, [5.0]), [[0]])
    with pytest.warns(RuntimeWarning, match=r"degrees of freedom"):
        assert np.isnan(en.std(leaf([5.0]), ddof=1).item())


def test_prod_with_zeros():  # case 10
    same(grad(en.prod, [2.0, 0.0, 3.0]), [[0, 6, 0]])
    same(grad(en.prod, [0.0, 0.0, 3.0]), [[0, 0, 0]])
    same(grad(lambda x: en.prod(x, 0), [0.0]), [[1]])
    second = en.func.hessian(en.prod)(leaf([0.0, 0.0, 3.0])).data
    same(second, [[0, 3, 0], [3, 0, 0], [0, 0, 0]])


def test_logsumexp_inf():  # cases 45, 47
    assert en.logsumexp(leaf([-inf, -inf])).item() == -inf
    same(grad(en.logsumexp, [-inf, -inf]), [[0, 0]])
    same(grad(en.logsumexp, [-inf, 1.0]), [[0, 1]])
    assert en.logcumsumexp(leaf([-inf, -inf, 0.0]), axis=0).tolist() == [-inf, -inf, 0]


def test_softmax_inf():
    assert en.softmax(leaf([[-inf, -inf], [0.0, -inf]]), axis=-1).tolist() == [[0, 0], [1, 0]]
    same(grad(lambda x: en.softmax(x, axis=-1), [[-inf, -inf]], cotangent=[[1.0, 2.0]]), [[[0, 0]]])
    q = en.tensor(np.ones((1, 1, 2, 4)))
    y = en.scaled_dot_product_attention(q, q, q, mask=np.array([[True, True], [False, False]]))
    assert y.data[0, 0].tolist() == [[1] * 4, [0] * 4]


def test_zero_log_zero():
    assert en.xlogy(leaf(0.0), leaf(0.0)).item() == 0
    same(grad(en.xlogy, [0.0], [2.0])[1], [0])
    assert en.kl_div(en.log(en.tensor(np.array([[0.5, 0.5]]))), np.array([[1.0, 0.0]])).item() == pytest.approx(
        np.log(2)
    )


def test_atan2_origin():  # case 50
    assert en.atan2(leaf(0.0), leaf(0.0)).item() == 0
    same(grad(en.atan2, [0.0], [0.0]), [[nan], [nan]])
    same(grad(en.atan2, [0.0], [0.0], cotangent=[0.0]), [[0], [0]])
    dy, dx = grad(en.atan2, [0.0], [1.0])
    assert (dy, dx) == ([1], [0])
    assert np.signbit(dx[0])


def test_empty_axes():  # case 9
    for f in (lambda x: en.cumsum(x, axis=1), lambda x: en.cumprod(x, axis=1), lambda x: en.prod(x, axis=1)):
        x = en.zeros(2, 0, dtype=np.float64, requires_grad=True)
        f(x).sum().backward()
        assert x.grad.shape == (2, 0)
    assert en.prod(en.zeros(2, 0), axis=1).tolist() == [1, 1]


def test_gather_duplicates():  # case 59
    same(grad(lambda x: x[[0, 0]], [1.0]), [[2]])
    same(grad(lambda x: en.take(x, np.array([1, 1, 0]), axis=0), [1.0, 2.0]), [[1, 2]])
    same(grad(lambda x: en.index_fill(x, 0, np.array([2, 2]), 5.0), [1.0, 2.0, 3.0]), [[1, 1, 0]])


def test_gather_duplicates_index_fill_counts_cells():  # case 61
    v = leaf(5.0)
    en.index_fill(leaf([1.0, 2.0, 3.0]), 0, np.array([2, 2]), v).sum().backward()
    assert v.grad.item() == 1


def test_setitem_duplicates():  # case 62
    v = leaf([1.0, 2.0, 3.0])
    x = leaf([0.0, 0.0]) * 1.0
    x[[0, 0, 0]] = v
    assert x.tolist() == [3, 0]
    x.sum().backward()
    assert v.grad.tolist() == [0, 0, 1]


def test_integers():  # case 52
    with pytest.raises(TypeError, match=r"astype\(float32\)"):
        en.tensor([1, 2], requires_grad=True)


def test_dtypes_of_gradients():  # case 55; every op: test_ops.py
    x = en.tensor(np.ones(3, np.float32), requires_grad=True)
    (x * np.float64(2) / 3).sum().backward()
    assert x.grad.dtype == np.float32


def test_low_floats():
    for dtype in (np.float16, en.bfloat16):
        assert float(en.ones(4096, dtype=dtype).sum()) == 4096


def test_numpy_or_pytorch():
    x = leaf([[1.0, 2.0], [3.0, 5.0]])
    assert en.std(x).item() == np.std(x.data)
    assert [t.shape for t in en.split(leaf(np.zeros(6)), 3)] == [(2,)] * 3
    assert en.max(x, axis=0).tolist() == [3, 5]
    assert en.transpose(leaf(np.zeros((2, 3, 4))), (2, 0, 1)).shape == (4, 2, 3)
    logits, target = leaf(np.arange(24.0).reshape(2, 3, 4) % 5), np.zeros((2, 4), int)
    by_axis = en.cross_entropy(logits, target, axis=1).item()
    assert by_axis == pytest.approx(en.cross_entropy(en.moveaxis(logits, 1, -1), target).item())


def test_complex():
    with pytest.raises(TypeError, match="complex128"):
        en.tensor(np.ones(2, complex))


def test_numbers():
    for kind in (float, int, bool):
        with pytest.raises(TypeError, match=r"\.item\(\)"):
            kind(leaf(1.0))


def test_ndarray_op_tensor():
    x = leaf([1.0, 2.0])
    for y in (np.ones(2) + x, x + np.ones(2), np.multiply(x, x), np.concatenate([x, np.ones(2)]), np.float64(2) * x):
        assert isinstance(y, en.Tensor)
        assert y.requires_grad


def test_asarray():
    with pytest.raises(TypeError, match=r"\.detach\(\)\.numpy\(\)"):
        np.asarray(leaf(1.0))


def test_second_backward():
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 8]
    with pytest.raises(en.GraphError, match="second time"):
        y.backward()


def test_non_scalar_backward():
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        (leaf(np.ones((2, 3))) * 2).backward()


def test_non_finite_loss():
    with (
        en.detect_anomaly(),
        np.errstate(all="ignore"),
        pytest.raises(en.AnomalyError, match=r"log at .*test_conventions"),
    ):
        en.log(leaf([-1.0])).sum().backward()


def test_bf16_rounding():
    for value, bits in ((3.14, 0x4049), (1 + 2**-8, 0x3F80), (1 + 3 * 2**-8, 0x3F82)):
        assert en.tensor(np.float32(value)).astype(en.bfloat16).data.view(np.uint16) == bits


def test_random_numbers():
    raw = np.random.Philox(key=np.array([3, 0], np.uint64)).random_raw(6)
    assert np.array_equal(en.Generator(3).uniform((6,), np.float64), (raw >> np.uint64(11)) / 2**53)


# rows tested where their code lives: key -> test file
ELSEWHERE = {
    "warm_up": "optim",
    "accumulation": "train",
    "yaml_scalars": "io",
    "exit_status": "cli",
}


def test_every_row_has_a_test():
    from . import test_conventions_training as training

    names = [n.removeprefix("test_") for n in (*globals(), *vars(training)) if n.startswith("test_")]
    missing = [
        r.key for r in en.conventions() if r.key not in ELSEWHERE and not any(n.startswith(r.key) for n in names)
    ]
    assert missing == []
    assert str(en.conventions()).count("\n") == len(en.conventions()) - 1
