import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_ruins() -> Iterator[None]:
    """Simulated clusters are cycles, a million objects together. Later their removal would stop what must answer in time."""
    yield
    gc.collect()
