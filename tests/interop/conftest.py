"""Everything here is compared with a peer: it carries the marker ``interop`` and runs by ``make interop``."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in Path(str(item.fspath)).parents:
            item.add_marker(pytest.mark.interop)
