"""What an API server consists of, put together, without a transport: storage <- cacher and committer <- registry <- services.

Stateless but for the cache, which it can rebuild at any time: any number of equal servers may stand before one etcd.

`methods` has every method by its path ("/pinnace.v1.Pods/Get"). Whoever calls them (gRPC in apiserver.server, the simulation
in-process) passes the same gate and gets the same refusals. Time and chance come from the clock, the rng and the event loop.
"""

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from apiserver.admission import Chain
from apiserver.admission.default_storage_class import DefaultStorageClass
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
from apiserver.services.heartbeats import HeartbeatsService
from apiserver.services.methods import Gate, Method, methods_of
from apiserver.services.namespaces import PERMANENT, NamespaceService
from apiserver.services.nodes import NodeService
from apiserver.services.pods import PodService
from apiserver.services.resource import READ_TIMEOUT, ResourceService
from apiserver.services.version import VersionService
from apiserver.storage.committer import Committer
from apiserver.storage.compactor import INTERVAL, Compactor
from apiserver.storage.interface import Storage
from apiserver.storage.sweeper import Sweeper
from pinnace.api import elections_pb2, version_pb2
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.resources import ALL, EVENTS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, STORAGE_CLASSES, Resource
from pinnace.api.status import Code, Refusal
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

BOOTSTRAP_INTERVAL = 0.5
"""Seconds between attempts to make the permanent namespaces."""


class Assembly:
    """`run` until cancelled; `drain` before that, when there is time. `bootstrapped`: the permanent namespaces exist."""

    def __init__(
        self,
        storage: Storage,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        compaction_interval: float = INTERVAL,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._rng = rng or random.Random()
        self._committer = Committer(storage, clock=clock, rng=self._rng)
        self._elections_committer = Committer(storage, clock=clock, rng=self._rng)
        """Lanes of its own: however many writes of objects wait, an election does not."""
        self._sweeper = Sweeper(storage, clock)
        self._compactor = Compactor(storage, clock, compaction_interval)
        self.cacher = Cacher(storage, ALL, clock=clock, rng=self._rng)
        self._elections = ElectionsService(storage, self._elections_committer, self._committer, self.cacher, clock=clock)
        self._heartbeats = HeartbeatsService(storage, self._committer, self.cacher, clock=clock, rng=self._rng)
        self._namespaces: Store[Namespace]
        self.bootstrapped = asyncio.Event()
        self._stopping = False
        self.methods = self._methods()

    async def run(self) -> None:
        """Works until cancelled. A part that dies takes the server with it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._committer.run(), name="committer")
            tasks.create_task(self._elections_committer.run(), name="committer of elections")
            for committer in (self._committer, self._elections_committer):
                tasks.create_task(committer.keep_lanes(), name="lanes")
            tasks.create_task(self._sweeper.run(), name="sweeper")
            tasks.create_task(self._compactor.run(), name="compactor")
            tasks.create_task(self.cacher.run(), name="cacher")
            tasks.create_task(self._elections.run(), name="elections")
            tasks.create_task(self._bootstrap(), name="bootstrap")

    async def drain(self) -> None:
        """Takes no more calls, and sends everybody on to another server: watches, candidates and fleets."""
        self._stopping = True
        self._elections.drain()
        self._heartbeats.drain()
        await self.cacher.drain()

    def readiness(self) -> str | None:
        """Why the server is not ready; None: it is."""
        if not self.cacher.ready:
            return "the watch cache is not loaded, or its watch of etcd is broken"
        return None if self.bootstrapped.is_set() else "the permanent namespaces are not made yet"

    def _closed(self) -> Refusal | None:
        """Why no call is taken now."""
        if self._stopping:
            return shutting_down()
        return None if self.cacher.revision else not_loaded()

    def _methods(self) -> Mapping[str, Method]:
        services: list[tuple[ServiceDescriptor, object, Gate]] = [
            (resource.messages.DESCRIPTOR.services_by_name[resource.service.rpartition(".")[2]], service, self._gate(resource))
            for resource, service in self._services().items()
        ]
        services.append((elections_pb2.DESCRIPTOR.services_by_name["Elections"], self._elections, self._closed))
        services.append((version_pb2.DESCRIPTOR.services_by_name["Version"], VersionService(), self._closed))
        methods: dict[str, Method] = {}
        for descriptor, service, gate in services:
            methods.update(methods_of(descriptor, service, gate))
        return methods

    def _gate(self, resource: Resource[Any]) -> Gate:
        """Why no call about the resource is taken now."""
        cache = self.cacher.of(resource)
        return lambda: self._closed() or (None if cache.loaded else not_loaded())

    def _services(self) -> Mapping[Resource[Any], object]:
        admission = Chain([
            NamespaceLifecycle(self.cacher.of(NAMESPACES)),
            Priority(self.cacher.of(PRIORITY_CLASSES)),
            DefaultStorageClass(self.cacher.of(STORAGE_CLASSES)),
        ])  # fmt: skip
        stores = {resource: self._store(resource, admission) for resource in ALL}
        self._namespaces = stores[NAMESPACES]
        events = EventRegistry(stores[EVENTS], EventLeases(self._storage, self._clock))
        special: Mapping[Resource[Any], object] = {
            PODS: PodService(stores[PODS], self.cacher, self._clock),
            NODES: NodeService(stores[NODES], self.cacher, self._heartbeats),
            NAMESPACES: NamespaceService(stores[NAMESPACES], self.cacher),
            EVENTS: EventService(stores[EVENTS], self.cacher, events),
        }
        return {resource: special.get(resource) or ResourceService(stores[resource], self.cacher) for resource in ALL}

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
                await self._clock.sleep(BOOTSTRAP_INTERVAL)
        self.bootstrapped.set()
