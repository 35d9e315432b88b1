"""Each verdict where it is due, and what the report then says."""

import numpy as np
import pytest

import gradcheck

from .sound_pairs import SOUND

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 2))
SINE = (np.sin, lambda g, x: g * np.cos(x))


def through(dtype):
    """A sine that computes in ``dtype`` whatever it is given."""
    return lambda x: np.sin(x.astype(dtype)).astype(x.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_coarse_dtypes_are_compared_in_float64_where_the_function_allows(dtype):
    report = gradcheck.assert_gradients(SINE, X.astype(dtype))
    assert report.worst < 1e-10
    assert "compared in float64" in str(report)


def test_bfloat16_is_a_float():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    report = gradcheck.assert_gradients(SINE, X.astype(bfloat16))
    assert report.checks > 0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_functions_of_coarse_values_raise_no_alarm_and_hide_no_fault(dtype, seed):  # cases 68, 72
    x = np.random.default_rng(seed).normal(size=(3, 2))
    for given in (x, x.astype(dtype)):
        sound = (through(dtype), lambda g, x: (g * np.cos(x)).astype(x.dtype))
        report = gradcheck.check(sound, given, seed=seed)
        assert report.passed, str(report)
        assert "as coarse as" in str(report)
        wrong = (through(dtype), lambda g, x: (g * np.cos(x) * 1.25).astype(x.dtype))
        assert gradcheck.check(wrong, given, seed=seed).kind == "constant-factor"


@pytest.mark.parametrize(("given", "step"), [(X.astype(np.float32), 1e-6), (X, 1e-14)])
def test_a_step_too_small_is_said_to_be_so_and_a_better_one_is_named(given, step):
    report = gradcheck.check(SINE, given, step=step)
    assert (report.verdict, report.kind) == ("precision-limited", None)
    assert "set step=" in str(report)
    better = float(str(report).split("set step=")[1].split()[0])
    assert gradcheck.check(SINE, given, step=better).passed


def test_an_offset_that_drowns_the_difference():
    report = gradcheck.check((lambda x: np.sin(x) + 1e12, SINE[1]), X)
    assert report.verdict == "precision-limited"
    assert "offset" in str(report)


@pytest.mark.parametrize("size", [9, 60])
def test_values_of_a_sort_closer_than_any_step(size):  # case 65
    def vjp(g, x):
        d = np.empty_like(x)
        d[np.argsort(x)] = g
        return d

    x = 1 + 1e-7 * RNG.permutation(size)
    report = gradcheck.check((np.sort, vjp), x)
    assert report.verdict == "kink"
    assert "crosses a kink at element (" in str(report)
    assert gradcheck.check((np.sort, lambda g, x: 7 * vjp(g, x)), x).verdict == "wrong"


@pytest.mark.parametrize("at_zero", [0.0, 0.5, 1.0])
def test_any_slope_between_those_around_a_kink_is_excused(at_zero):
    relu = (lambda x: np.maximum(x, 0), lambda g, x: g * np.where(x == 0, at_zero, x > 0))
    assert gradcheck.check(relu, np.array([1.0, 0.0, -2.0])).verdict in ("kink", "pass")


@pytest.mark.parametrize("at_zero", [-0.5, 1.5])
def test_a_slope_beyond_those_around_a_kink_is_wrong(at_zero):
    relu = (lambda x: np.maximum(x, 0), lambda g, x: g * np.where(x == 0, at_zero, x > 0))
    report = gradcheck.check(relu, np.array([1.0, 0.0, -2.0]))
    assert report.verdict == "wrong"
    assert "(1,)" in str(report)


def test_a_jump_is_a_kink():
    assert gradcheck.check((np.floor, lambda g, x: 0 * g), np.array([0.5, 1.5, 2.0])).verdict == "kink"
    gradcheck.assert_gradients((np.floor, lambda g, x: 0 * g), np.array([0.5, 1.5, 2.25]))


def test_a_gradient_that_is_not_finite_where_the_function_is():
    report = gradcheck.check((np.sqrt, lambda g, x: g / (2 * np.sqrt(x))), np.array([0.0, 1.0]))
    assert report.verdict == "non-finite"
    assert "inf at element (0,)" in str(report)


def test_a_pullback_with_random_numbers():
    noise = np.random.default_rng(1)
    report = gradcheck.check((np.sin, lambda g, x: g * noise.normal(size=x.shape)), X)
    assert report.verdict == "nondeterministic"
    assert "differ by up to" in str(report)


def test_views_of_one_array_are_two_inputs_of_one_memory():
    report = gradcheck.check((lambda a, b: a * b[0], lambda g, a, b: (g * b[0], np.stack([g * a, 0 * g]))), X[0], X[:2])
    assert report.verdict == "aliased-input"
    assert "share memory" in str(report)
    assert report.checks == 0


def test_a_fault_in_one_element_of_many_is_found_and_named():
    def wrong(g, x):
        d = g * np.cos(x)
        d[17, 3] *= 1.01
        return d

    report = gradcheck.check((np.sin, wrong), RNG.normal(size=(100, 30)))
    assert report.verdict == "wrong"
    assert "(17, 3)" in str(report)
    assert "random directions" in str(report)


def test_the_same_seed_gives_the_same_report():
    wrong = (np.sin, lambda g, x: g * np.sin(x))
    assert str(gradcheck.check(wrong, X, seed=3)) == str(gradcheck.check(wrong, X, seed=3))
    assert str(gradcheck.check(wrong, X, seed=3)) != str(gradcheck.check(wrong, X, seed=4))


def test_a_report_is_a_note_and_no_dump():
    many = [np.asarray(RNG.normal(size=(3, 3))) for _ in range(9)]
    wrong = (lambda *xs: sum(np.sin(x) for x in xs), lambda g, *xs: tuple(g * np.cos(x).T for x in xs))
    text = str(gradcheck.check(wrong, *many))
    assert len(text.splitlines()) <= 25
    assert max(map(len, text.splitlines())) <= 120
    assert "more findings like these" in text
    for word in (
        "input 0 (xs[0]), shape (3, 3), element (",
        "analytic",
        "numeric",
        "+-",
        "suspected:",
        "try:",
        "compared:",
    ):
        assert word in text


def test_ties_are_kinks_even_where_no_coordinate_bends_alone():
    def vjp(g, x):
        d = np.empty_like(x)
        d[np.argsort(x, kind="stable")] = g
        return d

    x = np.array([2.0, 0.0, 0.0, 0.0, 1.0, 2.0, 1.0, 0.0, 1.0])
    assert gradcheck.check((np.sort, vjp), x, seed=2).verdict == "kink"
    assert gradcheck.check((np.sort, lambda g, x: 2 * vjp(g, x)), x, seed=2).verdict == "wrong"


def test_smooth_functions_are_compared_to_nine_digits():
    smooth = ["mul", "div", "matmul", "tanh", "softmax", "layer_norm", "logsumexp", "exp", "log", "inv", "abs fft"]
    for name in smooth:
        pair, draws = SOUND[name]
        assert gradcheck.check(pair, *(d(np.random.default_rng(5)) for d in draws)).worst < 1e-9


def test_integers_are_passed_along_and_not_moved():
    take = (lambda x, i: x[i], lambda g, x, i: (np.bincount(i, g, x.size), None))
    report = gradcheck.assert_gradients(take, X[:, 0].copy(), np.array([2, 0, 2]))
    assert "x: full Jacobian, 3 coordinates" in str(report)


class TestSecondOrder:
    FIRST = (np.sin, lambda g, x: g * np.cos(x))

    def test_the_vjp_of_the_vjp_is_checked(self):
        report = gradcheck.assert_gradients(
            (*self.FIRST, lambda c, g, x: (c * np.cos(x), -c * g * np.sin(x))), X, order=2
        )
        assert set(report.by_order) == {1, 2}
        assert all(report.by_order.values())

    def test_its_faults_are_named(self):
        report = gradcheck.check((*self.FIRST, lambda c, g, x: (c * np.cos(x), c * g * np.sin(x))), X, order=2)
        assert (report.verdict, report.kind) == ("wrong", "sign")
        assert "order 2" in str(report)
        detached = gradcheck.check((*self.FIRST, lambda c, g, x: (c * np.cos(x), None)), X, order=2)
        assert detached.kind == "detached"

    def test_two_inputs_and_two_outputs(self):
        f = lambda a, b: (a * b, np.exp(a))
        vjp = lambda g, a, b: (g[0] * b + g[1] * np.exp(a), g[0] * a)

        def vjp2(c, g, a, b):
            ca, cb = c
            of_g = (ca * b + cb * a, ca * np.exp(a))
            return of_g, ca * g[1] * np.exp(a) + cb * g[0], ca * g[0]

        gradcheck.assert_gradients((f, vjp, vjp2), X, X + 1, order=2)

    def test_it_needs_a_third_function(self):
        with pytest.raises(ValueError, match="vjp of its vjp"):
            gradcheck.check(self.FIRST, X, order=2)


@pytest.mark.parametrize(
    ("options", "match"),
    [({"order": 3}, "order=3"), ({"step": 0}, "step=0"), ({"rtol": -1}, "rtol=-1"), ({"library": "tf"}, "unknown lib")],
)
def test_senseless_options_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        gradcheck.check(SINE, X, **options)


@pytest.mark.parametrize(
    ("target", "arrays", "match"),
    [
        (3, (X,), "takes an op, a function or a pair"),
        ((np.sin,), (X,), "a pair is"),
        (SINE, (np.arange(3),), "none of the 1 arrays is float"),
        ((lambda x: np.argsort(x), lambda g, x: g), (X,), "only float and complex outputs"),
        ((lambda a, b: a * b, lambda g, a, b: g * b), (X, X + 1), "returned 1 gradients for 2 inputs"),
    ],
)
def test_targets_without_sense_are_refused(target, arrays, match):
    with pytest.raises(TypeError, match=match):
        gradcheck.check(target, *arrays)
