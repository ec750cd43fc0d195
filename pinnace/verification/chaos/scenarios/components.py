"""Scenarios with failing components: the leading scheduler is killed, frozen or partitioned, API servers are killed, and two
kubelets have the same name.
"""

import asyncio
import random
import time

from pinnace.api.elections_pb2 import Election
from pinnace.client.errors import ApiError
from pinnace.cluster.spec import APISERVER, ELECTION, KUBELET, ClusterSpec
from pinnace.runtime.logs import NodesReclaimed, NodesYielded
from pinnace.verification.chaos.cluster_under_test import ClusterUnderTest
from pinnace.verification.chaos.faults.processes import Freeze, OneWayPartition
from pinnace.verification.chaos.scenarios.base import BurstWriter, Scenario, ScenarioContext, ScenarioError, ScenarioExpectation
from pinnace.verification.chaos.scenarios.figures import (
    count_lease_acquisitions,
    count_lost_answers,
    find_first_bind,
    format_milliseconds,
    list_bind_times,
    list_broken_watches,
    measure_longest_gap,
    measure_longest_overlap,
)
from pinnace.verification.check.index import History

SPEC = ClusterSpec(nodes=100)
INVARIANTS = ("I1", "I2", "I3", "I4", "I5", "I8", "L1", "L2")
KILLED, UNHEARD = 1.0, 2.5
"""The maximum time without a bind in seconds, after the leader's connection is closed, and after it becomes silent (the
detection takes a second). The limits include a margin for a busy machine. `pinnace bench failover` measures precisely."""
BACKLOG = 4
"""The number of bursts of pods that wait when the leader is frozen."""
ROUNDS = 3
"""The maximum number of attempts to freeze a leader with requests in flight."""
IN_THE_CARD = 0.25
"""Seconds of the leader's requests that are in flight when it is frozen."""
WAKING, COUNTING = 2.0, 0.1
"""Seconds for which a resumed leader is observed, and between two observations."""
PAUSED = 3.0
"""The maximum time without a bind in seconds. The scheduler's streams break and are resumed on another server."""
WATCHING = 1.0
"""Seconds between the kill and the restart of an API server."""
TOGETHER = 2.0
"""Seconds for which both processes run after the newer one has taken over the nodes."""
LINGER = 2.0
"""The maximum number of seconds until the older process stops the nodes that it has lost."""
FLEET, TWIN = f"{KUBELET}-0", f"{KUBELET}-0.twin"


class _LeaderFailover(Scenario):
    """The common part of the failover scenarios."""

    limit = UNHEARD
    spec = SPEC
    invariants = INVARIANTS

    def __init__(self) -> None:
        self._old = self._new = Election()
        self._hit = 0.0
        self._refused = self._refused_there = 0

    async def _wait_for_successor(self, context: ScenarioContext, old: Election, hit: float) -> None:
        """Wait until another replica leads and has bound a pod. `hit`: the monotonic time of the fault."""
        self._old, self._hit = old, hit
        context.watched.append(old.holder)
        self._new = await context.wait_for_binding_leader(after=old.token)

    async def _wait_for_fenced_binds(self, context: ScenarioContext, before: int) -> None:
        """Wait for binds of the old leader that the fence rejects. `before`: its count before the fault."""
        loop = asyncio.get_running_loop()
        began, last = loop.time(), 0
        while loop.time() - began < WAKING and (not self._refused or self._refused > last):
            last, self._refused = (
                self._refused,
                max(await context.count_binds(self._old.holder, "fenced") - before, self._refused),
            )
            await asyncio.sleep(COUNTING)
        self._refused_there = await context.count_fenced_binds()
        if self._refused:
            binds = "one bind" if self._refused == 1 else f"{self._refused:,} binds"
            context.record_observation(f"the fence has rejected {binds} of {self._old.holder} with token {self._old.token}")

    def judge_history(self, seen: History) -> list[ScenarioExpectation]:
        bound = find_first_bind(seen, ELECTION, self._new.token)
        gap = bound - self._hit if bound else float("inf")
        return [
            ScenarioExpectation(gap <= self.limit, "from the fault to the next leader's first bind", format_milliseconds(gap)),
            ScenarioExpectation(self._refused > 0, "binds of the old leader rejected by the fence", self._show_counts()),
        ]

    def _show_counts(self) -> str:
        there = f"; {self._refused_there:,} counted by the API servers" if self._refused_there else ""
        return f"{self._refused:,}{there}"


