"""Scenarios in which a component fails: the leading scheduler dies, freezes or is cut off, API servers die, and two kubelets
have the same name.
"""

import asyncio
import random
import time

from pinnace.api.elections_pb2 import Election
from pinnace.chaos.faults.processes import Freeze, Muted
from pinnace.chaos.scenarios.base import Act, Crowd, Expectation, Scenario
from pinnace.chaos.scenarios.figures import (
    binds,
    broken_watches,
    first_bind,
    lease_writes,
    longest_gap,
    longest_overlap,
    lost_answers,
    milliseconds,
)
from pinnace.chaos.world import World
from pinnace.check.index import History
from pinnace.client.errors import ApiError
from pinnace.cluster.spec import APISERVER, ELECTION, KUBELET, ClusterSpec
from pinnace.runtime.logs import NodesReclaimed, NodesYielded

SPEC = ClusterSpec(nodes=100)
INVARIANTS = ("I1", "I2", "I3", "I4", "I5", "I8", "L1", "L2")
KILLED, UNHEARD = 1.0, 2.5
"""Seconds without a bind at most: after the leader's connection breaks, and after it falls silent (a second, to begin with).
More than it takes: the machine may be busy. `pinnace bench failover` is strict."""
BACKLOG = 4
"""Bursts of pods that wait when the leader freezes."""
ROUNDS = 3
"""How often a leader is frozen until one had anything on its way."""
IN_THE_CARD = 0.25
"""Seconds' worth of what the leader sends that is on its way when it freezes."""
WAKING, COUNTING = 2.0, 0.1
"""Seconds for which a leader that was frozen or unheard is watched afterwards, and between looks."""


class _Succession(Scenario):
    """From one leader to the next: what the three have in common."""

    limit = UNHEARD
    spec = SPEC
    invariants = INVARIANTS

    def __init__(self) -> None:
        self._old = self._new = Election()
        self._hit = 0.0
        self._refused = self._refused_there = 0

    async def _succeeded(self, act: Act, old: Election, hit: float) -> None:
        """Waits until another leads, and has bound. `hit`: when it was (monotonic seconds)."""
        self._old, self._hit = old, hit
        act.watched.append(old.holder)
        self._new = await act.binding(after=old.token)

    async def _refusals(self, act: Act, before: int) -> None:
        """Waits for binds of the old leader that the fence refuses, for a while. `before`: its count at the hit."""
        loop = asyncio.get_running_loop()
        began, last = loop.time(), 0
        while loop.time() - began < WAKING and (not self._refused or self._refused > last):
            last, self._refused = self._refused, max(await act.binds(self._old.holder, "fenced") - before, self._refused)
            await asyncio.sleep(COUNTING)
        self._refused_there = await act.fenced()
        if self._refused:
            binds = "one bind" if self._refused == 1 else f"{self._refused:,} binds"
            act.saw(f"so far the fence has refused {binds} of {self._old.holder} with token {self._old.token}")

    def judge(self, seen: History) -> list[Expectation]:
        bound = first_bind(seen, ELECTION, self._new.token)
        gap = bound - self._hit if bound else float("inf")
        return [
            Expectation(gap <= self.limit, "from the fault to the next leader's first bind", milliseconds(gap)),
            Expectation(self._refused > 0, "binds of the old leader refused by the fence", self._counts()),
        ]

    def _counts(self) -> str:
        there = f"; {self._refused_there:,} by the API servers' count" if self._refused_there else ""
        return f"{self._refused:,}{there}"


class KillLeader(_Succession):
    name = "kill-leader"
    title = "The leader dies"
    story = (
        "Pods come in all the while. Nothing is announced: kill -9, and the kernel closes its connections.\n"
        "The API server that held its session must notice, and another scheduler must go on where it stopped."
    )
    limit = KILLED

    async def play(self, act: Act) -> None:
        async with Crowd(act.load.client("crowd")):
            old = await act.leader()
            pid = act.cluster.pid(old.holder)
            what = f"kill -9 {pid}: {old.holder}, which leads with token {old.token}"
            async with act.fault("kill-leader", old.holder, what, f"{old.holder} is started again"):
                await self._succeeded(act, old, act.zero)
                self._refused = int(await act.load.adversary.act_for(old.token))
                if self._refused:
                    act.saw(f"a bind in its name, with token {old.token}, is refused by the fence")
            await act.ready([old.holder])
            act.saw(f"{old.holder} is ready to lead, and stands by")


class FreezeLeader(_Succession):
    name = "freeze-leader"
    title = "The leader freezes, and wakes up later"
    story = (
        "As when a virtual machine is moved: SIGSTOP, and what it has just sent is still in its network card. Its connections\n"
        "stay open. When it wakes, its binds arrive, and nothing has told it that it was replaced."
    )

    async def play(self, act: Act) -> None:
        async with Crowd(act.load.client("crowd")) as crowd:
            for _ in range(ROUNDS):
                await self._freeze(act, crowd)
                if self._refused:
                    break
            await act.ready([self._old.holder])
            await act.until(lambda: self._leads_again(act), f"{self._old.holder} to lead again")

    async def _freeze(self, act: Act, crowd: Crowd) -> None:
        old = await act.leader()
        before, pid = await act.binds(old.holder, "fenced"), act.cluster.pid(old.holder)
        waiting = asyncio.create_task(crowd.burst(BACKLOG))
        await crowd.burst(1)
        what = f"what {old.holder} sends stays in its network card; it leads with token {old.token}"
        wakes = f"kill -CONT {pid}: {old.holder} wakes, and believes that it leads"
        async with act.hit("freeze-leader", old.holder, _FrozenMachine(act.world, old.holder), what, wakes):
            hit = act.moments[-1].at
            act.did(f"kill -STOP {pid}: {old.holder} stands still", time.monotonic())
            await self._succeeded(act, old, hit)
            await waiting
        await self._refusals(act, before)

    async def _leads_again(self, act: Act) -> bool:
        """Asks for it."""
        try:
            after = (await act.client.elections.transfer(ELECTION, self._old.holder)).after
        except ApiError:
            return False
        if after.holder == self._old.holder:
            act.saw(f"{after.holder} is asked to lead again, and does, with token {after.token}")
        return after.holder == self._old.holder


