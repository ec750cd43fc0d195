"""The API server, put together: storage <- cacher and committer <- registry <- services <- gRPC.

Stateless but for the cache, which it can rebuild at any time: any number of equal servers may stand before one etcd.
"""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from typing import Any

import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from apiserver.admission import Chain
from apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from apiserver.admission.priority import Priority
from apiserver.cacher.cacher import Cacher
from apiserver.registry.events import EventLeases, EventRegistry
from apiserver.registry.mutation import Mutator
from apiserver.registry.store import Store
from apiserver.registry.strategies import STRATEGIES
from apiserver.services.elections import ElectionsService
from apiserver.services.errors import not_loaded, shutting_down
from apiserver.services.events import EventService
from apiserver.services.handlers import generic_handler
from apiserver.services.heartbeats import HeartbeatsService
from apiserver.services.namespaces import PERMANENT, NamespaceService
from apiserver.services.nodes import NodeService
from apiserver.services.pods import PodService
from apiserver.services.resource import READ_TIMEOUT, ResourceService
from apiserver.services.version import VersionService
from apiserver.storage.committer import Committer
from apiserver.storage.interface import Storage
from pinnace.api import elections_pb2, version_pb2
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.resources import (
    ALL,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Resource,
)
from pinnace.api.status import Code, Refusal
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

ELECTIONS, VERSION = "pinnace.v1.Elections", "pinnace.v1.Version"
MAX_REQUEST = 4 << 20
"""Bytes of one request: a batch may be larger than an object may be."""
FAREWELL = 0.2
"""Seconds in which a server that stops still answers, with "go on with another": a call that meets a closed door instead would
not know whether it has happened."""
STOP_GRACE = 2.0
"""Seconds that running calls are given when the server stops."""
OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.so_reuseport", 0),  # a port that is taken is an error, not a second server
    ("grpc.max_receive_message_length", MAX_REQUEST),
    ("grpc.max_send_message_length", -1),
    # A peer that swallows packets is found within five seconds; clients may ping as eagerly as we do.
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),  # without it gRPC waits a minute for the answer, whatever the line above says
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
)


class ApiServer:
    """`start`, then `run` until cancelled, then `stop`."""

    def __init__(self, storage: Storage, *, clock: Clock = SYSTEM_CLOCK, rng: random.Random | None = None) -> None:
        self._storage = storage
        self._clock = clock
        self._rng = rng or random.Random()
        self._server = grpc.aio.server(options=OPTIONS)
        self._health = health.HealthServicer()
        self._committer = Committer(storage)
        self.cacher = Cacher(storage, ALL, clock=clock)
        self._elections = ElectionsService(storage, self._committer, self.cacher, clock=clock)
        self._heartbeats = HeartbeatsService(storage, self._committer, self.cacher, clock=clock)
        self._namespaces: Store[Namespace]
        self._bootstrapped = False
        self._stopping = False
        self._register()

    async def start(self, address: str) -> str:
        """Listens; the address with the real port. Raises OSError when it cannot."""
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: is the port taken? ({error})") from error
        await self._server.start()
        return f"{address.rpartition(':')[0]}:{port}"

    async def run(self) -> None:
        """Serves until cancelled. A part that dies takes the server with it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._committer.run(), name="committer")
            tasks.create_task(self.cacher.run(), name="cacher")
            tasks.create_task(self._bootstrap(), name="bootstrap")

    async def stop(self) -> None:
        """Sends everybody on to another server, lets running calls end, and closes."""
        self._stopping = True
        await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        self._elections.drain()
        self._heartbeats.drain()
        await self.cacher.drain()
        await self._clock.sleep(FAREWELL)
        await self._server.stop(STOP_GRACE)

    def readiness(self) -> str | None:
        if not self.cacher.ready:
            return "the watch cache is not loaded, or its watch of etcd is broken"
        return None if self._bootstrapped else "the permanent namespaces are not made yet"

    def _closed(self) -> Refusal | None:
        """Why no call is taken now."""
        if self._stopping:
            return shutting_down()
        return None if self.cacher.revision else not_loaded()

    def _register(self) -> None:
        services = self._services()
        descriptors: list[tuple[ServiceDescriptor, object]] = [
            (resource.messages.DESCRIPTOR.services_by_name[_short(resource.service)], services[resource]) for resource in ALL
        ]
        descriptors.append((elections_pb2.DESCRIPTOR.services_by_name["Elections"], self._elections))
        descriptors.append((version_pb2.DESCRIPTOR.services_by_name["Version"], VersionService()))
        handlers = tuple(generic_handler(descriptor, service, self._closed) for descriptor, service in descriptors)
        self._server.add_generic_rpc_handlers(handlers)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [*(resource.service for resource in ALL), ELECTIONS, VERSION]
        reflection.enable_server_reflection([*names, HEALTH, reflection.SERVICE_NAME], self._server)

    def _services(self) -> Mapping[Resource[Any], object]:
        admission = Chain([
            NamespaceLifecycle(self.cacher.of(NAMESPACES)),
            Priority(self.cacher.of(PRIORITY_CLASSES)),
        ])  # fmt: skip
        stores = {resource: self._store(resource, admission) for resource in ALL}
        self._namespaces = stores[NAMESPACES]
        events = EventRegistry(stores[EVENTS], EventLeases(self._storage, self._clock))
        return {
            PODS: PodService(stores[PODS], self.cacher, self._clock),
            NODES: NodeService(stores[NODES], self.cacher, self._heartbeats),
            NAMESPACES: NamespaceService(stores[NAMESPACES], self.cacher),
            EVENTS: EventService(stores[EVENTS], self.cacher, events),
            PRIORITY_CLASSES: ResourceService(stores[PRIORITY_CLASSES], self.cacher),
            LEASES: ResourceService(stores[LEASES], self.cacher),
        }

    def _store(self, resource: Resource[Any], admission: Chain) -> Store[Any]:
        mutator = Mutator(resource, self.cacher.of(resource), self._storage, self._committer)
        return Store(resource, STRATEGIES[resource.plural], admission, mutator, self._refresh, self._clock, self._rng)

    async def _refresh(self) -> None:
        await self.cacher.fresh(READ_TIMEOUT)

    async def _bootstrap(self) -> None:
        """Makes the permanent namespaces, as soon as etcd can be reached."""
        missing = list(PERMANENT)
        while missing:
            objs = [Namespace() for _ in missing]
            for obj, name in zip(objs, missing, strict=True):
                obj.metadata.name = name
            outcomes = await self._namespaces.create(objs)
            missing = [
                name
                for name, outcome in zip(missing, outcomes, strict=True)
                if isinstance(outcome, Refusal) and outcome.code is not Code.ALREADY_EXISTS
            ]
            if missing:
                log.warning("cannot make the namespaces %s yet", ", ".join(missing))
                await self._clock.sleep(0.5)
        self._bootstrapped = True
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)


def _short(service: str) -> str:
    return service.rpartition(".")[2]
