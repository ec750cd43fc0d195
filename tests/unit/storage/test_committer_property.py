"""Many writers on few keys, answers lost at random: what the committer says must be what the history shows.

The checker takes the history from the storage itself. That it notices what it is there for is shown by breaking the committer
on purpose.
"""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiserver.storage import committer as committer_module
from apiserver.storage.committer import Committer
from apiserver.storage.interface import Committed, Refused, Storage, StorageError, Write
from pinnace.runtime.clock import Clock
from tests.unit.storage.faults import Fault, FaultyStorage, JumpingClock
from tests.unit.storage.history import Log, violations, write_at_random

WRITERS = 4
ROUNDS = 6
FAULTS = [*[Fault.NONE] * 4, Fault.NOT_SENT, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.LOST_ANSWER, Fault.DELAYED]


async def write_rounds(storage: Storage, committer: Committer, log: Log, rng: Random) -> None:
    for _ in range(ROUNDS):
        await write_at_random(storage, committer, log, rng)


async def run(rng: Random, faults: Sequence[Fault]) -> list[str]:
    """One run; what is wrong with it."""
    storage, log, clock = FaultyStorage(faults, delay=rng.randint(1, 100)), Log(), JumpingClock()
    committer = Committer(storage, max_in_flight=rng.randint(1, 3), clock=clock)
    running = asyncio.create_task(committer.run())
    async with asyncio.timeout(20), asyncio.TaskGroup() as writers:
        for _ in range(WRITERS):
            writers.create_task(write_rounds(storage, committer, log, Random(rng.random())))
    running.cancel()
    await storage.deliver()
    return await violations(storage.inner, log)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(FAULTS), max_size=40))
def test_what_was_said_is_what_happened(rng: Random, faults: list[Fault]) -> None:
    assert asyncio.run(run(rng, faults)) == []


async def send_again(
    storage: Storage, writes: Sequence[Write], clock: Clock, deadline: float, rng: Random
) -> Committed | Refused | None:
    """Wrong: takes the answer to the second sending for the answer to the first."""
    try:
        return await storage.transact(writes)
    except StorageError:
        return None


async def say_no(
    storage: Storage, writes: Sequence[Write], clock: Clock, deadline: float, rng: Random
) -> Committed | Refused | None:
    """Wrong: what was not answered did not happen."""
    return Refused(0, {write.key: None for write in writes} | {guard.key: None for w in writes for guard in w.guards})


async def say_yes(
    storage: Storage, writes: Sequence[Write], clock: Clock, deadline: float, rng: Random
) -> Committed | Refused | None:
    """Wrong: what was sent has happened."""
    return Committed(await storage.current_revision())


@pytest.mark.parametrize("wrong", [send_again, say_no, say_yes])
def test_a_committer_that_guesses_is_caught(wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer_module, "resolve", wrong)
    found: list[str] = []
    for seed in range(100):
        rng = Random(seed)
        found += asyncio.run(run(rng, rng.choices(FAULTS, k=40)))
        if found:
            break
    assert found
