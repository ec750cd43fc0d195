"""A fleet: one process that runs many virtual nodes.

    NodeSession    heartbeats for all of them, on one stream -------------+
    Informer       nodes with the label pinnace.io/fleet=<this fleet> ----+--> reconcile: create, set Ready, run
    PodWatch       pods that are bound to them --> PodManager
    NodeOwnership  nodes that a newer session has taken over, until that session releases them

The fleet creates its own nodes at start, and adopts every other node with its label (`pinnace node add`) when it appears. A
node that the API server rejects is tried again with back-off; the others run meanwhile. Changes of a running node (taints,
capacity) take effect immediately, even during writes for other nodes.

A deleted node stops, and is created again only at the next start. A node that is marked as failed or frozen (`Fault`) falls
silent until the mark is removed. A node that a newer session takes over belongs to it while its lease is held: the newest
session wins. The fleet takes such a node back after its lease was gone, or its own, at two checks in a row; so a session that
moves to another API server, or returns after its lease expired, keeps its nodes, and two fleets of one name do not alternate.

When the process stops, it ends its session, and its leases are deleted at once. Its nodes and pods stay as they are, and the
next process of that name adopts them.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.resources import NODE_LEASE_NAMESPACE
from pinnace.api.verbs_pb2 import DELETED
from pinnace.api.wellknown import FLEET_LABEL
from pinnace.client.client import Client
from pinnace.client.errors import ApiError
from pinnace.client.events import EventRecorder
from pinnace.client.heartbeat import NodeSession
from pinnace.client.informer import Delta, Informer
from pinnace.client.resource import Listing
from pinnace.kubelet import metrics
from pinnace.kubelet.eviction import EvictionManager
from pinnace.kubelet.node import NodeFault, VirtualNodes, node_fault
from pinnace.kubelet.pod_manager import PodManager, PodWatch
from pinnace.kubelet.registration import FleetMachine, NodeRegistrar, NodeRegistration
from pinnace.kubelet.runtime.interface import Runtime
from pinnace.kubelet.runtime.simulated_machine import PodSnapshot
from pinnace.kubelet.runtime.simulated_runtime import PodVolumeManager
from pinnace.kubelet.service_variables import ServiceVariables
from pinnace.kubelet.stats import DeclaredUsageMeter, Stats, UsageMeter
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import NodesDropped, NodesReclaimed, NodesYielded
from pinnace.runtime.supervise import run_unending, supervise
from pinnace.runtime.tracing import NO_TRACER, Tracer

log = logging.getLogger(__name__)

INTERVAL = 3.0
"""Seconds between checks; longer than the time without a lease while a session moves to another API server."""
SESSION_POLL = 0.02
"""Seconds between checks of a session that is being opened."""


class LeaseReader(Protocol):
    """The methods that this module needs of the lease client."""

    async def list(self, namespace: str = "", *, fields: str = "") -> Listing[Lease]: ...


class NodeOwnership:
    """`is_ours` returns whether the fleet itself holds a Lease object. `on_free(nodes)` is called on the event loop when no
    other session holds these nodes; they are then forgotten.
    """

    def __init__(
        self,
        leases: LeaseReader,
        *,
        is_ours: Callable[[Lease], bool],
        on_free: Callable[[Collection[str]], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._leases = leases
        self._is_ours = is_ours
        self._on_free = on_free
        self._clock = clock
        self._nodes: set[str] = set()
        self._absent: set[str] = set()
        self._has_nodes = asyncio.Event()

    def __contains__(self, node: str) -> bool:
        return node in self._nodes

    def add_foreign_nodes(self, nodes: Collection[str]) -> None:
        self._nodes.update(nodes)
        self._absent.difference_update(nodes)
        self._has_nodes.set()

    async def run(self) -> None:
        """Run until cancelled. Make no calls while no node is held by another session."""
        await supervise(
            "nodes of other fleets",
            self._find_free_nodes,
            retry_on=(ApiError,),
            backoff=Backoff(maximum=INTERVAL),
            clock=self._clock,
        )

    async def _find_free_nodes(self) -> None:
        await self._has_nodes.wait()
        await self._clock.sleep(INTERVAL)
        asked = self._nodes.copy()
        names = f"metadata.name in ({','.join(sorted(asked))})"
        leases = (await self._leases.list(NODE_LEASE_NAMESPACE, fields=names)).items
        held = {lease.metadata.name for lease in leases if not self._is_ours(lease)}
        absent = (asked & self._nodes) - held
        free, self._absent = absent & self._absent, absent - self._absent
        if free:
            self._nodes -= free
            if not self._nodes:
                self._has_nodes.clear()
            again = NodesReclaimed(len(free)).extra
            log.warning(
                "%d nodes, such as %s, are no longer held by another fleet: running them again",
                len(free),
                min(free),
                extra=again,
            )
            self._on_free(free)


class Fleet:
    """`own`: names of the nodes that the fleet creates."""

    def __init__(
        self,
        name: str,
        own: Sequence[str],
        machine: FleetMachine,
        client: Client,
        runtime: Runtime,
        *,
        volumes: PodVolumeManager | None = None,
        meter: UsageMeter | None = None,
        services: ServiceVariables | None = None,
        clock: Clock = SYSTEM_CLOCK,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """`meter`: measures the usage of containers; by default, the declared usage is reported. `services`: read before the
        nodes start, for the variables of containers."""
        self._clock = clock
        self._services = services
        self._recorder = EventRecorder(client.events, "kubelet", name, clock=clock)
        self._session = NodeSession(client.connection, name, own, on_taken_over=self._yield_nodes, clock=clock)
        self._informer = Informer(client.nodes, labels=f"{FLEET_LABEL}={name}", clock=clock)
        self._informer.add_handler(self._handle_node_updates)
        self._nodes = VirtualNodes(local=machine.local)
        self._pods = PodManager(
            self._nodes,
            client.pods,
            runtime,
            self._recorder,
            volumes=volumes,
            nodes_known=lambda: self._informer.revision,
            clock=clock,
            tracer=tracer,
        )
        self._eviction_manager = EvictionManager(self._nodes, self._pods, on_change=self._queue_nodes, clock=clock)
        self.stats = Stats(
            self._nodes,
            self._pods.running_pod,
            self._eviction_manager.memory_outside_pods,
            meter or DeclaredUsageMeter(clock),
            clock,
        )
        self._watch = PodWatch(client.pods, self._pods, clock=clock)
        self._registration = NodeRegistration(
            NodeRegistrar(client.nodes, self._recorder, name, machine, clock=clock),
            own,
            self._informer.store,
            pressures=self._eviction_manager.node_pressures,
            on_due=self._queue_nodes,
            clock=clock,
        )
        self._running_nodes: set[str] = set()
        self._ownership = NodeOwnership(client.leases, is_ours=self._session.owns_lease, on_free=self._queue_nodes, clock=clock)
        self._changed_nodes: set[str] = set()  # nodes that have changed since their last reconciliation
        self._work = asyncio.Event()
        metrics.NODES.set_function(lambda: len(self._running_nodes))
        metrics.PODS.set_function(lambda: len(self._pods))
        metrics.RUNNING.set_function(lambda: self._pods.running_pod_count)
        metrics.UNREPORTED.set_function(lambda: self._pods.unreported_pod_count)

    @property
    def checks(self) -> Mapping[str, Callable[[], str | None]]:
        """The checks of /readyz."""
        checks: dict[str, Callable[[], str | None]] = {
            "session": lambda: self._session.healthy,
            "nodes": self._check_nodes,
            "pods": lambda: self._watch.healthy,
        }
        if (services := self._services) is not None:
            checks["services"] = lambda: services.healthy
        return checks

    async def run(self) -> None:
        """Run the nodes until cancelled."""
        name, backoff = "nodes of the fleet", Backoff(maximum=2.0)
        reconcile = partial(supervise, name, self._reconcile, retry_on=(ApiError,), backoff=backoff, clock=self._clock)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._session.run())  # ends when the session is closed
            group.create_task(run_unending(name, reconcile))
            for part in (
                self._informer, self._watch, self._pods, self._recorder, self._ownership, self._eviction_manager,
                self._registration,
            ):  # fmt: skip
                group.create_task(run_unending(type(part).__name__, part.run))
            if self._services is not None:
                group.create_task(run_unending("services", self._services.run))

    def find_pod(self, uid: str) -> PodSnapshot | None:
        """The pod as it is now. None: it is unknown, or its node is frozen or off."""
        return self._pods.find_pod(uid)

    def _check_nodes(self) -> str | None:
        if not self._registration.tried:
            return "the fleet's nodes are not registered yet"
        return self._informer.healthy or self._registration.healthy

    async def close(self) -> None:
        """End the session, so that other components see immediately that the nodes do not run any more."""
        await self._session.close()

    def _handle_node_updates(self, deltas: Sequence[Delta[Node]]) -> None:
        for delta in deltas:
            node = delta.obj
            name = node.metadata.name
            if (
                delta.kind != DELETED
                and name in self._running_nodes
                and name not in self._ownership
                and node_fault(node) is None
            ):
                # immediately: reconciliation can wait for the API server, and pods are bound to the current node
                self._update_node(node)
        self._queue_nodes([delta.obj.metadata.name for delta in deltas])

    def _yield_nodes(self, names: Sequence[str], holder: str) -> None:
        log.warning("%d nodes were taken over by %s", len(names), holder, extra=NodesYielded(holder, len(names)).extra)
        self._ownership.add_foreign_nodes(names)
        self._queue_nodes(names)

    def _queue_nodes(self, names: Collection[str]) -> None:
        """Reconcile these nodes after a change of the object or the owner."""
        self._changed_nodes.update(names)
        self._work.set()

    async def _reconcile(self) -> None:
        while self._session.healthy is not None or not self._informer.revision or not self._services_synced:
            await self._clock.sleep(SESSION_POLL)
        while True:
            touched, self._changed_nodes = self._changed_nodes, set()
            self._update_running_nodes(touched)
            if self._session.healthy is not None:  # otherwise two writers of the condition Ready would alternate
                self._changed_nodes |= touched
                await self._clock.sleep(SESSION_POLL)
                continue
            try:
                await self._registration.update_nodes(touched, touched & self._running_nodes)
                await self._registration.create_due_nodes()
            except ApiError:
                self._changed_nodes |= touched
                raise
            if not (self._changed_nodes or self._registration.pending):
                self._work.clear()
                await self._work.wait()

    @property
    def _services_synced(self) -> bool:
        return self._services is None or self._services.synced

    def _update_node(self, node: Node) -> None:
        self._pods.set_node(node)
        self._eviction_manager.update_node(node)

    def _update_running_nodes(self, touched: set[str]) -> None:
        """Start the existing nodes of the fleet, and stop other nodes."""
        nodes = self._informer.store
        there = {name: node_fault(nodes[name]) for name in touched if name in nodes and name not in self._ownership}
        played = {name for name, fault in there.items() if fault is None}
        for name in played:
            self._update_node(nodes[name])
        if new := played - self._running_nodes:
            self._session.add(sorted(new.difference(self._session.nodes)))
        silent = touched - played
        self._session.release(silent)
        self._eviction_manager.forget_nodes(silent)
        self._nodes.freeze_nodes({name for name in silent if there.get(name) is NodeFault.FROZEN})
        if failed := {name for name in silent if there.get(name) is NodeFault.FAILED}:
            self._pods.power_off(failed)
        if gone := silent - there.keys():
            self._pods.drop_nodes(gone)
            if lost := gone & self._running_nodes:
                dropped = NodesDropped(len(lost)).extra
                log.warning("%d nodes, such as %s, are no longer run", len(lost), min(lost), extra=dropped)
        self._running_nodes = (self._running_nodes | played) - silent
        self._watch.watch_nodes(self._running_nodes)
