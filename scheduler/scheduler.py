"""The scheduler component: informers -> event handlers -> cache and queue -> scheduling cycle -> binder, under leader election.

* A standby keeps its cache and queue up to date (pinnace/client/standby.py).
* A new leader waits until its informers have received all writes of earlier leaders: pods, and the objects that plugins write.
  After this barrier, every bind of an earlier term is in the cache or can never commit, so the leader forgets all other
  assumptions of earlier terms. Nothing else forgets them.
* A leader schedules in slices of SLICE seconds. The event loop handles heartbeats between slices and during extender calls.
* When the leader loses the lease, or a bind is fenced, it stops all decisions and writes. Assumed pods whose binds were
  not sent
  return to the queue. The other assumed pods stay assumed.
* All writes of a leader are fenced, except events. Binds use the token of their decision, other writes the current token.
* A leader without progress (`Progress`) resigns and logs the reason.

`Progress` is pure and uses monotonic seconds. A leader makes no progress in two cases: it starts no attempt for
PROGRESS_TIMEOUT although pods are pending, or SEVERE_LIMIT consecutive attempts end in a severe plugin error
(`PluginError.severe`). Ordinary plugin exceptions do not count, because another leader meets them too; the pod is retried
after its backoff.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from pinnace.api.core_v1_pb2 import Pod
from pinnace.client.client import Client
from pinnace.client.informer import Delta
from pinnace.client.resource import batch_errors
from pinnace.client.standby import ProgressTimeout, Standby
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check
from pinnace.runtime.logs import TokenFenced
from pinnace.runtime.supervise import unending
from pinnace.runtime.tracing import NO_TRACER, Tracer
from pinnace.scheduler import metrics
from pinnace.scheduler.attempts import AttemptMarks, marked
from pinnace.scheduler.binding_cycle import Binder
from pinnace.scheduler.cache.cache import Cache, Change, ClusterEvent
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.config import Configuration, build, digest, needs, writes
from pinnace.scheduler.debugger import Debugger
from pinnace.scheduler.events import PodTraces, Recorders, Reporter
from pinnace.scheduler.extenders.extender import Extender, Extenders
from pinnace.scheduler.framework.plugin_errors import PluginErrorLog
from pinnace.scheduler.framework.results import PluginError, PluginRejection
from pinnace.scheduler.framework.reuse import EquivalenceCache
from pinnace.scheduler.framework.runtime import BindingCycle, Profiles
from pinnace.scheduler.informers import EventHandlers, Informers, PluginHandle
from pinnace.scheduler.preemption import Evictions, PreemptionHandle
from pinnace.scheduler.queue import QueuedPod, SchedulingQueue
from pinnace.scheduler.scheduling_cycle import (
    AttemptFailed,
    CycleResult,
    Decision,
    ExtenderScheduling,
    Placed,
    Superseded,
    Unschedulable,
    schedule_one,
)

log = logging.getLogger(__name__)

SLICE = 0.005
"""Seconds of scheduling before the event loop runs other tasks."""
HANDOVER_DELAY = 0.3
"""Seconds between resignation and cleanup, because both replicas share CPUs and API servers."""
IDLE_TIMEOUT = 60.0
"""Seconds after which an idle loop checks the queue again. All known events wake it earlier."""


class Scheduler:
    """One scheduler replica. `name` identifies it in the election."""

    def __init__(
        self,
        client: Client,
        name: str,
        config: Configuration,
        *,
        clock: Clock = SYSTEM_CLOCK,
        tracer: Tracer = NO_TRACER,
        patience: ProgressTimeout | None = None,
    ) -> None:
        """`patience` is shared by the consecutive schedulers of this process."""
        self._config = config
        self._clock = clock
        self._traces = PodTraces(clock, tracer)
        self._cache = Cache()
        self._equivalence = EquivalenceCache(self._cache.nodes)
        self._binder = Binder(client.pods, self._cache, self, lambda token: self._standby.fence_of(token), clock=clock)
        self._informers = Informers(client, needs(config), writes(config), clock=clock)
        self._progress = Progress()
        self._standby = Standby(
            client.connection,
            config.election,
            name,
            self._informers,
            lead=self._lead,
            on_lost=self._on_lost,
            scheduler_names=[profile.scheduler_name for profile in config.profiles],
            configuration=digest(config),
            find_stall=self._stuck,
            progress_timeout=patience,
            clock=clock,
        )
        guarded = client.guarded(lambda: self._standby.fence)
        store = self._informers.pods.store
        self._name = name
        self._recorders = Recorders(client.events, [profile.scheduler_name for profile in config.profiles], name, clock=clock)
        self._evictions = Evictions(guarded.pods, self._binder, store, self._recorders, self._activate, clock=clock)
        preemption = PreemptionHandle(self._cache, self._evictions, store, config.seed)
        self._extenders = Extenders(config.extenders)
        handle = PluginHandle(self._informers, self._binder.waiting, self._activate, preemption, guarded)
        frameworks = build(config, handle, self._extenders.binders)
        self._profiles = preemption.profiles = Profiles(frameworks)
        self._queue = SchedulingQueue(self._profiles, initial_backoff=config.initial_backoff, max_backoff=config.max_backoff)
        self._extender_scheduling = ExtenderScheduling(self._cache, self._queue, store, config.seed)
        self._event_handlers = feed = EventHandlers(
            self._cache, self._queue, frameworks, clock.monotonic, self._wake_scheduling_loop, clock.time
        )
        self._informers.pods.add_handler(feed.on_pods)
        self._informers.pods.add_handler(self._reject_bound_or_deleted_pods)
        self._informers.nodes.add_handler(feed.on_nodes)
        for resource, informer in self._informers.others.items():
            informer.add_handler(partial(feed.on_objects, resource.plural))
        self.attempts = AttemptMarks(partial(client.elections.history, config.election), clock)
        self._marks = guarded.pods
        self._reporter = Reporter(self._recorders, guarded.pods, store, clock=clock)
        self._plugin_errors = PluginErrorLog()
        self._cycles: dict[str, BindingCycle] = {}
        """Binding cycles of pods whose bind has not completed, by UID."""
        self._wake = asyncio.Event()
        waiting = self._binder.waiting
        self.debugger = Debugger(
            name, self._cache, self._queue, self._informers, waiting, lambda: self._standby.token is not None, clock=clock
        )

    @property
    def checks(self) -> Mapping[str, Check]:
        return self._standby.checks

    def pending(self) -> Mapping[str, int]:
        """Return the number of waiting pods by queue."""
        return self._queue.counts()

    def refusing(self) -> Mapping[str, int]:
        """Return the number of unschedulable pods by plugin that refused them."""
        return self._queue.refusals()

    def cached(self) -> Mapping[str, int]:
        """Return the number of cached objects, by kube-scheduler's names."""
        return {"nodes": len(self._cache.nodes), "pods": len(self._cache), "assumed_pods": len(self._cache.assumed())}

    async def run(self) -> None:
        """Run until cancelled. Call `stop` first for a graceful shutdown."""
        try:
            async with asyncio.TaskGroup() as group:
                for part in (self._informers, self._binder, self._evictions, self._reporter, self._recorders):
                    group.create_task(unending(type(part).__name__, part.run))
                group.create_task(unending("EventHandlers", partial(self._event_handlers.run, self._clock)))
                group.create_task(unending("attempts", self.attempts.run))
                group.create_task(self._standby.run())  # ends after resignation
        finally:
            await self._extenders.close()

    async def stop(self) -> None:
        """Resign so that another replica is elected immediately, wait for HANDOVER_DELAY, and send the last events."""
        led = self._standby.token is not None
        await self._standby.resign()
        if led:
            await self._clock.sleep(HANDOVER_DELAY)
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._recorders.flush()

    # --- the election

    def _on_lost(self) -> None:
        for decision in self._binder.end_term():
            self._requeue_pod(decision.queued.info)
        self._evictions.drop()
        self._reporter.drop()

    async def _lead(self, token: int) -> None:
        self._settle_earlier_terms()
        self._progress.begin(self._clock.monotonic())
        self._traces.forget()
        self._binder.begin(token)
        if self.attempts.begin(token):
            log.warning("token %d: earlier terms ended early: each pod is marked before its attempt", token)
        placed = len(self._cache)
        log.info("token %d: %d nodes, %d pods placed, %d wait", token, len(self._cache.nodes), placed, len(self._queue))
        while self._leads(token):
            await self._work(token)

    def _leads(self, token: int) -> bool:
        return self._standby.token == token

    def _stuck(self) -> str | None:
        """Return the reason why this leader makes no progress, or None. Must be called often during a term."""
        now = self._clock.monotonic()
        return self._progress.stuck(self._queue.ready, self._binder.slow(now), now) or self._binder.stuck(now)

    # --- the scheduling loop

    async def _work(self, token: int) -> None:
        """Schedule pods for one slice, or wait for work."""
        self._progress.doing = "makes decisions"
        started = now = self._clock.monotonic()
        while now - started < SLICE and self._binder.has_room and (queued := self._queue.pop(now)) is not None:
            if self.attempts.must_mark(queued.info.raw, now) and not await self._mark(queued, token):
                return
            info = queued.info
            if extenders := self._extenders.interested(info):
                await self._schedule_with_extenders(queued, token, extenders, now)
                if not self._leads(token):
                    return
            else:
                kept = self._cache.nodes.nominated.node_of(info.uid)
                outcome = schedule_one(info, self._cache, self._profiles.of(info), self._config.seed, self._equivalence)
                self._conclude(queued, outcome, kept, token, now)
            now = self._clock.monotonic()
        if not self._binder.has_room:
            self._progress.doing = "waits until pending binds complete"
            await self._binder.room()
        elif self._queue.ready:
            await asyncio.sleep(0)
        else:
            await self._idle(now)

    async def _mark(self, queued: QueuedPod, token: int) -> bool:
        """Mark the start of an attempt of the pod. Return False if the attempt must not start."""
        writing = batch_errors(self._marks.update_status_batch, [marked(queued.info.raw, self._clock.time())])
        try:
            (problem,) = await self._extender_scheduling.hold_while(queued, writing, lambda: self._leads(token))
        except Superseded:
            return False
        if problem is not None:
            self._progress.tried()
            log.info("pod %s is not scheduled: cannot mark the attempt: %s", queued.info.key, problem)
            self._queue.retry(queued, self._clock.monotonic())
        return problem is None

    async def _schedule_with_extenders(
        self, queued: QueuedPod, token: int, extenders: Sequence[Extender], began: float
    ) -> None:
        framework = self._profiles.of(queued.info)
        kept = self._cache.nodes.nominated.node_of(queued.info.uid)
        names = ", ".join(extender.name for extender in extenders)
        self._progress.expect(f"asks {names} about pod {queued.info.key}", sum(extender.timeout for extender in extenders))
        outcome = await self._extender_scheduling.schedule(queued, framework, extenders, lambda: self._leads(token))
        if outcome is not None:
            self._conclude(queued, outcome, kept, token, began)

    def _conclude(self, queued: QueuedPod, outcome: CycleResult, kept: str, token: int, began: float) -> None:
        """Handle the result of an attempt. `kept` is the node to which the pod was nominated before it."""
        self._progress.tried()
        info, now = queued.info, self._clock.monotonic()
        profile = info.raw.spec.schedulerName
        if kept not in ("", self._cache.nodes.nominated.node_of(info.uid), self._cache.node_of(info.uid)):
            self._queue.wake(ClusterEvent(Change.POD_FREED, kept), self._cache.nodes, now)
        match outcome:
            case Placed(node, cycle):
                metrics.attempts(profile, metrics.SCHEDULED).note(now - began)
                self._traces.tried(queued, began, "scheduled", node)
                if cycle is not None:
                    self._cycles[info.uid] = cycle
                self._binder.submit(Decision(queued, node, token, cycle))
            case Unschedulable(refused_by, message, nominated, outdated):
                metrics.attempts(profile, metrics.UNSCHEDULABLE).note(now - began)
                self._traces.tried(queued, began, "unschedulable")
                self._progress.worked()
                self._nominate(info, nominated, now)
                self._queue.unschedulable(queued, refused_by, now, missed=outdated)
                self._reporter.failed(info, "Unschedulable", message, nominated)
            case AttemptFailed(error):
                metrics.attempts(profile, metrics.ERROR).note(now - began)
                self._traces.tried(queued, began, "error")
                log.debug("pod %s: %s", info.key, error)
                if isinstance(error, PluginError):
                    self._plugin_errors.note(error)
                    self._note_severe(error)
                self._queue.retry(queued, now, rarely=isinstance(error, PluginError) and error.took_long)
                self._reporter.failed(info, "SchedulerError", str(error), self._cache.nodes.nominated.node_of(info.uid))

    def _note_severe(self, error: PluginError) -> None:
        if error.severe:
            self._progress.failed(str(error), self._clock.monotonic())

    def _nominate(self, info: PodInfo, node: str, now: float) -> None:
        """Nominate the pod to a node, or to none if `node` is empty. Nominated pods of lower priority there are requeued."""
        events = [self._cache.nominate(info, node)]
        for other in self._cache.nodes.nominated.on(node):
            if other.priority < info.priority:
                events.append(self._cache.nominate(other, ""))
                self._queue.activate(other.uid, now)
        for event in events:
            if event is not None:
                self._queue.wake(event, self._cache.nodes, now)

    async def _idle(self, now: float) -> None:
        """Wait for an event or for the end of a backoff."""
        self._progress.doing = "waits for an event"
        self._wake.clear()
        due = self._queue.next_due()
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_TIMEOUT if due is None else max(0.0, min(IDLE_TIMEOUT, due - now))):
                await self._wake.wait()

    def _wake_scheduling_loop(self) -> None:
        self._wake.set()

    def _activate(self, uid: str) -> None:
        self._queue.activate(uid, self._clock.monotonic())
        self._wake_scheduling_loop()

    # --- results of binds (scheduler.scheduling_cycle.BindingObserver)

    def bound(self, decision: Decision) -> None:
        metrics.BOUND.inc()
        self._progress.worked()
        self._traces.settled(decision, "bound")
        metrics.TRIES.observe(decision.queued.attempts)
        if (cycle := self._end_cycle(decision)) is not None:
            cycle.bound()
        self._reporter.scheduled(decision.queued.info, decision.node)

    def failed(self, decision: Decision, problem: str | PluginError, *, retry: bool) -> None:
        if isinstance(problem, PluginError):
            self._note_severe(problem)
        current = self._given_up(decision)
        if current is not None and retry:
            self._queue.retry(decision.queued, self._clock.monotonic())
            self._report(current, "SchedulerError", f"binding to {decision.node}: {problem}")

    def refused(self, decision: Decision, refused: PluginRejection) -> None:
        """Requeue the pod in backoff, because a helpful event may have happened during the binding cycle."""
        current = self._given_up(decision)
        if current is not None:
            self._queue.unschedulable(decision.queued, frozenset([refused.plugin]), self._clock.monotonic(), missed=True)
            self._report(current, "Unschedulable", refused.message)

    def superseded(self, decision: Decision) -> None:
        self._traces.settled(decision, "superseded")
        if (cycle := self._end_cycle(decision)) is not None:
            self._undo(cycle)

    def refused_by_fence(self, token: int, binds: int) -> None:
        self._reporter.fenced(self._name, token, binds)

    def fenced(self, token: int) -> None:
        log.warning("token %d is fenced: another leader has been elected", token, extra=TokenFenced(token).extra)
        self._standby.end_fenced_term(token)

    def _given_up(self, decision: Decision) -> PodInfo | None:
        """End a decision. Return the current pod if it still needs a node."""
        metrics.FAILED.inc()
        self._traces.settled(decision, "failed")
        current = self._forget(decision.queued.info)
        if current is not None:
            decision.queued.info = current
        return current

    def _report(self, pod: PodInfo, reason: str, message: str) -> None:
        """Report that the bind of the pod failed."""
        self._reporter.failed(pod, reason, message, self._cache.nodes.nominated.node_of(pod.uid))

    def _end_cycle(self, decision: Decision) -> BindingCycle | None:
        """Remove and return the decision's binding cycle, or None if it has already ended."""
        uid = decision.queued.info.uid
        return self._cycles.pop(uid) if decision.cycle is not None and self._cycles.get(uid) is decision.cycle else None

    def _settle_earlier_terms(self) -> None:
        """Forget the assumptions of earlier terms, which can never commit.

        Nominated pods are requeued, because the earlier terms may not have deleted their victims.
        """
        for info in self._cache.assumed():
            self._requeue_pod(info)
        for info in self._cache.nodes.nominated:
            self._queue.activate(info.uid, self._clock.monotonic())
        for uid, cycle in self._cycles.items():
            if self._cache.node_of(uid) == cycle.node:
                cycle.bound()
            else:
                self._undo(cycle)
        self._cycles.clear()

    def _reject_bound_or_deleted_pods(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Reject pods in Permit that another client has bound or deleted."""
        if len(self._binder.waiting):
            for delta in deltas:
                uid = delta.obj.metadata.uid
                if (waiting := self._binder.waiting.get(uid)) is not None and not self._cache.is_assumed(uid):
                    waiting.reject("", "the pod is bound or deleted")

    def _requeue_pod(self, info: PodInfo) -> None:
        current = self._forget(info)
        if current is not None:
            self._queue.add(current, self._clock.monotonic())

    def _forget(self, info: PodInfo) -> PodInfo | None:
        """Forget an assumption and undo its binding cycle. Return the current pod if it still needs a node."""
        event = self._cache.forget(info.uid)
        if (cycle := self._cycles.pop(info.uid, None)) is not None:
            self._undo(cycle)
        if event is None:
            return None
        self._queue.wake(event, self._cache.nodes, self._clock.monotonic())
        self._wake_scheduling_loop()
        pod = self._informers.pods.store.get(info.key)
        return PodInfo(pod) if pod is not None and pod.metadata.uid == info.uid and not pod.spec.nodeName else None

    def _undo(self, cycle: BindingCycle) -> None:
        """Undo a binding cycle.

        Pods that wait for its reservation are requeued, because the deletion event may have arrived before the
        reservation ended.
        """
        cycle.undo()
        if cycle.reserved:
            event = ClusterEvent(Change.RESERVATION_ENDED, cycle.node)
            self._queue.wake(event, self._cache.nodes, self._clock.monotonic())
            self._wake_scheduling_loop()


PROGRESS_TIMEOUT = 10.0
"""Seconds within which a leader starts an attempt while pods are ready."""
SEVERE_LIMIT = 2
"""Number of consecutive severe failures that count as no progress."""


class Progress:
    """The progress of one term."""

    def __init__(self) -> None:
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Start a term."""
        self.doing = "begins"
        """The current activity of the scheduling loop, for messages."""
        self._attempts = self._seen = 0
        self._tried = now
        self._allowance = 0.0
        self._severe = 0
        self._since = now
        self._problem = ""

    def tried(self) -> None:
        """Record the end of an attempt with any result."""
        self._attempts += 1
        self._allowance = 0.0

    def worked(self) -> None:
        """Record that a pod was bound or found unschedulable."""
        self._severe = 0

    def failed(self, problem: str, now: float) -> None:
        """Record an attempt that ended with a severe plugin error."""
        if not self._severe:
            self._since = now
        self._severe += 1
        self._problem = problem

    def expect(self, doing: str, seconds: float) -> None:
        """Extend the limit of the current attempt, which calls external services."""
        self.doing, self._allowance = doing, seconds

    def stuck(self, ready: bool, slow: Mapping[tuple[str, str], tuple[int, float]], now: float) -> str | None:
        """Return the reason why the leader makes no progress, or None. Must be called often.

        `ready` is True if pods are pending. `slow` maps (plugin, extension point) to the number of pods without a
        response and the
        seconds since the oldest call.
        """
        if not ready or self._attempts != self._seen:
            self._seen, self._tried = self._attempts, now
        if self._severe >= SEVERE_LIMIT:
            return f"each of {self._severe} attempts in {now - self._since:.0f} s has failed: {self._problem}"
        if (still := now - self._tried) >= PROGRESS_TIMEOUT + self._allowance:
            named = [f'plugin "{plugin}" in {point} ({number} pods)' for (plugin, point), (number, _) in slow.items()]
            waits = f", for {', '.join(named)}" if named else ""
            return f"no scheduling attempt for {still:.0f} s although pods are pending: the scheduling loop {self.doing}{waits}"
        return None
