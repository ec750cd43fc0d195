"""API servers that compact etcd's history while everybody works: what is old goes, and nobody loses anything."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import count

import pytest

from pinnace.api.core_v1_pb2 import PodList
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.interface import Compacted
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import Expired
from tests.builders import make_pod
from tests.conftest import EtcdServer
from tests.integration.conftest import Start

PATIENCE = 20.0
OFTEN = ("--etcd-compaction-interval", "0.4")


@pytest.fixture
async def clients(etcd: EtcdServer, etcd_storage: EtcdStorage, start: Start) -> AsyncIterator[list[Client]]:
    """One of each of two API servers, before an etcd that is empty."""
    servers = [start("apiserver", f"apiserver-{number}", "--etcd", etcd.endpoint, *OFTEN) for number in range(2)]
    for server in servers:
        await server.ready()
    clients = [Client(Connection([server.address])) for server in servers]
    yield clients
    for client in clients:
        await client.connection.close()


async def create(client: Client, name: str) -> int:
    """The revision."""
    return int((await client.pods.create(make_pod(name).req(cpu="1m").new())).metadata.resourceVersion)


async def names_until(client: Client, revision: int, last: str) -> list[str]:
    """The names of the pods that a watch from `revision` shows, up to the last one."""
    names: list[str] = []
    async with aclosing(client.pods.watch("default", resource_version=revision)) as watch:
        async for batch in watch:
            names += [pod.metadata.name for _, pod in batch.events]
            if last in names:
                return names
    raise AssertionError("unreachable")


async def oldest(storage: EtcdStorage, revision: int) -> int:
    """The oldest revision that is left, if `revision` is not; 0: it is."""
    try:
        await storage.page("/registry/pods/", limit=1, revision=revision)
    except Compacted as compacted:
        return compacted.compact_revision
    return 0


async def list_pods(client: Client, options: ListOptions) -> PodList:
    return await client.connection.call("/pinnace.v1.Pods/List", ListRequest(namespace="default", options=options), PodList)


async def test_compaction_loses_no_events(
    clients: list[Client], etcd: EtcdServer, etcd_storage: EtcdStorage, start: Start
) -> None:
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        first = await create(clients[0], "first")
        await create(clients[0], "second")
        page = await list_pods(clients[0], ListOptions(limit=1))
        watches = [tasks.create_task(names_until(client, first - 1, "last")) for client in clients]
        names, compactions = ["first", "second"], {0}
        for number in count():
            if len(compactions) > 3:
                break
            names.append(f"p{number}")
            await create(clients[number % 2], names[-1])
            compactions.add(await oldest(etcd_storage, first))
        names.append("last")
        await create(clients[0], "last")
        assert [await watch for watch in watches] == [names, names]
        assert await names_until(clients[1], first - 1, "last") == names, "the server's own ring was hurt"

        with pytest.raises(Expired):
            await list_pods(clients[1], ListOptions(resourceVersion=str(first), resourceVersionMatch="Exact"))
        with pytest.raises(Expired):
            await list_pods(clients[0], ListOptions(limit=1, **{"continue": getattr(page.metadata, "continue")}))
        late = start("apiserver", "apiserver-late", "--etcd", etcd.endpoint, *OFTEN)
        await late.ready()
        client = Client(Connection([late.address]))
        with pytest.raises(Expired):
            await names_until(client, first, "last")
        assert {pod.metadata.name for pod in (await client.pods.list("default")).items} == set(names)
        await client.connection.close()
