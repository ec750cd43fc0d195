"""The simulated etcd fails as the real one does. (That it answers as the real one does: tests/contract.)"""

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from pinnace.apiserver.storage.etcd.storage import SILENCE_LIMIT
from pinnace.apiserver.storage.interface import (
    CommitOutcomeUnknown,
    Compacted,
    CompareFailed,
    LeaseNotFound,
    OutOfSpace,
    StorageUnavailable,
    Write,
)
from tests.contract.steps import done, put, take
from tests.contract.test_storage_random import compare
from tests.simulation.etcd import LEASE_LAG, SimEtcd
from tests.simulation.etcd_port import IMPATIENCE, Odds, Port
from tests.simulation.loop import SimLoop


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """A loop collects garbage when it ends; it need not look at everything that the tests have loaded."""
    gc.freeze()
    yield
    gc.unfreeze()


A, B = "/registry/a", "/registry/b"


class World:
    def __init__(self, seed: int) -> None:
        self.loop = SimLoop(seed)
        self.etcd = SimEtcd(self.loop.world.clock, random.Random(seed))
        self.port, self.other = (Port(self.etcd, random.Random(seed + number)) for number in range(2))

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        self.loop.run(story)


def everywhere(story: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Plays the story with a few seeds."""

    def test() -> None:
        for seed in range(20):
            world = World(seed)
            world.run(story(world))

    test.__doc__ = story.__doc__
    return test


def test_without_faults_it_answers_as_memory_does() -> None:
    world = World(1)
    world.run(compare(world.port, range(100)))


@everywhere
async def test_write_through_a_partition_is_unknown_and_may_arrive_later(world: World) -> None:
    world.port.block()
    began = world.loop.time()
    with pytest.raises(CommitOutcomeUnknown):
        await put(world.port, A)
    assert world.loop.time() - began == pytest.approx(IMPATIENCE, abs=0.1)
    assert await world.other.get(A) is None
    world.port.heal()
    await asyncio.sleep(1)
    assert await world.other.get(A) == await world.port.get(A)


@everywhere
async def test_write_whose_answer_is_held_has_happened(world: World) -> None:
    world.port.block(requests=False)
    with pytest.raises(CommitOutcomeUnknown):
        await put(world.port, A)
    assert await world.other.get(A) is not None


@everywhere
async def test_read_through_a_partition_fails(world: World) -> None:
    world.port.block(answers=False)
    with pytest.raises(StorageUnavailable):
        await world.port.get(A)


async def fate(world: World) -> str:
    """What becomes of a write on a connection that breaks."""
    with pytest.raises(CommitOutcomeUnknown):
        await put(world.port, A)
    at_once = await world.other.get(A)
    await asyncio.sleep(5)
    if at_once:
        return "answer lost"
    return "delayed" if await world.other.get(A) else "request lost"


def test_request_on_a_connection_that_breaks_has_one_of_three_fates() -> None:
    result = set()
    for seed in range(30):
        world = World(seed)
        world.port.odds = Odds(loss=1.0)
        result.add(world.loop.run(fate(world)))
    assert result == {"request lost", "answer lost", "delayed"}


@everywhere
async def test_without_a_leader_nothing_is_answered_and_what_was_held_is_done_or_not(world: World) -> None:
    world.etcd.lose_leader()
    with pytest.raises(StorageUnavailable):
        await world.port.get(A)
    errors = [await failure(put(world.port, f"{A}{number}")) for number in range(8)]
    assert {type(error) for error in errors} <= {StorageUnavailable, CommitOutcomeUnknown}
    world.etcd.elect_leader()
    await asyncio.sleep(1)
    for number, error in enumerate(errors):
        if type(error) is StorageUnavailable:
            assert await world.port.get(f"{A}{number}") is None, "what was refused did not happen"


@everywhere
async def test_leases_outlive_the_time_without_a_leader(world: World) -> None:
    lease = await world.port.grant_lease(2)
    await put(world.port, A, lease=lease)
    world.etcd.lose_leader()
    await asyncio.sleep(5)
    world.etcd.elect_leader()
    assert await world.port.get(A) is not None
    await asyncio.sleep(2)
    assert await world.port.get(A) is not None
    await asyncio.sleep(1 + 2 * LEASE_LAG)
    assert await world.port.get(A) is None


@everywhere
async def test_lease_expires_without_calls(world: World) -> None:
    revision = await put(world.port, A, lease=await world.port.grant_lease(2))
    seen: list[float] = []
    began = world.loop.time()
    world.etcd.watches.append(lambda news: seen.append(world.loop.time() - began))
    await asyncio.sleep(10)
    assert world.etcd.store.revision == revision + 1
    assert 1.9 < seen[0] <= 2 + LEASE_LAG


@everywhere
async def test_lease_that_has_run_out_is_not_renewed_though_its_key_is_still_there(world: World) -> None:
    lease = await world.port.grant_lease(2)
    await put(world.port, A, lease=lease)
    world.etcd.lose_leader()
    await asyncio.sleep(2.1)
    with pytest.raises(LeaseNotFound):
        world.etcd.renew(lease)
    assert world.etcd.store.get(A) is not None


@everywhere
async def test_out_of_space(world: World) -> None:
    """Puts and grants are refused, even those that are done; deletes, renewals and compaction work."""
    lease = await world.port.grant_lease(60)
    revision = await put(world.port, A)
    world.etcd.fill()
    for number in range(5):
        with pytest.raises(OutOfSpace):
            await world.port.transact([Write(f"{B}{number}", b"x", 0)])
    there = [await world.port.get(f"{B}{number}") is not None for number in range(5)]
    assert sum(there) < 3
    assert there == sorted(there, reverse=True)
    with pytest.raises(OutOfSpace):
        await world.port.grant_lease(60)
    assert await world.port.renew_lease(lease) > 50
    now = await done(world.port, Write(A, None, revision))
    await world.port.compact(now)
    await put(world.port, A)


@everywhere
async def test_watch_tells_nothing_through_a_partition_and_all_of_it_in_order_afterwards(world: World) -> None:
    async with aclosing(world.port.watch(2)) as watch:
        await anext(watch)
        world.port.block(requests=False)
        for number in range(10):
            last = await put(world.other, f"{A}{number}")
        reading = asyncio.ensure_future(take(watch, last))
        await asyncio.sleep(SILENCE_LIMIT / 2)
        assert not reading.done()
        world.port.heal()
        last = await put(world.other, B)
        assert len(await reading) + len(await take(watch, last)) == 11


@everywhere
async def test_watch_that_is_silent_for_long_ends(world: World) -> None:
    async with aclosing(world.port.watch(2)) as watch:
        await anext(watch)
        world.port.block()
        with pytest.raises(StorageUnavailable, match="silent"):
            await take(watch, 2)


@everywhere
async def test_watch_that_breaks_ends_and_can_be_resumed_unless_it_was_compacted(world: World) -> None:
    async with aclosing(world.port.watch(2)) as watch:
        await anext(watch)
        world.port.reset()
        with pytest.raises(StorageUnavailable):
            await take(watch, 2)
    last = await put(world.other, A)
    async with aclosing(world.port.watch(last)) as watch:
        assert len(await take(watch, last)) == 1
    world.etcd.compact_all()
    async with aclosing(world.port.watch(last)) as watch:
        with pytest.raises(Compacted):
            await anext(watch)


@everywhere
async def test_watch_that_is_stalled_gives_signs_of_life_only(world: World) -> None:
    async with aclosing(world.port.watch(2)) as watch:
        await anext(watch)
        assert world.port.stall_watches() == 1
        await put(world.other, A)
        signs = [await anext(watch) for _ in range(3)]
        assert [sign.revision for sign in signs] == [1] * 3 and not any(sign.changes for sign in signs)


@everywhere
async def test_watch_without_a_leader_ends(world: World) -> None:
    async with aclosing(world.port.watch(2)) as watch:
        await anext(watch)
        world.etcd.lose_leader()
        with pytest.raises(StorageUnavailable, match="no leader"):
            await take(watch, 2)


@everywhere
async def test_watches_that_lag_lose_and_reorder_nothing(world: World) -> None:
    world.port.odds.watch_latency = 0.5
    async with aclosing(world.port.watch(2)) as watch:
        for number in range(20):
            last = await put(world.other, f"{A}{number}")
            await asyncio.sleep(0.05)
        assert [change.key for change in await take(watch, last)] == [f"{A}{number}" for number in range(20)]


@everywhere
async def test_lag_that_is_over_holds_nothing_back(world: World) -> None:
    """Else a fault would go on when it is said to be over, and its harm be blamed on the product."""
    world.port.lag(1000.0)
    async with aclosing(world.port.watch(2)) as watch:
        await anext(watch)
        for number in range(20):
            last = await put(world.other, f"{A}{number}")
        world.port.lag(-1000.0)
        async with asyncio.timeout(0.1):
            assert [change.key for change in await take(watch, last)] == [f"{A}{number}" for number in range(20)]


@everywhere
async def test_messages_of_a_dead_sender_arrive(world: World) -> None:
    sending = asyncio.ensure_future(put(world.port, A))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.sleep(1)
    assert await world.other.get(A) is not None


@everywhere
async def test_transactions_of_one_sender_may_overtake_each_other(world: World) -> None:
    """As etcd serves the requests of one connection side by side."""
    answers = await asyncio.gather(*(world.port.transact([Write(A, b"%d" % number, 0)]) for number in range(5)))
    assert sum(isinstance(answer, CompareFailed) for answer in answers) == 4


async def failure(question: Awaitable[Any]) -> BaseException | None:
    try:
        await question
    except Exception as error:
        return error
    return None
