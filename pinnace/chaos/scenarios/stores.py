"""etcd loses its leader, its majority, or its past."""

import asyncio
import time
from contextlib import AsyncExitStack

from pinnace.api.elections_pb2 import Election
from pinnace.chaos.faults import storage
from pinnace.chaos.faults.table import KINDS
from pinnace.chaos.scenarios.base import Act, Expectation, Scenario
from pinnace.chaos.scenarios.crowd import Crowd
from pinnace.chaos.scenarios.figures import (
    broken_watches,
    calls_within,
    longest_gap,
    majority_again,
    milliseconds,
    slowest,
    stopped_unasked,
    succeeded,
    wait_for_bind,
)
from pinnace.chaos.stage import Props
from pinnace.chaos.world import ETCD_LEADER
from pinnace.check.index import History
from pinnace.cluster.spec import APISERVER, ELECTION, ETCD, ClusterSpec

SPEC = ClusterSpec(nodes=40, etcd_members=3)
ELECTING = 5.0
"""Seconds without a write at most when etcd's leader dies: its members wait for 0.5 to 1 s before they vote, and may
have to vote twice."""
BACK = 6.0
"""Seconds from the start of the member that makes a majority to the leader's first bind, at most. Most of it is etcd's: it
loads what it has (2 to 3 s on a slow machine), and votes as above; then a scheduler is elected, and binds in less than
a second."""
UNDER_WAY = 0.5
"""Seconds after the loss for which answers may still be on their way."""
ROOM_AGAIN = 10.0
"""Seconds from there being room on the disks to the leader's first bind, at most: members are started again, and vote."""
HANG = 3.5
"""Seconds that a call may take at most while etcd is away: the clients here give each 3 s."""


class EtcdLeader(Scenario):
    name = "etcd-leader"
    title = "etcd loses its leader"
    story = (
        "Three members hold the state. The two that are left must notice, vote, and go on; until then nothing can be written,\n"
        "and nobody is told otherwise."
    )
    spec = SPEC
    invariants = ("I1", "I3", "I4", "I5", "I6", "I7", "I8", "L1", "L2")

    def __init__(self) -> None:
        self._hit = self._over = 0.0

    async def play(self, act: Act) -> None:
        async with Crowd(act.load.client("crowd")):
            name = await act.world.find(ETCD_LEADER)
            act.watched += [(await act.leader()).holder]
            what = f"kill -9 {act.cluster.pid(name)}: {name}, which leads etcd"
            async with act.fault("kill-etcd-leader", name, what, f"{name} is started again"):
                self._hit = act.zero
                after = await act.until(lambda: act.etcd_leader(name), "etcd to have a leader again")
                act.saw(f"{after} leads etcd")
                await act.writable()
                act.saw("etcd takes writes again")
            await act.ready([name])
            self._over = act.saw(f"{name} has joined again")
            await act.binding()

    def judge(self, seen: History) -> list[Expectation]:
        gap = longest_gap((stored.at for stored in seen.stored), self._hit, self._over)
        return [Expectation(gap <= ELECTING, "longest time without a write", milliseconds(gap))]


class EtcdQuorum(Scenario):
    name = "etcd-quorum"
    title = "etcd loses its majority"
    story = (
        "Two of three members die. The one that is left may not write, and may not even read for certain. So nobody is\n"
        "answered as if all were well: calls fail, by their deadline at the latest. What runs goes on running."
    )
    spec = SPEC
    invariants = ("I1", "I3", "I4", "I5", "I6", "I7", "I8", "I11", "L1")

    def __init__(self, seconds: float = 6.0) -> None:
        self._seconds = seconds
        self._lost = self._healed = self._over = 0.0
        self._leader = Election()

    async def play(self, act: Act) -> None:
        async with Crowd(act.load.client("crowd")):
            act.watched += [(await act.leader()).holder]
            names = [record.name for record in act.cluster.state.of(ETCD)][:2]
            async with AsyncExitStack() as dead:
                for name in names:
                    what = f"kill -9 {act.cluster.pid(name)}: {name}"
                    await dead.enter_async_context(act.fault("kill-etcd-member", name, what, f"{name} is started again"))
                self._lost = act.moments[-1].at
                await asyncio.sleep(self._seconds)
                self._healed = time.monotonic()
            await act.writable()
            act.saw("etcd has been seen to take writes again")
            await act.ready(record.name for record in act.cluster.state.processes)
            self._over = act.saw("every process says that it is ready; none was restarted but etcd's own")
            self._leader = await act.binding()

    def judge(self, seen: History) -> list[Expectation]:
        calls = calls_within(seen, self._lost + UNDER_WAY, self._healed)
        answered, stopped = succeeded(calls), stopped_unasked(seen, self._lost, self._over)
        away = f"{len(calls)} calls in {self._healed - self._lost:.0f} s without a majority"
        bound = wait_for_bind(seen, ELECTION, self._leader.token, majority_again(seen))
        return [
            Expectation(answered == 0 and bool(calls), f"{away}: answered as if all were well", str(answered)),
            Expectation(slowest(calls) <= HANG, "the slowest of them failed after", milliseconds(slowest(calls))),
            Expectation(stopped == 0, "pods that were stopped, though nobody had deleted them", str(stopped)),
            Expectation(bound <= BACK, "from the start of a majority to the leader's first bind", milliseconds(bound)),
        ]


