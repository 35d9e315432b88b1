"""What a process pays before it computes: the import, and the first steps when no compiled kernel is kept on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import child
from .case import OURS, Case, Peer, Side, Unavailable

FIRST = "char-GPT step"  # the case whose first losses end a first run
CACHES = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR")  # where the libraries keep compiled code


def imported(library: str) -> Callable[[], Side]:
    """Python's whole life with one import in it."""

    def run() -> int:
        code = f"import {library}"
        done = subprocess.run([sys.executable, "-P", "-c", code], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode and f"No module named '{library}'" in done.stderr:
            raise Unavailable("not installed (it is in the extra bench)")
        done.check_returncode()
        return done.returncode

    def side() -> Side:
        run()  # whether it can be imported, and the bytecode written
        return Side(run, lambda: {"status": run()})

    return side


def first_run(label: str) -> Callable[[], Side]:
    """A process with empty caches, from its start to the third loss of a training step."""

    def run() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as cold:
            path = Path(cold, "result.npz")
            given = child.options() | {"case": FIRST, "label": label}
            subprocess.run(
                child.command(**given),
                cwd=child.ROOT,
                env=os.environ | dict.fromkeys(CACHES, cold),
                input=f"result {path}\n",
                stdout=subprocess.DEVNULL,
                text=True,
                check=True,
            )
            with np.load(path) as arrays:
                return dict(arrays)

    return lambda: Side(run, run)


PEERS = ("torch", "jax")
CASES = [
    Case("import", imported(OURS), {name: Peer(imported(name)) for name in PEERS}, tolerance=0.0, pairs=7),
    Case("first run, cold caches", first_run(OURS), {name: Peer(first_run(name)) for name in PEERS}, 1e-4, pairs=2),
]
