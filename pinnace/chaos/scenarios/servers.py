"""An API server dies; its clients, the leader among them, go on with another one."""

import asyncio

from pinnace.api.elections_pb2 import Election
from pinnace.chaos.scenarios.base import Act, Expectation, Scenario
from pinnace.chaos.scenarios.crowd import Crowd
from pinnace.chaos.scenarios.figures import binds, broken_watches, longest_gap, lost_answers, milliseconds
from pinnace.check.index import History
from pinnace.cluster.spec import APISERVER, ELECTION, ClusterSpec

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
