"""A side in a process of its own: it prepares one half of one case, then does what the parent asks for, line by line.

Asked ``result FILE`` it writes its results there, ``turn`` answers seconds, ``peak`` bytes.  Every answer is a line of
JSON: {"value": ...}, {"skip": reason} for a peer that isn't there, or {"error": message}.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import machine, timing
from .case import OURS, Side, Unavailable, table

ROOT = Path(__file__).resolve().parents[1]
WHOLE = 1 << 22  # elements; of a larger array every STRIDE-th is compared
STRIDE = 101  # prime to the row lengths, so that every column takes part
PINNED = ("autograd", "mygrad", "jax", "tinygrad")  # these have no call that sets threads, or count the cores allowed


def command(case: str, label: str, threads: int, tree: str, modules: Sequence[str]) -> list[str]:
    """How such a process is started, in the folder ``ROOT``.  tree: where entrenar is imported from."""
    return [sys.executable, "-m", f"{__package__}.child", case, label, str(threads), tree, *modules]


def options() -> dict[str, Any]:
    """What this process was started with, as arguments of ``command``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.child", description="Started by the benchmark runner.")
    parser.add_argument("case")
    parser.add_argument("label")
    parser.add_argument("threads", type=int)
    parser.add_argument("tree")
    parser.add_argument("modules", nargs="+")
    return vars(parser.parse_args())


def main() -> None:
    """Serve until the parent closes the pipe."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is not an answer

    def answer(do: Callable[[], Any]) -> bool:
        try:
            reply = {"value": do()}
        except Unavailable as error:
            reply = {"skip": str(error)}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=answers, flush=True)
        return "value" in reply

    made: list[Side] = []
    if not answer(lambda: made.append(prepare(**options()))):
        return
    for line in sys.stdin:
        what, _, argument = line.rstrip("\n").partition(" ")
        answer(lambda what=what, argument=argument: DO[what](made[0], argument))  # type: ignore[misc]


def prepare(case: str, label: str, threads: int, tree: str, modules: Sequence[str]) -> Side:
    """The side of that label, its library limited to ``threads`` threads.  Raises Unavailable."""
    side = (table(modules) | {machine.CASE.name: machine.CASE})[case].side(label)
    library = label.split()[0]
    sys.path.insert(0, tree)
    try:
        limit(library, threads)
        if library == OURS:
            check_origin(tree)
        return side()
    except ModuleNotFoundError as error:
        if library == OURS or (error.name or "").split(".")[0] != library:
            raise
        raise Unavailable("not installed (it is in the extra bench)") from None


def limit(library: str, threads: int) -> None:
    """Keep a library to so many threads, beyond what the environment says."""
    if library == OURS:
        import entrenar

        entrenar.set_num_threads(threads)
    elif library in ("torch", "transformers"):
        import torch

        torch.set_num_threads(threads)
    elif library in PINNED and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def check_origin(tree: str) -> None:
    """Raise RuntimeError unless the entrenar that was imported is the one below ``tree``."""
    import entrenar

    if Path(entrenar.__file__).resolve().parents[1] != Path(tree).resolve():
        raise RuntimeError(f"entrenar was imported from {entrenar.__file__}, not from {tree}")


def save(side: Side, path: str) -> None:
    """Write the results as arrays."""
    arrays = {name: np.asarray(value) for name, value in side.result().items()}
    np.savez(path, **{k: a.reshape(-1)[::STRIDE] if a.size > WHOLE else a for k, a in arrays.items()})  # type: ignore[arg-type]


def take_turn(side: Side, _: str) -> float:
    """Seconds of a run; answers when this process has come to rest."""
    value = timing.turn(side.run)
    timing.settle()
    return value


def peak(_: Side, __: str) -> int:
    """The largest resident memory of this process so far, in bytes.

    From Linux's VmHWM: ru_maxrss starts with the parent's there, from the moment of the fork.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


DO: dict[str, Callable[[Side, str], Any]] = {"result": save, "turn": take_turn, "peak": peak}

if __name__ == "__main__":
    main()
