"""A leader that goes by its own clock stands down before its key can vanish, whatever the network does to its heartbeats."""

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count

import pytest

from pinnace.apiserver.election.service import TIMING
from pinnace.apiserver.services.sessions import LeaseSession
from pinnace.apiserver.storage.interface import Write
from pinnace.client.election import LocalTerm
from tests.clock import FakeClock
from tests.storage.memory import MemoryStorage

KEY = "/registry/elections/scheduler"
SECONDS = 10.0
STEP = 0.02
SEEDS = 30


class Network:
    """Delivers after a while, or never. Things happen at multiples of STEP."""

    def __init__(self, rng: random.Random, slowest: float, loss: float) -> None:
        self._rng = rng
        self._slowest = slowest
        self._loss = loss
        self._under_way: list[tuple[float, int, Callable[[], Awaitable[None]]]] = []
        self._order = count()

    def send(self, now: float, arrive: Callable[[], Awaitable[None]], *, reliable: bool = False) -> None:
        if reliable or self._rng.random() >= self._loss:
            heapq.heappush(self._under_way, (now + self._rng.uniform(0, self._slowest), next(self._order), arrive))

    async def deliver(self, now: float) -> None:
        while self._under_way and self._under_way[0][0] <= now:
            await heapq.heappop(self._under_way)[2]()


class DistantStorage(MemoryStorage):
    """Renewals travel to it and back."""

    def __init__(self, clock: FakeClock, network: Network) -> None:
        super().__init__(clock=clock)
        self._clock_there = clock
        self._network = network

    async def renew_lease(self, lease: int) -> float:
        arrived, returned = asyncio.Event(), asyncio.Event()
        self._send(arrived)
        await arrived.wait()
        remaining = await super().renew_lease(lease)
        self._send(returned)
        await returned.wait()
        return remaining

    def _send(self, event: asyncio.Event) -> None:
        async def arrive() -> None:
            event.set()

        self._network.send(self._clock_there.monotonic(), arrive, reliable=True)


async def run(seed: int, slowest: float, loss: float, *, from_sending: bool = True) -> tuple[float, bool]:
    """Seconds for which the leader believed that it leads, and whether it ever did so without its key. The store is as slow as
    the network. `from_sending`: the leader counts from when it sent a beat, not from when that was answered."""
    clock = FakeClock()
    rng = random.Random(seed)
    network = Network(rng, slowest, loss)
    storage = DistantStorage(clock, network)
    begun = clock.monotonic()
    session = await LeaseSession.open(storage, TIMING, clock)
    await storage.transact([Write(KEY, b"", 0, lease=session.id)])
    term = LocalTerm(1, begun + TIMING.validity)
    believed, wrong = 0.0, False
    sent: list[float] = []

    async def arrive(sequence: int) -> None:
        session.record_heartbeat(sequence)

    async def learn(sequence: int) -> None:
        now = clock.monotonic()
        term.extend_until((sent[sequence] if from_sending else now) + TIMING.validity, now)

    keeping = asyncio.create_task(
        session.keep_alive(lambda sequence: network.send(clock.monotonic(), partial(learn, sequence)), lambda: None)
    )
    next_beat = begun
    while (now := clock.monotonic()) < begun + SECONDS:
        await network.deliver(now)
        if now >= next_beat:
            next_beat = now + TIMING.interval * rng.uniform(1.0, 3.0)
            sent.append(now)
            network.send(now, partial(arrive, len(sent) - 1))
        await settle()
        if term.is_valid(now):
            believed += STEP
            wrong = wrong or await storage.get(KEY) is None
        clock.stall(STEP)
    keeping.cancel()
    return believed, wrong


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


NETWORKS = [(0.01, 0.0), (0.3, 0.1), (1.0, 0.3), (2.5, 0.5), (0.01, 0.5)]


@pytest.mark.parametrize(("slowest", "loss"), NETWORKS)
async def test_never_leads_without_its_key(slowest: float, loss: float) -> None:
    for seed in range(SEEDS):
        believed, wrong = await run(seed, slowest, loss)
        assert not wrong, f"seed {seed}"
        assert believed > TIMING.validity / 2


async def test_good_network_keeps_it_in_office() -> None:
    believed, _ = await run(0, 0.01, 0.0)
    assert believed == pytest.approx(SECONDS, abs=2 * STEP)


async def test_check_finds_a_leader_that_counts_from_the_answer() -> None:
    runs = [await run(seed, 1.0, 0.3, from_sending=False) for seed in range(SEEDS)]
    assert any(wrong for _, wrong in runs)
