"""README, docstrings and examples run."""

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import entrenar
import gradcheck

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
NOT_IMPORTED = ("__main__", "kernels.cuda")  # they run a program; they need CuPy
MODULES = sorted(
    m.name
    for package in (entrenar, gradcheck)
    for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if not any(part in m.name for part in NOT_IMPORTED)
)


def test_readme_blocks_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {"__name__": "readme"}
    text = (ROOT / "README.md").read_text()
    blocks = BLOCK.findall(text)
    assert blocks
    for block in blocks:
        line = text[: text.index(block)].count("\n")
        exec(compile("\n" * line + block, "README.md", "exec"), space)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner()
    tests = finder.find(module, name)
    # ops run code of their own namespace, so doctest does not see that they belong to the module
    ops = {id(f): f for f in vars(module).values() if hasattr(f, "op") and f.__module__ == name}
    parser = doctest.DocTestParser()
    tests += [parser.get_doctest(f.__doc__ or "", {}, f.__name__, name, 0) for f in ops.values()]
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(path, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
