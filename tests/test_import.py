"""`import entrenar` is light: NumPy only, and less time than NumPy takes."""

import os
import statistics
import subprocess
import sys

HEAVY = (
    "numba",
    "cupy",
    "yaml",
    "pydantic",
    "matplotlib",
    "torch",
    "pyarrow",
    "typer",
    "rich",
    "tokenizers",
    "safetensors",
    "ml_dtypes",
    "threadpoolctl",
    "pytest",
)


def run(code):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # time imports, not compilation
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout


def test_nothing_heavy_is_imported():
    loaded = run("import entrenar, sys; print(*sys.modules)").split()
    assert [name for name in HEAVY if name in loaded] == []


def test_it_takes_at_most_three_quarters_of_numpy_s_own_time():
    """60 ms where NumPy takes 80: a ratio, since machines differ by more than what is to be found here."""
    # the time of the importing thread: no other process counts, nor do the threads that NumPy's BLAS starts
    timed = (
        "from time import thread_time as now; a = now(); import numpy; b = now(); import entrenar; c = now()\n"
        "print((c - b) / (b - a))"
    )
    run("import entrenar")  # compiles what has no .pyc yet
    ratios = [float(run(timed)) for _ in range(7)]
    assert statistics.median(ratios) <= 0.75, ratios


def test_lazy_packages_load_on_first_use():
    assert run("import entrenar as en; print(en.nn.Linear.__name__, en.bfloat16)").split() == ["Linear", "bfloat16"]
