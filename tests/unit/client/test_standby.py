"""One term after another: when it begins, what ends it, and that the next one waits for that."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from pinnace.client import standby as module
from pinnace.client.connection import Connection
from pinnace.client.standby import Standby
from pinnace.runtime.clock import Clock


class FakeCandidate:
    """Is told what becomes of it."""

    def __init__(
        self,
        connection: Connection,
        election: str,
        holder: str,
        *,
        on_elected: Callable[[int], None],
        on_lost: Callable[[str], None],
        scheduler_names: Sequence[str],
        clock: Clock,
    ) -> None:
        self._on_elected, self._on_lost = on_elected, on_lost
        self.token: int | None = None
        self.stands = asyncio.Event()

    async def run(self) -> None:
        self.stands.set()
        await asyncio.get_running_loop().create_future()

    def win(self, token: int) -> None:
        self.token = token
        self._on_elected(token)

    def lose(self) -> None:
        self.token = None
        self._on_lost("deposed")


class Informers:
    synced, healthy = True, None

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.reached.set()

    async def wait_synced(self, timeout: float) -> None:
        """They are."""

    async def wait_for(self, revision: int, timeout: float) -> None:
        await self.reached.wait()


class Replica:
    """`history`: what it does. While `tidying` is clear, it takes its time to end a term."""

    def __init__(self) -> None:
        self.history: list[str] = []
        self.tidying = asyncio.Event()
        self.tidying.set()
        self.informers = Informers()
        self.failure: Exception | None = None
        self.standby = Standby(
            Connection(["a:1"]), "scheduler", "s0", self.informers, lead=self._lead, on_lost=lambda: self.history.append("lost")
        )
        candidate = self.standby._candidate
        assert isinstance(candidate, FakeCandidate)
        self.candidate = candidate

    async def _lead(self, token: int) -> None:
        self.history.append(f"leads {token}")
        if self.failure is not None:
            raise self.failure
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self.tidying.wait()
            self.history.append(f"ends {token}")


async def turns(number: int = 10) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.fixture
async def replica(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replica]:
    monkeypatch.setattr(module, "Candidate", FakeCandidate)
    replica = Replica()
    running = asyncio.ensure_future(replica.standby.run())
    await replica.candidate.stands.wait()
    yield replica
    running.cancel()
    await asyncio.wait([running])


async def test_it_leads_in_the_turn_after_it_was_elected(replica: Replica) -> None:
    replica.candidate.win(7)
    await turns(1)
    assert replica.history == ["leads 7"] and replica.standby.token == 7


async def test_a_term_begins_at_the_barrier(replica: Replica) -> None:
    replica.informers.reached.clear()
    replica.candidate.win(7)
    await turns()
    assert replica.history == []
    replica.informers.reached.set()
    await turns()
    assert replica.history == ["leads 7"]


async def test_a_term_that_is_over_before_the_barrier_never_begins(replica: Replica) -> None:
    replica.informers.reached.clear()
    replica.candidate.win(7)
    await turns()
    replica.candidate.lose()
    replica.informers.reached.set()
    await turns()
    assert replica.history == ["lost"]


async def test_a_term_that_has_run_out_by_the_clock_does_not_begin(replica: Replica) -> None:
    replica.candidate.win(7)
    replica.candidate.token = None  # and nobody has been told yet
    await turns()
    assert replica.history == [] and replica.standby.token is None


async def test_the_next_term_waits_for_the_end_of_those_before(replica: Replica) -> None:
    replica.candidate.win(7)
    await turns()
    replica.tidying.clear()
    for token in (8, 9):
        replica.candidate.lose()
        replica.candidate.win(token)
        await turns()
    assert replica.history == ["leads 7", "lost", "lost"]
    replica.tidying.set()
    await turns()
    assert replica.history == ["leads 7", "lost", "lost", "ends 7", "leads 9"]


async def test_who_finds_out_first_stands_down_and_that_is_told_once(replica: Replica) -> None:
    replica.candidate.win(7)
    await turns()
    replica.standby.stand_down()
    assert replica.standby.token is None and replica.history == ["leads 7", "lost"]
    await turns()
    replica.candidate.lose()
    assert replica.history == ["leads 7", "lost", "ends 7"]


async def test_what_goes_wrong_in_a_term_ends_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Candidate", FakeCandidate)
    replica = Replica()
    replica.failure = ValueError("a bug")
    running = asyncio.ensure_future(replica.standby.run())
    await replica.candidate.stands.wait()
    replica.candidate.win(7)
    with pytest.raises(ExceptionGroup):
        await running
