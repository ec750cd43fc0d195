"""Binding, beside the cycle: decisions are collected, and sent in batches under the leader's fence.

    submit --> pending --batch--> in flight --> BOUND      the informer will confirm it
      |         ^    ^               |          FENCED     stand down
      v         |    |               |          GONE       forget
    plugins ----'    |               +--------> REFUSED, UNKNOWN: in doubt
    (binding_cycles) |                             |
                     |                           read the pod:  bound: leave it to the informer
                     +-- still unbound, and UNKNOWN --+         gone, another uid: forget
                                                      +-------- still unbound, and REFUSED: forget, queue again

* While a bind is pending, in flight or in doubt the pod stays assumed; no timer forgets it.
* A bind whose outcome is unknown is sent again only to the same node. Whichever of the two commits (only one can: a bind
  compares the empty nodeName), the pod is where the cache counts it.
* At most IN_FLIGHT batches are on their way, so that a slow server sees larger batches and not more of them.
* Pods for which no plugin waits in Permit, PreBinds or Binds go straight to the batches: no task, no plugin is called for them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from pinnace.api.core_v1_pb2 import Binding, Pod
from pinnace.api.pods_pb2 import Fence
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.errors import ApiError, NotFound
from pinnace.client.resource import errors_of
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import unending
from scheduler import metrics
from scheduler.binding_cycles import BindingCycles
from scheduler.cache.cache import Cache
from scheduler.decision import Decision, Outcomes
from scheduler.verdict import Verdict, verdict

log = logging.getLogger(__name__)

BATCH = 256
IN_FLIGHT = 4
MAX_PENDING = 4 * BATCH
"""Decisions that wait to be sent; with more, the scheduling cycle pauses."""
RESOLVE_DELAY = 0.1
"""Seconds between looks at the binds in doubt."""
STUCK = 60.0
"""Seconds after which a batch must have been answered, or given up."""
RESOLVING = 32
"""Of which so many are looked at together."""


class Pods(Protocol):
    """What the binder needs of pinnace.client.client.PodClient."""

    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> list[BatchItem]: ...
    async def get(self, name: str, namespace: str = "") -> Pod: ...


class Binder:
    def __init__(
        self, pods: Pods, cache: Cache, outcomes: Outcomes, fence_of: Callable[[int], Fence], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """`fence_of`: the fence of the term with a token, as Candidate's."""
        self._pods = pods
        self._cache = cache
        self._outcomes = outcomes
        self._fence_of = fence_of
        self._clock = clock
        self._token: int | None = None
        self._pending: deque[Decision] = deque()
        self._doubts: list[tuple[Decision, Verdict, str]] = []
        self._sending: dict[int, float] = {}
        """Since when, by the number of each batch that is under way."""
        self._sent = 0
        self._work = asyncio.Event()
        self._doubtful = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._cycles = BindingCycles(outcomes, fence_of, self, clock=clock)
        self.waiting = self._cycles.waiting
        """The pods that wait in Permit."""

        self.call_off = self._cycles.call_off
        self.is_called_off = self._cycles.is_called_off
        self.slow = self._cycles.slow

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    def stuck(self, now: float) -> str | None:
        """Which batch has no answer for STUCK seconds, though every call has a deadline; None: all go on."""
        oldest = now - min(self._sending.values(), default=now)
        return f"a batch of binds has had no answer for {oldest:.0f} s" if oldest >= STUCK else None

    async def room(self) -> None:
        """Returns when another decision may be submitted, or none ever will."""
        await self._room.wait()

    def begin(self, token: int) -> None:
        """A term as leader begins."""
        self._token = token

    def stand_down(self) -> list[Decision]:
        """Ends the term: nothing is sent any more. Returns what was not sent; what was, stays assumed until the informer, or
        the next term's barrier, tells what became of it."""
        unsent = [*self._pending, *self._cycles.stand_down()]
        self._pending.clear()
        self._token = None
        self._doubts.clear()
        self._room.set()
        return unsent

    def submit(self, decision: Decision) -> None:
        if decision.token != self._token:
            raise ValueError(f"decision under token {decision.token}, but the term's is {self._token}")
        if decision.cycle is None or decision.cycle.direct:
            self._pending.append(decision)
            self._work.set()
        else:
            self._cycles.start(decision, decision.cycle)
        if len(self._pending) >= MAX_PENDING or self._cycles.full:
            self._room.clear()

    def drained(self) -> None:
        """Decisions have left one of the two queues."""
        if len(self._pending) < MAX_PENDING and not self._cycles.full:
            self._room.set()

    def settle(self, decision: Decision, outcome: Verdict, message: str) -> None:
        """Acts on the end of a bind that was sent by a plugin."""
        self._tell_fenced(decision.token, self._settle(decision, outcome, message))

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(unending("batches of binds", self._send_batches))
            group.create_task(unending("binds in doubt", self._resolve_doubts))
            group.create_task(unending("binding cycles", self._cycles.run))

    async def _send_batches(self) -> None:
        while True:
            while not self._pending:
                self._work.clear()
                await self._work.wait()
            batch = [self._pending.popleft() for _ in range(min(len(self._pending), BATCH))]
            self.drained()
            await self._send(batch)

    async def _send(self, batch: list[Decision]) -> None:
        token = batch[0].token
        bind = partial(self._pods.bind_batch, fence=self._fence_of(token))
        self._sent += 1
        number, self._sending[self._sent] = self._sent, self._clock.monotonic()
        try:
            answers = await errors_of(bind, [_binding(decision) for decision in batch])
        finally:
            del self._sending[number]
        fenced = False
        for decision, answer in zip(batch, answers, strict=True):
            fenced |= self._settle(decision, verdict(answer), str(answer))
        self._tell_fenced(token, fenced)

    def _tell_fenced(self, token: int, fenced: bool) -> None:
        if fenced and token == self._token:
            self._outcomes.fenced(token)

    def _settle(self, decision: Decision, outcome: Verdict, message: str) -> bool:
        """Acts on an answer; True when it says that the token is stale. After the term has ended only good news counts."""
        if outcome is Verdict.BOUND:
            self._outcomes.bound(decision)
        elif outcome is Verdict.FENCED:
            metrics.FENCED.inc()
            return True
        elif decision.token == self._token:
            if outcome is Verdict.GONE:
                self._outcomes.failed(decision, message, retry=False)
            else:
                log.warning("binding %s to %s: %s", decision.queued.info.key, decision.node, message)
                self._doubt(decision, outcome, message)
        return False

    def _doubt(self, decision: Decision, outcome: Verdict, message: str) -> None:
        self._doubts.append((decision, outcome, message))
        self._doubtful.set()

    async def _resolve_doubts(self) -> None:
        while True:
            await self._doubtful.wait()
            await self._clock.sleep(RESOLVE_DELAY)
            self._doubtful.clear()
            doubts, self._doubts = self._doubts, []
            while doubts:
                await asyncio.gather(*(self._resolve(*doubt) for doubt in doubts[:RESOLVING]))
                del doubts[:RESOLVING]
                if self._doubtful.is_set():  # nobody may be there to say it of the others, and each asks for seconds
                    self._doubts = doubts + self._doubts
                    break

    async def _resolve(self, decision: Decision, outcome: Verdict, message: str) -> None:
        """Finds out what became of one bind."""
        info = decision.queued.info
        if decision.token != self._token or self._told(decision):
            return
        try:
            pod = await self._pods.get(info.name, info.namespace)
        except NotFound:
            pod = Pod()
        except ApiError:
            self._doubt(decision, outcome, message)
            return
        if decision.token != self._token or self._told(decision):
            return
        if pod.metadata.uid != info.uid:
            self._outcomes.failed(decision, message, retry=False)
        elif pod.spec.nodeName:
            self._doubt(decision, outcome, message)  # until the informer has seen it too
        elif outcome is Verdict.UNKNOWN:
            self.submit(decision)
        else:
            self._outcomes.failed(decision, message, retry=not pod.metadata.HasField("deletionTimestamp"))

    def _told(self, decision: Decision) -> bool:
        """The informer was faster: the pod is bound, or gone."""
        uid = decision.queued.info.uid
        if self._cache.is_assumed(uid):
            return False
        if self._cache.node_of(uid) == decision.node:
            self._outcomes.bound(decision)
        else:
            self._outcomes.superseded(decision)
        return True


def _binding(decision: Decision) -> Binding:
    binding = Binding()
    info, metadata, target = decision.queued.info, binding.metadata, binding.target
    metadata.namespace, metadata.name, metadata.uid = info.namespace, info.name, info.uid
    target.kind, target.name = "Node", decision.node
    return binding
