"""Living with NumPy: ufuncs, functions, mixed arithmetic, DLPack (cases 52-58)."""

import copy
import pickle

import numpy as np
import pytest

import entrenar as en


def leaf(*values):
    return en.tensor(np.array(values), requires_grad=True)


@pytest.mark.parametrize("other", [np.ones(2), np.float64(2), np.float32(2), 2.0, 2, [1.0, 2.0], np.array(3.0)])
@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "**"])
def test_mixed_arithmetic_gives_a_tracked_tensor_both_ways(symbol, other):  # case 58
    t = leaf(1.5, 2.5)
    names = {"t": t, "o": other}
    left, right = eval(f"t {symbol} o", names), eval(f"o {symbol} t", names)
    for y, a, b in ((left, t.data, np.asarray(other)), (right, np.asarray(other), t.data)):
        assert isinstance(y, en.Tensor)
        assert y.requires_grad
        np.testing.assert_allclose(y.data, eval(f"a {symbol} b", {"a": a, "b": b}))
        y.sum().backward()


def test_matmul_with_arrays_both_ways():
    t = en.tensor(np.eye(2), requires_grad=True)
    for y in (np.eye(2) @ t, t @ np.eye(2), np.eye(2) + t):
        assert y.requires_grad
        y.sum().backward()


def test_ufuncs_are_ops():
    x = leaf(1.0, 2.0)
    np.multiply(x, x).sum().backward()
    assert x.grad.tolist() == [2, 4]
    for ours, theirs in (
        (np.exp(x), np.exp),
        (np.sqrt(x), np.sqrt),
        (np.arctan(x), np.arctan),
        (np.negative(x), np.negative),
    ):
        assert ours.requires_grad
        np.testing.assert_allclose(ours.data, theirs(x.data), rtol=1e-15)
    assert np.add.reduce(x).item() == 3
    assert np.maximum(x, 1.5).tolist() == [1.5, 2]


def test_functions_are_ops():
    x = leaf(1.0, 2.0)
    a = np.arange(2.0)
    for y in (
        np.concatenate([x, a]),
        np.stack([a, x]),
        np.sum(x),
        np.mean(x, axis=0),
        np.where(a > 0, x, a),
        np.reshape(x, (2, 1)),
        np.dot(a, x),
        np.linalg.norm(x),
        np.einsum("i,i", x, a),
        np.clip(x, 0, 1),
        np.squeeze(x),
        np.max(x),
        np.std(x),
        np.cumsum(x),
        np.sort(x),
        np.tensordot(x, a, 1),
        np.outer(x, a),
    ):
        assert isinstance(y, en.Tensor)
        assert y.requires_grad
    assert np.shape(x) == (2,)
    assert np.argmax(x).item() == 1


def test_what_has_no_gradient_here_says_so():
    x = leaf(1.0, 2.0)
    with pytest.raises(TypeError, match=r"np.i0|np.sinc"):
        np.sinc(x)
    with pytest.raises(TypeError, match="has no gradient in entrenar"):
        np.spacing(x)
    assert isinstance(np.spacing(x.detach()), en.Tensor)
    with pytest.raises(TypeError, match="out=array"):
        np.exp(x, out=np.zeros(2))


def test_asarray_and_numbers_of_a_tracked_tensor():
    x = leaf(1.0)
    with pytest.raises(TypeError, match=r"\.detach\(\)\.numpy\(\)"):
        np.asarray(x)
    with pytest.raises(TypeError, match=r"\.detach\(\)\.numpy\(\)"):
        x.numpy()
    for kind in (float, int, bool):
        with pytest.raises(TypeError, match=r"\.item\(\)"):
            kind(x)
        kind(x.detach())
    assert x.item() == 1.0
    assert np.asarray(x.detach()).tolist() == [1]
    with pytest.raises(ValueError, match=r"\(2,\)"):
        bool(en.zeros(2))


def test_untracked_tensors_share_memory_with_numpy():
    a = np.zeros(3)
    t = en.from_numpy(a)
    t += 1
    assert a.tolist() == [1, 1, 1]
    assert t.numpy() is a
    assert en.tensor(a).data is not a
    with pytest.raises(TypeError, match="list"):
        en.from_numpy([1])


def test_dlpack_both_ways():
    t = en.tensor(np.arange(3.0))
    assert np.shares_memory(np.from_dlpack(t), t.data)
    assert np.shares_memory(en.from_dlpack(t.data).data, t.data)
    with pytest.raises(TypeError, match="detach"):
        np.from_dlpack(leaf(1.0))


def test_integer_cast_for_indexing():  # case 54
    w = en.tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    x = en.tensor(np.array([[0.0, 2.0], [1.0, 1.0]]), requires_grad=True)
    y = w[x[:, -1].astype(int)]
    y.sum().backward()
    assert w.grad.tolist() == [[0, 0], [1, 1], [1, 1]]
    assert x.grad is None


def test_comparisons_are_boolean_tensors():
    x = leaf(1.0, 2.0)
    assert (x > 1.5).tolist() == [False, True]
    assert (x == np.array([1.0, 3.0])).tolist() == [True, False]
    assert (x > 1).dtype == np.bool_
    assert not (x > 1).requires_grad
    assert len({x, x}) == 1


def test_repr_len_iteration_and_format():
    x = leaf(1.0, 2.0)
    assert repr(x) == "tensor([1., 2.], dtype=float64, requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 4.], dtype=float64, op=mul)"
    assert [t.item() for t in x] == [1, 2]
    assert len(x) == 2
    assert f"{en.tensor(1.23456):.2f}" == "1.23"
    assert "leaf" in x._repr_html_()
    with pytest.raises(TypeError, match="0-d"):
        len(en.tensor(1.0))


def test_deepcopy_and_no_pickle():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    y = copy.deepcopy(x)
    assert y.requires_grad
    assert y.grad.tolist() == [2, 4]
    assert not np.shares_memory(x.data, y.data)
    with pytest.raises(TypeError, match="detach"):
        copy.deepcopy(x * 2)
    with pytest.raises(TypeError, match="never pickles"):
        pickle.dumps(x)


def test_devices():
    x = en.zeros(2)
    assert x.device == "cpu"
    assert x.to("cpu") is x
    with pytest.raises(ValueError, match="'gpu'"):
        en.zeros(2, device="gpu")


def test_creation():
    assert en.zeros(2, 3).shape == en.zeros((2, 3)).shape == (2, 3)
    assert en.full((2,), 7.0).tolist() == [7, 7]
    assert en.arange(3).dtype == np.int64
    assert en.arange(0.0, 1.0, 0.5).dtype == np.float32
    assert en.linspace(0, 1, 3).tolist() == [0, 0.5, 1]
    assert en.eye(2).tolist() == [[1, 0], [0, 1]]
    assert en.ones_like(en.zeros(2, dtype="float64")).dtype == np.float64
    assert en.Tensor.from_vec([1, 2], requires_grad=True).requires_grad
    assert sorted(en.randperm(5).tolist()) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"-1"):
        en.zeros(-1)
    with pytest.raises(AttributeError, match=r"zeroes.*Did you mean 'zeros'"):
        _ = en.zeroes
