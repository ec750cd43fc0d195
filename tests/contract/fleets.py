"""Fleets and protocol-level clients of the heartbeat service, with servers that share one storage."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE
from pinnace.apiserver.services.sessions import Timing
from pinnace.apiserver.storage.interface import ChangeBatch, KeyValue, Storage
from pinnace.client.connection import Duplex
from pinnace.client.heartbeat import HEARTBEAT_METHOD, NodeSession
from tests.contract.servers import PATIENCE, Server
from tests.unit.client.fakeserver import connect

PREFIX = LEASES.key(NODE_LEASE_NAMESPACE, "")
HASTY = Timing(interval=0.05, silence=0.3, ttl=2)
BRISK = Timing(interval=0.05, silence=60.0, ttl=60)
"""No lease expires, and the server does not consider a silent fleet dead."""


class Cluster:
    """Servers and sessions that share one storage."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.servers: list[Server] = []
        self.fleets: list[Fleet] = []

    async def serve(self, timing: Timing = HASTY) -> Server:
        self.servers.append(await Server(self.storage, heartbeats=timing).start())
        return self.servers[-1]

    def fleet(self, holder: str, nodes: Sequence[str], *servers: Server) -> "Fleet":
        self.fleets.append(Fleet(holder, nodes, *(servers or self.servers)))
        return self.fleets[-1]

    async def leases(self) -> dict[str, KeyValue]:
        """Return the Lease objects by node."""
        key_values: dict[str, KeyValue] = {}
        page = await self.storage.page(PREFIX, limit=5000)
        for item in page.items:
            key_values[item.key.removeprefix(PREFIX)] = item
        return key_values

    async def until(self, condition: Callable[[dict[str, KeyValue]], bool]) -> dict[str, KeyValue]:
        """Return the Lease objects once they meet the condition. Watch the storage directly."""
        revision = await self.storage.current_revision()
        async with asyncio.timeout(PATIENCE):
            while not condition(result := await self.leases()):
                revision = (await anext(self.following(revision))).revision
        return result

    async def following(self, revision: int) -> AsyncIterator[ChangeBatch]:
        """Yield the changes after the revision. Skip empty batches."""
        async for changes in self.storage.watch(revision + 1):
            if changes.changes:
                yield changes

    async def holding(self, *nodes: str) -> dict[str, KeyValue]:
        """Return the Lease objects once they exist for exactly these nodes."""
        return await self.until(lambda found: found.keys() == set(nodes))


class Fleet:
    """A running NodeSession. `taken_over` maps each lost node to its new holder."""

    def __init__(self, holder: str, nodes: Sequence[str], *servers: Server) -> None:
        self.connection = connect(*(server.address for server in servers))
        self.session = NodeSession(self.connection, holder, nodes, on_taken_over=self._taken_over)
        self.taken_over: dict[str, str] = {}
        self.was_taken_over = asyncio.Event()
        self.running = asyncio.ensure_future(self.session.run())

    def _taken_over(self, nodes: Sequence[str], holder: str) -> None:
        self.taken_over.update(dict.fromkeys(nodes, holder))
        self.was_taken_over.set()

    async def kill(self) -> None:
        """Cancel the session without closing it."""
        self.running.cancel()
        await asyncio.wait((self.running,))

    async def stop(self) -> None:
        await self.kill()
        await self.connection.close()
        if not self.running.cancelled():
            self.running.result()


class Speaker:
    """A client that sends and receives single messages of the protocol."""

    def __init__(self, stream: Duplex[HeartbeatRequest, HeartbeatResponse]) -> None:
        self._stream = stream

    @classmethod
    async def open(cls, server: Server, holder: str, nodes: Sequence[str], session: int = 0, birth: int = 0) -> "Speaker":
        """The stream ends when the Speaker is garbage collected."""
        stream = await connect(server.address).duplex(HEARTBEAT_METHOD, HeartbeatRequest, HeartbeatResponse)
        opening = HeartbeatRequest.Open(holder=holder, nodes=nodes, session=session, birth=birth)
        await stream.write(HeartbeatRequest(open=opening))
        return cls(stream)

    async def say(self, request: HeartbeatRequest) -> None:
        await self._stream.write(request)

    async def hear(self, kind: str) -> HeartbeatResponse:
        response = await self.next()
        assert response is not None, f"the stream ended; expected {kind}"
        assert response.WhichOneof("kind") == kind, response
        return response

    async def next(self) -> HeartbeatResponse | None:
        async with asyncio.timeout(PATIENCE):
            return await self._stream.read()

    def vanish(self) -> None:
        self._stream.cancel()
