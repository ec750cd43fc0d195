"""Many writers on few keys, by one server or two, who write different bytes or all the same; answers lost, copies late, markers
swept at random: what the committers say must be what the history shows.

The checker takes the history from the storage itself. That it notices what it is there for is shown by breaking the committer
on purpose.
"""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pinnace.api.resources import COMMITS_PREFIX
from pinnace.apiserver.storage.committer import NOT_DONE, Answer, Committer, TransactionPipeline
from pinnace.apiserver.storage.interface import Committed, Storage, StorageError, StorageUnavailable, Write
from tests.examples import examples
from tests.unit.storage.faults import Fault, FaultyStorage, JumpingClock
from tests.unit.storage.history import Log, violations, write_at_random

WRITERS = 4
ROUNDS = 6
FAULTS = [*[Fault.NONE] * 4, Fault.NOT_SENT, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.LOST_ANSWER, Fault.DELAYED]


async def write_rounds(storage: Storage, committer: Committer, log: Log, rng: Random) -> None:
    for _ in range(ROUNDS):
        await write_at_random(storage, committer, log, rng)


async def sweep_at_random(storage: Storage, rng: Random) -> None:
    for _ in range(rng.choice([0, 0, 3])):
        for _ in range(rng.randint(1, 30)):
            await asyncio.sleep(0)
        for marker in (await storage.page(COMMITS_PREFIX)).items:
            await storage.transact([Write(marker.key, None, marker.mod_revision)])


async def run(rng: Random, faults: Sequence[Fault]) -> list[str]:
    """One run; what is wrong with it."""
    storage, log, clock = FaultyStorage(faults, delay=rng.randint(1, 100)), Log(alike=rng.random() < 0.5), JumpingClock()
    committers = [
        Committer(storage, max_in_flight=rng.randint(1, 3), clock=clock, rng=Random(rng.random()))
        for _ in range(rng.randint(1, 2))
    ]
    running = [asyncio.create_task(committer.run()) for committer in committers]
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        for number in range(WRITERS):
            committer = committers[number % len(committers)]
            tasks.create_task(write_rounds(storage, committer, log, Random(rng.random())))
        tasks.create_task(sweep_at_random(storage.inner, Random(rng.random())))
    for task in running:
        task.cancel()
    await storage.deliver()
    return await violations(storage.inner, log)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(FAULTS), max_size=40))
def test_reported_outcomes_are_true(rng: Random, faults: list[Fault]) -> None:
    assert asyncio.run(run(rng, faults)) == []


async def send_again(self: TransactionPipeline, marker: Write, error: StorageError) -> Answer:
    """Wrong: what was not answered goes again, though a copy of it may have arrived, or may yet."""
    self._at = 0
    return NOT_DONE


async def look_only(self: TransactionPipeline, marker: Write, error: StorageError) -> Answer:
    """Wrong: leaves the door open."""
    while True:
        try:
            state = await self._storage.get(marker.key)
        except StorageError:
            continue
        self._at = state.mod_revision if state else 0
        return Committed(self._at) if state and state.value == marker.value else NOT_DONE


async def say_no(self: TransactionPipeline, marker: Write, error: StorageError) -> Answer:
    """Wrong: what was not answered did not happen."""
    self._at = 0
    raise StorageUnavailable(str(error))


async def say_yes(self: TransactionPipeline, marker: Write, error: StorageError) -> Answer:
    """Wrong: what was sent has happened."""
    self._at = 0
    return Committed(await self._storage.current_revision())


def found_within(seeds: int) -> list[str]:
    """What is wrong with the first run that goes wrong; empty: none does."""
    for seed in range(seeds):
        rng = Random(seed)
        if result := asyncio.run(run(rng, rng.choices(FAULTS, k=40))):
            return result
    return []


@pytest.mark.parametrize("wrong", [send_again, look_only, say_no, say_yes])
def test_committer_that_guesses_is_caught(wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionPipeline, "_resolve_outcome", wrong)
    assert found_within(100)


def test_marker_that_comes_with_the_first_group_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is swept, a late copy of that group finds what it expects: no marker."""

    async def open_later(self: TransactionPipeline) -> None:
        if not self._at:
            self._key = next(self._keys)

    monkeypatch.setattr(TransactionPipeline, "open", open_later)
    assert found_within(2000)
