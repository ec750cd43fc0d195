"""The storages under test, and API servers, candidates and fleets that use them."""

import random
from collections.abc import AsyncIterator
from functools import partial

import pytest

from pinnace.apiserver.storage.interface import MeasuredStorage, PrefixedStorage, Storage
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.contract.electing import Serve, Vote, serving, voting
from tests.contract.fleets import Cluster
from tests.simulation.etcd import SimEtcd
from tests.simulation.etcd_port import Port
from tests.storage.memory import MemoryStorage


@pytest.fixture(params=["memory", "prefixed", "simulated", "etcd"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """An empty storage. It can start at any revision, because etcd keeps the history of other tests."""
    match request.param:
        case "memory":
            return MemoryStorage()
        case "prefixed":
            return PrefixedStorage(MemoryStorage(), "/staging")
        case "simulated":
            return Port(SimEtcd(SYSTEM_CLOCK, random.Random(1)), random.Random(2))
    return MeasuredStorage(request.getfixturevalue("etcd_storage"), lambda operation, seconds, failed: None)


@pytest.fixture
async def serve(storage: Storage) -> AsyncIterator[Serve]:
    """Start API servers that use the storage."""
    async with serving() as start:
        yield partial(start, storage)


@pytest.fixture
async def vote() -> AsyncIterator[Vote]:
    """Start candidates."""
    async with voting() as start:
        yield start


@pytest.fixture
async def cluster(storage: Storage) -> AsyncIterator[Cluster]:
    """Servers that use the storage, and fleets."""
    cluster = Cluster(storage)
    yield cluster
    for fleet in cluster.fleets:
        await fleet.stop()
    for server in cluster.servers:
        await server.kill()
