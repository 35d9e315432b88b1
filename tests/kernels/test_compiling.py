"""Compiled kernels on disk: found again, never stale, and whatever is wrong with the files costs a compilation only."""

import ctypes
import importlib
import inspect
import logging
import os
import pkgutil
import pty
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import pytest

import entrenar
from entrenar.kernels import numba as kernels
from entrenar.kernels.numba import compiling, jit

PACKAGE = Path(entrenar.__file__).parent
SUMS = """
import numpy as np
from entrenar.kernels.numba import compiling, jit
for kind in (np.float32, np.float64):
    assert jit.total(np.ones(7, kind)) == 7
print(compiling.stats().compiled, compiling.stats().loaded)
"""


def start(cache, code=SUMS, **how):
    how["env"] = os.environ | {"ENTRENAR_CACHE": str(cache)} | how.get("env", {})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
    return subprocess.Popen([sys.executable, "-c", code], text=True, **pipes)


def finish(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return tuple(map(int, out.split())), err


def run(cache, code=SUMS, **how):
    """(compiled, loaded) and what stood on stderr of a process of its own."""
    return finish(start(cache, code, **how))


def files(cache):
    return sorted(f for f in Path(cache).rglob("*") if f.is_file())


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    cache = tmp_path_factory.mktemp("filled")
    assert run(cache) == ((2, 0), "")
    return cache


@pytest.fixture
def cache(filled, tmp_path):
    """A folder with two kernels in it."""
    return shutil.copytree(filled, tmp_path / "cache")


def test_a_second_process_compiles_nothing(cache):
    before = [f.stat().st_mtime_ns for f in files(cache)]
    assert run(cache) == ((0, 2), "")
    assert [f.stat().st_mtime_ns for f in files(cache)] == before
    assert len(before) == 2 and {f.suffix for f in files(cache)} == {".code"}


def with_checksum(data):
    return compiling.CHECKSUM(data).digest() + data


DAMAGE = {
    "empty": lambda data: b"",
    "cut off": lambda data: data[: len(data) // 2],
    "random": lambda data: os.urandom(len(data)),
    "one bit": lambda data: data[:-5000] + bytes([data[-5000] ^ 1]) + data[-4999:],
    "no pickle": lambda data: with_checksum(b"nothing"),
    "no kernel": lambda data: with_checksum(b"\x80\x04K\x01."),  # the number 1
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_replaced(cache, damage):
    for f in files(cache):
        f.write_bytes(DAMAGE[damage](f.read_bytes()))
    assert run(cache) == ((2, 0), "")
    assert run(cache) == ((0, 2), "")


def unwritable(folder):
    """Take away the right to write below folder; what to run a process with so that it feels this."""
    for f in (folder, *folder.rglob("*")):
        f.chmod(0o555 if f.is_dir() else 0o444)
    if os.geteuid() != 0:
        return {}
    if not sys.platform.startswith("linux"):
        pytest.skip("root may write anywhere")
    prctl = ctypes.CDLL(None).prctl  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE: a root whom the modes of files bind
    return {"preexec_fn": lambda: prctl(24, 1, 0, 0, 0)}


def test_a_full_cache_that_is_read_only_serves(cache):
    assert run(cache, **unwritable(cache)) == ((0, 2), "")


def test_an_empty_cache_that_is_read_only_warns_once(tmp_path):
    (tmp_path / "cache").mkdir()
    counts, err = run(tmp_path / "cache", **unwritable(tmp_path / "cache"))
    assert counts == (2, 0)
    assert err.count("ENTRENAR_CACHE") == 1 == err.count("\n")


def test_a_cache_that_is_a_file_warns_once(tmp_path):
    (tmp_path / "cache").write_text("mine")
    counts, err = run(tmp_path / "cache")
    assert counts == (2, 0)
    assert err.count("ENTRENAR_CACHE") == 1 == err.count("\n")
    assert (tmp_path / "cache").read_text() == "mine"


def test_a_full_disk_warns_once_and_leaves_nothing(tmp_path):
    counts, err = run(tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    assert counts == (2, 0)
    assert err.count("ENTRENAR_CACHE") == 1 == err.count("\n")
    assert files(tmp_path) == []
    assert run(tmp_path) == ((2, 0), "")


def test_processes_may_compile_at_once(tmp_path):
    for ended in [start(tmp_path) for _ in range(3)]:
        counts, err = finish(ended)
        assert sum(counts) == 2 and err == ""
    assert len(files(tmp_path)) == 2
    assert run(tmp_path) == ((0, 2), "")


def test_the_folder_may_vanish_while_in_use(cache):
    more = f"import shutil; shutil.rmtree({str(cache)!r}); assert jit.dot(np.ones(3), np.ones(3)) == 3\n"
    assert run(cache, SUMS.replace("print", more + "print")) == ((1, 2), "")
    assert len(files(cache)) == 1


# never stale ---------------------------------------------------------------------------------------------------
CALLER = """
from .jit import jit, total

@jit
def thrice(a):
    return 3 * total(a)
"""
CALL = """
import numpy as np
from entrenar.kernels.numba import compiling, extra
print(int(extra.thrice(np.ones(7))), compiling.stats().compiled)
"""


@pytest.fixture
def copied(tmp_path):
    """A copy of the package with one more kernel, which calls one of another file; how to run a process with it."""
    shutil.copytree(PACKAGE, tmp_path / "entrenar", ignore=shutil.ignore_patterns("__pycache__"))
    numba_kernels = tmp_path / "entrenar" / "kernels" / "numba"
    (numba_kernels / "extra.py").write_text(CALLER)
    return numba_kernels / "jit.py", {"cwd": tmp_path, "env": {"PYTHONPATH": str(tmp_path)}}


ADDED = ("        s += a[j]\n", "        s += a[j] + 1\n")


def test_an_edited_callee_of_another_file_is_compiled_again(copied, tmp_path):
    source, how = copied
    assert run(tmp_path / "c", CALL, **how)[0] == (21, 2)
    assert run(tmp_path / "c", CALL, **how)[0] == (21, 0)
    source.write_text(source.read_text().replace(*ADDED))
    assert run(tmp_path / "c", CALL, **how)[0] == (42, 2)


def test_code_of_a_source_edited_after_its_import_is_not_kept(copied, tmp_path):
    source, how = copied
    edit = (
        f"from pathlib import Path; jit = Path({str(source)!r}); jit.write_text(jit.read_text().replace(*{ADDED!r}))\n"
    )
    assert run(tmp_path / "c", CALL.replace("print", edit + "print"), **how)[0] == (21, 2)
    assert files(tmp_path / "c") == []


def test_only_the_folders_used_last_are_kept(tmp_path):
    for i in range(compiling.FOLDERS + 3):
        compiling._write(tmp_path / f"{i}" / "a.code", b"data")
        os.utime(tmp_path / f"{i}", (i, i))
    compiling._write(tmp_path / "new" / "a.code", b"data")
    left = {f.name for f in tmp_path.iterdir()}
    assert left == {"new", *(str(compiling.FOLDERS + 2 - i) for i in range(compiling.FOLDERS - 1))}


# where ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("platform", "xdg", "expected"),
    [
        ("linux", "", "{home}/.cache/entrenar"),
        ("linux", "{home}/x", "{home}/x/entrenar"),
        ("linux", "relative", "{home}/.cache/entrenar"),
        ("darwin", "", "{home}/Library/Caches/entrenar"),
    ],
)
def test_the_place_is_the_systems(monkeypatch, tmp_path, platform, xdg, expected):
    monkeypatch.delenv("ENTRENAR_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", xdg.format(home=tmp_path))
    monkeypatch.setattr(sys, "platform", platform)
    assert str(compiling.cache_home()) == expected.format(home=tmp_path)
    monkeypatch.setenv("ENTRENAR_CACHE", "~/mine")
    assert compiling.cache_home() == tmp_path / "mine"


def test_without_a_home_nothing_is_kept_and_nothing_said():
    how = {"env": {"XDG_CACHE_HOME": ""}}
    homeless = "import os; os.path.expanduser = lambda path: path\n"  # what it does for a user without a home
    assert run("", homeless + SUMS, **how) == ((2, 0), "")


# others and ours -----------------------------------------------------------------------------------------------
def test_other_functions_of_numba_are_left_alone(tmp_path):
    code = """
    import numba, numba.core.caching as caching
    before = dict(vars(numba.config)), list(caching.CacheImpl._locator_classes)
    from entrenar.kernels.numba import compiling, jit
    assert before == (dict(vars(numba.config)), list(caching.CacheImpl._locator_classes))
    other = numba.njit(lambda x: x + 1)
    assert type(other._cache) is caching.NullCache and other(1) == 2
    assert type(jit.jit(lambda x: x)._cache) is caching.NullCache  # not of the package: its source is not in the key
    print(compiling.stats().compiled, compiling.stats().loaded)
    """
    assert run(tmp_path, "\n".join(line.strip() for line in code.splitlines())) == ((0, 0), "")


def test_every_kernel_is_kept():
    modules = [importlib.import_module(f"{kernels.__name__}.{m.name}") for m in pkgutil.iter_modules(kernels.__path__)]
    compiled = [f for m in modules for f in vars(m).values() if isinstance(f, numba.core.dispatcher.Dispatcher)]
    kept = [f for f in compiled if inspect.getsource(f.py_func).startswith(("@jit", "@_sum"))]
    assert len(kept) > 20 and [f for f in kept if not isinstance(f._cache, compiling.KernelCache)] == []


# seen ----------------------------------------------------------------------------------------------------------
IMPATIENT = SUMS.replace("for kind", "compiling.PATIENCE = 0\nfor kind", 1)


def test_a_terminal_gets_one_line(tmp_path):
    ours, theirs = pty.openpty()
    try:
        process = start(tmp_path, IMPATIENT, stderr=theirs)
        assert finish(process)[0] == (2, 0)
        shown = os.read(ours, 10_000).decode()
    finally:
        os.close(ours), os.close(theirs)
    assert shown.count("\n") == 1 and "compiles" in shown and str(tmp_path) in shown


def test_a_log_that_asks_gets_one_line(tmp_path):
    asked = "import logging; logging.basicConfig(level=logging.INFO)\n"
    counts, err = run(tmp_path, asked + IMPATIENT)
    assert counts == (2, 0) and err.count("\n") == 1 and err.startswith("INFO:entrenar:")


def test_a_listener_hears_of_each_kernel_instead(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "entrenar")
    monkeypatch.setattr(compiling, "_announced", False)
    monkeypatch.setattr(compiling, "PATIENCE", 0.0)
    heard = []
    stop = compiling.on_compile(lambda kernel, seconds: heard.append((kernel, seconds)))
    before, began = compiling.stats(), time.perf_counter()
    try:
        fresh = compiling.keep(numba.njit(jit.total.py_func))
        fresh._cache.load_overload = lambda *_: None
        assert fresh(np.ones(4)) == 4
    finally:
        stop()
    [(kernel, seconds)] = heard
    assert kernel == "total" and 0 < seconds <= time.perf_counter() - began
    assert compiling.stats().compiled == before.compiled + 1
    assert compiling.stats().seconds == pytest.approx(before.seconds + seconds)
    assert caplog.text == "" and compiling._listeners == []
