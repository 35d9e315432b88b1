"""Modes: no_grad, backend, autocast, threads, anomaly."""

import threading

import numpy as np
import pytest

import entrenar as en


def leaf(*values):
    return en.tensor(np.array(values), requires_grad=True)


def test_no_grad_as_context_and_decorator():
    x = leaf(1.0)
    with en.no_grad():
        assert not (x * 2).requires_grad
        with en.enable_grad():
            assert (x * 2).requires_grad
        assert not en.is_grad_enabled()
    assert en.is_grad_enabled()

    @en.no_grad()
    def double(t):
        return t * 2 if t.size < 2 else double(t[:1])

    assert not double(leaf(1.0, 2.0)).requires_grad
    assert en.is_grad_enabled()


def test_no_grad_ends_after_an_error():
    with pytest.raises(ZeroDivisionError), en.no_grad():
        _ = 1 / 0
    assert en.is_grad_enabled()


def test_modes_are_per_thread():
    seen = []
    with en.no_grad():
        thread = threading.Thread(target=lambda: seen.append(en.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_backward_in_threads_of_one_graph_with_retain():
    x = leaf(*map(float, range(1, 9)))
    y = (x * x * x).sum()
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(en.grad(y, x, retain_graph=True).tolist())) for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [[3.0 * v * v for v in range(1, 9)]] * 4


def test_an_unknown_backend_is_named():
    with pytest.raises(ValueError, match=r"numpi.*Did you mean 'numpy'"):
        en.backend("numpi")


def test_autocast_runs_products_in_bfloat16_and_returns_float32_gradients():
    a = en.tensor(np.ones((2, 3), np.float32), requires_grad=True)
    b = en.tensor(np.ones((3, 4), np.float32), requires_grad=True)
    with en.autocast("bfloat16"):
        y = a @ b
    assert y.dtype == en.bfloat16
    y.sum().backward()
    assert a.grad.dtype == np.float32
    assert a.grad.tolist() == [[4] * 3] * 2
    with pytest.raises(TypeError, match="int32"):
        en.autocast("int32")


def test_anomaly_names_the_first_non_finite_op_and_its_line():
    x = leaf(1.0, -1.0)
    with en.detect_anomaly(), np.errstate(invalid="ignore"):
        y = en.log(x)  # this line
        with pytest.raises(en.AnomalyError, match=r"log at .*test_modes.py:\d+ .*nan at \(1,\).*shape \(2,\)"):
            (y * 2.0).sum().backward()


def test_anomaly_names_the_pullback_that_made_an_infinity():
    x = leaf(0.0, 1.0)
    with en.detect_anomaly(), pytest.raises(en.AnomalyError, match=r"pullback of sqrt .*inf at \(0,\)"):
        en.sqrt(x).sum().backward()


def test_backward_raises_no_numpy_warnings_of_its_own():
    x = leaf(0.0, 1.0)
    en.sqrt(x).sum().backward()
    assert x.grad.tolist() == [np.inf, 0.5]
