"""The storages that the contract suite holds for, and what stands before them."""

import random
from collections.abc import AsyncIterator

import pytest

from apiserver.services.elections import TIMING
from apiserver.sessions import Timing
from apiserver.storage.interface import Storage
from apiserver.storage.memory import MemoryStorage
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.contract.electing import Serve, Vote
from tests.contract.servers import Server
from tests.contract.voters import Voter
from tests.simulation.etcd import SimEtcd
from tests.simulation.etcd_port import Port


@pytest.fixture(params=["memory", "simulated", "etcd"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """An empty storage. Its revision may be any: another test's history can be below it."""
    match request.param:
        case "memory":
            return MemoryStorage()
        case "simulated":
            return Port(SimEtcd(SYSTEM_CLOCK, random.Random(1)), random.Random(2))
    found: Storage = request.getfixturevalue("etcd_storage")
    return found


@pytest.fixture
async def serve(storage: Storage) -> AsyncIterator[Serve]:
    """Starts API servers before the storage."""
    servers: list[Server] = []

    async def start(timing: Timing = TIMING) -> Server:
        servers.append(await Server(storage, elections=timing).start())
        return servers[-1]

    yield start
    for server in servers:
        await server.kill()


@pytest.fixture
async def vote() -> AsyncIterator[Vote]:
    """Starts candidates."""
    voters: list[Voter] = []

    def start(holder: str, *servers: Server) -> Voter:
        voters.append(Voter(holder, *servers))
        return voters[-1]

    yield start
    for voter in voters:
        await voter.stop()
