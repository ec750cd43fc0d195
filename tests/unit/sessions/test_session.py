"""A session renews its lease because of beats, seldom, and says so honestly."""

import pytest

from apiserver.sessions import Session, Timing
from apiserver.storage.interface import LeaseNotFound
from apiserver.storage.memory import MemoryStorage
from tests.clock import FakeClock

TIMING = Timing(interval=0.2, silence=0.9, ttl=2)


class CountingStorage(MemoryStorage):
    renewals = 0

    async def renew_lease(self, lease: int) -> float:
        self.renewals += 1
        return await super().renew_lease(lease)


async def beat_for(session: Session, clock: FakeClock, seconds: float) -> None:
    for _ in range(round(seconds / TIMING.interval)):
        await clock.advance(TIMING.interval)
        await session.beat()


async def test_beats_keep_the_lease_with_few_renewals() -> None:
    clock = FakeClock()
    storage = CountingStorage(clock=clock)
    session = await Session.open(storage, TIMING, clock)
    await beat_for(session, clock, 20.0)
    assert 20.0 / TIMING.ttl < storage.renewals <= 20.0 / TIMING.renewal


async def test_nothing_renews_the_lease_of_a_silent_peer() -> None:
    clock = FakeClock()
    storage = CountingStorage(clock=clock)
    session = await Session.open(storage, TIMING, clock)
    await beat_for(session, clock, 4.0)
    await clock.advance(TIMING.ttl + 0.1)
    with pytest.raises(LeaseNotFound):
        await session.beat()


async def test_an_answered_beat_is_worth_its_validity() -> None:
    """Whenever the last answered beat was: the lease outlives the time for which the peer relies on it."""
    for beats in range(12):
        clock = FakeClock()
        storage = CountingStorage(clock=clock)
        session = await Session.open(storage, TIMING, clock)
        await beat_for(session, clock, beats * TIMING.interval)
        await clock.advance(TIMING.validity)
        await storage.renew_lease(session.id)  # raises LeaseNotFound if it has run out


async def test_a_session_goes_on_elsewhere() -> None:
    clock = FakeClock()
    storage = CountingStorage(clock=clock)
    session = await Session.open(storage, TIMING, clock)
    await clock.advance(1.5)
    resumed = await Session.resume(storage, TIMING, clock, session.id)
    assert resumed.id == session.id
    await clock.advance(1.5)
    await resumed.beat()


async def test_a_session_that_has_run_out_cannot_be_resumed() -> None:
    clock = FakeClock()
    storage = CountingStorage(clock=clock)
    session = await Session.open(storage, TIMING, clock)
    await clock.advance(TIMING.ttl + 0.1)
    with pytest.raises(LeaseNotFound):
        await Session.resume(storage, TIMING, clock, session.id)
