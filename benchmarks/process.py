"""The parent's handle of a side's process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from . import child

# where these are set, NumPy computes with the kernels of an older processor
DROPPED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Failed(Exception):
    """A side raised an error or ended."""


class Skipped(Exception):
    """A side's library isn't there."""


def environment(threads: int, tree: Path) -> dict[str, str]:
    """This environment without what slows NumPy down, with so many threads, and ``tree`` first on the path."""
    kept = {k: v for k, v in os.environ.items() if k not in DROPPED}
    path = os.pathsep.join([str(tree), *filter(None, [kept.get("PYTHONPATH")])])
    return kept | dict.fromkeys(THREADS, str(threads)) | {"PYTHONPATH": path}


class Process:
    """One half of one case in a process that holds nothing else; a context manager, which ends it.

    Raises Skipped or Failed where the side can't be prepared.
    """

    def __init__(self, case: str, label: str, threads: int, tree: Path, modules: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            child.command(case, label, threads, str(tree), modules),
            cwd=child.ROOT,
            env=environment(threads, tree),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process, gently if it listens."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def ask(self, what: str, argument: str = "") -> Any:
        """The answer to a line.  Raises Failed."""
        assert self._process.stdin
        try:
            print(f"{what} {argument}".rstrip(), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise Failed(f"ended with status {self._process.wait()}") from None
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"ended with status {self._process.wait()}")
        reply = json.loads(line)
        if "skip" in reply:
            raise Skipped(reply["skip"])
        if "error" in reply:
            raise Failed(reply["error"])
        return reply["value"]

    def cpu(self) -> float | None:
        """Seconds that all its threads, and processes it waited for, have computed; None where that isn't told."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def result(self) -> dict[str, Any]:
        """What the side computes, for comparison."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "result.npz")
            self.ask("result", str(path))
            with np.load(path) as arrays:
                return dict(arrays)

    def turn(self) -> float:
        """Seconds of a run."""
        return float(self.ask("turn"))

    def peak(self) -> int:
        """Peak resident memory in bytes."""
        return int(self.ask("peak"))
