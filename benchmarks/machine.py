"""The machine: what it is, and the two rates that others are held against, as NumPy reaches them here."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import itertools
import os
import platform
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from .case import Case, Side
from .timing import seconds

COPIED = 100_000_000  # bytes


def rates() -> Side:
    """GEMM peak (FLOP/s) and copy bandwidth (bytes/s, read and written), in a process of entrenar's."""
    import entrenar

    def measured() -> dict[str, float]:
        return {"gemm": gemm(), "copy": copy(entrenar.get_num_threads())}

    return Side(measured, measured)


def gemm() -> float:
    """The best rate of a few large float32 products."""
    best = 0.0
    for size, times in ((1024, 8), (2048, 6), (4096, 3)):
        a, b, c = (np.full((size, size), 1.0, np.float32) for _ in range(3))
        product = functools.partial(np.matmul, a, b, out=c)
        product()
        best = max(best, 2 * size**3 / min(seconds(product) for _ in range(times)))
    return best


def copy(threads: int) -> float:
    """The best rate of copying between arrays that are in use already, a part in each thread."""
    source, target = (np.full(COPIED, 1, np.uint8) for _ in range(2))
    bounds = [COPIED * i // threads for i in range(threads + 1)]
    parts = [slice(*pair) for pair in itertools.pairwise(bounds)]
    with ThreadPoolExecutor(threads) as pool:
        run = lambda: list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))
        run()
        return 2 * COPIED / min(seconds(run) for _ in range(15))


def busy() -> float | None:
    """Seconds of all cores that any process has computed since the start; None where that isn't told."""
    try:
        user, nice, system, _, _, irq, softirq, steal, *_ = map(int, Path("/proc/stat").read_text().split()[1:10])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


CASE = Case("machine", rates, {}, tolerance=0.0)


def described(libraries: Iterable[str], threads: int) -> dict[str, Any]:
    """What results depend on: processor, cores, threads, Python, and versions of libraries (None: not installed)."""
    versions: dict[str, str | None] = {}
    for name in libraries:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    for name in ("entrenar", "numpy"):  # these need not be installed to be here
        versions[name] = importlib.import_module(name).__version__
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": threads,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def processor() -> str:
    """The processor's name, with the vector sets that matter where Linux tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    sets = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in fields.get("flags", "").split()]
    name = fields.get("model name", platform.machine())
    return f"{name} ({' '.join(sets)})" if sets else name
