"""Sets a cluster up for a workload: labels the nodes, makes what is needed, has the pods run that run before."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TypeVar

from pinnace.api.core_v1_pb2 import Namespace, Node
from pinnace.api.resources import CSI_NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Resource, T
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.api.wellknown import ZONE_LABEL
from pinnace.bench import volumes
from pinnace.bench.calibration import Bench
from pinnace.bench.load import CALLERS, Load
from pinnace.bench.throughput import PATIENCE
from pinnace.bench.witness import RUNNING, Witness
from pinnace.bench.workloads import BEFORE, MEASURED, PRIORITY, PRIORITY_CLASS, Group, Workload
from pinnace.client.client import Client
from pinnace.cluster.progress import Progress

BATCH = 500
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Setting:
    """`measured` is yet to be created; what its pods need is there. `zones`: the zone of each node."""

    placed: Load
    measured: Load
    zones: dict[str, str]


async def set_up(bench: Bench, workload: Workload, pods: int, witness: Witness, progress: Progress) -> Setting:
    """Returns when the pods that run before do run. Raises BenchError, ApiError."""
    client = bench.clients[0]
    await common_objects(bench.clients)
    names = [node.metadata.name for node in (await client.nodes.list()).items]
    zones = dict(zip(names, cycle(workload.zones), strict=False)) if workload.zones else {}
    if zones:
        progress.waiting("the zones of the nodes")
        await label(client, zones)
    if workload.volumes:
        await create_all(client, CSI_NODES, [volumes.csi_node(name) for name in names])
    placed = await _group(bench, workload, workload.placed, len(names), "before-", progress)
    await witness.reached(RUNNING, len(placed.uids), PATIENCE)
    await _group(bench, workload, workload.waiting, len(names), "waiting-", progress)
    measured = Load(shape=workload.measured.shape, namespace=MEASURED)
    if workload.volumes:
        await bound_claims(client, measured, pods)
    return Setting(placed, measured, zones)


async def common_objects(clients: Sequence[Client]) -> None:
    """The namespaces and the priority class. Afterwards all API servers know them."""
    for name in (BEFORE, MEASURED):
        namespace = Namespace()
        namespace.metadata.name = name
        await clients[0].namespaces.create(namespace)
    high = PriorityClass(value=PRIORITY)
    high.metadata.name = PRIORITY_CLASS
    await clients[0].priority_classes.create(high)
    for client in clients:  # a list is as new as whatever was acknowledged before
        await client.namespaces.list()
        await client.priority_classes.list()


async def _group(bench: Bench, workload: Workload, group: Group, nodes: int, prefix: str, progress: Progress) -> Load:
    load, count = Load(prefix, group.shape, BEFORE), workload.scaled(group.count, nodes)
    if count:
        progress.waiting(f"{count:,} pods that are there before")
        if workload.volumes:
            await bound_claims(bench.clients[0], load, count)
        await load.create(bench.clients, count, batch=BATCH)
    return load


async def bound_claims(client: Client, load: Load, count: int) -> None:
    """Volumes and claims for the first pods of a load."""
    names = [load.name(number) for number in range(count)]
    await create_all(client, PERSISTENT_VOLUMES, [volumes.volume(name, load.namespace) for name in names])
    await create_all(client, PERSISTENT_VOLUME_CLAIMS, [volumes.claim(name, load.namespace) for name in names])


async def create_all(client: Client, resource: Resource[T], objs: Iterable[T]) -> None:
    """One create a call: there are batches of few resources only."""
    await each(objs, client.of(resource).create)


async def label(client: Client, zones: Mapping[str, str]) -> None:
    """Gives the nodes their zones."""

    async def give(name: str) -> None:
        def change(node: Node) -> None:
            node.metadata.labels[ZONE_LABEL] = zones[name]

        await client.nodes.modify(name, "", change)

    await each(zones, give)


async def each(items: Iterable[Item], call: Callable[[Item], Awaitable[object]]) -> None:
    """Calls with all of them, some at a time. Raises what a call raises."""
    rest = iter(items)

    async def work() -> None:
        for item in rest:  # shared: whoever is free takes the next
            await call(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(work())
