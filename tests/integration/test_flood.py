"""One user sends more than a server can do, and others do not notice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pinnace.api.wellknown import SCHEDULER_ELECTION
from pinnace.apiserver.assembly import ServerSettings
from pinnace.apiserver.auth.authentication import RequestAuthenticator
from pinnace.apiserver.server import MAX_STREAMS, ApiServer
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.election import LeaderElector
from pinnace.cluster import certificates
from pinnace.pki import Subject
from pinnace.pki.folder import CertificateSpec, PkiFolder
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.builders import make_pod

SEATS = 16
FLOOD = 800
PATIENCE = 30.0


class Server:
    """With few seats, so that a flood is one on any machine."""

    def __init__(self, folder: Path, storage: EtcdStorage) -> None:
        certificates.create_certificates(folder, ["127.0.0.1:1"], {})
        people = [CertificateSpec(name, Subject(name, ("system:masters",))) for name in ("mallory", "eve")]
        PkiFolder(folder).provide(people, datetime.now(UTC))
        self._folder = folder
        self._server = ApiServer(storage, RequestAuthenticator(SYSTEM_CLOCK.time), ServerSettings(seats=SEATS))
        self._connections: list[Connection] = []

    async def start(self) -> None:
        self._address = await self._server.start("127.0.0.1:0", certificates.component_files(self._folder, "apiserver"))
        self._running = asyncio.ensure_future(self._server.run())

    def connect(self, name: str) -> Connection:
        self._connections.append(Connection([self._address], tls=certificates.component_files(self._folder, name)))
        return self._connections[-1]

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
        await self._server.stop()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


@pytest.fixture
async def server(tmp_path: Path, etcd_storage: EtcdStorage) -> AsyncIterator[Server]:
    server = Server(tmp_path, etcd_storage)
    await server.start()
    yield server
    await server.close()


async def test_flood_is_carried_out_behind_the_calls_of_others(server: Server) -> None:
    mallory, eve = Client(server.connect("mallory")), Client(server.connect("eve"))
    await eve.pods.create(make_pod("hers").req(cpu="1m").new())
    lost: list[str] = []
    elected = asyncio.Event()
    candidate = LeaderElector(
        server.connect("scheduler"), SCHEDULER_ELECTION, "one", on_elected=lambda token: elected.set(), on_lost=lost.append
    )
    campaign = asyncio.ensure_future(candidate.run())
    async with asyncio.timeout(PATIENCE):
        await elected.wait()
    done, begun = 0, asyncio.Event()

    numbers = iter(range(FLOOD))

    async def create() -> None:
        nonlocal done
        for number in numbers:
            await mallory.pods.create(make_pod(f"flood-{number}").req(cpu="1m").new())
            done += 1
            if done == SEATS:
                begun.set()

    flood = [asyncio.ensure_future(create()) for _ in range(2 * MAX_STREAMS)]
    overtaken: list[int] = []
    async with asyncio.timeout(2 * PATIENCE):
        await begun.wait()
        await eve.pods.get("hers", "default")  # until it is answered gRPC hands over what its peers had sent at once before it
        while done < FLOOD * 3 // 4:
            before = done
            await eve.pods.get("hers", "default")
            overtaken.append(done - before)
        await asyncio.gather(*flood)
    usual = sorted(overtaken)[len(overtaken) // 2]
    assert usual <= MAX_STREAMS + 3 * SEATS, "at worst what gRPC hands over before: all that one connection may have open"
    assert not lost, "the leader leads on"
    await candidate.release()
    await campaign


async def test_connection_has_more_streams_than_one_channel_can_carry(server: Server) -> None:
    connection = server.connect("mallory")
    client = Client(connection)
    created = await client.pods.create(make_pod("p").req(cpu="1m").new())
    heard = asyncio.Semaphore(0)

    async def follow() -> None:
        async with aclosing(client.pods.watch("default")) as batches:
            async for batch in batches:
                for _, obj in batch.events:
                    assert obj.metadata.uid == created.metadata.uid
                    heard.release()

    watches = [asyncio.ensure_future(follow()) for _ in range(2 * MAX_STREAMS)]
    async with asyncio.timeout(PATIENCE):
        for _ in watches:
            await heard.acquire()
        await client.pods.get("p", "default")
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*watches, return_exceptions=True)
