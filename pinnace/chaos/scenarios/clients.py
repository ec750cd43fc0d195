"""Scenarios in which clients do harm: one user floods a server or creates hostile pods, and many writers race for the same
objects."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pinnace.api.elections_pb2 import Election
from pinnace.bench.flood import NOBODY, STRANGER
from pinnace.chaos.faults.clients import Flood, HostilePods
from pinnace.chaos.hostile_pods import HOSTILE
from pinnace.chaos.load import BYSTANDER, pace
from pinnace.chaos.scenarios.base import Act, Expectation, Scenario
from pinnace.chaos.scenarios.figures import binds, calls_within, longest_gap, lost_answers, milliseconds, nine_of_ten, succeeded
from pinnace.chaos.workers import Rival
from pinnace.check.index import History
from pinnace.cluster.spec import APISERVER, ELECTION, SCHEDULER, ClusterSpec

ANSWERED = 1.0
"""Seconds for nine of ten reads of another user, at most."""
BOUND = 5.0
"""Seconds without a bind, at most."""
QUIET, FLOODED, HARMED = 3.0, 6.0, 4.0
"""Seconds: before anything is done; of each flood; beside each few hostile pods."""


class _Harm(Scenario):
    """What both have in common: the leader stays, pods are bound, and another user is answered."""

    invariants = ("I1", "I2", "I3", "I4", "I5", "I7", "L1", "L2", "L3", "L4")

    def __init__(self) -> None:
        self._before = self._after = Election()
        self._began = self._hit = self._ended = 0.0

    async def play(self, act: Act) -> None:
        self._before = await act.binding()
        self._began = act.saw(f"{self._before.holder} leads with token {self._before.token}, and binds")
        act.watched.append(self._before.holder)
        await asyncio.sleep(QUIET)
        await self._harm(act)
        self._hit, self._ended = act.zero, act.moments[-1].at
        self._after = await act.leader()

    async def _harm(self, act: Act) -> None:
        raise NotImplementedError

    def judge(self, seen: History) -> list[Expectation]:
        def usual(since: float, until: float) -> float:
            return nine_of_ten(call for call in calls_within(seen, since, until) if call.client == BYSTANDER)

        quiet, harmed = usual(self._began, self._hit), usual(self._hit, self._ended)
        gap = longest_gap(binds(seen, ELECTION), self._hit, self._ended)
        kept = self._before.token == self._after.token
        tokens = f"{self._before.token} before, {self._after.token} after"
        figures = f"{milliseconds(harmed)}, {milliseconds(quiet)} before"
        return [
            Expectation(kept, f"{self._before.holder} leads all the time: its token", tokens),
            Expectation(harmed <= ANSWERED, "nine of ten reads of another user are answered within", figures),
            Expectation(gap <= BOUND, "longest time without a bind", milliseconds(gap)),
        ]


class FloodWithoutRights(_Harm):
    name = "flood"
    title = "Callers without rights flood an API server"
    story = (
        "First a user with a certificate and no role, then a caller without a token. Each keeps 2,000 calls open, of every\n"
        "method of every service that the server names, and begins a new one as soon as one is refused."
    )
    spec = ClusterSpec(nodes=40)

    async def _harm(self, act: Act) -> None:
        (target, *_) = (record.name for record in act.cluster.state.of(APISERVER))
        for who in (STRANGER, NOBODY):
            flood = Flood(act.world, target, act.random, who)
            async with act.hit("flood", target, flood, f"a {who} floods {target}", "the flood ends"):
                act.saw(flood.details)
                await asyncio.sleep(FLOODED)
            act.saw("the flood's calls have ended")


class Hostile(_Harm):
    name = "hostile-pods"
    title = "Pods as costly as a pod can be"
    story = (
        "A user that may create pods in one namespace creates pods at the limit of what is valid: thousands of terms,\n"
        "constraints, ports, volumes. All kinds, a few at a time. Other pods must be scheduled beside them."
    )
    spec = ClusterSpec(nodes=100)

    async def _harm(self, act: Act) -> None:
        kinds = sorted(HOSTILE)
        act.random.shuffle(kinds)
        for first in range(0, len(kinds), 3):
            few = kinds[first : first + 3]
            what = f"hostile pods: {'; '.join(few)}"
            async with act.hit("hostile-pods", SCHEDULER, HostilePods(act.world, SCHEDULER, act.random, few), what):
                await asyncio.sleep(HARMED)
        act.saw("all hostile pods are gone")


WRITERS, OBJECTS = 64, 100
KILLS = 8
RATE = 3.0
"""Steps a second of each of them: together as many as a machine with two cores can take, beside the steady load."""
DEAD, ALIVE = 1.0, 2.0
"""Seconds for which a server is dead, and for which both live between two deaths."""
NAME = "racer"


class RacingWriters(Scenario):
    name = "racing-writers"
    title = "Everybody writes the same objects"
    story = (
        f"{WRITERS} clients create, read, count up, overwrite and delete the same {OBJECTS} pods without asking each other,\n"
        "while API servers are killed in turn. No count may be lost, no answer may be a lie."
    )
    spec = ClusterSpec(nodes=20)
    invariants = ("I5", "I6", "I7", "I8")

    async def play(self, act: Act) -> None:
        servers = act.cluster.state.of(APISERVER)
        async with _racing(act):
            for turn in range(KILLS):
                record = servers[turn % len(servers)]
                what = f"kill -9 {act.cluster.pid(record.name)}: {record.name}"
                async with act.fault("kill-apiserver", record.name, what, f"{record.name} is started again"):
                    await asyncio.sleep(DEAD)
                await act.ready([record.name])
                await asyncio.sleep(ALIVE)

    def judge(self, seen: History) -> list[Expectation]:
        calls = [call for call in seen.calls if call.client.startswith(NAME)]
        writes = [call for call in calls if call.verb in ("create", "update", "delete")]
        refused = sum(call.outcome == "refused" and call.code in ("ABORTED", "ALREADY_EXISTS") for call in writes)
        return [
            Expectation(len(writes) > 0, "writes by those who race", f"{len(writes):,}, {succeeded(writes):,} of them done"),
            Expectation(refused > 0, "writes refused because somebody else was faster", f"{refused:,}"),
            Expectation(True, "calls whose answer was lost (each is accounted for)", str(lost_answers(seen))),
        ]


@asynccontextmanager
async def _racing(act: Act) -> AsyncIterator[None]:
    """They race within the context."""
    racers = [Rival(act.load.client(f"{NAME}-{i}"), random.Random(act.random.random()), OBJECTS) for i in range(WRITERS)]
    running = [asyncio.create_task(pace(racer, RATE, act.random.random() / RATE)) for racer in racers]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
