"""Shared by all tests: the default random stream starts anew for each."""

from importlib.util import find_spec

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("repeatable")

# their modules import the peer; `make interop` makes sure that it is there
collect_ignore = [] if find_spec("torch") else ["interop"]


@pytest.fixture(autouse=True)
def seeded():
    import entrenar as en

    en.manual_seed(0)
