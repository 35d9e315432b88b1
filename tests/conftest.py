"""Shared by all tests: the default random stream starts anew for each."""

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def seeded():
    import entrenar as en

    en.manual_seed(0)
