"""Schedules faults, injects them into a cluster, and records them.

The schedule is a pure function of a seed. Kinds are drawn from decks of cards. The first deck contains each kind once, in
random order. Later decks contain each kind as often as its weight. If the area of a card is in use, the card is kept and the
next matching card is drawn. The second deck starts after the last card of the first, so each kind is scheduled once before any
is scheduled twice. A run can be too short for all kinds.

Each fault lasts for its scheduled duration and is always undone. A fault that is not possible at its time (for example, because
there is no leader to kill) is retried, then skipped, and recorded as not fired. A fault waits while its area is still in use,
because the previous fault took longer than scheduled.

A run with incomplete records is void and ends immediately.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass, field

from pinnace.cluster.links import HelperError
from pinnace.cluster.spec import ELECTION, ClusterSpec
from pinnace.history import records
from pinnace.history.records import RunInfo
from pinnace.verification.chaos.clients import HistoryJournal
from pinnace.verification.chaos.cluster_under_test import ClusterUnderTest, NotPossible
from pinnace.verification.chaos.faults.base import FaultArea, FaultKind, InjectedFault, MeasuringFault
from pinnace.verification.chaos.faults.table import ATTACKS, DOUBLING, HARMLESS, HOSTILE, OBSERVING, TOLERATED
from pinnace.verification.chaos.load import BYSTANDER, FENCED, GATEWAY_BYSTANDER, PRIVATE
from pinnace.verification.chaos.workers import ANOTHER

INTERVAL = 4.5
"""The mean number of seconds between the starts of two faults."""
SHORTEST, LONGEST = 0.5, 9.0
AT_ONCE = 3
"""The maximum number of concurrent faults."""
RECOVERY = 1.5
"""Seconds between the end of a fault and the next fault in its area. A restarted process becomes ready within this time."""
RETRY_TIMEOUT = 5.0
"""Seconds for which an impossible fault is retried."""
RETRY = 0.25
CRASH_POLL = 1.0
"""Seconds between two checks for crashed processes. A crashed process stays down until the next check."""
BIND_WITHIN = 5.0
"""Seconds within which a waiting pod must be bound. Failover takes two or three seconds, which `aftermath` covers."""
ANSWER_WITHIN = 1.0
"""The maximum 90th percentile of the bystander's latency in seconds. Without a flood, a call takes about 10 ms."""
GATEWAY_ANSWERS_WITHIN = 0.25
"""The maximum 99th percentile of the latency of the gateways' bystander during an attack on a gateway, in seconds."""
ReportLine = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """A scheduled fault. It starts `at` seconds after the start of the run and lasts `seconds`. `draw`: the seed of its random
    choices."""

    at: float
    kind: FaultKind
    target: str
    seconds: float
    draw: int

    @property
    def ends_at(self) -> float:
        return self.at + self.seconds


def schedule_faults(seed: int, duration: float, kinds: Sequence[FaultKind], spec: ClusterSpec) -> list[ScheduledFault]:
    """Return the faults of a run of `duration` seconds in order. All faults end within the duration. The result is
    deterministic."""
    rng = random.Random(seed)
    cards = _shuffle_kinds(rng, kinds)
    hand = [next(cards) for _ in kinds]
    first = True  # whether the first deck has cards left
    scheduled_faults: list[ScheduledFault] = []
    now = _random_pause(rng)
    while now < duration:
        first = first and bool(hand)
        while not first and len(hand) < len(kinds):
            hand.append(next(cards))
        on = [strike for strike in scheduled_faults if strike.ends_at + RECOVERY > now]
        left = duration - now
        kind = next((kind for kind in hand if kind.seconds[0] <= left and _can_overlap(kind, on, now)), None)
        if kind is not None:
            hand.remove(kind)
            shortest, longest = kind.seconds
            seconds = rng.uniform(shortest, min(longest, left))
            scheduled_faults.append(
                ScheduledFault(now, kind, rng.choice(list(kind.targets(spec))), seconds, rng.randrange(1 << 32))
            )
        now += _random_pause(rng)
    return scheduled_faults


def find_unscheduled_kinds(kinds: Sequence[FaultKind], scheduled_faults: Sequence[ScheduledFault]) -> tuple[str, ...]:
    """Return the names of the kinds that were not scheduled because the run is too short."""
    dealt = {strike.kind.name for strike in scheduled_faults}
    return tuple(kind.name for kind in kinds if kind.name not in dealt)


def _shuffle_kinds(rng: random.Random, kinds: Sequence[FaultKind]) -> Iterator[FaultKind]:
    """Yield an unlimited sequence of cards."""
    deck = list(kinds)
    while True:
        rng.shuffle(deck)
        yield from deck
        deck = [kind for kind in kinds for _ in range(kind.weight)]


def _can_overlap(kind: FaultKind, on: Sequence[ScheduledFault], now: float) -> bool:
    if any(FaultArea.ALL in (kind.area, strike.kind.area) for strike in on):
        return False
    if sum(strike.ends_at > now for strike in on) >= AT_ONCE:
        return False
    return kind.area is FaultArea.NONE or kind.area not in [strike.kind.area for strike in on]


def _random_pause(rng: random.Random) -> float:
    return min(max(rng.expovariate(1 / INTERVAL), SHORTEST), LONGEST)


@dataclass(slots=True)
class FaultOutcomes:
    """The faults that fired, and the failures that were detected."""

    fired: dict[str, int] = field(default_factory=dict)
    """The number of faults that fired, by kind."""
    missed: list[str] = field(default_factory=list)
    """Faults that were due but not possible, with the reason."""
    failures: list[str] = field(default_factory=list)
    """Unexpected exits, processes that did not stop on request or failed, and errors in logs."""


