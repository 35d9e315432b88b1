"""First use of the kernels: machine code is kept on disk for the next process, and what compiles can be seen.

One file per kernel and signature, in one folder per set of versions, processor and sources of the kernels: a kernel
contains the machine code of what it calls, so that a change of any source makes a new folder.  Each file starts
with its checksum, since damaged machine code would not raise but crash.  Files appear by renaming, so that processes
may compile at once, and nothing that goes wrong with them stops a kernel: it is compiled again.

As with any cache of code, whoever can write to the folder decides what is run: it should be the user's own.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple
from uuid import uuid4

import llvmlite
import numba
from numba.core import config, event
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

HERE = Path(__file__).parent
FOLDERS = 8  # kept, the latest used: versions, processors that share a home, checkouts
PATIENCE = 1.0  # seconds of compiling before it is worth a line
CHECKSUM = hashlib.sha256

log = logging.getLogger("entrenar")


class Stats(NamedTuple):
    """What this process did: kernels (one per signature) compiled and loaded from disk, seconds spent compiling."""

    compiled: int
    seconds: float
    loaded: int


# All of it changes under Numba's compiler lock only.
_stats = Stats(0, 0.0, 0)
_listeners: list[Callable[[str, float], None]] = []
_announced = False
_writable = True
_folder: Path | None = None  # known once code is made for this processor


def stats() -> Stats:
    """The counts so far."""
    return _stats


def on_compile(listener: Callable[[str, float], None]) -> Callable[[], None]:
    """Call ``listener(kernel, seconds)`` after each compilation, until what this returns is called.

    Whoever listens shows it too: the line on the terminal is left out.
    """
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


# where ---------------------------------------------------------------------------------------------------------
def cache_home() -> Path | None:
    """$ENTRENAR_CACHE, else entrenar's folder where this system keeps caches; None for a user without a home."""
    if named := os.environ.get("ENTRENAR_CACHE"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the standard says to ignore others
        usual = {"darwin": "~/Library/Caches", "win32": "~/AppData/Local"}
        base = os.path.expanduser(usual.get(sys.platform, "~/.cache"))
    return Path(base, "entrenar") if os.path.isabs(base) else None


def _sources() -> bytes:
    """A hash of the kernels' files and of those they take constants from."""
    files = sorted(f for folder in (HERE, HERE.parent, HERE.parents[1] / "array") for f in folder.glob("*.py"))
    return CHECKSUM(b"".join(CHECKSUM(f.name.encode() + f.read_bytes()).digest() for f in files)).digest()


SOURCES = _sources()  # as they are when the kernels are imported


def _locate(codegen: Any) -> Path | None:
    """The folder of machine code that this process can run, whether it is there or not."""
    global _folder
    home = cache_home()
    if _folder is None and home is not None:
        from ... import __version__  # set after the package has imported this one

        settings: Any = config  # filled at run time
        triple, cpu, features = codegen.magic_tuple()
        how = repr((triple, features, llvmlite.__version__, str(settings.OPT), settings.BOUNDSCHECK))
        digest = CHECKSUM(how.encode() + SOURCES).hexdigest()[:16]
        tag = sys.implementation.cache_tag
        _folder = home / "kernels" / f"{__version__}-{numba.__version__}-{tag}-{cpu}-{digest}"
        with suppress(OSError):
            os.utime(_folder)  # used: not the next one to go
    return _folder


def _make(folder: Path) -> None:
    """Make the folder; a new one takes the place of those used longest ago."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    dated = []
    for other in folder.parent.iterdir():
        with suppress(OSError):  # another process may be removing it
            dated.append((other.stat().st_mtime, other))
    for _, other in sorted(dated, reverse=True)[FOLDERS:]:
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)  # a process that still uses it compiles and makes it again


# reading and writing -------------------------------------------------------------------------------------------
def _read(path: Path) -> Any:
    """What ``_write`` was given, or None if the file isn't there or isn't whole."""
    with suppress(OSError):
        content = path.read_bytes()
        checksum, data = content[:32], content[32:]
        if CHECKSUM(data).digest() == checksum:
            return pickle.loads(data)
    return None


def _write(path: Path, data: bytes) -> None:
    """Put data and its checksum there, all or nothing.  Raises OSError."""
    _make(path.parent)
    temporary = path.with_name(f"{uuid4().hex}.part")
    try:
        temporary.write_bytes(CHECKSUM(data).digest() + data)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


class KernelCache(NullCache):
    """What Numba asks for the machine code of one function; each of our functions has its own instead of Numba's."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self._name = f"{run.__module__.rpartition('.')[2]}.{run.__qualname__}"

    @property
    def cache_path(self) -> str | None:
        """The folder, once it is known."""
        return None if _folder is None else str(_folder)

    def _path(self, signature: Any, codegen: Any) -> Path | None:
        folder = _locate(codegen)
        # a function among the arguments is named by its address, which says nothing to another process
        if folder is None or " at 0x" in str(signature):
            return None
        return folder / f"{self._name}-{CHECKSUM(str(signature).encode()).hexdigest()[:16]}.code"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled kernel, or None to have it compiled."""
        global _stats
        target_context.refresh()
        path = self._path(sig, target_context.codegen())
        try:
            parts = path and _read(path)
            found = parts and CompileResult._rebuild(target_context, *parts)
        except Exception as error:  # whole, but not for this process: whatever it is, compiling is the answer
            log.debug("%s is not used: %r", path, error)
            return None
        if found is not None:
            _stats = _stats._replace(loaded=_stats.loaded + 1)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel that was compiled; the first failure is told and is the last attempt."""
        global _writable
        path = self._path(sig, data.codegen)
        if path is None or not _writable or data.library.has_dynamic_globals:  # code with addresses in it
            return
        try:
            if _sources() == SOURCES:  # else one was edited, before or after it was imported: this may be either code
                _write(path, dumps(data._reduce()))
        except Exception as error:
            _writable = False
            log.warning(
                "compiled kernels can't be kept in %s (%s): each process compiles them again. "
                "ENTRENAR_CACHE names another folder.",
                path.parent,
                error,
            )

    def flush(self) -> None:
        """Forget what is kept of this function."""
        for path in _folder.glob(f"{self._name}-*.code") if _folder else ():
            path.unlink(missing_ok=True)


def keep(dispatcher: Any) -> Any:
    """Have Numba keep what it compiles for this function; only for functions of this package, without closures,
    whose sources decide their machine code."""
    run = getattr(dispatcher, "py_func", None)  # None: NUMBA_DISABLE_JIT
    if run is not None and run.__closure__ is None and Path(run.__code__.co_filename).parent == HERE:
        dispatcher._cache = KernelCache(run)
    return dispatcher


# seeing it -----------------------------------------------------------------------------------------------------
class _Watch(event.Listener):
    """Times the compilation of our kernels; those that others cause are part of it."""

    def __init__(self) -> None:
        self._inside: list[float] = []

    def on_start(self, event: Any) -> None:
        if _ours(event):
            self._inside.append(perf_counter())

    def on_end(self, event: Any) -> None:
        global _stats
        if not _ours(event):
            return
        seconds = perf_counter() - self._inside.pop()
        if self._inside:
            _stats = _stats._replace(compiled=_stats.compiled + 1)
            return
        _stats = _stats._replace(compiled=_stats.compiled + 1, seconds=_stats.seconds + seconds)
        _tell(event.data["dispatcher"].py_func.__name__, seconds)


def _ours(event: Any) -> bool:
    return isinstance(event.data["dispatcher"]._cache, KernelCache)


def _tell(kernel: str, seconds: float) -> None:
    """Say once, where somebody looks, why the first steps take so long."""
    global _announced
    for listener in _listeners:
        listener(kernel, seconds)
    if _announced or _listeners or _stats.seconds < PATIENCE:
        return
    _announced = True
    text = "entrenar compiles its kernels for this machine" + (f", once (kept in {_folder})" if _folder else "")
    if log.isEnabledFor(logging.INFO):
        log.info(text)
    elif sys.stderr is not None and sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


event.register("numba:compile", _Watch())
