"""A session renews its lease because of beats, never else, and answers them only then."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pinnace.apiserver.services.sessions import STALL_THRESHOLD, LeaseSession, Timing
from pinnace.apiserver.storage.interface import LeaseNotFound, Unavailable
from tests.clock import FakeClock
from tests.storage.memory import MemoryStorage

TIMING = Timing(interval=0.2, silence=0.9, ttl=2)


class SlowStorage(MemoryStorage):
    """Answers renewals only when `well` is set; `away`: with an error."""

    renewals = 0
    away = False

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.well = asyncio.Event()
        self.well.set()

    async def renew_lease(self, lease: int) -> float:
        self.renewals += 1
        await self.well.wait()
        if self.away:
            raise Unavailable("away")
        return await super().renew_lease(lease)


class Peer:
    """Beats, and notes what is answered."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.storage = SlowStorage(self.clock)
        self.session: LeaseSession
        self.answered: list[int] = []
        self.expired = False
        self._sequence = 0

    @asynccontextmanager
    async def kept(self) -> AsyncIterator["Peer"]:
        self.session = await LeaseSession.open(self.storage, TIMING, self.clock)
        keeping = asyncio.create_task(self.session.keep_alive(self.answered.append, self._expire))
        yield self
        keeping.cancel()

    def _expire(self) -> None:
        self.expired = True

    async def record_heartbeat(self) -> int:
        self._sequence += 1
        self.session.record_heartbeat(self._sequence)
        await settle()
        return self._sequence


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_each_beat_renews_the_lease_and_is_answered_then() -> None:
    async with Peer().kept() as peer:
        for _ in range(100):
            await peer.clock.advance(TIMING.interval)
            await peer.record_heartbeat()
        assert peer.answered == list(range(1, 101))
        assert peer.storage.renewals == 100


async def test_beats_share_a_renewal_while_the_store_is_slow() -> None:
    """None is answered by a renewal that was sent before it came."""
    async with Peer().kept() as peer:
        peer.storage.well.clear()
        for _ in range(3):
            await peer.record_heartbeat()
        assert (peer.storage.renewals, peer.answered) == (1, [])
        peer.storage.well.set()
        await settle()
        assert (peer.storage.renewals, peer.answered) == (2, [1, 3])


async def test_lease_of_a_silent_peer_is_not_renewed() -> None:
    async with Peer().kept() as peer:
        await peer.record_heartbeat()
        await peer.clock.advance(TIMING.ttl + 0.1)
        assert peer.storage.renewals == 1
        with pytest.raises(LeaseNotFound):
            await peer.storage.renew_lease(peer.session.id)


async def test_beat_that_the_store_did_not_take_is_not_answered() -> None:
    async with Peer().kept() as peer:
        peer.storage.away = True
        await peer.record_heartbeat()
        assert not peer.session.is_overdue
        await peer.clock.advance(STALL_THRESHOLD + 0.1)
        assert peer.session.is_overdue
        peer.storage.away = False
        await peer.record_heartbeat()
        assert (peer.answered, peer.session.is_overdue, peer.expired) == ([2], False, False)


async def test_beat_after_the_end_tells_of_it() -> None:
    async with Peer().kept() as peer:
        await peer.clock.advance(TIMING.ttl + 0.1)
        await peer.record_heartbeat()
        assert (peer.answered, peer.expired) == ([], True)


async def test_answered_beat_is_worth_its_validity() -> None:
    """However late the answer: the lease outlives the time for which the peer relies on the beat."""
    async with Peer().kept() as peer:
        await peer.record_heartbeat()
        peer.storage.well.clear()
        await peer.clock.advance(TIMING.interval)
        sent = peer.clock.monotonic()
        await peer.record_heartbeat()
        await peer.clock.advance(TIMING.ttl / 2)
        peer.storage.well.set()
        await settle()
        assert peer.answered == [1, 2]
        await peer.clock.advance(sent + TIMING.validity - peer.clock.monotonic())
        await peer.storage.renew_lease(peer.session.id)  # raises LeaseNotFound if it has run out


async def test_session_goes_on_elsewhere() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock=clock)
    session = await LeaseSession.open(storage, TIMING, clock)
    await clock.advance(1.5)
    resumed = await LeaseSession.resume(storage, clock, session.id)
    assert resumed.id == session.id
    await clock.advance(1.5)
    await storage.renew_lease(session.id)


async def test_session_that_has_run_out_cannot_be_resumed() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock=clock)
    session = await LeaseSession.open(storage, TIMING, clock)
    await clock.advance(TIMING.ttl + 0.1)
    with pytest.raises(LeaseNotFound):
        await LeaseSession.resume(storage, clock, session.id)