class FaultInjector:
    """Executes a schedule. `say` is called with one line per fault."""

    def __init__(self, under_test: ClusterUnderTest, journal: HistoryJournal, say: ReportLine) -> None:
        self.damage = FaultOutcomes()
        self._under_test = under_test
        self._journal = journal
        self._say = say
        self._areas: dict[FaultArea, asyncio.Lock] = {area: asyncio.Lock() for area in FaultArea if area is not FaultArea.NONE}

    async def inject_all(self, scheduled_faults: Sequence[ScheduledFault]) -> None:
        """Inject all faults, and return after they are undone. Raises ChaosError if records were lost. Unexpected exceptions of
        faults are propagated."""
        started = time.monotonic()
        try:
            await self._inject_scheduled_faults(scheduled_faults, started)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        await self._under_test.undo_all_faults()
        await self._restart_crashed_processes(started)
        self.damage.failures += [
            f"{name} was not ready after the last fault" for name in await self._under_test.wait_for_all_ready()
        ]
        self.damage.failures += self._under_test.unstoppable_processes

    async def _inject_scheduled_faults(self, scheduled_faults: Sequence[ScheduledFault], started: float) -> None:
        async with asyncio.TaskGroup() as group:
            supervising = group.create_task(self._supervise_processes(started))
            injections = [
                group.create_task(self._wait_and_inject(number, strike, started))
                for number, strike in enumerate(scheduled_faults, 1)
            ]
            await asyncio.gather(*injections)
            supervising.cancel()

    async def _wait_and_inject(self, number: int, strike: ScheduledFault, started: float) -> None:
        await asyncio.sleep(started + strike.at - time.monotonic())
        async with self._areas.get(strike.kind.area) or nullcontext():
            await self._inject_fault(number, strike, started)

    async def _inject_fault(self, number: int, strike: ScheduledFault, started: float) -> None:
        fault = strike.kind.make(self._under_test, strike.target, random.Random(strike.draw))
        began = time.monotonic()

        def record(ended: float | None, fired: bool = True) -> None:
            self._journal.write(
                records.FaultRecord(number, strike.kind.name, strike.target, began, ended, fired, fault.details)
            )

        record(None)
        fired = False
        try:
            await _begin_with_retry(fault)
            fired = True
            self._record_fired_fault(started, number, strike, fault.details)
            await asyncio.sleep(strike.seconds)
        except (NotPossible, HelperError) as error:
            self.damage.missed.append(f"{strike.kind.name} {strike.target}: {error}")
            self._report_progress(started, number, f"{strike.kind.name} {strike.target}: not possible: {error}")
        finally:
            await fault.undo()
        record(time.monotonic(), fired)
        for reading in fault.readings if isinstance(fault, MeasuringFault) else ():
            self._journal.write(records.Observation(reading.at, number, *astuple(reading)[1:]))

    def _record_fired_fault(self, started: float, number: int, strike: ScheduledFault, details: str) -> None:
        name, fired = strike.kind.name, self.damage.fired
        fired[name] = fired.get(name, 0) + 1
        self._report_progress(started, number, f"{name} {details or strike.target}, {strike.seconds:.1f} s")

    async def _supervise_processes(self, started: float) -> None:
        """Restart processes that ended unexpectedly, like a supervisor, and record each as a failure. Raises ChaosError if the
        journal or etcd's recorder has failed."""
        while True:
            self._journal.check()
            self._under_test.recorded()
            await self._restart_crashed_processes(started)
            await asyncio.sleep(CRASH_POLL)

    async def _restart_crashed_processes(self, started: float) -> None:
        for name in self._under_test.find_excused_exits_to_restart():
            self._say(f"{name} ended during a fault; restarting it")
            await self._under_test.start_process(name)
        for name, code in self._under_test.find_crashed_processes():
            result = f"{name} ended unexpectedly, {time.monotonic() - started:.1f} s after the start: exit code {code}"
            self.damage.failures.append(result)
            self._say(f"!! {result}")
            await self._under_test.start_process(name)

    def _report_progress(self, started: float, number: int, what: str) -> None:
        self._say(f"{time.monotonic() - started:6.1f} s  #{number} {what}")


async def _begin_with_retry(fault: InjectedFault) -> None:
    """Start a fault. It is retried while it is not possible, because its target, such as a leader, may appear soon. Raises
    NotPossible, HelperError."""
    deadline = time.monotonic() + RETRY_TIMEOUT
    while True:
        try:
            await fault.inject()
            return
        except (NotPossible, HelperError):
            if time.monotonic() > deadline:
                raise
        await fault.undo()
        await asyncio.sleep(RETRY)


def build_run_record(began: float, seed: int, what: str, settle: float, faults: tuple[str, ...] = ()) -> RunInfo:
    """Return the first record of a history. `began`: Unix time. `settle`: the seconds within which the cluster must recover.
    `faults`: the kinds that must fire."""
    return RunInfo(
        began,
        seed,
        what,
        faults=faults,
        private=PRIVATE,
        fenced=FENCED,
        settle=settle,
        elections=(ELECTION,),
        unsteady=(ANOTHER,),
        harmless=HARMLESS,
        tolerated=TOLERATED,
        bind_within=BIND_WITHIN,
        bystanders=(BYSTANDER,),
        hostile=HOSTILE,
        answer_within=ANSWER_WITHIN,
        gateway_bystanders=(GATEWAY_BYSTANDER,),
        attacks=ATTACKS,
        gateway_answers_within=GATEWAY_ANSWERS_WITHIN,
        observing=OBSERVING,
        doubling=DOUBLING,
        at=time.monotonic() - (time.time() - began),
    )
