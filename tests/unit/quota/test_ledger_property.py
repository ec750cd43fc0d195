"""Two servers that create and delete as fast as they can, and recount all the time; answers are lost, copies come late: at no
revision there are more pods than the quota says, or than it allows, and in the end it says what there is.

That the checker notices is shown by breaking the ledger on purpose.
"""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pinnace.apiserver.quota.ledger import QuotaLedger, QuotaRecount, QuotaState
from pinnace.apiserver.storage.committer import Answer, CommitOutcome, DecidedOutcomes, TransactionPipeline, WriteDenied
from pinnace.apiserver.storage.interface import Committed, CompareFailed, Write, failure_of
from tests.contract.steps import put
from tests.examples import examples
from tests.storage.memory import MemoryStorage
from tests.unit.quota.world import QUOTA, Charger, chargers, pods, quota, used, violations
from tests.unit.storage.faults import Fault, FaultyStorage, JumpingClock

ROOM = 6
ROUNDS = 4
FAULTS = [*[Fault.NONE] * 4, Fault.NOT_SENT, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.LOST_ANSWER, Fault.DELAYED]
NAMES = [f"p{i}" for i in range(10)]


async def work(charger: Charger, storage: FaultyStorage, rng: Random, said: list[CommitOutcome]) -> None:
    for _ in range(ROUNDS):
        if rng.random() < 0.3:
            there = await pods(storage)
            await charger.delete(*rng.sample(there, rng.randint(0, len(there))))
        else:
            said += await charger.create(*rng.sample(NAMES, rng.randint(1, len(NAMES))))


async def run(rng: Random, faults: Sequence[Fault]) -> list[str]:
    """One run; what is wrong with it."""
    inner, clock = MemoryStorage(), JumpingClock()
    await put(inner, QUOTA, quota(ROOM))
    storage, said = FaultyStorage(faults, inner, delay=rng.randint(1, 100)), list[CommitOutcome]()
    async with asyncio.timeout(20), chargers(storage, 2, clock, rng) as servers:
        async with asyncio.TaskGroup() as tasks:
            for number in range(4):
                tasks.create_task(work(servers[number % 2], storage, Random(rng.random()), said))
        await storage.deliver()
        while await used(inner) != len(await pods(inner)):  # noqa: ASYNC110 (a recount is what is waited for)
            await asyncio.sleep(0)
    unexpected = [repr(item) for item in said if isinstance(item, WriteDenied) and f"limited: pods={ROOM}" not in str(item)]
    return unexpected + await violations(inner, ROOM)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(FAULTS), max_size=40))
def test_quota_is_kept_at_every_revision(rng: Random, faults: list[Fault]) -> None:
    assert asyncio.run(run(rng, faults)) == []


async def charge_afterwards(self: QuotaLedger, lane: TransactionPipeline, writes: Sequence[Write]) -> Answer | DecidedOutcomes:
    """Wrong: the objects first, and then what they use."""
    bill = self._prepare_transaction(writes, counted=False) or self._prepare_transaction(writes, counted=True)
    assert bill is not None
    if not bill.writes:
        return DecidedOutcomes(bill.denied)
    answer = await lane.send(bill.writes)
    if isinstance(answer, CompareFailed):
        failures = {write.key: failure_of(write, answer.current) for write in bill.writes}
        return DecidedOutcomes({key: failure for key, failure in failures.items() if failure})
    if not isinstance(answer, Committed):
        return answer
    await lane.send(bill.charges)
    return DecidedOutcomes({write.key: answer.revision for write in bill.writes} | bill.denied)


def count_late(self: QuotaRecount, namespace: str, state: QuotaState) -> Write | None:
    """Wrong: over whatever version is known, rather than over the one that was counted with."""
    totals: Mapping[str, int] = state.bounds.charged_usage(self._tally.usage_of(namespace))
    (newest,) = self._states.newest_states(namespace)
    if newest.bounds.matches_status(totals):
        return None
    return Write(newest.key, newest.bounds.quota_with_used(totals).SerializeToString(), newest.revision)


def found_within(seeds: int) -> list[str]:
    """What is wrong with the first run that goes wrong; empty: none does."""
    for seed in range(seeds):
        if result := asyncio.run(run(Random(seed), ())):
            return result
    return []


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [(QuotaLedger, "send_charged_group", charge_afterwards), (QuotaRecount, "_correct_quota", count_late)],
)
def test_ledger_that_is_careless_is_caught(owner: type, name: str, wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, wrong)
    assert found_within(100)
