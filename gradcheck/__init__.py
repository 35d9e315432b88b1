"""gradcheck: is this gradient right, and if not, what kind of mistake is it?

>>> import numpy as np
>>> square = (lambda x: x * x, lambda g, x: 2 * g * x)
>>> check(square, np.array([1.0, 2.0, 3.0])).verdict
'pass'
>>> forgot = (lambda x: x * x, lambda g, x: g * x)
>>> report = check(forgot, np.array([1.0, 2.0, 3.0]))
>>> report.verdict, report.kind
('wrong', 'constant-factor')

It needs NumPy only, and knows the library a target comes from through its adapters.
"""

from __future__ import annotations

from collections.abc import Sequence

from .checking import assert_gradients, check
from .report import Finding, Kind, Report, Verdict, Where

__all__ = ["Finding", "Kind", "Report", "Verdict", "Where", "assert_gradients", "check", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line, ``python -m gradcheck``; returns its exit status."""
    from .cli import main as run

    return run(argv)
