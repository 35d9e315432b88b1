"""What the tests of kernels share."""

import pytest

from entrenar.kernels import pool


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = pool.threads()
    pool.limit(request.param)
    yield request.param
    pool.limit(before)
