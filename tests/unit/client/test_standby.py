"""Terms of a standby: their start, their end, and their order."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from pinnace.client import standby as module
from pinnace.client.connection import Connection
from pinnace.client.standby import ProgressTimeout, Standby, TermFailed
from pinnace.runtime.clock import Clock
from pinnace.runtime.logs import LeadershipAbandoned
from tests.clock import FakeClock
from tests.logged import logged


class FakeCandidate:
    """A candidate whose election is decided by the test."""

    def __init__(
        self,
        connection: Connection,
        election: str,
        holder: str,
        *,
        on_elected: Callable[[int], None],
        on_lost: Callable[[str], None],
        scheduler_names: Sequence[str],
        configuration: str,
        clock: Clock,
    ) -> None:
        self._on_elected, self._on_lost = on_elected, on_lost
        self.token: int | None = None
        self.stands = asyncio.Event()
        self.resigned = False
        self._over = asyncio.Event()

    async def run(self) -> None:
        self.stands.set()
        try:
            await self._over.wait()
        finally:
            if self.token is not None:
                self.lose()

    def abandon_term(self, token: int, reason: str) -> None:
        if self.token == token:
            self.lose()

    async def release(self) -> None:
        self.token, self.resigned = None, True
        self._over.set()

    def win(self, token: int) -> None:
        self.token = token
        self._on_elected(token)

    def lose(self) -> None:
        self.token = None
        self._on_lost("deposed")


class Informers:
    synced = True

    def __init__(self) -> None:
        self.healthy: str | None = None
        self.reached = asyncio.Event()
        self.reached.set()

    async def wait_synced(self, timeout: float) -> None:
        """Return at once: these informers are always synced."""

    async def wait_for(self, revision: int, timeout: float) -> None:
        await self.reached.wait()


class Replica:
    """`history` has the steps of the replica. While `tidying` is clear, a term does not finish."""

    def __init__(self) -> None:
        self.history: list[str] = []
        self.tidying = asyncio.Event()
        self.tidying.set()
        self.informers = Informers()
        self.end: Callable[[], None] | None = None
        self.stuck: str | None = None
        self.clock = FakeClock()
        self.patience = ProgressTimeout()
        self.running: asyncio.Future[None]
        self.standby = Standby(
            Connection(["a:1"]),
            "scheduler",
            "s0",
            self.informers,
            lead=self._lead,
            on_lost=lambda: self.history.append("lost"),
            find_stall=lambda: self.stuck,
            progress_timeout=self.patience,
            clock=self.clock,
        )
        candidate = self.standby._elector
        assert isinstance(candidate, FakeCandidate)
        self.candidate = candidate

    async def _lead(self, token: int) -> None:
        self.history.append(f"leads {token}")
        if self.end is not None:
            self.end()
            await asyncio.sleep(0)
            return
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
    monkeypatch.setattr(module, "LeaderElector", FakeCandidate)
    replica = Replica()
    replica.running = asyncio.ensure_future(replica.standby.run())
    await replica.candidate.stands.wait()
    yield replica
    replica.running.cancel()
    await asyncio.wait([replica.running])


async def test_standby_leads_after_its_election(replica: Replica) -> None:
    replica.candidate.win(7)
    await turns(1)
    assert replica.history == ["leads 7"] and replica.standby.token == 7


async def test_term_starts_at_the_barrier(replica: Replica) -> None:
    replica.informers.reached.clear()
    replica.candidate.win(7)
    await turns()
    assert replica.history == []
    replica.informers.reached.set()
    await turns()
    assert replica.history == ["leads 7"]


async def test_term_lost_before_the_barrier_never_starts(replica: Replica) -> None:
    replica.informers.reached.clear()
    replica.candidate.win(7)
    await turns()
    replica.candidate.lose()
    replica.informers.reached.set()
    await turns()
    assert replica.history == ["lost"]


async def test_term_lapsed_by_the_clock_does_not_start(replica: Replica) -> None:
    replica.candidate.win(7)
    replica.candidate.token = None  # lapsed, but not reported yet
    await turns()
    assert replica.history == [] and replica.standby.token is None


async def test_next_term_waits_for_the_end_of_earlier_terms(replica: Replica) -> None:
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


async def test_fenced_write_of_the_current_term_ends_it_once(replica: Replica) -> None:
    replica.candidate.win(7)
    await turns()
    replica.standby.end_fenced_term(6)
    assert replica.standby.token == 7, "a fenced write of an earlier term changes nothing"
    replica.standby.end_fenced_term(7)
    assert replica.standby.token is None and replica.history == ["leads 7", "lost"]
    await turns()
    replica.standby.end_fenced_term(7)
    assert replica.history == ["leads 7", "lost", "ends 7"]


def returns() -> None:
    """Return at once."""


def cancelled() -> None:
    raise asyncio.CancelledError


def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def exits() -> None:
    raise SystemExit(3)


def generator_exits() -> None:
    raise GeneratorExit


def fails() -> None:
    raise ValueError("a bug")


@pytest.mark.parametrize("end", [returns, cancelled, cancels_itself, exits, generator_exits, fails])
async def test_early_end_of_a_term_is_resigned_and_logged(
    replica: Replica, caplog: pytest.LogCaptureFixture, end: Callable[[], None]
) -> None:
    """TaskGroup ignores a child that returns or cancels itself. SystemExit ends the process without a message."""
    replica.end = end
    replica.candidate.win(7)
    with pytest.raises(ExceptionGroup) as raised:
        await replica.running
    assert raised.group_contains(TermFailed) and replica.candidate.resigned
    assert replica.history == ["leads 7", "lost"] and replica.standby.token is None
    assert len([record for record in caplog.records if record.levelname == "CRITICAL"]) == 1
    assert [item.election for item in logged(caplog, LeadershipAbandoned)] == ["scheduler"]
    assert replica.standby.checks["progress"]() is not None


async def test_end_of_a_lapsed_term_is_no_failure(replica: Replica) -> None:
    """The event loop was blocked: `lead` returns before the candidate reports the lapse."""

    def lapses() -> None:
        replica.candidate.token = None

    replica.end = lapses
    replica.candidate.win(7)
    await turns()
    assert not replica.running.done() and not replica.candidate.resigned


async def test_leader_without_progress_resigns(replica: Replica, caplog: pytest.LogCaptureFixture) -> None:
    replica.candidate.win(7)
    replica.stuck = 'plugin "X" hangs'
    await replica.clock.advance(9.0)
    assert replica.standby.checks["progress"]() == 'plugin "X" hangs' and replica.standby.token == 7
    await replica.clock.advance(3.0)
    with pytest.raises(ExceptionGroup):
        await replica.running
    assert replica.candidate.resigned and replica.history == ["leads 7", "lost", "ends 7"]
    [abandoned] = logged(caplog, LeadershipAbandoned)
    assert 'plugin "X" hangs' in abandoned.reason


async def test_leader_with_short_stalls_keeps_its_term(replica: Replica) -> None:
    replica.candidate.win(7)
    for _ in range(5):
        replica.stuck = "a hitch"
        await replica.clock.advance(8.0)
        replica.stuck = None
        await replica.clock.advance(2.0)
    assert replica.standby.token == 7 and replica.standby.checks["progress"]() is None


async def test_leader_with_stale_informers_resigns(replica: Replica) -> None:
    replica.candidate.win(7)
    replica.informers.healthy = "pods: no watch for 10 s"
    await replica.clock.advance(12.0)
    with pytest.raises(ExceptionGroup):
        await replica.running
    assert replica.candidate.resigned


async def test_leader_that_does_not_reach_the_barrier_resigns(replica: Replica) -> None:
    replica.informers.reached.clear()
    replica.candidate.win(7)
    await replica.clock.advance(17.0)
    with pytest.raises(ExceptionGroup):
        await replica.running
    assert replica.candidate.resigned and "leads 7" not in replica.history


async def test_progress_is_not_checked_without_a_term(replica: Replica) -> None:
    replica.stuck = "nothing to do"
    await replica.clock.advance(60.0)
    assert not replica.running.done() and replica.standby.checks["progress"]() is None


def test_progress_timeout_doubles_with_each_failed_term() -> None:
    patience = ProgressTimeout(first=10.0, longest=60.0)
    for seconds in (10.0, 20.0, 40.0, 60.0, 60.0):
        assert patience.seconds == seconds
        patience.failures += 1


async def test_progress_timeout_is_reset_by_a_term_with_progress(replica: Replica) -> None:
    replica.patience.failures = 3
    replica.candidate.win(7)
    await replica.clock.advance(25.0)
    assert replica.patience.failures == 0
