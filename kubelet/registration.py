"""Bringing node objects to where a fleet needs them: created, Ready, free of the not-ready taint.

Every step looks at what is there and does what is missing, so it may be repeated after any failure, including a write whose
answer was lost.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any

from kubelet import nodes
from kubelet.eviction import Kind
from kubelet.nodes import Machine
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.portions import portions
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.errors import AlreadyExists, Conflict, NotFound, from_status
from pinnace.client.resource import ResourceClient
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

CHUNK = 500
"""Nodes of one batch call, at most."""
CONCURRENCY = 16
"""Calls for single nodes that are under way at once."""


def no_pressure(node: str) -> Collection[Kind]:
    return ()


class Registrar:
    """All methods raise ApiError: repeat them."""

    def __init__(self, client: ResourceClient[Node], fleet: str, machine: Machine, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._fleet = fleet
        self._machine = machine
        self._clock = clock

    async def create(self, names: Sequence[str]) -> None:
        """Creates nodes of this fleet, Ready; those that exist already become the fleet's."""
        existing: list[str] = []
        done = 0
        for chunk in portions((nodes.new_node(name, self._fleet, self._machine, self._clock.time()) for name in names), CHUNK):
            items = await self._client.create_batch(chunk)
            existing += (node.metadata.name for node, item in zip(chunk, items, strict=True) if _failed(item, AlreadyExists))
            done += len(chunk)
            log.info("registered %d of %d nodes", done, len(names))
        await _each(self._take_over(name) for name in existing)

    async def make_ready(self, present: Iterable[Node], pressures: Callable[[str], Collection[Kind]] = no_pressure) -> None:
        """Reports Ready what is not, and frees of the taint what is: a new node takes two passes, because the second write
        needs the version that the first one made. What changes meanwhile is left to the pass that its change causes."""
        unready, held_back = [], []
        for node in present:
            if nodes.needs_status(node, self._machine, pressures(node.metadata.name)):
                unready.append(node)
            elif nodes.needs_spec(node, self._fleet):
                held_back.append(node)
        now = self._clock.time()
        reports = (nodes.with_status(node, self._machine, now, pressures(node.metadata.name)) for node in unready)
        for chunk in portions(reports, CHUNK):
            for item in await self._client.update_status_batch(chunk):
                _failed(item, Conflict, NotFound)
        await _each(self._free(node) for node in held_back)

    async def _take_over(self, name: str) -> None:
        def change(node: Node) -> None:
            node.CopyFrom(nodes.with_spec(node, self._fleet, self._machine))

        await self._client.modify(name, "", change)

    async def _free(self, node: Node) -> None:
        try:
            await self._client.update(nodes.with_spec(node, self._fleet, self._machine))
        except (Conflict, NotFound):
            log.debug("node %s has changed meanwhile", node.metadata.name)


def _failed(item: BatchItem, *expected: type[Exception]) -> bool:
    """Did this item fail as expected? Raises what was not."""
    if not item.HasField("error"):
        return False
    error = from_status(item.error)
    if isinstance(error, expected):
        return True
    raise error


async def _each(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Carries out all of them, some at a time; raises the first error when the others are through."""
    free = asyncio.Semaphore(CONCURRENCY)

    async def limited(call: Coroutine[Any, Any, None]) -> None:
        async with free:
            await call

    for outcome in await asyncio.gather(*(limited(call) for call in calls), return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
