"""Bringing node objects to where a fleet needs them: created, Ready, free of the not-ready taint.

Every step looks at what is there and does what is missing, so it may be repeated after any failure, including a write whose
answer was lost. A node that is refused, by a webhook say, keeps no other waiting, and is tried again, ever later.

    Registration   what is to be written, and when --> Registrar   the calls
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol, TypeAlias

from kubelet import nodes
from kubelet.eviction import Kind
from kubelet.nodes import Machine
from kubelet.refused import Refused
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.api.wire import portions
from pinnace.client.errors import AlreadyExists, ApiError, Conflict, NotFound, Unavailable, error_of
from pinnace.client.resource import ResourceClient
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

CHUNK = 500
"""Nodes of one batch call, at most."""
LONGEST_PAUSE = 7.0
"""Seconds until a node that is refused is tried again, at most: those of the kubelet's tryRegisterWithAPIServer."""
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
        """Writes the status of nodes whose status is not as it should be, and otherwise their spec: a new node takes two
        passes, because the second write needs the version that the first one made. A node that has changed meanwhile is left
        to the pass that its change causes. The nodes that were refused."""
        unready, held_back = [], []
        for node in present:
            if nodes.needs_status(node, self._machine, pressures(node.metadata.name)):
                unready.append(node)
            elif nodes.needs_spec(node, self._fleet, self._machine):
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


class Registration:
    """What is to be written of a fleet's nodes, and when. `own`: names of those that the fleet creates; `there`: those of the
    fleet that there are. `on_due(nodes)`: these are to be made ready again, or `create` has something to do."""

    def __init__(
        self,
        registrar: Registrar,
        own: Sequence[str],
        there: Mapping[str, Node],
        *,
        pressures: Callable[[str], Collection[Kind]],
        on_due: Callable[[Collection[str]], None],
        clock: Clock,
    ) -> None:
        self._registrar = registrar
        self._own = own
        self._there = there
        self._pressures = pressures
        self._on_due = on_due
        self._due = set(own)  # to be created now
        self._uncreated: set[str] = set()  # to be tried again
        self._refused = Refused(clock, LONGEST_PAUSE)
        self.tried = not own
        """Each of its own nodes is there, or was refused."""

    @property
    def pending(self) -> bool:
        """Has `create` something to do?"""
        return bool(self._due)

    @property
    def healthy(self) -> str | None:
        """None, or what is wrong, for /readyz."""
        refused = self._refused.told()
        return f"the API server refuses nodes: {refused}" if refused else None

    async def make_ready(self, touched: Set[str], played: Set[str]) -> None:
        """`touched`: nodes that have changed; `played`: those of them that are there, and the fleet's. Raises Unavailable."""
        self._uncreated = {name for name in self._uncreated if name not in self._there}  # somebody else has created them
        tried = touched - self._uncreated
        nodes = [self._there[name] for name in sorted(played)]
        self._tell(tried, await self._registrar.make_ready(nodes, self._pressures))

    async def create(self) -> None:
        """Those of the fleet's own nodes that are due, and not there. Raises Unavailable."""
        due = [name for name in self._own if name in self._due] if self._due else []
        missing = [name for name in due if name not in self._there]
        refused = await self._registrar.create(missing)
        self._due.difference_update(due)
        self._uncreated = self._uncreated.difference(missing) | refused.keys()
        self._tell(missing, refused)
        self.tried = True

    async def run(self) -> None:
        """Has what was refused tried again, until cancelled."""
        while True:
            names = set(await self._refused.take(CHUNK))
            self._due |= names & self._uncreated
            self._on_due(names - self._uncreated)

    def _tell(self, tried: Iterable[str], refused: Refusals) -> None:
        for name in tried:
            if name in refused:
                self._refused.add(name, refused[name])
            else:
                self._refused.settle(name)
        if refused:
            log.error("%d nodes are refused, and tried again: %s", len(refused), self._refused.told())


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
