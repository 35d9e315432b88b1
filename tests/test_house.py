"""Habits that a test can keep: short files, a README per package, docstrings, no path of one machine."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.split()
FILES = [ROOT / f for f in LISTED if (ROOT / f).is_file()]
SOURCES = [f for f in FILES if f.suffix in {".py", ".cpp", ".hpp", ".cu"}]
PACKAGES = sorted({f.parent for f in (ROOT / "entrenar").glob("*/__init__.py")} | {ROOT / "gradcheck"})


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_has_at_most_400_lines(path):
    assert path.read_text().count("\n") <= 400


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_a_package_says_why_it_is_as_it_is(package):
    assert (package / "README.md").is_file()


TEXTS = SOURCES + [f for f in FILES if f.suffix in {".toml", ".yaml", ".yml", ".json", ".md", ".cfg", ".sh", ""}]
OF_ONE_MACHINE = {
    "path": re.compile(r"[\"'(= ]/(?:tmp|home|root|opt|mnt|work|Users)/"),
    # where packages come from is the installing machine's business
    "package index": re.compile(r"--(?:extra-)?index-url|--find-links|pypi\.org/simple|pythonhosted"),
}


@pytest.mark.parametrize("what", OF_ONE_MACHINE)
def test_nothing_of_one_machine_is_in_the_tree(what):
    found = [
        f"{f.relative_to(ROOT)}: {line.strip()}"
        for f in TEXTS
        for line in f.read_text(encoding="utf-8").splitlines()
        if OF_ONE_MACHINE[what].search(line) and f != Path(__file__)
    ]
    assert found == []


def undocumented(path):
    tree = ast.parse(path.read_text())
    if not ast.get_docstring(tree) and tree.body:
        yield f"{path.name}: module"
    for node in tree.body:
        if (
            isinstance(node, (ast.FunctionDef, ast.ClassDef))
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
        ):
            yield f"{path.name}: {node.name}"


def test_public_names_have_docstrings():
    inside = [f for f in SOURCES if f.parts[len(ROOT.parts)] in ("entrenar", "gradcheck")]
    assert [text for path in inside for text in undocumented(path)] == []
