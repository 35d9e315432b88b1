"""Lesson 2: your own op, declared in one place, judged by gradcheck.

Run it: python examples/lesson_2_custom_op.py
"""

import numpy as np

import entrenar as en
import gradcheck


# The forward sees plain arrays. The pullback's parameter names say what is saved: g is the cotangent, x the input.
@en.primitive(
    samples=en.samples.unary(en.samples.reals(-2, 2)),
    vjp=dict(x=lambda g, x: g * (en.sigmoid(x) + x * en.sigmoid(x) * (1 - en.sigmoid(x)))),
)
def my_silu(x):
    """x sigmoid(x)."""
    return x / (1 + np.exp(-x))


report = gradcheck.check(my_silu)
print(report)
assert report.passed

# The pullback is written with ops, so it can be differentiated again.
second = en.func.grad(en.func.grad(my_silu))(en.tensor(0.0))
assert abs(second.item() - 0.5) < 1e-6


# A forgotten term: the product rule half done. gradcheck says which input, which element, both values, and why.
@en.primitive(samples=en.samples.unary(en.samples.reals(-2, 2)), vjp=dict(x=lambda g, x: -g * en.sigmoid(x)))
def wrong_silu(x):
    """x sigmoid(x), with a faulty pullback."""
    return x / (1 + np.exp(-x))


report = gradcheck.check(wrong_silu)
print(report)
assert not report.passed
