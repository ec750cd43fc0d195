"""The scheduler component: informers -> event handlers -> cache and queue -> scheduling cycle -> binder, under leader election.

* A standby keeps its cache and queue up to date (pinnace/client/standby.py).
* A new leader waits until its informers have received all writes of earlier leaders: pods, and the objects that plugins write.
  After this barrier, every bind of an earlier term is in the cache or can never commit, so the leader forgets all other
  assumptions of earlier terms. Nothing else forgets them.
* A leader schedules in slices of SLICE seconds. The event loop handles heartbeats between slices and during extender calls.
* When the leader loses the lease, or a bind is fenced, it stops all decisions and writes. Assumed pods whose binds were not
  sent return to the queue. The other assumed pods stay assumed.
* All writes of a leader are fenced, except events. Binds use the token of their decision, other writes the current token.
* A leader without progress (`LeaderProgress`) resigns and logs the reason.

`LeaderProgress` is pure and uses monotonic seconds. A leader makes no progress in two cases: it starts no attempt for
PROGRESS_TIMEOUT although pods are pending, or SEVERE_LIMIT consecutive attempts end in a severe plugin error
(`PluginError.is_severe`). Ordinary plugin exceptions do not count, because another leader meets them too; the pod is retried
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
from pinnace.runtime.supervise import run_unending
from pinnace.runtime.tracing import NO_TRACER, Tracer
from pinnace.scheduler import metrics
from pinnace.scheduler.attempts import AttemptMarks, with_attempt_mark
from pinnace.scheduler.binding_cycle import Binder
from pinnace.scheduler.cache.cache import Cache, Change, ClusterEvent
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.config import (
    Configuration,
    build_frameworks,
    configuration_digest,
    required_resources,
    written_resources,
)
from pinnace.scheduler.debugger import Debugger
from pinnace.scheduler.events import PodTraces, Recorders, StatusReporter
from pinnace.scheduler.extenders.extender import Extender, Extenders
from pinnace.scheduler.framework.plugin_errors import PluginErrorLog
from pinnace.scheduler.framework.results import PluginError, PluginRejection
from pinnace.scheduler.framework.reuse import EquivalenceCache
from pinnace.scheduler.framework.runtime import BindingCycle, Profiles
from pinnace.scheduler.informers import EventHandlers, Informers, PluginHandle
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.preemption import Evictions, PreemptionHandle
from pinnace.scheduler.queue import QueuedPod, SchedulingQueue
from pinnace.scheduler.recording import InputRecording
from pinnace.scheduler.scheduling_cycle import (
    AttemptFailed,
    CycleResult,
    Decision,
    ExtenderScheduling,
    Placed,
    Superseded,
    Unschedulable,
    move_pods_after_nomination,
    requeue_pod,
    schedule_one,
)

log = logging.getLogger(__name__)

SLICE = 0.005
"""Seconds of scheduling before the event loop runs other tasks."""
HANDOVER_DELAY = 0.3
"""Seconds between resignation and cleanup, because both replicas share CPUs and API servers."""
IDLE_TIMEOUT = 60.0
"""Seconds after which an idle loop checks the queue again. All known events wake it earlier."""
PROGRESS_TIMEOUT = 10.0
"""Seconds within which a leader starts an attempt while pods are ready."""
SEVERE_LIMIT = 2
"""Number of consecutive severe failures that count as no progress."""


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
        recording: InputRecording | None = None,
    ) -> None:
        """`patience` and `recording` are shared by the consecutive schedulers of this process."""
        self._config = config
        self._clock = clock
        self._traces = PodTraces(clock, tracer)
        self._cache = Cache()
        self._binder = Binder(client.pods, self._cache, self, lambda token: self._standby.fence_of(token), clock=clock)
        self._informers = Informers(client, required_resources(config), written_resources(config), clock=clock)
        self._progress = LeaderProgress()
        self._standby = Standby(
            client.connection,
            config.election,
            name,
            self._informers,
            lead=self._lead_term,
            on_lost=self._end_term,
            scheduler_names=[profile.scheduler_name for profile in config.profiles],
            configuration=configuration_digest(config),
            find_stall=self._find_stall,
            progress_timeout=patience,
            clock=clock,
        )
        self._recording = recording
        if recording is not None:
            recording.record_start(name, config.seed)
            for resource, informer in self._informers.all.items():
                informer.add_handler(partial(recording.record_objects, resource.plural))
        guarded = client.with_fence(lambda: self._standby.fence)
        store = self._informers.pods.store
        self._name = name
        self._recorders = Recorders(client.events, [profile.scheduler_name for profile in config.profiles], name, clock=clock)
        self._evictions = Evictions(guarded.pods, self._binder, store, self._recorders, self._activate_pod, clock=clock)
        preemption = PreemptionHandle(self._cache, self._evictions, store, config.seed)
        self._extenders = Extenders(config.extenders)
        handle = PluginHandle(self._informers, self._binder.waiting, self._activate_pod, preemption, guarded)
        frameworks = build_frameworks(config, handle, self._extenders.binders)
        self._profiles = preemption.profiles = Profiles(frameworks)
        equivalence = EquivalenceCache(self._cache.nodes)
        self._selectors = {
            profile: NodeSelector(self._cache, framework, config.seed, equivalence) for profile, framework in frameworks.items()
        }
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
        self.attempts = AttemptMarks(partial(client.elections.list_terms, config.election), clock)
        self._marks = guarded.pods
        self._reporter = StatusReporter(self._recorders, guarded.pods, store, clock=clock)
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

    def count_pending(self) -> Mapping[str, int]:
        """Return the number of waiting pods by queue."""
        return self._queue.count_by_place()

    def count_refusals(self) -> Mapping[str, int]:
        """Return the number of unschedulable pods by plugin that refused them."""
        return self._queue.count_refusals()

    def count_cached(self) -> Mapping[str, int]:
        """Return the number of cached objects, by kube-scheduler's names."""
        return {"nodes": len(self._cache.nodes), "pods": len(self._cache), "assumed_pods": len(self._cache.assumed_pods())}

    async def run(self) -> None:
        """Run until cancelled. Call `stop` first for a graceful shutdown."""
        try:
            async with asyncio.TaskGroup() as group:
                for part in (self._informers, self._binder, self._evictions, self._reporter, self._recorders):
                    group.create_task(run_unending(type(part).__name__, part.run))
                group.create_task(run_unending("EventHandlers", partial(self._event_handlers.run, self._clock)))
                group.create_task(run_unending("attempts", self.attempts.run))
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

    def _end_term(self) -> None:
        for decision in self._binder.end_term():
            self._requeue_pod(decision.queued.info)
        self._evictions.discard_pending()
        self._reporter.discard_pending()

    async def _lead_term(self, token: int) -> None:
        self._forget_earlier_assumptions()
        self._progress.begin_term(self._clock.monotonic())
        self._traces.discard_open_spans()
        self._binder.begin_term(token)
        if self.attempts.begin_term(token):
            log.warning("token %d: earlier terms ended early: each pod is marked before its attempt", token)
        placed = len(self._cache)
        log.info("token %d: %d nodes, %d pods placed, %d wait", token, len(self._cache.nodes), placed, len(self._queue))
        while self._is_leader_with(token):
            await self._run_time_slice(token)

    def _is_leader_with(self, token: int) -> bool:
        return self._standby.token == token

    def _find_stall(self) -> str | None:
        """Return the reason why this leader makes no progress, or None. Must be called often during a term."""
        now = self._clock.monotonic()
        return self._progress.find_stall(
            self._queue.has_active_pods, self._binder.slow_calls(now), now
        ) or self._binder.find_stuck_batch(now)

    # --- the scheduling loop

    async def _run_time_slice(self, token: int) -> None:
        """Schedule pods for one slice, or wait for work."""
        self._progress.doing = "makes decisions"
        started = now = self._clock.monotonic()
        while now - started < SLICE and self._binder.has_room and (queued := self._queue.pop_pod(now)) is not None:
            if self.attempts.must_mark(queued.info.raw, now) and not await self._mark_attempt(queued, token):
                return
            info = queued.info
            if extenders := self._extenders.extenders_of(info):
                await self._schedule_with_extenders(queued, token, extenders, now)
                if not self._is_leader_with(token):
                    return
            else:
                kept = self._cache.nodes.nominated.node_of(info.uid)
                outcome = schedule_one(info, self._selectors[info.raw.spec.schedulerName])
                self._handle_result(queued, outcome, kept, token, now)
            now = self._clock.monotonic()
        if not self._binder.has_room:
            self._progress.doing = "waits until pending binds complete"
            await self._binder.wait_for_room()
        elif self._queue.has_active_pods:
            await asyncio.sleep(0)
        else:
            await self._wait_for_work(now)

    async def _mark_attempt(self, queued: QueuedPod, token: int) -> bool:
        """Mark the start of an attempt of the pod. Return False if the attempt must not start."""
        writing = batch_errors(self._marks.update_status_batch, [with_attempt_mark(queued.info.raw, self._clock.time())])
        try:
            (problem,) = await self._extender_scheduling.hold_while(queued, writing, lambda: self._is_leader_with(token))
        except Superseded:
            return False
        if problem is not None:
            self._progress.record_attempt()
            log.info("pod %s is not scheduled: cannot mark the attempt: %s", queued.info.key, problem)
            self._queue.add_failed(queued, self._clock.monotonic())
        return problem is None

    async def _schedule_with_extenders(
        self, queued: QueuedPod, token: int, extenders: Sequence[Extender], began: float
    ) -> None:
        framework = self._profiles.framework_of(queued.info)
        kept = self._cache.nodes.nominated.node_of(queued.info.uid)
        names = ", ".join(extender.name for extender in extenders)
        self._progress.extend_limit(
            f"asks {names} about pod {queued.info.key}", sum(extender.timeout for extender in extenders)
        )
        outcome = await self._extender_scheduling.schedule_with_extenders(
            queued, framework, extenders, lambda: self._is_leader_with(token)
        )
        if outcome is not None:
            self._handle_result(queued, outcome, kept, token, began)

    def _handle_result(self, queued: QueuedPod, outcome: CycleResult, kept: str, token: int, began: float) -> None:
        """Handle the result of an attempt. `kept` is the node to which the pod was nominated before it."""
        self._progress.record_attempt()
        info, now = queued.info, self._clock.monotonic()
        if self._recording is not None and not self._extenders.extenders_of(info):
            self._recording.record_attempt(info.uid, outcome.node if isinstance(outcome, Placed) else "", self._clock.time())
        profile = info.raw.spec.schedulerName
        move_pods_after_nomination(info, kept, self._cache, self._queue, now)
        match outcome:
            case Placed(node, cycle):
                metrics.attempt_metrics(profile, metrics.SCHEDULED).record_attempt(now - began)
                self._traces.record_attempt(queued, began, "scheduled", node)
                if cycle is not None:
                    self._cycles[info.uid] = cycle
                self._binder.submit_decision(Decision(queued, node, token, cycle))
            case Unschedulable(_, message, nominated):
                metrics.attempt_metrics(profile, metrics.UNSCHEDULABLE).record_attempt(now - began)
                self._traces.record_attempt(queued, began, "unschedulable")
                self._progress.record_success()
                requeue_pod(queued, outcome, self._cache, self._queue, now)
                self._reporter.report_failed(info, "Unschedulable", message, nominated)
            case AttemptFailed(error):
                metrics.attempt_metrics(profile, metrics.ERROR).record_attempt(now - began)
                self._traces.record_attempt(queued, began, "error")
                log.debug("pod %s: %s", info.key, error)
                if isinstance(error, PluginError):
                    self._plugin_errors.log_error(error)
                    self._log_severe_error(error)
                requeue_pod(queued, outcome, self._cache, self._queue, now)
                self._reporter.report_failed(info, "SchedulerError", str(error), self._cache.nodes.nominated.node_of(info.uid))

    def _log_severe_error(self, error: PluginError) -> None:
        if error.is_severe:
            self._progress.record_failure(str(error), self._clock.monotonic())

    async def _wait_for_work(self, now: float) -> None:
        """Wait for an event or for the end of a backoff."""
        self._progress.doing = "waits for an event"
        self._wake.clear()
        due = self._queue.next_due()
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_TIMEOUT if due is None else max(0.0, min(IDLE_TIMEOUT, due - now))):
                await self._wake.wait()

    def _wake_scheduling_loop(self) -> None:
        self._wake.set()

    def _activate_pod(self, uid: str) -> None:
        self._queue.activate_pod(uid, self._clock.monotonic())
        self._wake_scheduling_loop()

    # --- results of binds (scheduler.scheduling_cycle.BindingObserver)

    def on_bound(self, decision: Decision) -> None:
        metrics.BOUND.inc()
        self._progress.record_success()
        self._traces.record_bind(decision, "bound")
        metrics.TRIES.observe(decision.queued.attempts)
        if (cycle := self._pop_binding_cycle(decision)) is not None:
            cycle.run_post_bind()
        self._reporter.report_scheduled(decision.queued.info, decision.node)

    def on_bind_failed(self, decision: Decision, problem: str | PluginError, *, retry: bool) -> None:
        if isinstance(problem, PluginError):
            self._log_severe_error(problem)
        current = self._end_decision(decision)
        if current is not None and retry:
            self._queue.add_failed(decision.queued, self._clock.monotonic())
            self._report_bind_failure(current, "SchedulerError", f"binding to {decision.node}: {problem}")

    def on_bind_rejected(self, decision: Decision, refused: PluginRejection) -> None:
        """Requeue the pod in backoff, because a helpful event may have happened during the binding cycle."""
        current = self._end_decision(decision)
        if current is not None:
            self._queue.add_unschedulable(decision.queued, frozenset([refused.plugin]), self._clock.monotonic(), missed=True)
            self._report_bind_failure(current, "Unschedulable", refused.message)

    def on_bind_superseded(self, decision: Decision) -> None:
        self._traces.record_bind(decision, "superseded")
        if (cycle := self._pop_binding_cycle(decision)) is not None:
            self._undo_cycle(cycle)

    def on_binds_fenced(self, token: int, binds: int) -> None:
        self._reporter.report_fenced(self._name, token, binds)

    def on_term_fenced(self, token: int) -> None:
        log.warning("token %d is fenced: another leader has been elected", token, extra=TokenFenced(token).extra)
        self._standby.end_fenced_term(token)

    def _end_decision(self, decision: Decision) -> PodInfo | None:
        """End a decision. Return the current pod if it still needs a node."""
        metrics.FAILED.inc()
        self._traces.record_bind(decision, "failed")
        current = self._forget_assumption(decision.queued.info)
        if current is not None:
            decision.queued.info = current
        return current

    def _report_bind_failure(self, pod: PodInfo, reason: str, message: str) -> None:
        """Report that the bind of the pod failed."""
        self._reporter.report_failed(pod, reason, message, self._cache.nodes.nominated.node_of(pod.uid))

    def _pop_binding_cycle(self, decision: Decision) -> BindingCycle | None:
        """Remove and return the decision's binding cycle, or None if it has already ended."""
        uid = decision.queued.info.uid
        return self._cycles.pop(uid) if decision.cycle is not None and self._cycles.get(uid) is decision.cycle else None

    def _forget_earlier_assumptions(self) -> None:
        """Forget the assumptions of earlier terms, which can never commit.

        Nominated pods are requeued, because the earlier terms may not have deleted their victims.
        """
        for info in self._cache.assumed_pods():
            self._requeue_pod(info)
        for info in self._cache.nodes.nominated:
            self._queue.activate_pod(info.uid, self._clock.monotonic())
        for uid, cycle in self._cycles.items():
            if self._cache.node_of(uid) == cycle.node:
                cycle.run_post_bind()
            else:
                self._undo_cycle(cycle)
        self._cycles.clear()

    def _reject_bound_or_deleted_pods(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Reject pods in Permit that another client has bound or deleted."""
        if len(self._binder.waiting):
            for delta in deltas:
                uid = delta.obj.metadata.uid
                if (waiting := self._binder.waiting.get(uid)) is not None and not self._cache.is_assumed(uid):
                    waiting.reject("", "the pod is bound or deleted")

    def _requeue_pod(self, info: PodInfo) -> None:
        current = self._forget_assumption(info)
        if current is not None:
            self._queue.add_pod(current, self._clock.monotonic())

    def _forget_assumption(self, info: PodInfo) -> PodInfo | None:
        """Forget an assumption and undo its binding cycle. Return the current pod if it still needs a node."""
        if self._recording is not None:
            self._recording.record_forgotten(info.uid)
        event = self._cache.forget_pod(info.uid)
        if (cycle := self._cycles.pop(info.uid, None)) is not None:
            self._undo_cycle(cycle)
        if event is None:
            return None
        self._queue.move_pods_on_event(event, self._cache.nodes, self._clock.monotonic())
        self._wake_scheduling_loop()
        pod = self._informers.pods.store.get(info.key)
        return PodInfo(pod) if pod is not None and pod.metadata.uid == info.uid and not pod.spec.nodeName else None

    def _undo_cycle(self, cycle: BindingCycle) -> None:
        """Undo a binding cycle.

        Pods that wait for its reservation are requeued, because the deletion event may have arrived before the
        reservation ended.
        """
        cycle.run_unreserve()
        if cycle.reserved:
            event = ClusterEvent(Change.RESERVATION_ENDED, cycle.node)
            self._queue.move_pods_on_event(event, self._cache.nodes, self._clock.monotonic())
            self._wake_scheduling_loop()


class LeaderProgress:
    """The progress of one term."""

    def __init__(self) -> None:
        self.begin_term(0.0)

    def begin_term(self, now: float) -> None:
        """Start a term."""
        self.doing = "begins"
        """The current activity of the scheduling loop, for messages."""
        self._attempts = self._seen = 0
        self._tried = now
        self._allowance = 0.0
        self._severe = 0
        self._since = now
        self._problem = ""

    def record_attempt(self) -> None:
        """Record the end of an attempt with any result."""
        self._attempts += 1
        self._allowance = 0.0

    def record_success(self) -> None:
        """Record that a pod was bound or found unschedulable."""
        self._severe = 0

    def record_failure(self, problem: str, now: float) -> None:
        """Record an attempt that ended with a severe plugin error."""
        if not self._severe:
            self._since = now
        self._severe += 1
        self._problem = problem

    def extend_limit(self, doing: str, seconds: float) -> None:
        """Extend the limit of the current attempt, which calls external services."""
        self.doing, self._allowance = doing, seconds

    def find_stall(self, ready: bool, slow: Mapping[tuple[str, str], tuple[int, float]], now: float) -> str | None:
        """Return the reason why the leader makes no progress, or None. Must be called often.

        `ready` is True if pods are pending. `slow` maps (plugin, extension point) to the number of pods without a response and
        the seconds since the oldest call.
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
