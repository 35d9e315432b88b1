"""`import entrenar` is light: NumPy only, and at most 60 ms beyond it."""

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


def test_it_takes_at_most_60_ms_beyond_numpy():
    # the time of the importing thread: no other process counts, nor do the threads that NumPy's BLAS starts
    timed = "import time, numpy; start = time.thread_time(); import entrenar; print(time.thread_time() - start)"
    run("import entrenar")  # compiles what has no .pyc yet
    times = [float(run(timed)) for _ in range(7)]
    assert statistics.median(times) <= 0.060, times


def test_lazy_packages_load_on_first_use():
    assert run("import entrenar as en; print(en.nn.Linear.__name__, en.bfloat16)").split() == ["Linear", "bfloat16"]
