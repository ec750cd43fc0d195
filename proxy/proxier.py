"""Watches Services, EndpointSlices and the node, and applies the rules of the services that have changed.

    informers --keys of changed services--> sync: plan_service for each key --> backend.apply(changes)

The first sync waits until all informers are synced. It also removes the rules of services that no longer exist. If the API
server is unavailable, the backend keeps its rules. A sync that fails is retried with a backoff.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from pinnace.api.core_v1_pb2 import Namespace, Node, Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.resources import ENDPOINT_SLICES, NAMESPACES, NODES, SERVICES, store_key
from pinnace.api.wellknown import ZONE_LABEL
from pinnace.client.client import Client
from pinnace.client.informer import Delta, Index, Informer, first_problem
from pinnace.proxy import metrics
from pinnace.proxy.dns_records import AddressIndex
from pinnace.proxy.plan import NO_RULES, Frontend, NodeInfo, ServiceRules, plan_service, service_key_of_slice
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check
from pinnace.runtime.supervise import run_unending, supervise
from pinnace.runtime.tasks import TimeSlice

log = logging.getLogger(__name__)

SYNC_TIMEOUT = 60.0
"""Seconds for which the first sync waits for the informers before it logs that it waits."""
RETRY_INTERVAL = 1.0
"""Seconds between two attempts to open listeners that failed."""


class BackendError(Exception):
    """The rules could not be applied. The message names the reason. The sync is retried."""


class ProxyBackend(Protocol):
    """Applies rules. It outlives the proxier: see RestartSupervisor."""

    @property
    def services(self) -> Mapping[str, ServiceRules]:
        """The rules that are applied, by service."""
        ...

    @property
    def problem(self) -> str | None:
        """The problem that `retry_failed` may solve, for /readyz."""
        ...

    async def apply(self, changes: Mapping[str, ServiceRules]) -> None:
        """Replace the rules of these services. NO_RULES removes them. Raises BackendError."""
        ...

    async def retry_failed(self) -> None:
        """Retry what failed."""
        ...

    @property
    def descriptors(self) -> Mapping[Frontend, int]:
        """The descriptors of the listening sockets, for a successor."""
        ...

    async def close(self, grace: float = 0.0) -> None: ...


class Proxier:
    """One instance for each history of etcd. `node`: the name of the node, or None for all nodes."""

    def __init__(
        self,
        client: Client,
        backend: ProxyBackend,
        node: str | None,
        *,
        applied: Callable[[Mapping[str, ServiceRules]], Awaitable[None]] | None = None,
        watch_namespaces: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`applied` is called after each sync with the changes, for health check node ports. `watch_namespaces`: for the DNS
        server; the rules do not depend on namespaces."""
        self._backend = backend
        self._applied = applied
        self._clock = clock
        self._node = node
        self._zone = ""
        self._services: Informer[Service] = Informer(client.of(SERVICES), clock=clock)
        self._slices: Informer[EndpointSlice] = Informer(client.of(ENDPOINT_SLICES), clock=clock)
        self._nodes: Informer[Node] | None = None
        if node is not None:
            self._nodes = Informer(client.of(NODES), fields=f"metadata.name={node}", clock=clock)
            self._nodes.add_handler(self._handle_node_updates)
        self._namespaces: Informer[Namespace] | None = None
        if watch_namespaces:
            self._namespaces = Informer(client.of(NAMESPACES), clock=clock)
        self._informers: Sequence[Informer[Any]] = [
            informer for informer in (self._services, self._slices, self._nodes) if informer is not None
        ]
        self._by_service: Index[EndpointSlice] = Index(service_key_of_slice)
        self._slices.add_handler(self._by_service.apply_deltas)
        self._slices.add_handler(self._handle_slice_updates)
        self._services.add_handler(self._handle_service_updates)
        self._addresses = AddressIndex()
        self._services.add_handler(self._addresses.follow_services)
        self._slices.add_handler(self._addresses.follow_slices)
        self._dirty: dict[str, float] = {}
        """Services to sync, with the time of the first change, in order."""
        self._work = asyncio.Event()
        self._synced = False

    @property
    def checks(self) -> Mapping[str, Check]:
        return {"informers": lambda: first_problem(self._all_informers), "rules": self._find_problem}

    @property
    def _all_informers(self) -> Sequence[Informer[Any]]:
        return self._informers if self._namespaces is None else [*self._informers, self._namespaces]

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        """The namespaces by name. Empty without `watch_namespaces`."""
        return self._namespaces.store if self._namespaces is not None else {}

    @property
    def services(self) -> Mapping[str, Service]:
        """The services by "namespace/name"."""
        return self._services.store

    @property
    def synced(self) -> bool:
        """The rules of all services have been applied once, and the namespaces have been read."""
        return self._synced and (self._namespaces is None or bool(self._namespaces.revision))

    def slices_of(self, service: str) -> Mapping[str, EndpointSlice]:
        """Return the slices of "namespace/name" by UID."""
        return self._by_service.under(service)

    def services_with_address(self, address: str) -> Iterable[str]:
        """Return the keys of the services that have this address, or an endpoint with it."""
        return self._addresses.names_of_address(address)

    async def run(self) -> None:
        """Run until cancelled. Raises OtherHistory."""
        async with asyncio.TaskGroup() as group:
            for informer in self._all_informers:
                group.create_task(run_unending("informer", informer.run))
            group.create_task(
                supervise(
                    "sync of rules", self._sync_changes, retry_on=(BackendError,), backoff=Backoff(0.1), clock=self._clock
                )
            )

    def _find_problem(self) -> str | None:
        return self._backend.problem if self._synced else "the rules have not been applied yet"

    async def _sync_changes(self) -> None:
        if not self._synced:
            await self._sync_all_services()
        while True:
            try:
                async with asyncio.timeout(RETRY_INTERVAL if self._backend.problem else None):
                    await self._work.wait()
            except TimeoutError:
                await self._backend.retry_failed()
                continue
            await self._sync()

    async def _sync_all_services(self) -> None:
        for informer in self._informers:
            while True:
                try:
                    await informer.wait_synced(SYNC_TIMEOUT)
                    break
                except TimeoutError as error:
                    log.warning("%s; the rules stay as they are", error)
        now = self._clock.monotonic()
        for key in (*self._backend.services, *self._services.store):
            self._dirty.setdefault(key, now)
        await self._sync()
        self._synced = True
        log.info("applied the rules of %d services", len(self._backend.services))

    async def _sync(self) -> None:
        """Apply the rules of the dirty services. If it fails, they stay dirty. Raises BackendError."""
        dirty, self._dirty = self._dirty, {}
        self._work.clear()
        began = self._clock.monotonic()
        node = NodeInfo(self._node, self._zone)
        turn = TimeSlice(self._clock)
        changes: dict[str, ServiceRules] = {}
        applied = self._backend.services
        try:
            for key in dirty:
                service = self._services.store.get(key)
                rules = plan_service(service, self._by_service.under(key).values(), node) if service is not None else NO_RULES
                if rules != applied.get(key, NO_RULES):
                    changes[key] = rules
                await turn.end()
            if changes:
                await self._backend.apply(changes)
                if self._applied is not None:
                    await self._applied(changes)
        except BaseException as error:
            self._dirty = dirty | self._dirty
            self._work.set()
            if isinstance(error, BackendError):
                metrics.SYNC_FAILURES.inc()
            raise
        now = self._clock.monotonic()
        metrics.SYNC_DURATION.observe(now - began)
        metrics.LAST_SYNC.set(time.time())
        metrics.SERVICES.set(len(self._backend.services))
        for key in changes:
            metrics.PROGRAMMING_DURATION.observe(now - dirty[key])

    def _queue_services(self, keys: set[str]) -> None:
        now = self._clock.monotonic()
        for key in keys:
            self._dirty.setdefault(key, now)
        if self._synced:
            metrics.LAST_QUEUED.set(time.time())
            self._work.set()

    def _handle_service_updates(self, deltas: Sequence[Delta[Service]]) -> None:
        metrics.SERVICE_CHANGES.inc(len(deltas))
        self._queue_services({store_key(delta.obj) for delta in deltas})

    def _handle_slice_updates(self, deltas: Sequence[Delta[EndpointSlice]]) -> None:
        metrics.ENDPOINT_CHANGES.inc(len(deltas))
        keys = {
            service_key_of_slice(endpoint_slice)
            for delta in deltas
            for endpoint_slice in (delta.obj, delta.old)
            if endpoint_slice is not None
        }
        self._queue_services(keys - {""})

    def _handle_node_updates(self, deltas: Sequence[Delta[Node]]) -> None:
        zone = deltas[-1].obj.metadata.labels.get(ZONE_LABEL, "")
        if zone != self._zone:
            self._zone = zone
            self._queue_services(set(self._services.store))
