"""In-place changes: rebinding, refusal, versions (cases 18, 23-26)."""

import numpy as np
import pytest

import entrenar as en


def leaf(*values):
    return en.tensor(np.array(values), requires_grad=True)


@pytest.mark.parametrize("form", ["fused", "composed"])
def test_assignment_after_sigmoid_works_for_both_forms(form):  # case 23
    a = leaf(1.0, 2.0, 3.0)
    b = en.sigmoid(a) if form == "fused" else 1 / (1 + en.exp(-a))
    b[1] = 2.0
    b.sum().backward()
    np.testing.assert_allclose(a.grad.data, [0.19661193, 0, 0.04517666], rtol=1e-6)
    assert b.tolist()[1] == 2


CHANGES = {
    "+=": lambda x: x.__iadd__(1.0),
    "-=": lambda x: x.__isub__(1.0),
    "*=": lambda x: x.__imul__(2.0),
    "/=": lambda x: x.__itruediv__(2.0),
    "**=": lambda x: x.__ipow__(2.0),
    "[...] =": lambda x: x.__setitem__(0, 5.0),
}


@pytest.mark.parametrize("symbol", CHANGES)
def test_a_leaf_refuses_and_is_unchanged(symbol):  # case 25
    x = leaf(1.0, 2.0)
    before = x.data.tobytes()
    with pytest.raises(en.GraphError, match="leaf that requires a gradient"):
        CHANGES[symbol](x)
    assert x.data.tobytes() == before


@pytest.mark.parametrize("symbol", CHANGES)
def test_under_no_grad_a_leaf_is_written_in_place(symbol):
    x = leaf(1.0, 2.0)
    memory = x.data
    with en.no_grad():
        CHANGES[symbol](x)
    assert x.data is memory
    assert x.is_leaf
    assert x.requires_grad
    assert x.version == 1


def test_augmented_assignment_rebinds_and_earlier_views_keep_the_old_value():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    view = y[0]
    y += 10.0
    assert y.tolist() == [11, 12]
    assert view.item() == 1
    (y * y).sum().backward()
    assert x.grad.tolist() == [22, 24]


def test_both_edges_of_an_op_of_the_same_tensor_survive_assignment():  # case 18
    x = leaf(2.0, 3.0)
    t = x * 1.0
    y = t * t
    t[0] = 100.0
    (y + t).sum().backward()
    assert x.grad.tolist() == [4, 7]


def test_assignment_of_a_tracked_value_into_an_untracked_tensor_is_recorded():
    v = leaf(5.0)
    target = en.zeros(3, dtype=np.float64)
    target[1] = v[0] * 2.0
    (target * en.tensor(np.array([1.0, 7.0, 1.0]))).sum().backward()
    assert v.grad.tolist() == [14]


def test_assignment_of_a_tracked_value_into_an_ndarray_names_the_way_out():  # case 26
    array = np.zeros(2)
    with pytest.raises((TypeError, ValueError)) as caught:  # NumPy may chain a ValueError of its own
        array[0] = leaf(1.0).sum()
    assert "make the array a Tensor" in str(caught.value.__cause__ or caught.value)
    with pytest.raises(TypeError, match=r"\+="):
        array += leaf(1.0, 2.0)
    assert array.tolist() == [0, 0]


def test_backward_refuses_a_saved_array_that_was_written():
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    with en.no_grad():
        x += 1.0
    with pytest.raises(en.GraphError, match="changed in place"):
        y.backward()


def test_a_write_through_a_view_counts_too():
    x = en.tensor(np.ones((2, 3)), requires_grad=True)
    y = (x * x).sum()
    with en.no_grad():
        row = x[0]
        row *= 2.0
    assert x.data[0, 0] == 2
    with pytest.raises(en.GraphError, match="changed in place"):
        y.backward()


def test_a_write_before_recording_is_fine():
    x = leaf(1.0, 2.0)
    with en.no_grad():
        x += 1.0
    (x * x).sum().backward()
    assert x.grad.tolist() == [4, 6]


def test_shape_and_dtype_of_the_target_are_kept():
    x = en.tensor(np.zeros(2))
    with pytest.raises(ValueError, match=r"\(3, 2\)"):
        x += np.ones((3, 2))
    i = en.tensor(np.array([1, 2]))
    with pytest.raises(TypeError, match="astype"):
        i += 0.5
    with pytest.raises(TypeError, match="int64"):
        i[0] = 0.5
    assert i.tolist() == [1, 2]
    assert x.tolist() == [0, 0]


def test_detect_anomaly_sees_a_raw_write():
    x = leaf(1.0, 2.0)
    with en.detect_anomaly():
        y = (x * x).sum()
        x.data[0] = 7.0
        with pytest.raises(en.AnomalyError, match="overwritten"):
            y.backward()
