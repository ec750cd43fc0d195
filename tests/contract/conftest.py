"""The storages that the contract suite holds for."""

import pytest

from apiserver.storage.interface import Storage
from apiserver.storage.memory import MemoryStorage


@pytest.fixture(params=["memory", "etcd"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """An empty storage. Its revision may be any: another test's history can be below it."""
    found: Storage = MemoryStorage() if request.param == "memory" else request.getfixturevalue("etcd_storage")
    return found
