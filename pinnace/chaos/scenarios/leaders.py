"""The leading scheduler dies, freezes, or cannot make itself heard."""

import asyncio
import random

from pinnace.api.elections_pb2 import Election
from pinnace.chaos.faults.network import Muted
from pinnace.chaos.scenarios.base import Act, Expectation, Scenario
from pinnace.chaos.scenarios.crowd import Crowd
from pinnace.chaos.scenarios.figures import first_bind, milliseconds
from pinnace.check.index import History
from pinnace.client.errors import ApiError
from pinnace.cluster import procfs
from pinnace.cluster.spec import ELECTION, ClusterSpec

SPEC = ClusterSpec(nodes=100)
INVARIANTS = ("I1", "I2", "I3", "I4", "I5", "I8", "L1", "L2")
KILLED, UNHEARD = 1.0, 2.5
"""Seconds without a bind at most: after the leader's connection breaks, and after it falls silent (a second, to begin with).
More than it takes: the machine may be busy. `pinnace bench failover` is strict."""
ROUNDS = 4
"""How often a leader is frozen until one is caught between a decision and its bind."""
BACKLOG = 5
"""Bursts of pods that wait when the leader freezes."""
BUSY_POLL = 0.0005
WAKING = 1.5
"""Seconds for which a leader that was frozen or unheard is watched afterwards."""


class _Succession(Scenario):
    """From one leader to the next: what the three have in common."""

    limit = UNHEARD
    spec = SPEC
    invariants = INVARIANTS

    def __init__(self) -> None:
        self._old = self._new = Election()
        self._hit = 0.0
        self._refused = 0

    async def _succeeded(self, act: Act, old: Election) -> None:
        """Waits until another leads, and has bound."""
        self._old, self._hit = old, act.moments[-1].at
        act.watched.append(old.holder)
        self._new = await act.leader(after=old.token)
        before = await act.binds(self._new.holder, "bound")

        async def look() -> bool:
            return await act.binds(self._new.holder, "bound") > before

        await act.until(look, f"{self._new.holder} to bind")

    async def _refusals(self, act: Act, before: int) -> None:
        """Waits for binds of the old leader that the fence refuses, for a while. `before`: its count at the hit."""
        deadline = asyncio.get_running_loop().time() + WAKING
        while asyncio.get_running_loop().time() < deadline:
            refused = await act.binds(self._old.holder, "fenced") - before
            if refused > self._refused:
                self._refused = refused
                binds = "one bind" if refused == 1 else f"{refused} binds"
                act.saw(f"the fence has refused {binds} of {self._old.holder} with token {self._old.token}")
                return
            await asyncio.sleep(0)

    def judge(self, seen: History) -> list[Expectation]:
        bound = first_bind(seen, ELECTION, self._new.token)
        gap = bound - self._hit if bound else float("inf")
        return [
            Expectation(gap <= self.limit, "from the fault to the next leader's first bind", milliseconds(gap)),
            Expectation(self._refused > 0, "binds of the old leader refused by the fence", f"{self._refused:,}"),
        ]


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
                await self._succeeded(act, old)
                self._refused = int(await act.load.adversary.act_for(old.token))
                if self._refused:
                    act.saw(f"a bind in its name, with token {old.token}, is refused by the fence")
            await act.ready([old.holder])
            act.saw(f"{old.holder} is ready to lead, and stands by")


class FreezeLeader(_Succession):
    name = "freeze-leader"
    title = "The leader freezes, and wakes up later"
    story = (
        "Hundreds of pods wait when SIGSTOP hits it. Its connections stay open; it merely says nothing any more.\n"
        "When it wakes it does not know that time has passed: it sends the binds that it had decided on."
    )

    async def play(self, act: Act) -> None:
        async with Crowd(act.load.client("crowd")) as crowd:
            for _ in range(ROUNDS):
                await self._freeze(act, crowd)
                if self._refused:
                    break
                act.saw(f"{self._old.holder} had decided nothing that was not sent: once more")
                await crowd.leave()
            await act.ready([self._old.holder])
            await act.until(lambda: self._leads_again(act), f"{self._old.holder} to lead again")

    async def _leads_again(self, act: Act) -> bool:
        """Asks for it."""
        try:
            after = (await act.client.elections.transfer(ELECTION, self._old.holder)).after
        except ApiError:
            return False
        if after.holder == self._old.holder:
            act.saw(f"{after.holder} is asked to lead again, and does, with token {after.token}")
        return after.holder == self._old.holder

    async def _freeze(self, act: Act, crowd: Crowd) -> None:
        old = await act.leader()
        before, pid = await act.binds(old.holder, "fenced"), act.cluster.pid(old.holder)
        waiting = asyncio.create_task(crowd.burst(BACKLOG))
        await crowd.burst(1)
        await _at_work(pid)
        what = f"kill -STOP {pid}: {old.holder}, which leads with token {old.token}"
        async with act.fault(
            "freeze-leader", old.holder, what, f"kill -CONT {pid}: {old.holder} wakes, and believes that it leads"
        ):
            await self._succeeded(act, old)
            await waiting
        await self._refusals(act, before)


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
                await self._succeeded(act, old)
            await self._refusals(act, before)
            await act.ready([old.holder])
            act.saw(f"{old.holder} is ready to lead again, and stands by")


async def _at_work(pid: int) -> None:
    """Returns when the process is seen to run, and not to wait; or after a while."""
    deadline = asyncio.get_running_loop().time() + WAKING
    while asyncio.get_running_loop().time() < deadline:
        if procfs.on_cpu(pid):
            return
        await asyncio.sleep(BUSY_POLL)
