"""Bind pods concurrently with scheduling cycles. Decisions are sent in batches under the leader's fence.

    submit --> pending --batch--> in flight --> BOUND      the informer confirms the bind
      |         ^    ^               |          FENCED     the term ends
      v         |    |               |          GONE       forget
    plugins ----'    |               +--------> REFUSED, UNKNOWN: in doubt
    (BindingCycles)  |                             |
                     |                           read the pod:  bound: wait for the informer
                     +-- still unbound, and UNKNOWN --+         deleted, another UID: forget
                                                      +-------- still unbound, and REFUSED: forget, requeue

* While a bind is pending, in flight or in doubt, the pod stays assumed. An assumed pod does not expire.
* A bind with an unknown result is sent again only to the same node. At most one of the two binds can commit, because a bind
  requires an empty nodeName. In both cases the cache counts the pod on the correct node.
* At most IN_FLIGHT batches are in flight. A slow server receives larger batches instead of more batches.
* A pod without plugins in Permit, PreBind and Bind is added to a batch directly, without a task and without plugin calls.

`BindingCycles` runs the plugins of all other decisions, with one task per decision:

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
from pinnace.client.resource import batch_errors
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import PluginAbandoned, PluginSlow
from pinnace.runtime.supervise import EndedEarly, run_unending
from pinnace.runtime.tasks import run_until_first
from pinnace.scheduler import metrics
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.framework.plugin_errors import PluginErrorLog
from pinnace.scheduler.framework.profile import WaitingPods
from pinnace.scheduler.framework.results import PluginError, PluginRejection, PluginTimeout
from pinnace.scheduler.framework.runtime import BindingCycle
from pinnace.scheduler.scheduling_cycle import BindingObserver, Decision

log = logging.getLogger(__name__)

BATCH = 256
IN_FLIGHT = 4
MAX_PENDING = 4 * BATCH
"""Number of unsent decisions at which the scheduling cycle pauses."""
RESOLVE_DELAY = 0.1
"""Seconds between checks of the binds in doubt."""
STUCK = 60.0
"""Seconds after which a batch without a response counts as stuck."""
RESOLVING = 32
"""Binds in doubt that are checked concurrently."""
CYCLES = 256
MAX_QUEUED = 4 * CYCLES
BIND_DEADLINE = 30.0
GRACE = 5.0
"""Seconds for a plugin to return after its cancellation."""
SLOW = 10.0
"""Seconds after which a plugin call is logged as slow. The log line is repeated every TELL_AGAIN seconds."""
TELL_AGAIN = 60.0


class BindResult(Enum):
    BOUND = auto()
    FENCED = auto()
    """Another leader has been elected. No further write with this token commits."""
    GONE = auto()
    """The pod does not exist."""
    REFUSED = auto()
    """This bind did not commit. An earlier bind may have committed, so the pod must be read."""
    UNKNOWN = auto()
    """The response was lost. The bind may have committed, or may still commit."""


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


class BindClient(Protocol):
    """The methods of pinnace.client.client.PodClient that the binder uses."""

    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> list[BatchItem]: ...
    async def get(self, name: str, namespace: str = "") -> Pod: ...


class Binder:
    def __init__(
        self,
        pods: BindClient,
        cache: Cache,
        outcomes: BindingObserver,
        fence_of: Callable[[int], Fence],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`fence_of` returns the fence of the term with the given token, as in LeaderElector."""
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

        self.cancel_bind = self._cycles.cancel_bind
        self.is_bind_cancelled = self._cycles.is_bind_cancelled
        self.slow_calls = self._cycles.slow_calls

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    def find_stuck_batch(self, now: float) -> str | None:
        """Return a description of the problem if a batch has had no response for STUCK seconds, else None.

        Every call has a deadline, so a longer wait is a defect.
        """
        oldest = now - min(self._sending.values(), default=now)
        return f"a batch of binds has had no response for {oldest:.0f} s" if oldest >= STUCK else None

    async def wait_for_room(self) -> None:
        """Wait until another decision may be submitted, or until the term ends."""
        await self._room.wait()

    def begin_term(self, token: int) -> None:
        """Start a term as leader."""
        self._token = token

    def end_term(self) -> list[Decision]:
        """End the term and stop sending binds. Return the unsent decisions.

        The pods of the other decisions stay assumed until the informer or the barrier of the next term resolves them.
        """
        unsent = [*self._pending, *self._cycles.end_term()]
        self._pending.clear()
        self._token = None
        self._doubts.clear()
        self._room.set()
        return unsent

    def submit_decision(self, decision: Decision) -> None:
        if decision.token != self._token:
            raise ValueError(f"decision under token {decision.token}, but the term's is {self._token}")
        if decision.cycle is None or decision.cycle.needs_no_plugins:
            self._pending.append(decision)
            self._work.set()
        else:
            self._cycles.start_cycle(decision, decision.cycle)
        if len(self._pending) >= MAX_PENDING or self._cycles.is_full:
            self._room.clear()

    def resume_if_room(self) -> None:
        """Resume the scheduling cycle if both queues have room. Called after decisions leave a queue."""
        if len(self._pending) < MAX_PENDING and not self._cycles.is_full:
            self._room.set()

    def handle_bind_result(self, decision: Decision, outcome: BindResult, message: str) -> None:
        """Handle the result of a bind that a plugin sent."""
        self._report_fenced(decision.token, self._apply_bind_result(decision, outcome, message))

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(run_unending("batches of binds", self._send_batches))
            group.create_task(run_unending("binds in doubt", self._resolve_doubts))
            group.create_task(run_unending("binding cycles", self._cycles.run))

    async def _send_batches(self) -> None:
        while True:
            while not self._pending:
                self._work.clear()
                await self._work.wait()
            batch = [self._pending.popleft() for _ in range(min(len(self._pending), BATCH))]
            self.resume_if_room()
            await self._send(batch)

    async def _send(self, batch: list[Decision]) -> None:
        token = batch[0].token
        bind = partial(self._pods.bind_batch, fence=self._fence_of(token))
        self._sent += 1
        number, self._sending[self._sent] = self._sent, self._clock.monotonic()
        try:
            answers = await batch_errors(bind, [_create_binding(decision) for decision in batch])
        finally:
            del self._sending[number]
        fenced = 0
        for decision, answer in zip(batch, answers, strict=True):
            fenced += self._apply_bind_result(decision, bind_result(answer), str(answer))
        self._report_fenced(token, fenced)

    def _report_fenced(self, token: int, fenced: int) -> None:
        if fenced:
            self._observer.on_binds_fenced(token, fenced)
        if fenced and token == self._token:
            self._observer.on_term_fenced(token)

    def _apply_bind_result(self, decision: Decision, outcome: BindResult, message: str) -> bool:
        """Handle a result. Return True if the token is stale. After the end of the term, only BOUND has an effect."""
        if outcome is BindResult.BOUND:
            self._observer.on_bound(decision)
        elif outcome is BindResult.FENCED:
            metrics.FENCED.inc()
            return True
        elif decision.token == self._token:
            if outcome is BindResult.GONE:
                self._observer.on_bind_failed(decision, message, retry=False)
            else:
                log.warning("binding %s to %s: %s", decision.queued.info.key, decision.node, message)
                self._add_doubt(decision, outcome, message)
        return False

    def _add_doubt(self, decision: Decision, outcome: BindResult, message: str) -> None:
        self._doubts.append((decision, outcome, message))
        self._doubtful.set()

    async def _resolve_doubts(self) -> None:
        while True:
            await self._doubtful.wait()
            await self._clock.sleep(RESOLVE_DELAY)
            self._doubtful.clear()
            doubts, self._doubts = self._doubts, []
            while doubts:
                await asyncio.gather(*(self._resolve_doubt(*doubt) for doubt in doubts[:RESOLVING]))
                del doubts[:RESOLVING]
                if self._doubtful.is_set():  # a check failed: the others may fail too, and each failure takes seconds
                    self._doubts = doubts + self._doubts
                    break

    async def _resolve_doubt(self, decision: Decision, outcome: BindResult, message: str) -> None:
        """Read the pod of one bind in doubt, and handle the result."""
        info = decision.queued.info
        if decision.token != self._token or self._is_resolved_by_informer(decision):
            return
        try:
            pod = await self._pods.get(info.name, info.namespace)
        except NotFound:
            pod = Pod()
        except ApiError:
            self._add_doubt(decision, outcome, message)
            return
        if decision.token != self._token or self._is_resolved_by_informer(decision):
            return
        if pod.metadata.uid != info.uid:
            self._observer.on_bind_failed(decision, message, retry=False)
        elif pod.spec.nodeName:
            self._add_doubt(decision, outcome, message)  # until the informer delivers the bound pod
        elif outcome is BindResult.UNKNOWN:
            self.submit_decision(decision)
        else:
            self._observer.on_bind_failed(decision, message, retry=not pod.metadata.HasField("deletionTimestamp"))

    def _is_resolved_by_informer(self, decision: Decision) -> bool:
        """Return True if the informer has already delivered the pod as bound or deleted."""
        uid = decision.queued.info.uid
        if self._cache.is_assumed(uid):
            return False
        if self._cache.node_of(uid) == decision.node:
            self._observer.on_bound(decision)
        else:
            self._observer.on_bind_superseded(decision)
        return True


