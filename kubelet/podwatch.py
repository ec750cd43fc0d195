"""The one watch of a fleet's pods.

It selects by `spec.nodeName in (...)`, which the API server answers from an index: an event reaches the one fleet that it
concerns, and costs the others nothing. A selector cannot change while its watch is open, so when the fleet gains nodes the
watch is closed and opened again for the whole set; nodes that come together are waited for. Nothing is lost meanwhile: the new
watch begins with the present state, and what it does not show any more is forgotten. A fleet that loses nodes keeps its watch.

(A watch of all bound pods, filtered here, would never be opened again; but every fleet would decode every pod of the cluster.)
"""

import asyncio
import logging
from collections.abc import Collection, Sequence

from kubelet.pods import Pods
from pinnace.api.core_v1_pb2 import Pod
from pinnace.client.client import PodClient
from pinnace.client.informer import Delta, Informer
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.tasks import race

log = logging.getLogger(__name__)

GATHER = 0.05
"""Seconds that are waited for more new nodes before the watch is opened again."""
SYNC_TIMEOUT = 30.0
"""Seconds after which it is worth a line in the log that the first state has not come."""


class PodWatch:
    def __init__(self, client: PodClient, pods: Pods, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._pods = pods
        self._clock = clock
        self._nodes: frozenset[str] = frozenset()
        self._opened: frozenset[str] = frozenset()
        self._synced = False
        self._informer: Informer[Pod] | None = None
        self._grown = asyncio.Event()

    @property
    def healthy(self) -> str | None:
        """None, or what is wrong, for /readyz."""
        if not self._nodes:
            return None
        wrong = self._informer.healthy if self._informer is not None else None
        return wrong or (None if self._synced else "the pods of some nodes are not watched yet")

    def follow(self, nodes: Collection[str]) -> None:
        """The nodes whose pods are wanted from now on. One that was gone in between counts as new."""
        self._nodes = frozenset(nodes)
        self._opened &= self._nodes
        if not self._nodes <= self._opened:
            self._grown.set()

    async def run(self) -> None:
        """Until cancelled."""
        await self._grown.wait()
        while True:
            self._grown.clear()
            self._opened, self._synced = self._nodes, False
            selector = f"spec.nodeName in ({','.join(sorted(self._opened))})"
            informer = self._informer = Informer(self._client, fields=selector, clock=self._clock)
            informer.add_handler(self._hear)
            await race(informer.run(), self._until_grown(informer))

    def _hear(self, deltas: Sequence[Delta[Pod]]) -> None:
        """What comes before it is synced is in the store by then."""
        if self._synced:
            self._pods.handle(deltas)

    async def _until_grown(self, informer: Informer[Pod]) -> None:
        while not self._synced:
            try:
                await informer.wait_synced(SYNC_TIMEOUT)
                self._synced = True
            except TimeoutError as error:
                log.warning("%s", error)
        self._pods.relist(self._opened, list(informer.store.values()))
        log.info("watching the pods of %d nodes: %d", len(self._opened), len(informer.store))
        await self._grown.wait()
        await self._clock.sleep(GATHER)
