"""Two kubelets say that they are the same one."""

import asyncio

from pinnace.chaos.scenarios.base import Act, Expectation, Scenario
from pinnace.chaos.scenarios.crowd import Crowd
from pinnace.chaos.scenarios.figures import lease_writes, longest_overlap, milliseconds
from pinnace.check.index import History
from pinnace.cluster.spec import KUBELET, ClusterSpec
from pinnace.runtime.log_events import NodesReclaimed, NodesYielded

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
