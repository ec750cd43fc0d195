from collections.abc import AsyncIterator

import pytest

from tests.unit.kubelet.fakeapi import FakeApi


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """An API with a running fleet of one node, "n"."""
    api = FakeApi()
    await api.start_fleet()
    yield api
    await api.stop_fleet()
