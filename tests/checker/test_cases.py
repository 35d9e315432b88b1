"""Fault reports about gradient checkers, as situations."""

import numpy as np
import pytest

import entrenar as en
import gradcheck

RNG = np.random.default_rng(0)


def test_empty_inputs_pass_and_say_that_nothing_was_compared():  # case 12
    report = gradcheck.check((np.exp, lambda g, x: g * np.exp(x)), np.zeros((0, 5)))
    assert report.passed
    assert report.checks == 0
    assert "0 elements" in str(report)
    mixed = gradcheck.check(
        (lambda a, b: a.sum() * b, lambda g, a, b: (np.full(a.shape, (g * b).sum()), g * a.sum())),
        np.zeros((0, 5)),
        np.ones(3),
    )
    assert mixed.passed
    assert mixed.checks > 0


def test_an_expanded_input_is_no_false_failure():  # case 63
    x = np.broadcast_to(RNG.normal(size=(1, 3)), (4, 3))
    report = gradcheck.check((np.sin, lambda g, x: g * np.cos(x)), x)
    assert report.passed or report.verdict == "aliased-input"
    assert "stride-0" in str(report) or "overlap" in str(report)


def sort_vjp(g, x):
    d = np.zeros_like(x)
    d[np.argsort(x)] = g
    return d


def test_a_kink_is_called_a_kink():  # case 65
    close = np.array([1.0, 1.0 + 1e-7, 2.0, -1.0])
    assert gradcheck.check((np.sort, sort_vjp), close).verdict in ("kink", "pass")
    relu = (lambda x: np.maximum(x, 0), lambda g, x: g * (x > 0))
    at = gradcheck.check(relu, np.array([1.0, 0.0, -2.0]))
    assert at.verdict == "kink"
    assert "(1,)" in str(at)
    assert gradcheck.check((np.abs, lambda g, x: -g * np.sign(x)), np.array([1.0, 0.0, -2.0])).verdict == "wrong"


def test_tiny_differences_are_judged_by_scale():  # case 66
    report = gradcheck.check(lambda x: en.cumprod(x, axis=0), RNG.uniform(1e-5, 1e-4, 6), order=2)
    assert report.passed, str(report)


def test_float32_is_checked_in_float64_or_called_imprecise():  # case 68
    report = gradcheck.check((np.sin, lambda g, x: g * np.cos(x)), RNG.normal(size=5).astype(np.float32))
    assert report.passed or report.verdict == "precision-limited"
    rounds = lambda x: np.sin(x.astype(np.float32)).astype(x.dtype)
    report = gradcheck.check((rounds, lambda g, x: g * np.cos(x)), RNG.normal(size=5))
    assert report.verdict in ("precision-limited", "pass", "kink")
    assert report.verdict != "wrong"


def test_a_failure_names_kind_element_and_both_values():  # case 69
    def wrong(g, x):
        d = g * np.cos(x)
        d[1, 2] *= -1
        return d

    report = gradcheck.check((np.sin, wrong), RNG.normal(size=(2, 3)))
    text = str(report)
    assert report.verdict == "wrong"
    assert "(1, 2)" in text
    with pytest.raises(AssertionError, match=r"\(1, 2\)"):
        report.raise_if_failed()
    assert gradcheck.check((np.sin, lambda g, x: -g * np.cos(x)), RNG.normal(size=(2, 3))).kind == "sign"


def test_a_function_that_is_not_finite_stops_the_check():  # cases 71, 77
    report = gradcheck.check((np.log, lambda g, x: g / x), np.array([[1.0, 2.0], [-1.0, 3.0]]))
    assert report.verdict == "non-finite"
    assert report.checks == 0
    assert "(1, 0)" in str(report)
    assert "(2, 2)" in str(report)


def test_half_precision_steps_are_large_enough():  # case 72
    report = gradcheck.check((np.sin, lambda g, x: g * np.cos(x)), RNG.normal(size=4).astype(np.float16))
    assert report.passed or report.verdict == "precision-limited"
    assert report.checks > 0


def test_both_parts_of_complex_inputs_are_checked():  # case 74
    z = RNG.normal(size=3) + 1j * RNG.normal(size=3)
    square = lambda z: (z * z.conj()).real
    assert gradcheck.check((square, lambda g, z: 2 * g * z), z).passed
    assert not gradcheck.check((square, lambda g, z: 2 * g * z.real + 0j), z).passed
    assert not gradcheck.check((square, lambda g, z: 2j * g * z.imag), z).passed
    spectrum = lambda z: np.abs(np.fft.fft(z))
    back = lambda g, z: len(z) * np.fft.ifft(g * np.fft.fft(z) / np.abs(np.fft.fft(z)))
    assert gradcheck.check((spectrum, back), z).passed


def test_shapes_that_hide_a_transpose_are_noted():  # case 75
    linear = (lambda x, w: x @ w.T, lambda g, x, w: (g @ w, g.T @ x))
    assert "transpose" in str(gradcheck.check(linear, RNG.normal(size=(2, 3)), RNG.normal(size=(1, 3))))
    assert "transpose" not in str(gradcheck.check(linear, RNG.normal(size=(2, 3)), RNG.normal(size=(4, 3))))


def test_a_function_that_changes_from_call_to_call():
    noise = np.random.default_rng(1)
    report = gradcheck.check((lambda x: x * noise.normal(), lambda g, x: g), np.ones(3))
    assert report.verdict == "nondeterministic"


def test_two_inputs_of_one_memory():
    x = RNG.normal(size=4)
    report = gradcheck.check((lambda a, b: a * b, lambda g, a, b: (g * b, g * a)), x, x)
    assert report.verdict in ("aliased-input", "pass")


def test_assert_gradients_is_for_pytest():
    gradcheck.assert_gradients(en.tanh)
    with pytest.raises(AssertionError, match="sign"):
        gradcheck.assert_gradients((np.exp, lambda g, x: -g * np.exp(x)), np.ones(2))
