"""The base of scenarios: a fault in a running cluster, and expectations about the recovery.
up -> load -> run_scenario: the fault, and waiting for its effects -> all faults undone, recovered -> verdict
"""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import astuple, dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self, TypeVar

from pinnace.api.elections_pb2 import Election
from pinnace.client.client import Client
from pinnace.client.errors import ApiError
from pinnace.client.resource import delete_request
from pinnace.cluster import startup, view
from pinnace.cluster.links import HelperError
from pinnace.cluster.spec import APISERVER, ClusterSpec
from pinnace.history import records
from pinnace.history.records import Record
from pinnace.runtime.logs import LogEvent, select_events
from pinnace.runtime.logs import read_log as read_log
from pinnace.verification.bench import BenchError, usage
from pinnace.verification.chaos.clients import HistoryJournal
from pinnace.verification.chaos.cluster_under_test import ETCD_LEADER, NotPossible
from pinnace.verification.chaos.faults.base import InjectedFault, MeasuringFault
from pinnace.verification.chaos.faults.table import KINDS
from pinnace.verification.chaos.load import ChaosLoad
from pinnace.verification.chaos.scenarios.figures import ScenarioMoment
from pinnace.verification.chaos.stage import NO_OPTIONS, ChaosCluster, ChaosOptions, read_run_history
from pinnace.verification.chaos.workers import LOAD, build_pod
from pinnace.verification.check.index import History

TRICKLE, INTERVAL = 2, 0.01
"""Pods per call, and seconds between calls. They determine the resolution of a gap without binds."""
BURST = 200
"""Pods per call of a burst."""
MOST = 500
"""The maximum number of pods deleted with one call."""
T = TypeVar("T")
POLL = 0.01
WAIT_TIMEOUT = 15.0
"""The timeout of events that a scenario waits for, in seconds."""


class BurstWriter:
    """A context manager that creates pods continuously, and deletes the remaining pods at the end."""

    def __init__(self, client: Client) -> None:
        self._pods = client.pods
        self._numbers = count()
        self._names: list[str] = []

    async def __aenter__(self) -> Self:
        self._trickling = asyncio.create_task(self._create_periodically())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._trickling.cancel()
        await asyncio.wait((self._trickling,))
        await self.delete_pods()

    async def create_bursts(self, calls: int) -> None:
        """Send this number of concurrent calls with BURST pods each. Return when they are acknowledged or have failed."""
        await asyncio.gather(*(self._create(BURST) for _ in range(calls)))

    async def delete_pods(self) -> None:
        """Delete all remaining pods."""
        names, self._names = self._names, []
        for first in range(0, len(names), MOST):
            with suppress(ApiError):  # remaining pods are scheduled like other pods
                await self._pods.delete_batch([delete_request(name, LOAD) for name in names[first : first + MOST]])

    async def _create_periodically(self) -> None:
        while True:
            await self._create(TRICKLE)
            await asyncio.sleep(INTERVAL)

    async def _create(self, pods: int) -> None:
        names = [f"crowd-{next(self._numbers)}" for _ in range(pods)]
        self._names += names
        with suppress(ApiError):  # recorded in the history
            await self._pods.create_batch([build_pod(LOAD, name) for name in names])


class ScenarioError(Exception):
    """An event that the scenario waited for did not occur, so the run is not conclusive. The message is one line. `moments`:
    the events so far."""

    moments: Sequence[ScenarioMoment] = ()


@dataclass(frozen=True, slots=True)
class ScenarioExpectation:
    """A line of the verdict that is specific to the scenario."""

    good: bool
    what: str
    figure: str


class Scenario(ABC):
    """A scenario. `title` and `story` describe it. `invariants`: the invariants that it tests; all invariants are checked, but
    only these are displayed. An instance can be played once."""

    name: ClassVar[str]
    title: ClassVar[str]
    story: ClassVar[str]
    spec: ClassVar[ClusterSpec]
    props: ClassVar[ChaosOptions] = NO_OPTIONS
    invariants: ClassVar[tuple[str, ...]]

    @abstractmethod
    async def run_scenario(self, context: "ScenarioContext") -> None:
        """Execute the scenario, and return when the fault is undone. Raises ScenarioError and the errors of the cluster."""

    def read_history(self, folder: Path) -> list[Record]:
        """Return the history to check. Raises HistoryError, OSError."""
        return list(read_run_history(folder))

    @abstractmethod
    def judge_history(self, seen: History) -> list[ScenarioExpectation]:
        """Evaluate the history beyond the invariants. A pure function."""


