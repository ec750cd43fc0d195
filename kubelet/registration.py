"""Bringing node objects to where a fleet needs them: created, Ready, free of the not-ready taint.

Every step looks at what is there and does what is missing, so it may be repeated after any failure, including a write whose
answer was lost. A node that is refused, by a webhook say, keeps no other waiting.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from kubelet import nodes
from kubelet.eviction import Kind
from kubelet.nodes import Machine
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.portions import portions
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.errors import AlreadyExists, ApiError, Conflict, NotFound, Unavailable, error_of
from pinnace.client.resource import ResourceClient
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

CHUNK = 500
"""Nodes of one batch call, at most."""
CONCURRENCY = 16
"""Calls for single nodes that are under way at once."""

Refusals: TypeAlias = dict[str, ApiError]
"""Why, by the node's name."""


def no_pressure(node: str) -> Collection[Kind]:
    return ()


class EventSink(Protocol):
    """What this needs of pinnace.client.events.Recorder."""

    def event(self, obj: Node, type_: str, reason: str, message: str) -> None: ...


class Registrar:
    """All methods raise Unavailable: repeat them. What has changed of a node is an event, once it is written."""

    def __init__(
        self, client: ResourceClient[Node], events: EventSink, fleet: str, machine: Machine, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._client = client
        self._events = events
        self._fleet = fleet
        self._machine = machine
        self._clock = clock

    async def create(self, names: Sequence[str]) -> Refusals:
        """Creates nodes of this fleet, Ready; those that exist already become the fleet's. Who was refused."""
        refused: Refusals = {}
        done = 0
        for chunk in portions((nodes.new_node(name, self._fleet, self._machine, self._clock.time()) for name in names), CHUNK):
            refused |= await _sent(self._client.create_batch, chunk)
            done += len(chunk)
            log.info("registered %d of %d nodes", done, len(names))
        existing = [name for name, error in refused.items() if isinstance(error, AlreadyExists)]
        for name in existing:
            del refused[name]
        return refused | await _each({name: self._take_over(name) for name in existing})

    async def make_ready(self, present: Iterable[Node], pressures: Callable[[str], Collection[Kind]] = no_pressure) -> Refusals:
        """Reports Ready what is not, and frees of the taint what is: a new node takes two passes, because the second write
        needs the version that the first one made. What changes meanwhile is left to the pass that its change causes. Who was
        refused."""
        unready, held_back = [], []
        for node in present:
            if nodes.needs_status(node, self._machine, pressures(node.metadata.name)):
                unready.append(node)
            elif nodes.needs_spec(node, self._fleet):
                held_back.append(node)
        now = self._clock.time()
        reports = (nodes.with_status(node, self._machine, now, pressures(node.metadata.name)) for node in unready)
        before = {node.metadata.name: node for node in unready}
        refused: Refusals = {}
        for chunk in portions(reports, CHUNK):
            refused |= await _sent(self._client.update_status_batch, chunk)
            for node in chunk:
                if node.metadata.name not in refused:
                    self._tell(before[node.metadata.name], node)
        refused |= await _each({node.metadata.name: self._free(node) for node in held_back})
        return {name: error for name, error in refused.items() if not isinstance(error, Conflict | NotFound)}

    def _tell(self, before: Node, after: Node) -> None:
        """In the kubelet's words."""
        for reason in nodes.changes(before, after):
            self._events.event(after, "Normal", reason, f"Node {after.metadata.name} status is now: {reason}")

    async def _take_over(self, name: str) -> None:
        def change(node: Node) -> None:
            node.CopyFrom(nodes.with_spec(node, self._fleet, self._machine))

        await self._client.modify(name, "", change)

    async def _free(self, node: Node) -> None:
        await self._client.update(nodes.with_spec(node, self._fleet, self._machine))


async def _sent(send: Callable[[Sequence[Node]], Awaitable[Sequence[BatchItem]]], chunk: Sequence[Node]) -> Refusals:
    """Who was refused: all of them, if it was the call."""
    try:
        items = await send(chunk)
    except Unavailable:
        raise
    except ApiError as error:
        return {node.metadata.name: error for node in chunk}
    both = zip(chunk, map(error_of, items), strict=True)
    return {node.metadata.name: error for node, error in both if error is not None}


async def _each(calls: Mapping[str, Coroutine[Any, Any, None]]) -> Refusals:
    """Carries out all of them, some at a time. Who was refused; any other error is raised when all are through."""
    free = asyncio.Semaphore(CONCURRENCY)

    async def limited(call: Coroutine[Any, Any, None]) -> None:
        async with free:
            await call

    outcomes = await asyncio.gather(*map(limited, calls.values()), return_exceptions=True)
    refused: Refusals = {}
    for name, outcome in zip(calls, outcomes, strict=True):
        if isinstance(outcome, ApiError) and not isinstance(outcome, Unavailable):
            refused[name] = outcome
        elif outcome is not None:
            raise outcome
    return refused
