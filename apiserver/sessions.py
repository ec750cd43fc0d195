"""Sessions: an etcd lease that lives for as long as its peer beats.

The lease is renewed only because a heartbeat arrived, never by itself: a peer that is silent runs out of time even if nobody
looks. Renewals are spared: beats within a quarter of the TTL share one.

What an answered beat proves: the last renewal was sent to etcd at most `Timing.renewal` before the beat arrived, so the lease
lives for `ttl - renewal` from then on at least. A peer that counts `Timing.validity`, which is shorter, from when it *sent* the
beat, stops before the lease can have run out.
"""

from dataclasses import dataclass

from apiserver.storage.interface import Storage
from pinnace.runtime.clock import Clock

MARGIN = 0.1
"""Seconds by which peers stop early: clocks do not tick alike."""


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
    def renewal(self) -> float:
        """The lease is renewed at most this often."""
        return self.ttl / 4

    @property
    def validity(self) -> float:
        """How long a peer may rely on a beat that was answered, from when it was sent."""
        return self.ttl - self.renewal - MARGIN


class Session:
    """One lease. `id` is etcd's."""

    def __init__(self, storage: Storage, timing: Timing, clock: Clock, lease: int) -> None:
        """For `open` and `resume`; the lease was granted or renewed just now."""
        self.id = lease
        self._storage = storage
        self._timing = timing
        self._clock = clock
        self._renewed = 0.0

    @classmethod
    async def open(cls, storage: Storage, timing: Timing, clock: Clock) -> "Session":
        """Raises StorageError."""
        asked = clock.monotonic()
        session = cls(storage, timing, clock, await storage.grant_lease(timing.ttl))
        session._renewed = asked
        return session

    @classmethod
    async def resume(cls, storage: Storage, timing: Timing, clock: Clock, lease: int) -> "Session":
        """Goes on with a lease that another server granted. Raises LeaseNotFound and other StorageErrors."""
        session = cls(storage, timing, clock, lease)
        await session._renew()
        return session

    async def beat(self) -> None:
        """The peer has beaten. Once this returns the beat may be answered. Raises LeaseNotFound: the session is over; another
        StorageError: leave the beat without an answer."""
        if self._clock.monotonic() - self._renewed >= self._timing.renewal:
            await self._renew()

    async def end(self) -> None:
        """Revokes the lease: its keys go, and whatever write is still on its way fails. Raises StorageError."""
        await self._storage.revoke_lease(self.id)

    async def _renew(self) -> None:
        asked = self._clock.monotonic()
        await self._storage.renew_lease(self.id)
        self._renewed = asked
