"""Binding, concurrently with scheduling cycles: decisions are sent in batches under the leader's fence.

    submit --> pending --batch--> in flight --> BOUND      the informer will confirm it
      |         ^    ^               |          FENCED     the term ends
      v         |    |               |          GONE       forget
    plugins ----'    |               +--------> REFUSED, UNKNOWN: in doubt
    (BindingCycles)  |                             |
                     |                           read the pod:  bound: leave it to the informer
                     +-- still unbound, and UNKNOWN --+         gone, another uid: forget
                                                      +-------- still unbound, and REFUSED: forget, queue again

* While a bind is pending, in flight or in doubt, the pod stays assumed. No timer forgets it.
* A bind with an unknown outcome is sent again only to the same node. At most one of the two can commit, because a bind
  requires an empty nodeName; the cache counts the pod on the right node in both cases.
* At most IN_FLIGHT batches are in flight. A slow server receives larger batches, not more of them.
* A pod that no plugin handles in Permit, PreBind or Bind goes straight into a batch, without a task and without plugin calls.

`BindingCycles` runs the plugins of all other decisions, one task per decision:

    Permit: wait --> PreBind --> Bind, or a batch --> PostBind
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Protocol

from pinnace.api.core_v1_pb2 import Binding, Pod
from pinnace.api.pods_pb2 import Fence
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.errors import ApiError, Fenced, Internal, NotFound, Unavailable
from pinnace.client.resource import errors_of
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import PluginAbandoned, PluginSlow
from pinnace.runtime.supervise import EndedEarly, unending
from pinnace.runtime.tasks import race
from scheduler import metrics
from scheduler.cache.cache import Cache
from scheduler.framework.plugin_errors import PluginErrorLog
from scheduler.framework.profile import WaitingPods
from scheduler.framework.results import Overdue, PluginError, PluginRejection
from scheduler.framework.runtime import BindingCycle
from scheduler.scheduling_cycle import BindingObserver, Decision

log = logging.getLogger(__name__)

BATCH = 256
IN_FLIGHT = 4
MAX_PENDING = 4 * BATCH
"""Decisions that wait to be sent; at this number the scheduling cycle pauses."""
RESOLVE_DELAY = 0.1
"""Seconds between checks of the binds in doubt."""
STUCK = 60.0
"""Seconds after which a batch without an answer counts as stuck."""
RESOLVING = 32
"""Binds in doubt that are checked concurrently."""


class BindResult(Enum):
    BOUND = auto()
    FENCED = auto()
    """Another leader has been elected: no write with this token commits any more."""
    GONE = auto()
    """There is no such pod."""
    REFUSED = auto()
    """This bind did not commit, perhaps because an earlier one did: read the pod."""
    UNKNOWN = auto()
    """The answer was lost: the bind may have committed, or may still commit."""


def bind_result(answer: ApiError | None) -> BindResult:
    match answer:
        case None:
            return BindResult.BOUND
        case Fenced():
            return BindResult.FENCED
        case NotFound():
            return BindResult.GONE
        case Unavailable() | Internal():
            return BindResult.UNKNOWN
        case _:
            return BindResult.REFUSED


class Pods(Protocol):
    """What the binder needs of pinnace.client.client.PodClient."""

    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> list[BatchItem]: ...
    async def get(self, name: str, namespace: str = "") -> Pod: ...


class Binder:
    def __init__(
        self,
        pods: Pods,
        cache: Cache,
        outcomes: BindingObserver,
        fence_of: Callable[[int], Fence],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`fence_of` returns the fence of the term with a token, as Candidate's."""
        self._pods = pods
        self._cache = cache
        self._observer = outcomes
        self._fence_of = fence_of
        self._clock = clock
        self._token: int | None = None
        self._pending: deque[Decision] = deque()
        self._doubts: list[tuple[Decision, BindResult, str]] = []
        self._sending: dict[int, float] = {}
        """The start of each batch in flight, by its number."""
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
        """The problem, if a batch has had no answer for STUCK seconds although every call has a deadline; None: there is
        none."""
        oldest = now - min(self._sending.values(), default=now)
        return f"a batch of binds has had no answer for {oldest:.0f} s" if oldest >= STUCK else None

    async def room(self) -> None:
        """Returns when another decision may be submitted, or when none will ever be."""
        await self._room.wait()

    def begin(self, token: int) -> None:
        """Starts a term as leader."""
        self._token = token

    def end_term(self) -> list[Decision]:
        """Ends the term: nothing more is sent. Returns the decisions that were not sent; pods of the others stay assumed
        until the informer, or the next term's barrier, resolves them."""
        unsent = [*self._pending, *self._cycles.end_term()]
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
        """Called when decisions have left one of the two queues."""
        if len(self._pending) < MAX_PENDING and not self._cycles.full:
            self._room.set()

    def settle(self, decision: Decision, outcome: BindResult, message: str) -> None:
        """Handles the result of a bind that a plugin sent."""
        self._tell_fenced(decision.token, self._settle(decision, outcome, message))

    async def run(self) -> None:
        """Runs until cancelled."""
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
        fenced = 0
        for decision, answer in zip(batch, answers, strict=True):
            fenced += self._settle(decision, bind_result(answer), str(answer))
        self._tell_fenced(token, fenced)

    def _tell_fenced(self, token: int, fenced: int) -> None:
        if fenced:
            self._observer.refused_by_fence(token, fenced)
        if fenced and token == self._token:
            self._observer.fenced(token)

    def _settle(self, decision: Decision, outcome: BindResult, message: str) -> bool:
        """Handles a result; True if the token is stale. After the term has ended only BOUND counts."""
        if outcome is BindResult.BOUND:
            self._observer.bound(decision)
        elif outcome is BindResult.FENCED:
            metrics.FENCED.inc()
            return True
        elif decision.token == self._token:
            if outcome is BindResult.GONE:
                self._observer.failed(decision, message, retry=False)
            else:
                log.warning("binding %s to %s: %s", decision.queued.info.key, decision.node, message)
                self._doubt(decision, outcome, message)
        return False

    def _doubt(self, decision: Decision, outcome: BindResult, message: str) -> None:
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
                if self._doubtful.is_set():  # the rest may fail the same way, and each takes seconds
                    self._doubts = doubts + self._doubts
                    break

    async def _resolve(self, decision: Decision, outcome: BindResult, message: str) -> None:
        """Resolves one bind in doubt."""
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
            self._observer.failed(decision, message, retry=False)
        elif pod.spec.nodeName:
            self._doubt(decision, outcome, message)  # until the informer has seen it too
        elif outcome is BindResult.UNKNOWN:
            self.submit(decision)
        else:
            self._observer.failed(decision, message, retry=not pod.metadata.HasField("deletionTimestamp"))

    def _told(self, decision: Decision) -> bool:
        """Whether the informer has already seen the pod bound or gone."""
        uid = decision.queued.info.uid
        if self._cache.is_assumed(uid):
            return False
        if self._cache.node_of(uid) == decision.node:
            self._observer.bound(decision)
        else:
            self._observer.superseded(decision)
        return True


