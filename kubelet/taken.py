"""Nodes that a newer session has taken from the fleet: they are left to it for as long as it keeps their leases.

    taken --lease another's--> taken --lease gone, or our own, at two looks in a row--> free: the fleet takes them up again

Two looks, so that a session which only moves to another API server, or comes back after its lease ran out, keeps what it has.
Two fleets with one name do not flap by this: a node changes hands only when nobody holds it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.resources import NODE_LEASE_NAMESPACE
from pinnace.client.errors import ApiError
from pinnace.client.resource import Listing
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import NodesReclaimed
from pinnace.runtime.supervise import supervise

log = logging.getLogger(__name__)

INTERVAL = 3.0
"""Seconds between looks: longer than leases are gone while their session goes on with another server."""


class LeaseReader(Protocol):
    """What this needs of the client of leases."""

    async def list(self, namespace: str = "", *, fields: str = "") -> Listing[Lease]: ...


class Taken:
    """`is_ours` says of a Lease object whether the fleet itself holds it. `on_free(nodes)` is called on the event loop: nobody
    else holds these any more. They are forgotten here."""

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
        self._some = asyncio.Event()

    def __contains__(self, node: str) -> bool:
        return node in self._nodes

    def add(self, nodes: Collection[str]) -> None:
        self._nodes.update(nodes)
        self._absent.difference_update(nodes)
        self._some.set()

    async def run(self) -> None:
        """Until cancelled. Asks nothing while there are no such nodes."""
        await supervise(
            "nodes taken by others", self._look, retry_on=(ApiError,), backoff=Backoff(maximum=INTERVAL), clock=self._clock
        )

    async def _look(self) -> None:
        await self._some.wait()
        await self._clock.sleep(INTERVAL)
        asked = self._nodes.copy()
        names = f"metadata.name in ({','.join(sorted(asked))})"
        found = (await self._leases.list(NODE_LEASE_NAMESPACE, fields=names)).items
        held = {lease.metadata.name for lease in found if not self._is_ours(lease)}
        absent = (asked & self._nodes) - held
        free, self._absent = absent & self._absent, absent - self._absent
        if free:
            self._nodes -= free
            if not self._nodes:
                self._some.clear()
            again = NodesReclaimed(len(free)).extra
            log.warning(
                "%d nodes, such as %s, are held by nobody else any more: taken up again", len(free), min(free), extra=again
            )
            self._on_free(free)
