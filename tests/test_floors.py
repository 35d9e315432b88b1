"""Imports run downward only: every import of every file is parsed and checked against the floors."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = (
    {"array"},
    {"kernels"},
    {"autograd"},
    {"ops"},
    {"nn", "io", "inspect"},
    {"quant", "optim", "data", "models", "lora"},
    {"config", "merge"},
    {"train"},
    {"distill"},
    {"store"},
    {"cli"},
)
FLOOR = {name: i for i, names in enumerate(FLOORS) for name in names}
DOORS = {"__init__.py", "__main__.py"}  # of the package itself: the front door shows every floor


def imported(path, package):
    """Packages of entrenar that a file imports, wherever in the file, as (line, package)."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = list(path.relative_to(package).parent.parts)
            base = base[: len(base) - (node.level - 1)]
            names = [node.module] if node.module else [a.name for a in node.names]
            yield from ((node.lineno, ".".join([*base, name]).split(".")[0]) for name in names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == package.name:
            rest = node.module.split(".")[1:]
            yield from ((node.lineno, rest[0] if rest else a.name) for a in node.names)
        elif isinstance(node, ast.Import):
            names = [a.name.split(".") for a in node.names]
            # the package itself is the front door, which opens on every floor
            yield from ((node.lineno, [*name, "the front door"][1]) for name in names if name[0] == package.name)


def violations(package):
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        if len(parts) == 1 and parts[0] in DOORS:
            continue
        mine = parts[0].removesuffix(".py")
        if mine not in FLOOR:
            found.append(f"{path.name}: {mine} stands on no floor")
            continue
        for line, other in imported(path, package):
            if other != mine and FLOOR.get(other, -1) >= FLOOR[mine]:
                found.append(f"{'/'.join(parts)}:{line}: {mine} (F{FLOOR[mine]}) imports {other} (F{FLOOR[other]})")
            elif other not in FLOOR and other != "__version__":
                found.append(f"{'/'.join(parts)}:{line}: imports {other}, which stands on no floor")
    return found


def test_imports_run_downward():
    assert violations(ROOT / "entrenar") == []


@pytest.mark.parametrize(
    "planted",
    [
        "from ..train import x",
        "from entrenar.train import x",
        "import entrenar.train.x",
        "def f():\n    from .. import train",
        "from ..io import x",
        "if TYPE_CHECKING:\n    from ..train import x",
        "import entrenar as en",
        "from entrenar import sum",
    ],
)
def test_an_upward_or_sideways_import_is_found(tmp_path, planted):
    package = tmp_path / "entrenar"
    (package / "nn").mkdir(parents=True)
    (package / "nn" / "layer.py").write_text(planted)
    assert len(violations(package)) == 1


@pytest.mark.parametrize(
    "sound", ["from ..ops import x", "from .. import ops", "from .module import x", "import numpy"]
)
def test_a_downward_import_is_none(tmp_path, sound):
    package = tmp_path / "entrenar"
    (package / "nn").mkdir(parents=True)
    (package / "nn" / "layer.py").write_text(sound)
    assert violations(package) == []


def on_import(node):
    """Absolute imports that happen when a module is imported, as names: those outside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (a.name for a in child.names)
        elif isinstance(child, ast.ImportFrom) and not child.level:
            yield child.module
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from on_import(child)


def beyond_numpy(text):
    tops = {name.split(".")[0] for name in on_import(ast.parse(text))}
    return sorted(tops - {"numpy", "gradcheck"} - sys.stdlib_module_names)


def test_gradcheck_needs_only_numpy():
    files = sorted((ROOT / "gradcheck").rglob("*.py"))
    assert files
    assert {f.name: beyond_numpy(f.read_text()) for f in files if beyond_numpy(f.read_text())} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import numpy, json", []),
        ("def f():\n    import torch", []),
        ("from entrenar.ops import exp", ["entrenar"]),
        ("if TYPE_CHECKING:\n    import torch", ["torch"]),
        ("try:\n    import jax.numpy\nexcept ImportError:\n    pass", ["jax"]),
    ],
)
def test_what_gradcheck_imports_is_found(text, found):
    assert beyond_numpy(text) == found
