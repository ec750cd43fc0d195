"""Many writers on few keys, answers lost at random: what the committer says must be what the history shows.

The checker takes the history from the storage itself. That it notices what it is there for is shown by breaking the committer
on purpose.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiserver.storage import committer as committer_module
from apiserver.storage.committer import Committer, Outcome
from apiserver.storage.interface import Committed, Guard, OutcomeUnknown, Refused, Storage, StorageError, Write
from apiserver.storage.outcomes import is_at_expected
from pinnace.runtime.clock import Clock
from tests.unit.storage.faults import Fault, FaultyStorage, JumpingClock

KEYS = ("a", "b", "c")
FENCE = "fence"
WRITERS = 4
ROUNDS = 6
FAULTS = [*[Fault.NONE] * 4, Fault.NOT_SENT, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.LOST_ANSWER, Fault.DELAYED]


@dataclass
class Log:
    """What the writers were told."""

    outcomes: list[tuple[Write, Outcome]] = field(default_factory=list)
    values: int = 0

    def new_value(self) -> bytes:
        """One that no other write has."""
        self.values += 1
        return b"%d" % self.values


async def write_at_random(storage: Storage, committer: Committer, log: Log, rng: Random) -> None:
    """Reads some keys, and changes them as a client would; now and then the fence itself."""
    for _ in range(ROUNDS):
        fence = await storage.get(FENCE)
        guards = (Guard(FENCE, fence.create_revision),) if fence and rng.random() < 0.3 else ()
        writes = []
        for key in rng.sample(KEYS, rng.randint(1, len(KEYS))):
            state = await storage.get(key)
            value = None if state and rng.random() < 0.3 else log.new_value()
            writes.append(Write(key, value, state.mod_revision if state else 0, guards))
        if rng.random() < 0.3:
            writes.append(Write(FENCE, None if fence else log.new_value(), fence.mod_revision if fence else 0))
        log.outcomes.extend(zip(writes, await committer.commit_many(writes), strict=True))


async def run(rng: Random, faults: Sequence[Fault]) -> list[str]:
    """One run; what is wrong with it."""
    storage, log, clock = FaultyStorage(faults, delay=rng.randint(1, 100)), Log(), JumpingClock()
    committer = Committer(storage, max_in_flight=rng.randint(1, 3), clock=clock)
    running = asyncio.create_task(committer.run())
    async with asyncio.timeout(20), asyncio.TaskGroup() as writers:
        for _ in range(WRITERS):
            writers.create_task(write_at_random(storage, committer, log, Random(rng.random())))
    running.cancel()
    await storage.deliver()
    return await violations(storage.inner, log)


async def violations(storage: Storage, log: Log) -> list[str]:
    history = await history_of(storage)
    times = Counter(value for values in history.values() for value in values.values() if value is not None)
    deletes: Counter[tuple[str, int]] = Counter()
    found = []
    for write, outcome in log.outcomes:
        what = f"{write} -> {outcome!r}"
        if isinstance(outcome, int):
            if history.get(outcome, {}).get(write.key, b"nothing") != write.value:
                found.append(f"not in the history: {what}")
            elif not await was_allowed(storage, write, outcome):
                found.append(f"happened although its compare or guard failed: {what}")
            if write.value is not None and times[write.value] != 1:
                found.append(f"happened {times[write.value]} times: {what}")
            if write.value is None:
                deletes[write.key, outcome] += 1
        elif not isinstance(outcome, OutcomeUnknown) and write.value is not None and times[write.value]:
            found.append(f"happened all the same: {what}")
    found.extend(f"{count} deletes say they made {where}" for where, count in deletes.items() if count > 1)
    unknown = sum(write.value is None and isinstance(outcome, OutcomeUnknown) for write, outcome in log.outcomes)
    tombstones = sum(value is None for values in history.values() for value in values.values())
    if tombstones > len(deletes) + unknown:
        found.append(f"{tombstones} keys were deleted, but only {len(deletes)} deletes said so, and {unknown} did not know")
    return found


async def history_of(storage: Storage) -> dict[int, dict[str, bytes | None]]:
    """By revision: the keys that it changed."""
    history: dict[int, dict[str, bytes | None]] = {}
    now = await storage.current_revision()
    async for batch in storage.watch(1):
        for change in batch.changes:
            history.setdefault(change.mod_revision, {})[change.key] = change.value
        if batch.revision >= now:
            break
    return history


async def was_allowed(storage: Storage, write: Write, revision: int) -> bool:
    """Whether the state right before `revision` fulfilled the write's conditions."""
    for guard in write.guards:
        fence = await storage.get(guard.key, revision=revision - 1)
        if fence is None or fence.create_revision != guard.create_revision:
            return False
    return is_at_expected(write, await storage.get(write.key, revision=revision - 1))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(FAULTS), max_size=40))
def test_what_was_said_is_what_happened(rng: Random, faults: list[Fault]) -> None:
    assert asyncio.run(run(rng, faults)) == []


async def send_again(storage: Storage, writes: Sequence[Write], clock: Clock, deadline: float) -> Committed | Refused | None:
    """Wrong: takes the answer to the second sending for the answer to the first."""
    try:
        return await storage.transact(writes)
    except StorageError:
        return None


async def say_no(storage: Storage, writes: Sequence[Write], clock: Clock, deadline: float) -> Committed | Refused | None:
    """Wrong: what was not answered did not happen."""
    return Refused(0, {write.key: None for write in writes} | {guard.key: None for w in writes for guard in w.guards})


async def say_yes(storage: Storage, writes: Sequence[Write], clock: Clock, deadline: float) -> Committed | Refused | None:
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
