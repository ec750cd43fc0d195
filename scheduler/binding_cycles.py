"""Binding cycles: what is to be done for a decision before it can go to the batches, as far as plugins want it.

    start --Permit waits--> WAITING --allowed--> QUEUED ----> PreBind ----> Bind --bound, refused, in doubt--> settle
      |                        |                   ^             |            '---- all skip the pod --.
      |                        '-- refused         |             '-- refused, failed                   v
      '------- nothing to wait for ----------------'             '---- no Bind plugin ---------> the batches

* A pod that waits in Permit has no task; the cluster's room bounds how many there can be. A group may be as large as it likes.
* PreBind and Bind run in at most CYCLES tasks. Others are QUEUED; with MAX_QUEUED of them the scheduling cycle pauses.
* As long as nothing has been sent for a pod, it can be called off: while it waits, is QUEUED, or is in PreBind, which is then
  cancelled. It is refused once that has ended, whatever came of it; never within the cycle of the pod that it must give way to.
* Everything has a deadline: waiting is limited by the plugin that asked for it (and WaitingPods), PreBind by `pre_bind_timeout`
  of each plugin, Bind by BIND_DEADLINE. After the last the outcome is unknown, and looked up, before the plugin is asked again.
* A plugin that ignores its cancellation for GRACE seconds is left to itself: the pod and the room are taken from it. So is one
  whose task has ended although nobody cancelled it. Either way the decision has its end, which names the plugin.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from pinnace.api.pods_pb2 import Fence
from pinnace.client.errors import ApiError
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import PluginAbandoned, PluginSlow
from pinnace.runtime.supervise import EndedEarly
from pinnace.runtime.tasks import race
from scheduler.decision import Decision, Outcomes
from scheduler.framework.binding_plugins import BindingCycle
from scheduler.framework.faults import Faults
from scheduler.framework.handle import WaitingPods
from scheduler.framework.results import Overdue, PluginError, Refused
from scheduler.verdict import Verdict, verdict

log = logging.getLogger(__name__)

CYCLES = 256
MAX_QUEUED = 4 * CYCLES
BIND_DEADLINE = 30.0
GRACE = 5.0
"""Seconds for a plugin to end once it is cancelled."""
SLOW = 10.0
"""Seconds after which a plugin that was not heard of is named in the log; and again every TELL_AGAIN seconds."""
TELL_AGAIN = 60.0


class Batches(Protocol):
    """What is needed of scheduler.binding.Binder."""

    def submit(self, decision: Decision) -> None: ...
    def settle(self, decision: Decision, outcome: Verdict, message: str) -> None: ...
    def drained(self) -> None: ...


class BindingCycles:
    """Starts with decisions whose cycle is not direct; sends them on when it has become so."""

    def __init__(
        self, outcomes: Outcomes, fence_of: Callable[[int], Fence], batches: Batches, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._outcomes = outcomes
        self._fence_of = fence_of
        self._batches = batches
        self._clock = clock
        self._faults = Faults()
        self._work = asyncio.Event()
        self.waiting = WaitingPods(self._work.set)
        self._held: dict[str, Decision] = {}
        """By uid, while they wait in Permit."""
        self._queued: deque[tuple[Decision, BindingCycle]] = deque()
        self._preparing: dict[asyncio.Task[None], Decision] = {}
        self._binding: dict[asyncio.Task[None], Decision] = {}
        self._tasks: dict[asyncio.Task[None], tuple[BindingCycle, float]] = {}
        """All that run, with those whose decision was taken from them; and since when."""
        self._named: dict[tuple[str, str], float] = {}
        """When the log was told of a slow plugin, by plugin and point."""
        self._bug: Exception | None = None
        """Of ours, in one of the tasks."""
        self._called_off: dict[str, Refused] = {}
        """By uid, those of whom it has not been told yet."""

    @property
    def full(self) -> bool:
        return len(self._queued) >= MAX_QUEUED

    def start(self, decision: Decision, cycle: BindingCycle) -> None:
        """`cycle` is the decision's; it is not direct."""
        if cycle.waits:
            self._held[decision.queued.info.uid] = decision
            self.waiting.add(cycle.pod, cycle.node, cycle.waits, self._clock.monotonic())
        else:
            self._queued.append((decision, cycle))
        self._work.set()

    def call_off(self, uid: str, refused: Refused) -> bool:
        """The pod must not be bound. False: it is too late, or it has never been here."""
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
        """The task that PreBinds a pod for which no bind has been sent."""
        for task, decision in self._preparing.items():
            if decision.queued.info.uid == uid and decision.cycle is not None and not decision.cycle.sent:
                return task
        return None

    def is_called_off(self, uid: str) -> bool:
        """Has it been, and still takes room?"""
        return uid in self._called_off

    def stand_down(self) -> list[Decision]:
        """Ends the term. Returns what was not sent, nor will be; what was, stays in doubt."""
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
        """Until cancelled."""
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
        """By (plugin, point): of how many pods it has not answered for SLOW seconds, and for how long of the oldest. The log
        is told, once a minute for each."""
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
        """Takes the decision from a task that goes on although it was cancelled."""
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
                self._outcomes.refused(decision, refused)
            else:
                self._batches.submit(decision)

    def _refuse_called_off(self) -> None:
        """Of those that are QUEUED."""
        if not self._called_off:
            return
        refused = [decision for decision, _ in self._queued if decision.queued.info.uid in self._called_off]
        self._queued = deque(each for each in self._queued if each[0].queued.info.uid not in self._called_off)
        for decision in refused:
            self._outcomes.refused(decision, self._called_off.pop(decision.queued.info.uid))

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
        """Ends the decision that the task still has. False: it has none."""
        decision = self._preparing.pop(task, None)
        if decision is not None and decision.cycle is not None:
            if decision.queued.info.uid in self._called_off:
                self._queued.append((decision, decision.cycle))  # it was cancelled, and is refused from there
            else:
                self._fail(decision, _early_end(decision.cycle, problem))
            return True
        if (decision := self._binding.pop(task, None)) is not None and decision.cycle is not None:
            error = _early_end(decision.cycle, problem)
            self._faults.note(error)
            self._batches.settle(decision, Verdict.UNKNOWN, str(error))
            return True
        return False

    async def _carry_out(self, decision: Decision, cycle: BindingCycle) -> None:
        task = asyncio.current_task()
        assert task is not None
        prepared = await self._prepare(cycle, task)
        if self._preparing.pop(task, None) is None:
            return  # the decision was given back: the term is over, or the plugin took too long
        prepared = self._called_off.pop(cycle.pod.uid, prepared)
        if isinstance(prepared, Refused):
            self._outcomes.refused(decision, prepared)
        elif prepared:
            self._fail(decision, prepared)
        elif cycle.direct:
            self._batches.submit(decision)
        else:
            self._binding[task] = decision
            await self._bind(decision, cycle, task)
            self._binding.pop(task, None)

    def _fail(self, decision: Decision, error: PluginError) -> None:
        self._faults.note(error)
        self._outcomes.failed(decision, error, retry=True)

    async def _prepare(self, cycle: BindingCycle, task: asyncio.Task[None]) -> Refused | PluginError | None:
        """PreBind. What is wrong; None: nothing."""
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
        """Once the term is over, `task` is not among those that bind any more: then only what is certain counts."""
        fence = self._fence_of(decision.token)
        cycle.sent = True
        watching = asyncio.get_running_loop().call_later(BIND_DEADLINE + GRACE, self._abandon, task)
        try:
            async with asyncio.timeout(BIND_DEADLINE):
                answer = await cycle.bind(fence)
        except TimeoutError:
            error = cycle.overdue(BIND_DEADLINE)
            self._faults.note(error)
            if self._binding.pop(task, None) is not None:
                self._batches.settle(decision, Verdict.UNKNOWN, str(error))
            return
        except PluginError as error:
            if isinstance(error.problem, ApiError):
                self._batches.settle(decision, verdict(error.problem), str(error))
            elif task in self._binding:
                self._fail(decision, error)
            return
        finally:
            watching.cancel()
        if answer is True:
            self._batches.settle(decision, Verdict.BOUND, "")
        elif task in self._binding:
            if isinstance(answer, Refused):
                self._outcomes.refused(decision, answer)
            else:
                cycle.binds = ()
                self._batches.submit(decision)


def _early_end(cycle: BindingCycle, problem: BaseException | None) -> PluginError:
    """Of a task that has ended although nobody cancelled it, or that has not although it was cancelled."""
    return PluginError(*cycle.asked, problem or EndedEarly("its task has ended"))