def _binding(decision: Decision) -> Binding:
    binding = Binding()
    info, metadata, target = decision.queued.info, binding.metadata, binding.target
    metadata.namespace, metadata.name, metadata.uid = info.namespace, info.name, info.uid
    target.kind, target.name = "Node", decision.node
    return binding


CYCLES = 256
MAX_QUEUED = 4 * CYCLES
BIND_DEADLINE = 30.0
GRACE = 5.0
"""Seconds for a plugin to end after it was cancelled."""
SLOW = 10.0
"""Seconds after which a plugin that has not returned is logged; repeated every TELL_AGAIN seconds."""
TELL_AGAIN = 60.0


class Batches(Protocol):
    """The part of Binder that BindingCycles uses."""

    def submit(self, decision: Decision) -> None: ...
    def settle(self, decision: Decision, outcome: BindResult, message: str) -> None: ...
    def drained(self) -> None: ...


class BindingCycles:
    """Runs binding cycles that are not direct, and submits the decisions to the batches when they become direct."""

    def __init__(
        self, outcomes: BindingObserver, fence_of: Callable[[int], Fence], batches: Batches, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._observer = outcomes
        self._fence_of = fence_of
        self._batches = batches
        self._clock = clock
        self._plugin_errors = PluginErrorLog()
        self._work = asyncio.Event()
        self.waiting = WaitingPods(self._work.set)
        self._held: dict[str, Decision] = {}
        """By uid: decisions that wait in Permit."""
        self._queued: deque[tuple[Decision, BindingCycle]] = deque()
        self._preparing: dict[asyncio.Task[None], Decision] = {}
        self._binding: dict[asyncio.Task[None], Decision] = {}
        self._tasks: dict[asyncio.Task[None], tuple[BindingCycle, float]] = {}
        """All running tasks, including those whose decision was taken away; and their start."""
        self._named: dict[tuple[str, str], float] = {}
        """When a slow plugin was last logged, by plugin and extension point."""
        self._bug: Exception | None = None
        """Tasks that run PreBind or Bind, and their decisions."""
        self._called_off: dict[str, PluginRejection] = {}
        """By uid: calls that were called off and have not been reported."""

    @property
    def full(self) -> bool:
        return len(self._queued) >= MAX_QUEUED

    def start(self, decision: Decision, cycle: BindingCycle) -> None:
        """Starts the decision's binding cycle, which is not direct."""
        if cycle.waits:
            self._held[decision.queued.info.uid] = decision
            self.waiting.add(cycle.pod, cycle.node, cycle.waits, self._clock.monotonic())
        else:
            self._queued.append((decision, cycle))
        self._work.set()

    def call_off(self, uid: str, refused: PluginRejection) -> bool:
        """Prevents the bind. False: too late, or the pod is unknown."""
        if uid in self._called_off:
            return True
        if uid in self._held:
            if (waiting := self.waiting.get(uid)) is not None:
                waiting.reject(refused.plugin, refused.reason)
        elif any(decision.queued.info.uid == uid and not cycle.sent for decision, cycle in self._queued):
            self._work.set()
        elif (task := self._preparation(uid)) is not None:
            self._cancel(task)
        else:
            return False
        self._called_off[uid] = refused
        return True

    def _preparation(self, uid: str) -> asyncio.Task[None] | None:
        """The task that runs PreBind for the pod; None if a bind has been sent."""
        for task, decision in self._preparing.items():
            if decision.queued.info.uid == uid and decision.cycle is not None and not decision.cycle.sent:
                return task
        return None

    def is_called_off(self, uid: str) -> bool:
        """Whether it was called off and is still assumed."""
        return uid in self._called_off

    def end_term(self) -> list[Decision]:
        """Ends the term. Returns the decisions that were not sent and will not be; the others stay in doubt."""
        unsent = [*self._held.values(), *(decision for decision, _ in self._queued), *self._preparing.values()]
        for task in self._tasks:
            task.cancel()
        self._held.clear()
        self._queued.clear()
        self._preparing.clear()
        self._binding.clear()
        self._called_off.clear()
        self.waiting.clear()
        return unsent

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            while self._bug is None:
                self._work.clear()
                self._take_settled()
                self._refuse_called_off()
                while self._queued and len(self._preparing) + len(self._binding) < CYCLES:
                    decision, cycle = self._queued.popleft()
                    task = asyncio.create_task(self._carry_out(decision, cycle))
                    self._preparing[task] = decision
                    self._tasks[task] = cycle, self._clock.monotonic()
                    task.add_done_callback(self._done)
                self._batches.drained()
                await self._next_work()
            raise self._bug
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=GRACE)

    def slow(self, now: float) -> Mapping[tuple[str, str], tuple[int, float]]:
        """By (plugin, extension point): the number of pods without an answer for SLOW seconds, and the age of the oldest
        call. Also logs them, once a minute each."""
        found: dict[tuple[str, str], tuple[int, float]] = {}
        for cycle, since in self._tasks.values():
            if now - since >= SLOW:
                number, longest = found.get(cycle.asked, (0, 0.0))
                found[cycle.asked] = number + 1, max(longest, now - since)
        for asked, (number, longest) in found.items():
            if now - self._named.get(asked, -TELL_AGAIN) >= TELL_AGAIN:
                self._named[asked] = now
                slow = PluginSlow(*asked, number, longest).extra
                message = 'plugin "%s" in %s has not answered about %d pods for up to %.0f s'
                log.warning(message, *asked, number, longest, extra=slow)
        return found

    def _cancel(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        asyncio.get_running_loop().call_later(GRACE, self._abandon, task)

    def _abandon(self, task: asyncio.Task[None]) -> None:
        """Takes the decision away from a task that continues after its cancellation."""
        if task in self._preparing or task in self._binding:
            cycle, _ = self._tasks[task]
            abandoned = PluginAbandoned(*cycle.asked, cycle.pod.key).extra
            message = 'plugin "%s" in %s ignores its cancellation, and is left to itself: pod %s'
            log.error(message, *cycle.asked, cycle.pod.key, extra=abandoned)
            self._ended(task, Overdue(f"it ignored its cancellation for {GRACE:g} s"))
            self._work.set()

    def _take_settled(self) -> None:
        for waited, refused in self.waiting.settled(self._clock.monotonic()):
            decision = self._held.pop(waited.pod.uid)
            cycle = decision.cycle
            assert cycle is not None
            cycle.waits = {}
            refused = self._called_off.pop(waited.pod.uid, refused)
            if refused is not None:
                self._observer.refused(decision, refused)
            else:
                self._batches.submit(decision)

    def _refuse_called_off(self) -> None:
        """Starts queued cycles while fewer than CYCLES run."""
        if not self._called_off:
            return
        refused = [decision for decision, _ in self._queued if decision.queued.info.uid in self._called_off]
        self._queued = deque(each for each in self._queued if each[0].queued.info.uid not in self._called_off)
        for decision in refused:
            self._observer.refused(decision, self._called_off.pop(decision.queued.info.uid))

    async def _next_work(self) -> None:
        due = self.waiting.next_due()
        if due is None:
            await self._work.wait()
        else:
            await race(self._work.wait(), self._clock.sleep(due - self._clock.monotonic()))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        problem = asyncio.CancelledError() if task.cancelled() else task.exception()
        if not self._ended(task, problem) and isinstance(problem, Exception):
            self._bug = problem
        self._work.set()

    def _ended(self, task: asyncio.Task[None], problem: BaseException | None) -> bool:
        """Ends the decision of the task. False: it has none any more."""
        decision = self._preparing.pop(task, None)
        if decision is not None and decision.cycle is not None:
            if decision.queued.info.uid in self._called_off:
                self._queued.append((decision, decision.cycle))  # it was cancelled, and is refused from there
            else:
                self._fail(decision, _early_end(decision.cycle, problem))
            return True
        if (decision := self._binding.pop(task, None)) is not None and decision.cycle is not None:
            error = _early_end(decision.cycle, problem)
            self._plugin_errors.note(error)
            self._batches.settle(decision, BindResult.UNKNOWN, str(error))
            return True
        return False

    async def _carry_out(self, decision: Decision, cycle: BindingCycle) -> None:
        task = asyncio.current_task()
        assert task is not None
        prepared = await self._prepare(cycle, task)
        if self._preparing.pop(task, None) is None:
            return  # the decision was taken away: the term has ended, or the plugin took too long
        prepared = self._called_off.pop(cycle.pod.uid, prepared)
        if isinstance(prepared, PluginRejection):
            self._observer.refused(decision, prepared)
        elif prepared:
            self._fail(decision, prepared)
        elif cycle.direct:
            self._batches.submit(decision)
        else:
            self._binding[task] = decision
            await self._bind(decision, cycle, task)
            self._binding.pop(task, None)

    def _fail(self, decision: Decision, error: PluginError) -> None:
        self._plugin_errors.note(error)
        self._observer.failed(decision, error, retry=True)

    async def _prepare(self, cycle: BindingCycle, task: asyncio.Task[None]) -> PluginRejection | PluginError | None:
        """Runs PreBind. Returns the rejection or error; None: success."""
        deadline = cycle.pre_bind_timeout
        watching = asyncio.get_running_loop().call_later(deadline + GRACE, self._abandon, task)
        try:
            refused = await cycle.pre_bind()
        except PluginError as error:
            return error
        finally:
            watching.cancel()
        cycle.pre_binds = ()
        return refused

    async def _bind(self, decision: Decision, cycle: BindingCycle, task: asyncio.Task[None]) -> None:
        """Runs Bind. After the term has ended, `task` is no longer registered: then only a certain result counts."""
        fence = self._fence_of(decision.token)
        cycle.sent = True
        watching = asyncio.get_running_loop().call_later(BIND_DEADLINE + GRACE, self._abandon, task)
        try:
            async with asyncio.timeout(BIND_DEADLINE):
                answer = await cycle.bind(fence)
        except TimeoutError:
            error = cycle.overdue(BIND_DEADLINE)
            self._plugin_errors.note(error)
            if self._binding.pop(task, None) is not None:
                self._batches.settle(decision, BindResult.UNKNOWN, str(error))
            return
        except PluginError as error:
            if isinstance(error.problem, ApiError):
                self._batches.settle(decision, bind_result(error.problem), str(error))
            elif task in self._binding:
                self._fail(decision, error)
            return
        finally:
            watching.cancel()
        if answer is True:
            self._batches.settle(decision, BindResult.BOUND, "")
        elif task in self._binding:
            if isinstance(answer, PluginRejection):
                self._observer.refused(decision, answer)
            else:
                cycle.binds = ()
                self._batches.submit(decision)


def _early_end(cycle: BindingCycle, problem: BaseException | None) -> PluginError:
    """The error of a task that ended without a cancellation, or that did not end after one."""
    return PluginError(*cycle.asked, problem or EndedEarly("its task has ended"))
