"""Quotas over two API servers and a real etcd: however many want in at once, exactly as many come in as there is room for."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod, ResourceQuota
from pinnace.api.resources import RESOURCE_QUOTAS
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import Forbidden, Unavailable, from_status
from pinnace.client.resource import delete_request
from tests.builders import make_pod
from tests.conftest import EtcdServer, wipe
from tests.integration.conftest import Start
from tests.integration.processes import Component
from tests.regression.servers import serving
from tests.unit.quota.world import violations

ROOM = 50
WANTED = 200
DEADLINE = 20.0
FULL = "exceeded quota: q, requested: pods=1, used: pods=50, limited: pods=50"


def quota(name: str = "q", **hard: str) -> ResourceQuota:
    return from_dict(RESOURCE_QUOTAS, {"metadata": {"name": name}, "spec": {"hard": hard}})


def pods(count: int, prefix: str = "p") -> list[Pod]:
    return [make_pod(f"{prefix}{i:03}").req(cpu="100m").new() for i in range(count)]


class Pair:
    """Two clients, each of one of two servers."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients

    @property
    def one(self) -> Client:
        return self.clients[0]

    async def make(self, made: ResourceQuota) -> None:
        """Returns when both servers have seen it."""
        await self.one.of(RESOURCE_QUOTAS).create(made)
        for client in self.clients:
            await client.of(RESOURCE_QUOTAS).get(made.metadata.name, "default")

    async def existing(self) -> list[Pod]:
        return (await self.one.pods.list("default")).items

    async def used(self, name: str = "q") -> dict[str, str]:
        result = await self.one.of(RESOURCE_QUOTAS).get(name, "default")
        return {each: amount.string for each, amount in result.status.used.items()}

    async def used_becomes(self, **expected: str) -> None:
        async with asyncio.timeout(DEADLINE):
            while await self.used() != expected:  # noqa: ASYNC110 (as a client sees it)
                await asyncio.sleep(0.02)

    async def create_each(self, wanted: Iterable[Pod]) -> list[Pod | BaseException]:
        """At once, one call each, the servers in turn."""
        calls = (self.clients[i % len(self.clients)].pods.create(pod) for i, pod in enumerate(wanted))
        return await asyncio.gather(*calls, return_exceptions=True)


@pytest.fixture
async def pair(etcd: EtcdServer) -> AsyncIterator[Pair]:
    await wipe(etcd.endpoint)
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(2):
            storage = EtcdStorage([etcd.endpoint])
            stack.push_async_callback(storage.close)
            connection = Connection([await stack.enter_async_context(serving(storage))])
            stack.push_async_callback(connection.close)
            clients.append(Client(connection))
        yield Pair(clients)


async def test_quota_admits_50_of_200_concurrent_creates(pair: Pair) -> None:
    await pair.make(quota(pods=str(ROOM)))
    outcomes = await pair.create_each(pods(WANTED))
    refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert len(refused) == WANTED - ROOM
    assert all(isinstance(item, Forbidden) and FULL in str(item) for item in refused), set(map(str, refused))
    assert len(await pair.existing()) == ROOM
    assert await pair.used() == {"pods": str(ROOM)}


async def test_quota_admits_50_of_200_batched_creates(pair: Pair) -> None:
    await pair.make(quota(pods=str(ROOM)))
    wanted = pods(WANTED)
    batches = [wanted[start : start + 25] for start in range(0, WANTED, 25)]
    answers = await asyncio.gather(*(pair.clients[i % 2].pods.create_batch(batch) for i, batch in enumerate(batches)))
    refused = [from_status(item.error) for answer in answers for item in answer if item.HasField("error")]
    assert len(refused) == WANTED - ROOM and all(FULL in str(each) for each in refused), set(map(str, refused))
    assert len(await pair.existing()) == ROOM
    assert await pair.used() == {"pods": str(ROOM)}


async def test_deleted_objects_release_quota(pair: Pair) -> None:
    await pair.make(quota(pods=str(ROOM)))
    await pair.create_each(pods(ROOM))
    gone = await pair.existing()
    await pair.one.pods.delete_batch([delete_request(pod.metadata.name, "default", uid=pod.metadata.uid) for pod in gone[:10]])
    await pair.used_becomes(pods="40")
    outcomes = await pair.create_each(pods(20, "q"))
    assert sum(isinstance(outcome, Pod) for outcome in outcomes) == 10
    assert len(await pair.existing()) == ROOM
    assert await pair.used() == {"pods": str(ROOM)}


async def test_quota_charges_one_of_several_creates_of_one_name(pair: Pair) -> None:
    """A create that fails leaves nothing behind."""
    await pair.make(quota(pods=str(ROOM)))
    twice = [pod for pod in pods(30) for _ in pair.clients]
    outcomes = await pair.create_each(twice)
    assert sum(isinstance(outcome, Pod) for outcome in outcomes) == len(await pair.existing()) == 30
    assert await pair.used() == {"pods": "30"}


async def test_server_that_is_killed_leaks_nothing(etcd_storage: EtcdStorage, etcd: EtcdServer, start: Start) -> None:
    """Real processes, and kill -9 of one of two while 200 want in: the other fills what is left, and at no revision are there
    more than may be, or than the quota says."""
    servers = [start("apiserver", f"apiserver-{i}", "--etcd", etcd.endpoint) for i in range(2)]
    for server in servers:
        await server.ready()
    async with AsyncExitStack() as stack:
        connections = [Connection([server.address]) for server in servers]
        for connection in connections:
            stack.push_async_callback(connection.close)
        pair = Pair([Client(connection) for connection in connections])
        await pair.make(quota(pods=str(ROOM)))
        since = await etcd_storage.current_revision()
        lost = await _create_and_kill(servers[1], pair, pods(WANTED))
        assert lost, "it was killed when it had nothing to do"
        assert len(await pair.existing()) == ROOM
        assert await pair.used() == {"pods": str(ROOM)}
        assert await violations(etcd_storage, ROOM, since) == []


async def _create_and_kill(server: Component, pair: Pair, wanted: Sequence[Pod]) -> int:
    """Each server has eight callers, one pod after another. It dies when the fifth of its pods is answered, and the other has
    begun at the first. How many calls got no answer."""
    victim, left, answered, lost, begun = pair.clients[1], iter(wanted), 0, 0, asyncio.Event()

    async def call(client: Client) -> None:
        nonlocal answered, lost
        if client is not victim:
            await begun.wait()
        for pod in left:
            try:
                await client.pods.create(pod)
            except Forbidden:
                continue
            except Unavailable:
                lost += 1
                return
            if client is victim:
                begun.set()
                answered += 1
                if answered == 5:
                    server.process.kill()

    await asyncio.gather(*(call(client) for client in pair.clients for _ in range(8)))
    server.process.wait(10)
    return lost
