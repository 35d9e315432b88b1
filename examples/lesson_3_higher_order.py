"""Lesson 3: derivatives of derivatives.

Run it: python examples/lesson_3_higher_order.py
"""

import numpy as np

import entrenar as en


def rosenbrock(x):
    """Minimum 0 at (1, 1)."""
    return 100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2


x = en.tensor(np.array([-1.2, 1.0]))
gradient, hessian = en.func.grad(rosenbrock), en.func.hessian(rosenbrock)
print("gradient", gradient(x))
print("hessian", hessian(x))

# Newton's method: solve H step = gradient. Both come from the same ten lines of pullbacks.
for _ in range(10):
    x = x - en.solve(hessian(x), gradient(x))
print("minimum at", x)
assert np.allclose(x.numpy(), [1, 1])

# A Hessian-vector product never forms the Hessian.
_, product = en.func.hvp(rosenbrock, (x,), (np.array([1.0, 0.0]),))
assert np.allclose(product.numpy(), hessian(x).numpy()[:, 0])
