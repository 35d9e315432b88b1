"""Imports run downward only: every import of every file is parsed and checked against the floors."""

import ast
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
            yield from (
                (node.lineno, a.name.split(".")[1]) for a in node.names if a.name.startswith(package.name + ".")
            )


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
    ],
)
def test_an_upward_or_sideways_import_is_found(tmp_path, planted):
    package = tmp_path / "entrenar"
    (package / "nn").mkdir(parents=True)
    (package / "nn" / "layer.py").write_text(planted)
    assert len(violations(package)) == 1


def test_gradcheck_needs_only_numpy():
    allowed = {"numpy", "gradcheck", "__future__"}
    for path in (ROOT / "gradcheck").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else ([node.module] if isinstance(node, ast.ImportFrom) and not node.level else [])
            )
            for name in names:
                top = name.split(".")[0]
                assert top in allowed or is_standard(top), f"{path.name} imports {name}"


def is_standard(name):
    import sys

    return name in sys.stdlib_module_names