class _FrozenMachine:
    """A process stands still, and what it sent in the last moments arrives when it goes on."""

    def __init__(self, world: World, target: str) -> None:
        self._card = Muted(world, target, random.Random())
        self._process = Freeze(world, target, random.Random())
        self.details = target

    async def begin(self) -> None:
        await self._card.begin()
        await asyncio.sleep(IN_THE_CARD)
        await self._process.begin()

    async def end(self) -> None:
        await self._process.end()
        await self._card.end()


class PartitionLeader(_Succession):
    name = "partition-leader"
    title = "The leader cannot make itself heard"
    story = (
        "A partition in one direction: it sees new pods, decides, and sends binds, but nothing that it sends arrives.\n"
        "When the partition heals, all of it does: binds by somebody who does not lead any more."
    )

    async def play(self, act: Act) -> None:
        async with Crowd(act.load.client("crowd")):
            old = await act.leader()
            before = await act.binds(old.holder, "fenced")
            muted = Muted(act.world, old.holder, random.Random())
            what = f"nothing that {old.holder} sends arrives any more; it leads with token {old.token}"
            async with act.hit("partition-scheduler", old.holder, muted, what, "the partition heals: what it has sent arrives"):
                await self._succeeded(act, old, act.zero)
            await self._refusals(act, before)
            await act.ready([old.holder])
            act.saw(f"{old.holder} is ready to lead again, and stands by")


PAUSED = 3.0
"""Seconds without a bind at most: the scheduler's streams break, and go on elsewhere."""
WATCHING = 1.0
"""Seconds from the death of an API server until it is started again."""


class KillApiServer(Scenario):
    name = "kill-apiserver"
    title = "API servers die, one after the other"
    story = (
        "Each holds half of the clients, watches and sessions; one of them holds the leader's. Nobody may lose anything:\n"
        "watches go on elsewhere where they were, and the leader keeps its token, since it is not the one that died."
    )
    spec = ClusterSpec(nodes=100)
    invariants = ("I1", "I4", "I5", "I6", "I7", "I8", "I9", "I12", "L1", "L2")

    def __init__(self) -> None:
        self._before = self._after = Election()
        self._began = self._ended = 0.0

    async def play(self, act: Act) -> None:
        async with Crowd(act.load.client("crowd")):
            self._before = await act.leader()
            act.watched.append(self._before.holder)
            for record in act.cluster.state.of(APISERVER):
                what = f"kill -9 {act.cluster.pid(record.name)}: {record.name}"
                async with act.fault("kill-apiserver", record.name, what, f"{record.name} is started again"):
                    await asyncio.sleep(WATCHING)
                await act.ready([record.name])
                act.saw(f"{record.name} serves again")
            self._began, self._ended = act.zero, act.moments[-1].at
            self._after = await act.leader()

    def judge(self, seen: History) -> list[Expectation]:
        kept = self._before.token == self._after.token
        gap = longest_gap(binds(seen, ELECTION), self._began, self._ended)
        tokens = f"{self._before.token} before, {self._after.token} after"
        moved = len(broken_watches(seen, self._began, self._ended))
        return [
            Expectation(kept, f"{self._before.holder} leads all the time: its token", tokens),
            Expectation(gap <= PAUSED, "longest time without a bind", milliseconds(gap)),
            Expectation(moved > 0, "watches that broke and were resumed", str(moved)),
            Expectation(True, "calls whose answer was lost (each is accounted for)", str(lost_answers(seen))),
        ]


TOGETHER = 2.0
"""Seconds for which both are there once the newer one has taken over from the older."""
LINGER = 2.0
"""Seconds at most until the older one knows that it has lost them."""
FLEET, TWIN = f"{KUBELET}-0", f"{KUBELET}-0.twin"


class DuplicateKubelet(Scenario):
    name = "duplicate-kubelet"
    title = "Two kubelets with one name"
    story = (
        "Somebody starts a second kubelet under the name of the first, for the same nodes. The newer session must evict the\n"
        "older one, once, and the older one must stop what the newer one runs now. When that dies, the older one takes over."
    )
    spec = ClusterSpec(nodes=20, kubelets=2)
    invariants = ("I1", "I5", "I10", "I11", "I13", "L1", "L2")

    def __init__(self) -> None:
        self._began = self._ended = 0.0

    async def play(self, act: Act) -> None:
        async with Crowd(act.load.client("crowd")):
            act.watched += [FLEET, TWIN]
            what = f"a second {FLEET} is started, for the same nodes"
            async with act.fault("twin-kubelet", FLEET, what, "the second one is killed"):
                self._began = act.zero
                await act.logged(FLEET, NodesYielded)
                await asyncio.sleep(TOGETHER)
            self._ended = act.moments[-1].at
            await act.logged(FLEET, NodesReclaimed)

    def judge(self, seen: History) -> list[Expectation]:
        moves = max(lease_writes(seen, self._began, self._ended).values(), default=0)
        both = longest_overlap(seen, self._began, self._ended)
        return [
            Expectation(moves == 1, "times that a node changed hands while both were there", str(moves)),
            Expectation(both <= LINGER, "until the older one had stopped what the newer one runs", milliseconds(both)),
        ]