def _create_binding(decision: Decision) -> Binding:
    binding = Binding()
    info, metadata, target = decision.queued.info, binding.metadata, binding.target
    metadata.namespace, metadata.name, metadata.uid = info.namespace, info.name, info.uid
    target.kind, target.name = "Node", decision.node
    if decision.cycle is not None:
        metadata.annotations.update(decision.cycle.annotations)
    return binding


class BatchQueue(Protocol):
    """The methods of Binder that BindingCycles uses."""

    def submit_decision(self, decision: Decision) -> None: ...
    def handle_bind_result(self, decision: Decision, outcome: BindResult, message: str) -> None: ...
    def resume_if_room(self) -> None: ...


class BindingCycles:
    """Run the binding cycles that call plugins, and submit decisions to the batches as soon as no plugin remains."""

    def __init__(
        self, outcomes: BindingObserver, fence_of: Callable[[int], Fence], batches: BatchQueue, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._observer = outcomes
        self._fence_of = fence_of
        self._batches = batches
        self._clock = clock
        self._plugin_errors = PluginErrorLog()
        self._work = asyncio.Event()
        self.waiting = WaitingPods(self._work.set)
        self._waiting_decisions: dict[str, Decision] = {}
        """Decisions that wait in Permit, by UID."""
        self._queued: deque[tuple[Decision, BindingCycle]] = deque()
        self._preparing: dict[asyncio.Task[None], Decision] = {}
        self._binding: dict[asyncio.Task[None], Decision] = {}
        self._tasks: dict[asyncio.Task[None], tuple[BindingCycle, float]] = {}
        """All running tasks, including tasks whose decision was taken away, with their start time."""
        self._slow_logged_at: dict[tuple[str, str], float] = {}
        """The time of the last log line about a slow plugin, by plugin and extension point."""
        self._unexpected_error: Exception | None = None
        """The first unexpected error of a task. `run` raises it."""
        self._cancelled: dict[str, PluginRejection] = {}
        """Rejections of called-off decisions that have not been reported, by UID."""

    @property
    def is_full(self) -> bool:
        return len(self._queued) >= MAX_QUEUED

    def start_cycle(self, decision: Decision, cycle: BindingCycle) -> None:
        """Start the binding cycle of a decision that is not direct."""
        if cycle.waits:
            self._waiting_decisions[decision.queued.info.uid] = decision
            self.waiting.add_pod(cycle.pod, cycle.node, cycle.waits, self._clock.monotonic())
        else:
            self._queued.append((decision, cycle))
        self._work.set()

    def cancel_bind(self, uid: str, refused: PluginRejection) -> bool:
        """Prevent the bind. Return False if the bind has been sent or the pod is unknown."""
        if uid in self._cancelled:
            return True
        if uid in self._waiting_decisions:
            if (waiting := self.waiting.get(uid)) is not None:
                waiting.reject(refused.plugin, refused.reason)
        elif any(decision.queued.info.uid == uid and not cycle.sent for decision, cycle in self._queued):
            self._work.set()
        elif (task := self._find_pre_bind_task(uid)) is not None:
            self._cancel_task(task)
        else:
            return False
        self._cancelled[uid] = refused
        return True

    def _find_pre_bind_task(self, uid: str) -> asyncio.Task[None] | None:
        """Return the task that runs PreBind for the pod, or None if there is no such task or its bind has been sent."""
        for task, decision in self._preparing.items():
            if decision.queued.info.uid == uid and decision.cycle is not None and not decision.cycle.sent:
                return task
        return None

    def is_bind_cancelled(self, uid: str) -> bool:
        """Return True if the bind of an assumed pod was called off."""
        return uid in self._cancelled

    def end_term(self) -> list[Decision]:
        """End the term. Return the decisions whose binds will never be sent. The other decisions stay in doubt."""
        unsent = [*self._waiting_decisions.values(), *(decision for decision, _ in self._queued), *self._preparing.values()]
        for task in self._tasks:
            task.cancel()
        self._waiting_decisions.clear()
        self._queued.clear()
        self._preparing.clear()
        self._binding.clear()
        self._cancelled.clear()
        self.waiting.drop_all()
        return unsent

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while self._unexpected_error is None:
                self._work.clear()
                self._handle_settled_pods()
                self._reject_cancelled_decisions()
                while self._queued and len(self._preparing) + len(self._binding) < CYCLES:
                    decision, cycle = self._queued.popleft()
                    task = asyncio.create_task(self._run_cycle(decision, cycle))
                    self._preparing[task] = decision
                    self._tasks[task] = cycle, self._clock.monotonic()
                    task.add_done_callback(self._on_task_done)
                self._batches.resume_if_room()
                await self._wait_for_work()
            raise self._unexpected_error
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=GRACE)

    def slow_calls(self, now: float) -> Mapping[tuple[str, str], tuple[int, float]]:
        """Return the number of calls that take longer than SLOW seconds and the age of the oldest, by (plugin, extension
        point).

        Each pair is also logged, at most once per TELL_AGAIN seconds.
        """
        result: dict[tuple[str, str], tuple[int, float]] = {}
        for cycle, since in self._tasks.values():
            if now - since >= SLOW:
                number, longest = result.get(cycle.asked, (0, 0.0))
                result[cycle.asked] = number + 1, max(longest, now - since)
        for asked, (number, longest) in result.items():
            if now - self._slow_logged_at.get(asked, -TELL_AGAIN) >= TELL_AGAIN:
                self._slow_logged_at[asked] = now
                slow = PluginSlow(*asked, number, longest).extra
                message = 'plugin "%s" in %s has not returned for %d pods for up to %.0f s'
                log.warning(message, *asked, number, longest, extra=slow)
        return result

    def _cancel_task(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        asyncio.get_running_loop().call_later(GRACE, self._abandon_task, task)

    def _abandon_task(self, task: asyncio.Task[None]) -> None:
        """Take the decision away from a task that continues after its cancellation."""
        if task in self._preparing or task in self._binding:
            cycle, _ = self._tasks[task]
            abandoned = PluginAbandoned(*cycle.asked, cycle.pod.key).extra
            message = 'plugin "%s" in %s ignores its cancellation and is abandoned: pod %s'
            log.error(message, *cycle.asked, cycle.pod.key, extra=abandoned)
            self._end_decision(task, PluginTimeout(f"it ignored its cancellation for {GRACE:g} s"))
            self._work.set()

    def _handle_settled_pods(self) -> None:
        for waited, refused in self.waiting.take_settled(self._clock.monotonic()):
            decision = self._waiting_decisions.pop(waited.pod.uid)
            cycle = decision.cycle
            assert cycle is not None
            cycle.waits = {}
            refused = self._cancelled.pop(waited.pod.uid, refused)
            if refused is not None:
                self._observer.on_bind_rejected(decision, refused)
            else:
                self._batches.submit_decision(decision)

    def _reject_cancelled_decisions(self) -> None:
        """Refuse the queued decisions that were called off."""
        if not self._cancelled:
            return
        refused = [decision for decision, _ in self._queued if decision.queued.info.uid in self._cancelled]
        self._queued = deque(item for item in self._queued if item[0].queued.info.uid not in self._cancelled)
        for decision in refused:
            self._observer.on_bind_rejected(decision, self._cancelled.pop(decision.queued.info.uid))

    async def _wait_for_work(self) -> None:
        due = self.waiting.next_due()
        if due is None:
            await self._work.wait()
        else:
            await run_until_first(self._work.wait(), self._clock.sleep(due - self._clock.monotonic()))

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        problem = asyncio.CancelledError() if task.cancelled() else task.exception()
        if not self._end_decision(task, problem) and isinstance(problem, Exception):
            self._unexpected_error = problem
        self._work.set()

    def _end_decision(self, task: asyncio.Task[None], problem: BaseException | None) -> bool:
        """End the decision of the task. Return False if the decision was taken away earlier."""
        decision = self._preparing.pop(task, None)
        if decision is not None and decision.cycle is not None:
            if decision.queued.info.uid in self._cancelled:
                self._queued.append((decision, decision.cycle))  # it was cancelled
            else:
                self._report_plugin_error(decision, _find_early_end_error(decision.cycle, problem))
            return True
        if (decision := self._binding.pop(task, None)) is not None and decision.cycle is not None:
            error = _find_early_end_error(decision.cycle, problem)
            self._plugin_errors.log_error(error)
            self._batches.handle_bind_result(decision, BindResult.UNKNOWN, str(error))
            return True
        return False

    async def _run_cycle(self, decision: Decision, cycle: BindingCycle) -> None:
        task = asyncio.current_task()
        assert task is not None
        prepared = await self._run_pre_bind(cycle, task)
        if self._preparing.pop(task, None) is None:
            return  # the decision was taken away: the term has ended, or the plugin exceeded its deadline
        prepared = self._cancelled.pop(cycle.pod.uid, prepared)
        if isinstance(prepared, PluginRejection):
            self._observer.on_bind_rejected(decision, prepared)
        elif prepared:
            self._report_plugin_error(decision, prepared)
        elif cycle.needs_no_plugins:
            self._batches.submit_decision(decision)
        else:
            self._binding[task] = decision
            await self._run_bind(decision, cycle, task)
            self._binding.pop(task, None)

    def _report_plugin_error(self, decision: Decision, error: PluginError) -> None:
        self._plugin_errors.log_error(error)
        self._observer.on_bind_failed(decision, error, retry=True)

    async def _run_pre_bind(self, cycle: BindingCycle, task: asyncio.Task[None]) -> PluginRejection | PluginError | None:
        """Run PreBind. Return the rejection or the error, or None on success."""
        deadline = cycle.pre_bind_timeout
        watching = asyncio.get_running_loop().call_later(deadline + GRACE, self._abandon_task, task)
        try:
            refused = await cycle.run_pre_bind()
        except PluginError as error:
            return error
        finally:
            watching.cancel()
        cycle.pre_binds = ()
        return refused

    async def _run_bind(self, decision: Decision, cycle: BindingCycle, task: asyncio.Task[None]) -> None:
        """Run Bind. After the end of the term `task` is no longer registered, and only a definite result has an effect."""
        fence = self._fence_of(decision.token)
        cycle.sent = True
        watching = asyncio.get_running_loop().call_later(BIND_DEADLINE + GRACE, self._abandon_task, task)
        try:
            async with asyncio.timeout(BIND_DEADLINE):
                answer = await cycle.run_bind(fence)
        except TimeoutError:
            error = cycle.timeout_error(BIND_DEADLINE)
            self._plugin_errors.log_error(error)
            if self._binding.pop(task, None) is not None:
                self._batches.handle_bind_result(decision, BindResult.UNKNOWN, str(error))
            return
        except PluginError as error:
            if isinstance(error.problem, ApiError):
                self._batches.handle_bind_result(decision, bind_result(error.problem), str(error))
            elif task in self._binding:
                self._report_plugin_error(decision, error)
            return
        finally:
            watching.cancel()
        if answer is True:
            self._batches.handle_bind_result(decision, BindResult.BOUND, "")
        elif task in self._binding:
            if isinstance(answer, PluginRejection):
                self._observer.on_bind_rejected(decision, answer)
            else:
                cycle.binds = ()
                self._batches.submit_decision(decision)


def _find_early_end_error(cycle: BindingCycle, problem: BaseException | None) -> PluginError:
    """Return the error of a task that ended without a cancellation, or continued after one."""
    return PluginError(*cycle.asked, problem or EndedEarly("its task has ended"))
