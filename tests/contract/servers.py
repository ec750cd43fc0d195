"""API servers that share a storage and only serve elections and heartbeats, over gRPC on loopback."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor

from pinnace.api import elections_pb2, nodes_pb2
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.auth.permissions import ActionTarget, ResourceAction
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.election.service import TIMING as ELECTION_TIMING
from pinnace.apiserver.election.service import ElectionsService
from pinnace.apiserver.flow.control import PriorityAndFairness
from pinnace.apiserver.registry.fencing import FenceVerifier
from pinnace.apiserver.services.calls import CallRunner, RequestIds
from pinnace.apiserver.services.handlers import MethodHandlers
from pinnace.apiserver.services.methods import MIN_TIMEOUT, Method, StreamReauthorizer, build_methods
from pinnace.apiserver.services.nodes import TIMING as HEARTBEAT_TIMING
from pinnace.apiserver.services.nodes import HeartbeatsService
from pinnace.apiserver.services.sessions import Timing
from pinnace.apiserver.storage.committer import Committer
from pinnace.apiserver.storage.interface import (
    ChangeBatch,
    Committed,
    CompareFailed,
    KeyPage,
    KeyValue,
    Storage,
    StorageUnavailable,
    Write,
)
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.grpc_server import RefusalPacer

PATIENCE = 10.0
"""Maximum wait of a test, in seconds."""


class AlwaysAllow:
    """An Authorizer."""

    async def authorize(self, user: User, action: ResourceAction, targets: Callable[[], Iterable[ActionTarget]]) -> None:
        return


class Severable:
    """A storage that becomes unreachable after `sever`. `refused` is set once the compare of a transaction fails."""

    def __init__(self, inner: Storage) -> None:
        self.refused = asyncio.Event()
        self.watches = 0
        """Number of watches that were started."""
        self._inner = inner
        self._severed = False

    def sever(self) -> None:
        self._severed = True

    def _reach(self) -> Storage:
        if self._severed:
            raise StorageUnavailable("severed")
        return self._inner

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        return await self._reach().get(key, revision=revision)

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> KeyPage:
        return await self._reach().page(prefix, after=after, limit=limit, revision=revision)

    async def current_revision(self) -> int:
        return await self._reach().current_revision()

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        answer = await self._reach().transact(writes)
        if isinstance(answer, CompareFailed):
            self.refused.set()
        return answer

    async def watch(self, start_revision: int) -> AsyncIterator[ChangeBatch]:
        self.watches += 1
        async for changes in self._reach().watch(start_revision):
            self._reach()
            yield changes

    def watch_stalled(self) -> None:
        self._reach().watch_stalled()

    async def compact(self, revision: int) -> None:
        await self._reach().compact(revision)

    async def grant_lease(self, ttl: int) -> int:
        return await self._reach().grant_lease(ttl)

    async def renew_lease(self, lease: int) -> float:
        return await self._reach().renew_lease(lease)

    async def lease_age(self, lease: int) -> float:
        return await self._reach().lease_age(lease)

    async def revoke_lease(self, lease: int) -> None:
        await self._reach().revoke_lease(lease)

    async def close(self) -> None:
        """The caller owns the inner storage."""


class Server:
    def __init__(self, storage: Storage, elections: Timing = ELECTION_TIMING, heartbeats: Timing = HEARTBEAT_TIMING) -> None:
        self.storage = Severable(storage)
        self.committer = Committer(self.storage)
        self.cacher = Cacher(self.storage)
        allow = AlwaysAllow()
        self.elections = ElectionsService(self.storage, self.committer, self.committer, self.cacher, allow, timing=elections)
        self.heartbeats = HeartbeatsService(self.storage, self.committer, self.cacher, allow, timing=heartbeats)
        self.address = ""
        self._grpc = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self._running: list[asyncio.Task[None]] = []

    async def start(self) -> "Server":
        elections = elections_pb2.DESCRIPTOR.services_by_name["Elections"]
        heartbeats = only(nodes_pb2.DESCRIPTOR.services_by_name["Nodes"], "Heartbeat")
        services = ((elections, self.elections), (heartbeats, self.heartbeats))
        allow = AlwaysAllow()
        fences = FenceVerifier(self.storage, self.cacher, allow)
        authorizations = StreamReauthorizer(allow, lambda: None, MIN_TIMEOUT, SYSTEM_CLOCK, random.Random())
        methods: dict[str, Method] = {}
        for each, service in services:
            methods.update(
                build_methods(each.methods, service, lambda: None, PriorityAndFairness(), allow, authorizations, fences)
            )
        handlers = MethodHandlers(methods, None, CallRunner(RequestIds("test"), RefusalPacer()))
        self._grpc.add_generic_rpc_handlers((handlers,))
        self.address = f"127.0.0.1:{self._grpc.add_insecure_port('127.0.0.1:0')}"
        self._running = [asyncio.ensure_future(part.run()) for part in (self.committer, self.cacher, self.elections)]
        await self.cacher.wait_for(1, PATIENCE)
        await self._grpc.start()
        return self

    def blind(self) -> None:
        """Stop the watch of the storage."""
        self._running[1].cancel()

    async def stop(self) -> None:
        """Stop as on SIGTERM: redirect candidates and fleets, and delete no keys."""
        self.elections.drain()
        self.heartbeats.drain()
        await self._grpc.stop(1.0)
        await self._end()

    async def kill(self) -> None:
        """Stop as on SIGKILL: break the connections and send nothing more to the storage."""
        self.storage.sever()
        await self._grpc.stop(None)
        await self._end()

    async def _end(self) -> None:
        for task in self._running:
            task.cancel()
        for ended in await asyncio.gather(*self._running, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


def only(service: ServiceDescriptor, *methods: str) -> Any:
    """Return the service descriptor reduced to these methods."""
    return SimpleNamespace(full_name=service.full_name, methods=[service.methods_by_name[name] for name in methods])
