"""Many write the same few objects at once, through servers that die under them."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pinnace.chaos.load import pace
from pinnace.chaos.scenarios.base import Act, Expectation, Scenario
from pinnace.chaos.scenarios.figures import lost_answers, succeeded
from pinnace.chaos.workers import Rival
from pinnace.check.index import History
from pinnace.cluster.spec import APISERVER, ClusterSpec

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
