"""Benchmarks: validate, then time both sides in turn in processes of their own, and print the ratio.

case.py says what a case is, runner.py runs them; the cases are in overhead.py, kernels.py, optimizers.py, mlp.py,
models.py and startup.py.  A side imports its library inside its function: a process holds one library and no other.
"""
