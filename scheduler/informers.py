"""The scheduler's informers: pods, nodes, and what plugins need beside them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.pods import ENDED
from pinnace.api.resources import NODES, PODS, Resource, T
from pinnace.client.client import Client
from pinnace.client.informer import Index, Informer, first_problem
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import unending
from scheduler.framework.handle import Preemption, Waiting

NOT_ENDED = ",".join(f"status.phase!={phase}" for phase in ENDED)
"""Pods that have ended take no room: they leave the informer's selection, which looks like a deletion."""


class Informers:
    """`needs`: the resources that plugins look at. `writes`: those that leaders write, beside pods."""

    def __init__(
        self,
        client: Client,
        needs: Sequence[Resource[Any]],
        writes: Sequence[Resource[Any]] = (),
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.pods: Informer[Pod] = Informer(client.pods, fields=NOT_ENDED, announced=True, clock=clock)
        self.nodes: Informer[Node] = Informer(client.nodes, announced=NODES in writes, clock=clock)
        self.others: Mapping[Resource[Any], Informer[Any]] = {
            resource: Informer(client.of(resource), announced=resource in writes, clock=clock)
            for resource in dict.fromkeys((*needs, *writes))
            if resource not in (PODS, NODES)
        }
        self._all: Mapping[Resource[Any], Informer[Any]] = {PODS: self.pods, NODES: self.nodes, **self.others}
        self._written = [self._all[resource] for resource in dict.fromkeys((PODS, *writes))]

    @property
    def synced(self) -> bool:
        return all(informer.revision for informer in self._all.values())

    @property
    def healthy(self) -> str | None:
        """None, or what is wrong, for /readyz."""
        return first_problem(self._all.values())

    async def wait_synced(self, timeout: float) -> None:
        """Returns when all have their first state. Raises TimeoutError; `timeout` is for each."""
        for informer in self._all.values():
            await informer.wait_synced(timeout)

    async def wait_for(self, revision: int, timeout: float) -> None:
        """Returns when everything is known that leaders wrote up to `revision`. Raises TimeoutError; `timeout` is for each
        informer."""
        for informer in self._written:
            await informer.wait_for(revision, timeout)

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        """One informer's store. Raises KeyError."""
        if resource not in self._all:
            raise KeyError(f"no plugin needs {resource.plural}")
        return self._all[resource].store

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """Over one informer. Raises KeyError."""
        index = Index(by, self.objects(resource).values())
        self._all[resource].add_handler(index.follow)
        return index

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._all.values():
                group.create_task(unending("informer", informer.run))


class PluginHandle:
    """A scheduler.framework.Handle, over what the scheduler has."""

    def __init__(
        self,
        informers: Informers,
        waiting: Waiting,
        activate: Callable[[str], None],
        preemption: Preemption,
        client: Client,
    ) -> None:
        self.objects = informers.objects
        self.index = informers.index
        self.waiting = waiting
        self.activate = activate
        self.preemption: Preemption | None = preemption
        self.client = client