class ScenarioContext:
    """The context of a scenario. `moments`: events recorded by the scenario; the history and the logs supply the others.
    `zero`: the monotonic time of the first fault, to which the timeline is relative."""

    def __init__(self, on: ChaosCluster, load: ChaosLoad, journal: HistoryJournal, client: Client, rng: random.Random) -> None:
        self.stage = on
        self.under_test = on.under_test
        self.cluster = on.cluster
        self.load = load
        self.client = client
        self.moments: list[ScenarioMoment] = []
        self.watched: list[str] = []
        """The processes whose logs the timeline includes."""
        self.zero = 0.0
        self._journal = journal
        self.random = rng
        self._faults = 0

    def record_observation(self, what: str) -> float:
        """Record an observation at the current time. Return the time."""
        self.moments.append(ScenarioMoment(time.monotonic(), what))
        return self.moments[-1].at

    def moments_relative_to_fault(self, moments: Iterable[ScenarioMoment]) -> list[ScenarioMoment]:
        """Return the events in order, in seconds after the first fault."""
        return [ScenarioMoment(m.at - self.zero, m.what, m.hit) for m in sorted(moments, key=lambda m: m.at)]

    def record_action(self, what: str, at: float) -> None:
        """Record an action. The first one sets `zero`."""
        self.zero = self.zero or at
        self.moments.append(ScenarioMoment(at, what, hit=True))

    @asynccontextmanager
    async def inject_kind(self, kind: str, target: str, before: str, after: str = "") -> AsyncIterator[InjectedFault]:
        """Inject one of the kinds of `pinnace chaos faults` for the duration of the context. `before` and `after`: descriptions
        of its start and end."""
        async with self.inject_fault(
            kind, target, KINDS[kind].make(self.under_test, target, self.random), before, after
        ) as fault:
            yield fault

    @asynccontextmanager
    async def inject_fault(
        self, name: str, target: str, fault: InjectedFault, before: str, after: str = ""
    ) -> AsyncIterator[InjectedFault]:
        """Inject any fault; see `inject_kind`."""
        self._faults += 1
        number = self._faults
        began = time.monotonic()
        self._journal.write(records.FaultRecord(number, name, target, began))
        self.record_action(before, began)
        await fault.inject()
        try:
            yield fault
        finally:
            ended = time.monotonic()
            await fault.undo()
            if after:
                self.record_action(after, ended)
            self._journal.write(records.FaultRecord(number, name, target, began, time.monotonic(), details=fault.details))
            for reading in fault.readings if isinstance(fault, MeasuringFault) else ():
                self._journal.write(records.Observation(reading.at, number, *astuple(reading)[1:]))

    async def wait_for_leader(self, after: int = 0) -> Election:
        """Wait for a leader with a token later than `after`. Raises ScenarioError."""

        async def probe() -> Election | None:
            with suppress(ApiError):
                election = await view.scheduler_leader(self.client)
                return election if election and election.token > after else None
            return None

        return await self.poll_until(probe, "a leading scheduler")

    async def wait_for_binding_leader(self, after: int = 0) -> Election:
        """Wait for a leader with a token later than `after` that binds a pod after it was first observed. If leadership moves,
        the next leader is awaited. Raises ScenarioError."""
        before: dict[int, int] = {}  # binds by token

        async def probe() -> Election | None:
            with suppress(ApiError):
                election = await view.scheduler_leader(self.client)
                if election and election.token > after:
                    binds = await self.count_binds(election.holder, "bound")
                    return election if binds > before.setdefault(election.token, binds) else None
            return None

        return await self.poll_until(probe, "a bind by the leading scheduler")

    async def wait_until_ready(self, names: Iterable[str]) -> None:
        """Wait until these processes are ready. Raises ScenarioError."""
        records = [self.cluster.state.find_process(name) for name in names]

        async def probe() -> bool:
            return await startup.check_readiness(records) is None

        await self.poll_until(probe, f"{', '.join(record.name for record in records)} to be ready")

    async def poll_until(self, probe: Callable[[], Awaitable[T | None]], what: str, patience: float = WAIT_TIMEOUT) -> T:
        """Poll until the result is true. Raises ScenarioError."""
        deadline = time.monotonic() + patience
        while not (result := await probe()):
            if time.monotonic() > deadline:
                raise ScenarioError(f"timed out after {patience:g} s waiting for {what}")
            await asyncio.sleep(POLL)
        return result

    async def count_binds(self, name: str, result: str) -> int:
        """Return the scheduler's number of binds with this result ("bound", "fenced"), or 0 if it does not respond."""
        with suppress(BenchError):
            http = self.cluster.state.find_process(name).plan.http
            return await usage.read_metric(http, "scheduler_bindings_total", result=result) or 0
        return 0

    async def count_fenced_binds(self) -> int:
        """Return the number of binds that the fence rejected, as counted by the API servers, without those of the adversary."""
        https = [record.plan.http for record in self.cluster.state.processes_of(APISERVER)]
        counts = [await usage.read_metric(http, "apiserver_fenced_bindings_total") or 0 for http in https]
        return sum(counts) - sum(self.load.attempts[name] for name in ("fenced", "not_the_holder", "over"))

    async def find_other_etcd_leader(self, but: str) -> str | None:
        """Return etcd's leader if it is not the member `but`."""
        with suppress(NotPossible, HelperError):
            result = await self.under_test.resolve_target(ETCD_LEADER)
            return result if result != but else None
        return None

    async def wait_until_writable(self) -> None:
        """Wait until etcd's recorder receives a change. Raises ScenarioError."""
        before = self.stage.recorder.revision

        async def probe() -> bool:
            return self.stage.recorder.revision > before

        await self.poll_until(probe, "etcd to accept writes")

    async def wait_for_log_event(self, name: str, kind: type[LogEvent]) -> None:
        """Wait until a process has logged an event of this class. Raises ScenarioError."""

        async def probe() -> bool:
            return bool(select_events(read_log(self.cluster.folder.log(name)), kind))

        await self.poll_until(probe, f"{name} to log {kind.name}")
