"""The leading scheduler dies, freezes, or cannot make itself heard."""

import asyncio
import random
import time

from pinnace.api.elections_pb2 import Election
from pinnace.chaos.faults.network import Muted
from pinnace.chaos.faults.processes import Freeze
from pinnace.chaos.scenarios.base import Act, Expectation, Scenario
from pinnace.chaos.scenarios.crowd import Crowd
from pinnace.chaos.scenarios.figures import first_bind, milliseconds
from pinnace.chaos.world import World
from pinnace.check.index import History
from pinnace.client.errors import ApiError
from pinnace.cluster.spec import ELECTION, ClusterSpec

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