class KillLeader(_LeaderFailover):
    name = "kill-leader"
    title = "The leader is killed"
    story = (
        "Pods are created continuously. The leader is killed with kill -9, and the kernel closes its connections.\n"
        "The API server with its session must detect this, and another scheduler must take over."
    )
    limit = KILLED

    async def run_scenario(self, context: ScenarioContext) -> None:
        async with BurstWriter(context.load.create_client("crowd")):
            old = await context.wait_for_leader()
            pid = context.cluster.pid(old.holder)
            what = f"kill -9 {pid}: {old.holder}, the leader with token {old.token}"
            async with context.inject_kind("kill-leader", old.holder, what, f"{old.holder} is restarted"):
                await self._wait_for_successor(context, old, context.zero)
                self._refused = int(await context.load.adversary.bind_with_deposed_fence(old.token))
                if self._refused:
                    context.record_observation(f"the fence rejects a bind with its token {old.token}")
            await context.wait_until_ready([old.holder])
            context.record_observation(f"{old.holder} is a ready standby")


class FreezeLeader(_LeaderFailover):
    name = "freeze-leader"
    title = "The leader is frozen and resumed"
    story = (
        "As in a migration of a virtual machine: SIGSTOP, with requests still in the network card. Its connections\n"
        "stay open. When it resumes, its binds arrive, and it does not know that it was replaced."
    )

    async def run_scenario(self, context: ScenarioContext) -> None:
        async with BurstWriter(context.load.create_client("crowd")) as burst_writer:
            for _ in range(ROUNDS):
                await self._freeze(context, burst_writer)
                if self._refused:
                    break
            await context.wait_until_ready([self._old.holder])
            await return_leadership(context, self._old.holder)

    async def _freeze(self, context: ScenarioContext, burst_writer: BurstWriter) -> None:
        old = await context.wait_for_leader()
        before, pid = await context.count_binds(old.holder, "fenced"), context.cluster.pid(old.holder)
        waiting = asyncio.create_task(burst_writer.create_bursts(BACKLOG))
        await burst_writer.create_bursts(1)
        what = f"requests of {old.holder} are held in its network card; it leads with token {old.token}"
        wakes = f"kill -CONT {pid}: {old.holder} resumes as if it were still leading"
        async with context.inject_fault(
            "freeze-leader", old.holder, _FrozenSchedulerWithLinks(context.under_test, old.holder), what, wakes
        ):
            hit = context.moments[-1].at
            context.record_action(f"kill -STOP {pid}: {old.holder} is frozen", time.monotonic())
            await self._wait_for_successor(context, old, hit)
            await waiting
        await self._wait_for_fenced_binds(context, before)


async def return_leadership(context: ScenarioContext, holder: str) -> None:
    """Transfer the leadership to this scheduler. The transfer is recorded, because it is the cause of a change of leadership.
    Raises ScenarioError."""
    async with context.inject_fault(
        "transfer-leader", holder, _TransferLeadership(context, holder), f"leadership is transferred back to {holder}"
    ):
        pass


class _TransferLeadership:
    """Transfers of the leadership to one scheduler until it leads."""

    def __init__(self, context: ScenarioContext, holder: str) -> None:
        self._context = context
        self._holder = holder
        self._last = ""
        """The result of the last transfer."""
        self.details = f"to {holder}"

    async def inject(self) -> None:
        """Raises ScenarioError with the result of the last transfer."""
        try:
            after = await self._context.poll_until(self._transfer, f"{self._holder} to lead")
        except ScenarioError as error:
            raise ScenarioError(f"{error}; the last transfer: {self._last}") from None
        self._context.record_observation(f"{self._holder} leads with token {after.token}")

    async def _transfer(self) -> Election | None:
        try:
            after = (await self._context.client.elections.transfer_leadership(ELECTION, self._holder)).after
        except ApiError as error:
            self._last = str(error)
            return None
        self._last = f"{after.holder or 'nobody'} leads"
        return after if after.holder == self._holder else None

    async def undo(self) -> None:
        """Nothing to undo."""


class _FrozenSchedulerWithLinks:
    """A frozen process whose last requests are held back, and arrive when it resumes."""

    def __init__(self, under_test: ClusterUnderTest, target: str) -> None:
        self._card = OneWayPartition(under_test, target, random.Random())
        self._process = Freeze(under_test, target, random.Random())
        self.details = target

    async def inject(self) -> None:
        await self._card.inject()
        await asyncio.sleep(IN_THE_CARD)
        await self._process.inject()

    async def undo(self) -> None:
        await self._process.undo()
        await self._card.undo()


