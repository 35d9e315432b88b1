"""The C++ extension, where it was built: ``native`` is the module, or None."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def _load() -> Any:
    try:
        return import_module("._native", __name__)
    except ImportError:  # not built, or built for another Python or NumPy: the portable code is in charge
        return None


native = _load()