class FullDisk(Scenario):
    name = "full-disk"
    title = "etcd's disks are full"
    story = (
        "Each of three members has a disk of its own (a tmpfs: this needs root), and none has room left. Members may end.\n"
        "What etcd had acknowledged must be there when there is room again, and nothing else is started again."
    )
    spec = SPEC
    props = Props(disks=3)
    invariants = ("I1", "I3", "I4", "I5", "I6", "I7", "I8", "L1")

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._full = self._emptied = 0.0
        self._ended: list[str] = []
        self._leader = Election()

    async def play(self, act: Act) -> None:
        async with Crowd(act.load.client("crowd")):
            act.watched += [(await act.leader()).holder]
            members = [record.name for record in act.cluster.state.of(ETCD)]
            disks = storage.FullDisk(act.world, ETCD, act.random)
            async with act.hit("full-disk", ETCD, disks, "the disks of all members are full", "there is room again"):
                self._full = act.zero
                await asyncio.sleep(self._seconds)
            self._emptied, self._ended = act.moments[-1].at, disks.ended
            if self._ended:
                act.saw(f"{', '.join(self._ended)} had ended, and started again")
            await act.ready(members)
            await act.writable()
            act.saw("etcd has been seen to take writes")
            await act.ready(record.name for record in act.cluster.state.processes)
            act.saw("every process says that it is ready")
            self._leader = await act.binding()

    def judge(self, seen: History) -> list[Expectation]:
        writes = [call for call in calls_within(seen, self._full, self._emptied) if call.verb in ("create", "update", "delete")]
        bound = wait_for_bind(seen, ELECTION, self._leader.token, self._emptied)
        done = f"{succeeded(writes):,} of {len(writes):,}"
        return [
            Expectation(True, "members that ended for want of room", str(len(self._ended))),
            Expectation(True, "writes that were acknowledged meanwhile (each is accounted for)", done),
            Expectation(bound <= ROOM_AGAIN, "from there being room to the leader's first bind", milliseconds(bound)),
        ]


class CompactHistory(Scenario):
    name = "compact"
    title = "The past is removed from under a watch"
    story = (
        "An API server is cut off from etcd; the other one goes on. Meanwhile etcd's history is compacted: what the first\n"
        "server has missed is gone for ever. It must not pretend otherwise: its watches end, and begin anew."
    )
    spec = ClusterSpec(nodes=40)
    invariants = ("I1", "I6", "I7", "I8", "I9", "I12", "L1", "L2")

    def __init__(self) -> None:
        self._hit = 0.0

    async def play(self, act: Act) -> None:
        server, *_ = (record.name for record in act.cluster.state.of(APISERVER))
        async with Crowd(act.load.client("crowd")):
            what = f"{server} is cut off from etcd: connections reset, new ones refused"
            async with act.fault("reset-apiserver", server, what, f"{server} reaches etcd again"):
                self._hit = act.zero
                await asyncio.sleep(1.0)
                compact = KINDS["compact"].make(act.world, ETCD, act.random)
                async with act.hit("compact", ETCD, compact, "etcd's history is compacted, up to now"):
                    pass
                await asyncio.sleep(0.5)
            await act.ready([server])
            act.saw(f"{server} has loaded everything again, and serves")
            await asyncio.sleep(1.0)

    def judge(self, seen: History) -> list[Expectation]:
        expired = broken_watches(seen, self._hit, seen.phases["end"]).count("OUT_OF_RANGE")
        return [
            Expectation(expired > 0, "watches that were told that their past is gone, and began anew", str(expired)),
        ]