class PartitionLeader(_LeaderFailover):
    name = "partition-leader"
    title = "The leader is partitioned in one direction"
    story = (
        "The leader receives new pods, schedules them and sends binds, but none of its requests arrive.\n"
        "When the partition heals, they all arrive: binds by a replica that no longer leads."
    )

    async def run_scenario(self, context: ScenarioContext) -> None:
        async with BurstWriter(context.load.create_client("crowd")):
            old = await context.wait_for_leader()
            before = await context.count_binds(old.holder, "fenced")
            muted = OneWayPartition(context.under_test, old.holder, random.Random())
            what = f"requests of {old.holder} are held; it leads with token {old.token}"
            async with context.inject_fault(
                "partition-scheduler", old.holder, muted, what, "the partition heals: the held requests arrive"
            ):
                await self._wait_for_successor(context, old, context.zero)
            await self._wait_for_fenced_binds(context, before)
            await context.wait_until_ready([old.holder])
            context.record_observation(f"{old.holder} is a ready standby")


class KillApiServer(Scenario):
    name = "kill-apiserver"
    title = "API servers are killed in turn"
    story = (
        "Each serves half of the clients, watches and sessions, including the leader's. Nothing may be lost:\n"
        "watches resume on another server, and the leader keeps its token, because it was not killed."
    )
    spec = ClusterSpec(nodes=100)
    invariants = ("I1", "I4", "I5", "I6", "I7", "I8", "I9", "I12", "L1", "L2")

    def __init__(self) -> None:
        self._before = self._after = Election()
        self._began = self._ended = 0.0

    async def run_scenario(self, context: ScenarioContext) -> None:
        async with BurstWriter(context.load.create_client("crowd")):
            self._before = await context.wait_for_leader()
            context.watched.append(self._before.holder)
            for record in context.cluster.state.processes_of(APISERVER):
                what = f"kill -9 {context.cluster.pid(record.name)}: {record.name}"
                async with context.inject_kind("kill-apiserver", record.name, what, f"{record.name} is restarted"):
                    await asyncio.sleep(WATCHING)
                await context.wait_until_ready([record.name])
                context.record_observation(f"{record.name} serves again")
            self._began, self._ended = context.zero, context.moments[-1].at
            self._after = await context.wait_for_leader()

    def judge_history(self, seen: History) -> list[ScenarioExpectation]:
        kept = self._before.token == self._after.token
        gap = measure_longest_gap(list_bind_times(seen, ELECTION), self._began, self._ended)
        tokens = f"{self._before.token} before, {self._after.token} after"
        moved = len(list_broken_watches(seen, self._began, self._ended))
        return [
            ScenarioExpectation(kept, f"{self._before.holder} keeps leadership: token", tokens),
            ScenarioExpectation(gap <= PAUSED, "longest time without a bind", format_milliseconds(gap)),
            ScenarioExpectation(moved > 0, "watches that broke and were resumed", str(moved)),
            ScenarioExpectation(True, "calls with an unknown outcome (all are accounted for)", str(count_lost_answers(seen))),
        ]


class DuplicateKubelet(Scenario):
    name = "duplicate-kubelet"
    title = "Two kubelets with the same name"
    story = (
        "A second kubelet is started with the name and nodes of the first. The newer session must take over the nodes\n"
        "once, and the older process must stop them. When the newer one is killed, the older one takes over again."
    )
    spec = ClusterSpec(nodes=20, kubelets=2)
    invariants = ("I1", "I5", "I10", "I11", "I13", "L1", "L2")

    def __init__(self) -> None:
        self._began = self._ended = 0.0

    async def run_scenario(self, context: ScenarioContext) -> None:
        async with BurstWriter(context.load.create_client("crowd")):
            context.watched += [FLEET, TWIN]
            what = f"a second {FLEET} is started for the same nodes"
            async with context.inject_kind("twin-kubelet", FLEET, what, "the second one is killed"):
                self._began = context.zero
                await context.wait_for_log_event(FLEET, NodesYielded)
                await asyncio.sleep(TOGETHER)
            self._ended = context.moments[-1].at
            await context.wait_for_log_event(FLEET, NodesReclaimed)

    def judge_history(self, seen: History) -> list[ScenarioExpectation]:
        moves = max(count_lease_acquisitions(seen, self._began, self._ended).values(), default=0)
        both = measure_longest_overlap(seen, self._began, self._ended)
        return [
            ScenarioExpectation(moves == 1, "times that a node changed its holder while both were running", str(moves)),
            ScenarioExpectation(
                both <= LINGER, "until the older one stopped the nodes of the newer one", format_milliseconds(both)
            ),
        ]
