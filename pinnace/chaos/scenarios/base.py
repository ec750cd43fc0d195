"""Scenarios, and what they work with: a fault in a steady cluster, and expectations about the recovery.

up -> load, steady -> play: the fault, and what the scenario waits for -> all undone, recovered -> verdict
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
from pinnace.bench import BenchError, usage
from pinnace.chaos.clients import Journal
from pinnace.chaos.faults.base import Fault, Measuring
from pinnace.chaos.faults.table import KINDS
from pinnace.chaos.load import Load
from pinnace.chaos.scenarios.figures import Moment
from pinnace.chaos.stage import NO_PROPS, Props, Stage, read
from pinnace.chaos.workers import LOAD, pod
from pinnace.chaos.world import ETCD_LEADER, NotPossible
from pinnace.check import history
from pinnace.check.history import Record
from pinnace.check.index import History
from pinnace.client.client import Client
from pinnace.client.errors import ApiError
from pinnace.client.resource import delete_request
from pinnace.cluster import startup, view
from pinnace.cluster.links import HelperError
from pinnace.cluster.spec import APISERVER, ClusterSpec
from pinnace.runtime.logs import LogEvent, of_kind
from pinnace.runtime.logs import read as read_log

TRICKLE, INTERVAL = 2, 0.01
"""Pods a call, and seconds between calls: the resolution of a gap in which nobody binds."""
BURST = 200
"""Pods a call, when many are wanted."""
MOST = 500
"""Pods that are deleted with one call."""


class Crowd:
    """A context manager: the pods trickle in from the beginning to the end, and those that are left are then deleted."""

    def __init__(self, client: Client) -> None:
        self._pods = client.pods
        self._numbers = count()
        self._names: list[str] = []

    async def __aenter__(self) -> Self:
        self._trickling = asyncio.create_task(self._trickle())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._trickling.cancel()
        await asyncio.wait((self._trickling,))
        await self.leave()

    async def burst(self, calls: int) -> None:
        """So many calls with BURST pods each, at once. Returns when they are acknowledged, or have failed."""
        await asyncio.gather(*(self._create(BURST) for _ in range(calls)))

    async def leave(self) -> None:
        """Deletes all that there are."""
        names, self._names = self._names, []
        for first in range(0, len(names), MOST):
            with suppress(ApiError):  # what stays is scheduled like any other
                await self._pods.delete_batch([delete_request(name, LOAD) for name in names[first : first + MOST]])

    async def _trickle(self) -> None:
        while True:
            await self._create(TRICKLE)
            await asyncio.sleep(INTERVAL)

    async def _create(self, pods: int) -> None:
        names = [f"crowd-{next(self._numbers)}" for _ in range(pods)]
        self._names += names
        with suppress(ApiError):  # it is in the history
            await self._pods.create_batch([pod(LOAD, name) for name in names])


T = TypeVar("T")

POLL = 0.01
WAIT_TIMEOUT = 15.0
"""Seconds that anything may take that a scenario waits for."""


class PlayError(Exception):
    """Something that the scenario waited for did not happen: the run proves nothing. One line for a person. `moments`: what the
    scenario did and saw until then."""

    moments: Sequence[Moment] = ()


@dataclass(frozen=True, slots=True)
class Expectation:
    """One line of the verdict beside the invariants: what this scenario is about."""

    good: bool
    what: str
    figure: str


class Scenario(ABC):
    """`title` and `story` introduce it to people. `invariants`: those that it puts to the test; all are checked, these are
    shown. One object plays once."""

    name: ClassVar[str]
    title: ClassVar[str]
    story: ClassVar[str]
    spec: ClassVar[ClusterSpec]
    props: ClassVar[Props] = NO_PROPS
    invariants: ClassVar[tuple[str, ...]]

    @abstractmethod
    async def play(self, act: "Act") -> None:
        """Returns when the fault is undone. Raises PlayError, and what the world raises."""

    def history(self, folder: Path) -> list[Record]:
        """What is judged: what the folder of the run holds. Raises HistoryError, OSError."""
        return list(read(folder))

    @abstractmethod
    def judge(self, seen: History) -> list[Expectation]:
        """What the history says of that play, beside the invariants. Pure."""


class Act:
    """`moments`: what the scenario itself did or saw; the rest of the timeline comes from the history and the logs. `zero`: the
    moment of the first fault (monotonic seconds), to which all others are relative."""

    def __init__(self, on: Stage, load: Load, journal: Journal, client: Client, rng: random.Random) -> None:
        self.stage = on
        self.world = on.world
        self.cluster = on.cluster
        self.load = load
        self.client = client
        self.moments: list[Moment] = []
        self.watched: list[str] = []
        """The processes whose logs are part of the story."""
        self.zero = 0.0
        self._journal = journal
        self.random = rng
        self._faults = 0

    def saw(self, what: str) -> float:
        """Now; returns when that is."""
        self.moments.append(Moment(time.monotonic(), what))
        return self.moments[-1].at

    def since_zero(self, moments: Iterable[Moment]) -> list[Moment]:
        """In their order, with seconds after the first fault."""
        return [Moment(m.at - self.zero, m.what, m.hit) for m in sorted(moments, key=lambda m: m.at)]

    def did(self, what: str, at: float) -> None:
        """The first time is `zero`."""
        self.zero = self.zero or at
        self.moments.append(Moment(at, what, hit=True))

    @asynccontextmanager
    async def fault(self, kind: str, target: str, before: str, after: str = "") -> AsyncIterator[Fault]:
        """One of the kinds of `pinnace chaos faults`, on for as long as the context; `before` and `after` say what is done at
        its begin and its end."""
        async with self.hit(kind, target, KINDS[kind].make(self.world, target, self.random), before, after) as fault:
            yield fault

    @asynccontextmanager
    async def hit(self, name: str, target: str, fault: Fault, before: str, after: str = "") -> AsyncIterator[Fault]:
        """As `fault`, of any fault."""
        self._faults += 1
        number = self._faults
        began = time.monotonic()
        self._journal.write(history.Fault(number, name, target, began))
        self.did(before, began)
        await fault.begin()
        try:
            yield fault
        finally:
            ended = time.monotonic()
            await fault.end()
            if after:
                self.did(after, ended)
            self._journal.write(history.Fault(number, name, target, began, time.monotonic(), details=fault.details))
            for reading in fault.readings if isinstance(fault, Measuring) else ():
                self._journal.write(history.Observed(reading.at, number, *astuple(reading)[1:]))

    async def leader(self, after: int = 0) -> Election:
        """Who leads, once somebody does with a token later than `after`. Raises PlayError."""

        async def look() -> Election | None:
            with suppress(ApiError):
                found = await view.leader(self.client)
                return found if found and found.token > after else None
            return None

        return await self.until(look, "a scheduler to lead")

    async def binding(self, after: int = 0) -> Election:
        """Who leads with a token later than `after`, once it has bound one more pod than when it was first seen to lead: if the
        lead moves on meanwhile, its next holder is waited for. Raises PlayError."""
        before: dict[int, int] = {}  # by token

        async def look() -> Election | None:
            with suppress(ApiError):
                found = await view.leader(self.client)
                if found and found.token > after:
                    binds = await self.binds(found.holder, "bound")
                    return found if binds > before.setdefault(found.token, binds) else None
            return None

        return await self.until(look, "the leading scheduler to bind")

    async def ready(self, names: Iterable[str]) -> None:
        """Waits until these processes are. Raises PlayError."""
        records = [self.cluster.state.find(name) for name in names]

        async def look() -> bool:
            return await startup.readiness(records) is None

        await self.until(look, f"{', '.join(record.name for record in records)} to be ready")

    async def until(self, look: Callable[[], Awaitable[T | None]], what: str, patience: float = WAIT_TIMEOUT) -> T:
        """Asks again and again until the answer is a true one. Raises PlayError."""
        deadline = time.monotonic() + patience
        while not (found := await look()):
            if time.monotonic() > deadline:
                raise PlayError(f"waited {patience:g} s in vain for {what}")
            await asyncio.sleep(POLL)
        return found

    async def binds(self, name: str, result: str) -> int:
        """Binds of a scheduler that have ended so ("bound", "fenced"), by its own count; 0 while it does not answer."""
        with suppress(BenchError):
            http = self.cluster.state.find(name).plan.http
            return await usage.read_metric(http, "scheduler_bindings_total", result=result) or 0
        return 0

    async def fenced(self) -> int:
        """Binds that the fence has refused, by the API servers' count; without those of the adversary."""
        https = [record.plan.http for record in self.cluster.state.of(APISERVER)]
        counts = [await usage.read_metric(http, "apiserver_fenced_bindings_total") or 0 for http in https]
        return sum(counts) - sum(self.load.attempts[each] for each in ("fenced", "not_the_holder", "over"))

    async def etcd_leader(self, but: str) -> str | None:
        """The member that leads etcd, if it is another one."""
        with suppress(NotPossible, HelperError):
            found = await self.world.find(ETCD_LEADER)
            return found if found != but else None
        return None

    async def writable(self) -> None:
        """Waits until the recorder of etcd is told of something new. Raises PlayError."""
        before = self.stage.recorder.revision

        async def look() -> bool:
            return self.stage.recorder.revision > before

        await self.until(look, "etcd to take writes")

    async def logged(self, name: str, kind: type[LogEvent]) -> None:
        """Waits until a process has logged an event of the kind. Raises PlayError."""

        async def look() -> bool:
            return bool(of_kind(read_log(self.cluster.folder.log(name)), kind))

        await self.until(look, f"{name} to log {kind.name}")
