"""Scenarios with harmful clients: a user floods a server or creates hostile pods, and many writers update the same objects
concurrently."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pinnace.api.elections_pb2 import Election
from pinnace.cluster.spec import APISERVER, ELECTION, SCHEDULER, ClusterSpec
from pinnace.verification.bench.flood import NOBODY, STRANGER
from pinnace.verification.chaos.faults.clients import CallFloodFault, HostilePods
from pinnace.verification.chaos.hostile_pods import HOSTILE
from pinnace.verification.chaos.load import BYSTANDER, run_at_rate
from pinnace.verification.chaos.scenarios.base import Scenario, ScenarioContext, ScenarioExpectation
from pinnace.verification.chaos.scenarios.figures import (
    count_lost_answers,
    count_succeeded_calls,
    format_milliseconds,
    list_bind_times,
    measure_longest_gap,
    measure_ninetieth_percentile,
    select_calls,
)
from pinnace.verification.chaos.workers import ContestingWriter
from pinnace.verification.check.index import History

ANSWERED = 1.0
"""The maximum 90th percentile of the latency of another user's reads, in seconds."""
BOUND = 5.0
"""The maximum time without a bind in seconds."""
QUIET, FLOODED, HARMED = 3.0, 6.0, 4.0
"""Durations in seconds: before the fault, of each flood, and of each group of hostile pods."""
WRITERS, OBJECTS = 64, 100
KILLS = 8
RATE = 3.0
"""Steps per second of each writer. In total, as many as a machine with two cores can process in addition to the regular
load."""
DEAD, ALIVE = 1.0, 2.0
"""Seconds for which a server is down, and between two kills."""
NAME = "racer"


class _HarmlessAttack(Scenario):
    """The common part of both scenarios: leadership does not move, pods are bound, and another user receives responses."""

    invariants = ("I1", "I2", "I3", "I4", "I5", "I7", "L1", "L2", "L3", "L4")

    def __init__(self) -> None:
        self._before = self._after = Election()
        self._began = self._hit = self._ended = 0.0

    async def run_scenario(self, context: ScenarioContext) -> None:
        self._before = await context.wait_for_binding_leader()
        self._began = context.record_observation(f"{self._before.holder} leads with token {self._before.token} and binds pods")
        context.watched.append(self._before.holder)
        await asyncio.sleep(QUIET)
        await self._start_harm(context)
        self._hit, self._ended = context.zero, context.moments[-1].at
        self._after = await context.wait_for_leader()

    async def _start_harm(self, context: ScenarioContext) -> None:
        raise NotImplementedError

    def judge_history(self, seen: History) -> list[ScenarioExpectation]:
        def usual(since: float, until: float) -> float:
            return measure_ninetieth_percentile(call for call in select_calls(seen, since, until) if call.client == BYSTANDER)

        quiet, harmed = usual(self._began, self._hit), usual(self._hit, self._ended)
        gap = measure_longest_gap(list_bind_times(seen, ELECTION), self._hit, self._ended)
        kept = self._before.token == self._after.token
        tokens = f"{self._before.token} before, {self._after.token} after"
        figures = f"{format_milliseconds(harmed)}, {format_milliseconds(quiet)} before"
        return [
            ScenarioExpectation(kept, f"{self._before.holder} keeps leadership: token", tokens),
            ScenarioExpectation(harmed <= ANSWERED, "90th percentile of another user's read latency", figures),
            ScenarioExpectation(gap <= BOUND, "longest time without a bind", format_milliseconds(gap)),
        ]


class FloodWithoutRights(_HarmlessAttack):
    name = "flood"
    title = "Callers without permissions flood an API server"
    story = (
        "First a user with a certificate and no role, then a caller without a token. Each keeps 2,000 calls open to all\n"
        "methods of all services, and starts a new call as soon as one is refused."
    )
    spec = ClusterSpec(nodes=40)

    async def _start_harm(self, context: ScenarioContext) -> None:
        (target, *_) = (record.name for record in context.cluster.state.processes_of(APISERVER))
        for who in (STRANGER, NOBODY):
            flood = CallFloodFault(context.under_test, target, context.random, who)
            async with context.inject_fault("flood", target, flood, f"a {who} floods {target}", "the flood ends"):
                context.record_observation(flood.details)
                await asyncio.sleep(FLOODED)
            context.record_observation("the flood's calls have ended")


class HostilePodsScenario(_HarmlessAttack):
    name = "hostile-pods"
    title = "Pods with the maximum cost"
    story = (
        "A user with permission to create pods in one namespace creates pods at the limits of validation: thousands of terms,\n"
        "constraints, ports or volumes, a few kinds at a time. Other pods must still be scheduled."
    )
    spec = ClusterSpec(nodes=100)

    async def _start_harm(self, context: ScenarioContext) -> None:
        kinds = sorted(HOSTILE)
        context.random.shuffle(kinds)
        for first in range(0, len(kinds), 3):
            few = kinds[first : first + 3]
            what = f"hostile pods: {'; '.join(few)}"
            async with context.inject_fault(
                "hostile-pods", SCHEDULER, HostilePods(context.under_test, SCHEDULER, context.random, few), what
            ):
                await asyncio.sleep(HARMED)
        context.record_observation("all hostile pods are deleted")


class RacingWriters(Scenario):
    name = "racing-writers"
    title = "Many writers update the same objects"
    story = (
        f"{WRITERS} clients create, read, increment, overwrite and delete the same {OBJECTS} pods without coordination,\n"
        "while API servers are killed in turn. No increment may be lost, and no response may be wrong."
    )
    spec = ClusterSpec(nodes=20)
    invariants = ("I5", "I6", "I7", "I8")

    async def run_scenario(self, context: ScenarioContext) -> None:
        servers = context.cluster.state.processes_of(APISERVER)
        async with _run_racing_writers(context):
            for turn in range(KILLS):
                record = servers[turn % len(servers)]
                what = f"kill -9 {context.cluster.pid(record.name)}: {record.name}"
                async with context.inject_kind("kill-apiserver", record.name, what, f"{record.name} is restarted"):
                    await asyncio.sleep(DEAD)
                await context.wait_until_ready([record.name])
                await asyncio.sleep(ALIVE)

    def judge_history(self, seen: History) -> list[ScenarioExpectation]:
        calls = [call for call in seen.calls if call.client.startswith(NAME)]
        writes = [call for call in calls if call.verb in ("create", "update", "delete")]
        refused = sum(call.outcome == "refused" and call.code in ("ABORTED", "ALREADY_EXISTS") for call in writes)
        return [
            ScenarioExpectation(
                len(writes) > 0, "concurrent writes", f"{len(writes):,}, {count_succeeded_calls(writes):,} succeeded"
            ),
            ScenarioExpectation(refused > 0, "writes rejected because of a concurrent write", f"{refused:,}"),
            ScenarioExpectation(True, "calls with an unknown outcome (all are accounted for)", str(count_lost_answers(seen))),
        ]


@asynccontextmanager
async def _run_racing_writers(context: ScenarioContext) -> AsyncIterator[None]:
    """Run the writers for the duration of the context."""
    racers = [
        ContestingWriter(context.load.create_client(f"{NAME}-{i}"), random.Random(context.random.random()), OBJECTS)
        for i in range(WRITERS)
    ]
    running = [asyncio.create_task(run_at_rate(racer, RATE, context.random.random() / RATE)) for racer in racers]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
