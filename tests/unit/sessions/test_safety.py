"""A leader that goes by its own clock stands down before its key can vanish, whatever the network does to its heartbeats."""

import heapq
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

import pytest

from apiserver.services.elections import TIMING
from apiserver.sessions import Session
from apiserver.storage.interface import LeaseNotFound, Write
from apiserver.storage.memory import MemoryStorage
from pinnace.client.election import Term
from tests.clock import FakeClock

KEY = "/registry/elections/scheduler"
SECONDS = 20.0
STEP = 0.02
SEEDS = 100


class Network:
    """Delivers after a while, or never. Things happen at multiples of STEP."""

    def __init__(self, rng: random.Random, slowest: float, loss: float) -> None:
        self._rng = rng
        self._slowest = slowest
        self._loss = loss
        self._under_way: list[tuple[float, int, Callable[[], Awaitable[None]]]] = []
        self._order = count()

    def send(self, now: float, arrive: Callable[[], Awaitable[None]]) -> None:
        if self._rng.random() >= self._loss:
            heapq.heappush(self._under_way, (now + self._rng.uniform(0, self._slowest), next(self._order), arrive))

    async def deliver(self, now: float) -> None:
        while self._under_way and self._under_way[0][0] <= now:
            await heapq.heappop(self._under_way)[2]()


async def run(seed: int, slowest: float, loss: float, validity: float) -> tuple[float, bool]:
    """Seconds for which the leader believed that it leads, and whether it ever did so without its key."""
    clock = FakeClock()
    storage = MemoryStorage(clock=clock)
    rng = random.Random(seed)
    network = Network(rng, slowest, loss)
    begun = clock.monotonic()
    session = await Session.open(storage, TIMING, clock)
    await storage.transact([Write(KEY, b"", 0, lease=session.id)])
    term = Term(1, begun + validity)
    believed, wrong = 0.0, False
    next_beat = begun
    while (now := clock.monotonic()) < begun + SECONDS:
        await network.deliver(now)
        if now >= next_beat:
            next_beat = now + TIMING.interval * rng.uniform(1.0, 3.0)

            async def beat(sent: float = now) -> None:
                with suppress(LeaseNotFound):
                    await session.beat()
                    network.send(clock.monotonic(), lambda: answered(sent))

            network.send(now, beat)

        async def answered(sent: float) -> None:
            term.extend(sent + validity, clock.monotonic())

        if term.valid(now):
            believed += STEP
            wrong = wrong or await storage.get(KEY) is None
        clock.stall(STEP)
    return believed, wrong


NETWORKS = [(0.01, 0.0), (0.3, 0.1), (1.0, 0.3), (2.5, 0.5), (0.01, 0.5)]


@pytest.mark.parametrize(("slowest", "loss"), NETWORKS)
async def test_never_leads_without_its_key(slowest: float, loss: float) -> None:
    for seed in range(SEEDS):
        believed, wrong = await run(seed, slowest, loss, TIMING.validity)
        assert not wrong, f"seed {seed}"
        assert believed > TIMING.validity / 2


async def test_a_good_network_keeps_it_in_office() -> None:
    believed, _ = await run(0, 0.01, 0.0, TIMING.validity)
    assert believed == pytest.approx(SECONDS, abs=2 * STEP)


async def test_the_check_finds_a_leader_that_relies_on_the_whole_ttl() -> None:
    """The renewals that are spared must be paid for: a validity of TTL is too long."""
    runs = [await run(seed, 0.01, 0.5, float(TIMING.ttl)) for seed in range(SEEDS)]
    assert any(wrong for _, wrong in runs)
