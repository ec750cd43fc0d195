"""The informer against real API servers that come and go before a real etcd: what it holds is what there is."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count, takewhile

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.apiserver.server import ApiServer
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.interface import Write
from pinnace.client import errors
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.informer import Delta, Informer, OtherHistory
from pinnace.client.resource import delete_request
from tests.builders import make_pod
from tests.conftest import EtcdServer, free_port

PATIENCE = 15.0
PODS = 1200


class Replica:
    """An API server at a fixed address, that can be stopped and started anew."""

    def __init__(self, etcd: EtcdServer) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._etcd = etcd
        self._server: ApiServer | None = None
        self._storage: EtcdStorage
        self._running: asyncio.Task[None]

    async def start(self) -> None:
        self._storage = EtcdStorage([self._etcd.endpoint])
        self._server = ApiServer(self._storage)
        await self._server.start(self.address)
        self._running = asyncio.ensure_future(self._server.run())

    async def stop(self) -> None:
        if self._server is None:
            return
        await self._server.stop()
        self._server = None
        self._running.cancel()
        await asyncio.wait((self._running,))
        await self._storage.close()


class Mirror:
    """A handler that keeps a copy by the deltas alone, and counts its calls."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.versions: dict[str, int] = {}
        self.calls = 0

    def __call__(self, deltas: Sequence[Delta[Pod]]) -> None:
        self.calls += 1
        for delta in deltas:
            name, version = delta.obj.metadata.name, int(delta.obj.metadata.resourceVersion)
            if delta.kind == WatchEventType.DELETED:
                assert delta.old is not None
                self.names.remove(name)
                continue
            assert (delta.old is not None) == (name in self.names) == (delta.kind == WatchEventType.MODIFIED)
            assert version > self.versions.get(name, 0), "a version was told twice, or late"
            self.names.add(name)
            self.versions[name] = version


@pytest.fixture
async def replicas(etcd_storage: EtcdStorage, etcd: EtcdServer) -> AsyncIterator[list[Replica]]:
    replicas = [Replica(etcd), Replica(etcd)]
    for replica in replicas:
        await replica.start()
    yield replicas
    for replica in replicas:
        await replica.stop()


@pytest.fixture
async def client(replicas: list[Replica]) -> AsyncIterator[Client]:
    connection = Connection([replica.address for replica in replicas])
    yield Client(connection)
    await connection.close()


@asynccontextmanager
async def following(client: Client) -> AsyncIterator[tuple[Informer[Pod], Mirror]]:
    informer, mirror = Informer(client.pods), Mirror()
    informer.add_handler(mirror)
    running = asyncio.ensure_future(informer.run())
    try:
        await informer.wait_synced(PATIENCE)
        yield informer, mirror
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def make_pods(client: Client, names: Sequence[str]) -> int:
    """How many of them were made."""
    pods = [make_pod(name).req(cpu="100m").new() for name in names]
    made = 0
    for start in range(0, len(pods), 500):
        items = await client.pods.create_batch(pods[start : start + 500])
        made += sum(not item.HasField("error") for item in items)
    return made


async def same(client: Client, informer: Informer[Pod], mirror: Mirror) -> None:
    """Once the informer has reached the state of now, it is that state."""
    listing = await client.pods.list()
    await informer.wait_for(listing.resource_version, PATIENCE)
    assert {pod.metadata.name: pod for pod in listing.items} == {pod.metadata.name: pod for pod in informer.store.values()}
    assert mirror.names == {pod.metadata.name for pod in listing.items}


async def ready(client: Client) -> None:
    """Until the permanent namespaces are there."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.namespaces.get("default")
            except errors.NotFound:
                await asyncio.sleep(0.01)
            else:
                return


async def test_large_state_comes_in_one_piece(client: Client) -> None:
    await ready(client)
    assert await make_pods(client, [f"pod-{n}" for n in range(PODS)]) == PODS
    async with following(client) as (informer, mirror):
        assert len(informer.store) == PODS
        assert mirror.calls == 1
        await same(client, informer, mirror)


async def test_informer_loses_and_repeats_nothing_during_a_rolling_restart(client: Client, replicas: list[Replica]) -> None:
    await ready(client)
    async with following(client) as (informer, mirror):
        made: asyncio.Queue[int] = asyncio.Queue()
        enough = asyncio.Event()

        async def churn() -> None:
            for turn in takewhile(lambda _: not enough.is_set(), count()):
                names = [f"pod-{turn}-{n}" for n in range(20)]
                with suppress(errors.Unavailable):  # the server went away before it could answer
                    made.put_nowait(await make_pods(client, names))
                    await client.pods.delete_batch([delete_request(name, "default", grace=0) for name in names[::2]])

        churning = asyncio.ensure_future(churn())
        for replica in (*replicas, *replicas):
            async with asyncio.timeout(PATIENCE):
                while await made.get() < 20:
                    pass
            await replica.stop()
            await replica.start()
        enough.set()
        await asyncio.wait_for(churning, PATIENCE)  # a call that is given up may be carried out after the state was asked for
        await same(client, informer, mirror)


async def test_informer_restarts_after_a_missed_compaction_on_servers_without_its_history(
    client: Client, replicas: list[Replica], etcd_storage: EtcdStorage
) -> None:
    """They cannot tell whether what it knows is of their history."""
    await ready(client)
    assert await make_pods(client, ["stays", "goes"]) == 2
    informer: Informer[Pod] = Informer(client.pods)
    running = asyncio.ensure_future(informer.run())
    await informer.wait_synced(PATIENCE)
    for replica in replicas:
        await replica.stop()
    key = "/registry/pods/default/goes"
    result = await etcd_storage.get(key)
    assert result is not None
    await etcd_storage.transact([Write(key, None, result.mod_revision)])
    await etcd_storage.compact(await etcd_storage.current_revision())
    for replica in replicas:
        await replica.start()
    with pytest.raises(OtherHistory, match="informer of pods"):
        await asyncio.wait_for(running, PATIENCE)
    async with following(client) as (another, mirror):
        await same(client, another, mirror)
        assert mirror.names == {"stays"}
