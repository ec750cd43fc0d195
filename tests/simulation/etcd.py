"""A simulated etcd: one store in virtual time, and what goes wrong with it as a whole.

    port --request--> SimEtcd: leader? --yes--> store --> answer
                                 '-----no---> refused, or held until there is one: then done or forgotten

The store is tests.storage.mvcc, which is proven equal to etcd. Clients have a port each (tests.simulation.etcd_port), where
the network between them and etcd goes wrong.

As in etcd: leases run out late by up to LEASE_LAG, only a leader ends them, and a new leader gives each all of its time again
and ELECTION_TIMEOUT more; a watch ends when there has been no leader for a while; when space is exceeded puts and grants are
refused, and the first puts of that time are refused although they are done.

Works on any event loop: only call_later, futures and the clock. Its callbacks run in the context in which it was made, so they
belong to whoever made it and not to the client that calls.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any

from pinnace.apiserver.storage.interface import ChangeBatch, Committed, CompareFailed, OutOfSpace, StorageError, Write
from pinnace.runtime.clock import Clock
from tests.storage.mvcc import Mvcc

ELECTION_TIMEOUT = 1.0
"""Seconds; etcd's default."""
LEASE_LAG = 0.5
"""Seconds: how often etcd looks for leases that have run out."""
LEADERLESS = (1.0, 3.0)
"""Seconds without a leader after which a member ends its watches."""

Operation = Callable[[], Any]
"""What a request does to the store. Raises StorageError."""


class NotProposed(Exception):
    """etcd says "no leader": the request did not happen and will not."""


class SimEtcd:
    """`on_changes` is told every revision as it happens, `on_compaction` every compaction."""

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        *,
        on_changes: Callable[[ChangeBatch], None] = lambda changes: None,
        on_compaction: Callable[[int], None] = lambda revision: None,
    ) -> None:
        self.store = Mvcc()
        self.rng = rng
        self.has_leader = True
        self.is_full = False
        self.watches: list[Callable[[Sequence[ChangeBatch]], None]] = []
        """Told every revision."""
        self.on_leaderless: list[Callable[[], None]] = []
        """Called when there has been no leader for too long."""
        self._clock = clock
        self._on_changes = on_changes
        self._on_compaction = on_compaction
        self._context: Context = copy_context()
        self._told = self.store.revision
        self._held: list[tuple[Operation, Callable[[Any], None]]] = []
        self._late_alarms = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._outage = 0

    # --- what clients ask

    def submit(self, operation: Operation, answer: Callable[[Any], None]) -> None:
        """`answer` gets the result, or the exception: StorageError or NotProposed."""
        if self.has_leader:
            answer(self._do(operation))
        elif self.rng.random() < 0.5:
            answer(NotProposed("etcdserver: no leader"))
        else:
            self._held.append((operation, answer))

    def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if self.is_full and any(write.value is not None for write in writes):
            if self._late_alarms:
                self._late_alarms -= 1
                self.store.transact(writes)
            raise OutOfSpace("etcd is out of space")
        return self.store.transact(writes)

    def grant(self, ttl: int) -> int:
        if self.is_full:
            raise OutOfSpace("etcd is out of space")
        return self.store.grant(ttl, self._clock.monotonic())

    def renew(self, lease: int) -> int:
        return self.store.renew(lease, self._clock.monotonic())

    def lease_age(self, lease: int) -> float:
        return self.store.lease_age(lease, self._clock.monotonic())

    def compact(self, revision: int) -> None:
        """Raises Compacted."""
        self.store.compact(revision)
        self._on_compaction(revision)

    # --- faults

    def lose_leader(self) -> None:
        self.has_leader = False
        self._outage += 1
        outage = self._outage

        def give_up() -> None:
            if not self.has_leader and self._outage == outage:
                for callback in list(self.on_leaderless):
                    callback()

        self.later(self.rng.uniform(*LEADERLESS), give_up)

    def elect_leader(self) -> bool:
        """Of what was held some is done now, and some never. Has any been forgotten? Who asked for it waits in vain."""
        if self.has_leader:
            return False
        self.has_leader = True
        self.store.extend_leases(self._clock.monotonic(), ELECTION_TIMEOUT)
        held, self._held = self._held, []
        self.rng.shuffle(held)
        forgotten = False
        for operation, answer in held:
            if self.rng.random() < 0.5:
                answer(self._do(operation))
            else:
                forgotten = True
        return forgotten

    def fill(self) -> None:
        """Out of space, until `free` or until a client compacts."""
        self.is_full = True
        self._late_alarms = self.rng.randrange(3)

    def free(self) -> None:
        self.is_full = False

    def compact_all(self) -> None:
        """Everything but the present is forgotten."""
        if self.store.revision > self.store.compacted:
            self.compact(self.store.revision)

    # --- for the ports

    def later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """Calls back in etcd's own context."""
        return self.at(asyncio.get_running_loop().time() + seconds, callback, *args)

    def at(self, when: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """By the loop's time."""
        return asyncio.get_running_loop().call_at(when, callback, *args, context=self._context)

    def _do(self, operation: Operation) -> Any:
        try:
            result = operation()
        except StorageError as error:
            result = error
        self._tell()
        self._watch_leases()
        return result

    def _tell(self) -> None:
        if self.store.revision == self._told:
            return
        new = self.store.changes_after(self._told)
        self._told = self.store.revision
        for changes in new:
            self._on_changes(changes)
        for watch in list(self.watches):
            watch(new)

    def _watch_leases(self) -> None:
        """Sets the alarm for the first lease that runs out, if it is earlier than the one that is set."""
        wait = self.store.next_expiry - self._clock.monotonic()
        if wait == float("inf"):
            return
        now = asyncio.get_running_loop().time()
        if self._alarm is None or self._alarm.when() > now + wait + LEASE_LAG:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self.later(max(0.0, wait) + self.rng.uniform(0.0, LEASE_LAG), self._expire)

    def _expire(self) -> None:
        self._alarm = None
        if self.has_leader:
            self.store.expire(self._clock.monotonic())
            self._tell()
            self._watch_leases()
        else:
            self._alarm = self.later(LEASE_LAG, self._expire)
