"""Sessions: an etcd lease that lives for as long as its peer beats.

    peer --beat(sequence)--> Session --keep(): renew--> store
    peer <-----answered(sequence)-----'  once the store has confirmed it

A renewal is sent only because a beat has arrived since the one before was sent, never by itself: a peer that is silent runs out
of time even if nobody looks. One renewal is under way at a time, and the beats that arrive meanwhile share the next. All of it
happens beside the conversation with the peer: a store that is slow or away makes nobody deaf.

What an answered beat proves: the store has carried out a renewal that was sent after that beat had arrived. So the lease lives
until `ttl` after the beat was *sent* at least, however late the answer comes. A peer that counts `Timing.validity`, which is
shorter, from when it sent the beat, stops before the lease can have run out.

What it does not prove: that the lease still exists. etcd may confirm the renewal of a lease that is being revoked (etcd#20615),
and a leader of etcd that others have replaced may go on confirming (etcd#15247). Then the keys are gone early: the watch tells
so, and the fence keeps it from doing harm.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from apiserver.storage.interface import LeaseNotFound, Storage, StorageError
from pinnace.runtime.clock import Clock

log = logging.getLogger(__name__)

MARGIN = 0.1
"""Seconds by which peers stop early: clocks do not tick alike."""
LATE = 0.3
"""Seconds for which we must have kept a peer waiting to think that, if it leaves, it had a reason."""


@dataclass(frozen=True, slots=True)
class Timing:
    """All in seconds."""

    interval: float
    """Peers beat this often."""
    silence: float
    """A peer that says nothing for this long is given up."""
    ttl: int
    """Of the etcd lease. etcd does not grant less than 2 by default."""

    @property
    def recent(self) -> float:
        """A peer that has said something within this time is taken to be well: one beat may be late, not two."""
        return self.interval * 2.5

    @property
    def validity(self) -> float:
        """How long a peer may rely on a beat that was answered, from when it was sent."""
        return self.ttl - MARGIN


class Session:
    """One lease. `id` is etcd's."""

    def __init__(self, storage: Storage, clock: Clock, lease: int) -> None:
        """For `open` and `resume`; the lease was granted or renewed just now."""
        self.id = lease
        self._storage = storage
        self._clock = clock
        self._latest = 0
        self._beaten = asyncio.Event()
        self._owing_since: float | None = None

    @classmethod
    async def open(cls, storage: Storage, timing: Timing, clock: Clock) -> "Session":
        """Raises StorageError."""
        return cls(storage, clock, await storage.grant_lease(timing.ttl))

    @classmethod
    async def resume(cls, storage: Storage, clock: Clock, lease: int) -> "Session":
        """Goes on with a lease that another server granted. Raises LeaseNotFound and other StorageErrors."""
        await storage.renew_lease(lease)
        return cls(storage, clock, lease)

    def beat(self, sequence: int) -> None:
        """The peer has beaten. The beat is answered by `keep`, or never."""
        self._latest = sequence
        if self._owing_since is None:
            self._owing_since = self._clock.monotonic()
        self._beaten.set()

    @property
    def overdue(self) -> bool:
        """Has the store left beats without an answer for so long that the peer may rightly look for another server?"""
        return self._owing_since is not None and self._clock.monotonic() - self._owing_since > LATE

    async def keep(self, answered: Callable[[int], None], expired: Callable[[], None]) -> NoReturn:
        """Renews while there are beats, until cancelled. Calls `answered` with the last beat that a renewal was for, and
        `expired` when the lease is gone."""
        while True:
            await self._beaten.wait()
            self._beaten.clear()
            sequence, asked = self._latest, self._clock.monotonic()
            try:
                await self._storage.renew_lease(self.id)
            except LeaseNotFound:
                expired()
            except StorageError as error:  # no answer: the peer must not rely on this beat
                log.warning("cannot renew the lease of a session: %s", error)
            else:
                self._owing_since = asked if self._latest > sequence else None
                answered(sequence)
