"""The scheduler, put together: informers -> feed -> cache and queue -> cycle -> binder, under an election, as a standby
(pinnace/client/standby.py).

* While it stands by, its cache and queue are full.
* The barrier is for the informers of what leaders write: pods, and what plugins say that they write. Every bind of an earlier
  term is then in the cache, or can never commit; so what is still assumed from an earlier term is forgotten there, and only
  there.
* While leading, decisions are made in slices of SLICE seconds, with the event loop (heartbeats) served in between, and while
  extenders are asked (`consulting`).
* On losing the lead, of which a fenced bind may tell first, nothing more is decided or sent; assumed pods whose binds were not
  sent are forgotten and queue again, those whose binds were sent stay assumed.
* All that a leader writes is fenced, but for events: binds under the token of their decision, the rest under the present one.
* A leader that does not go on (`progress`), or whose term ends early, gives the election up, and says why.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from pinnace.api.core_v1_pb2 import Pod
from pinnace.client.client import Client
from pinnace.client.informer import Delta
from pinnace.client.resource import errors_of
from pinnace.client.standby import ProgressTimeout, Standby
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check
from pinnace.runtime.logs import TokenFenced
from pinnace.runtime.supervise import unending
from pinnace.runtime.tracing import NO_TRACER, Tracer
from scheduler import metrics
from scheduler.attempts import Attempts, marked
from scheduler.binding import Binder
from scheduler.cache.cache import Cache
from scheduler.cache.changes import Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.config import Configuration, build, digest, needs, writes
from scheduler.consulting import Consulting, Overtaken
from scheduler.cycle import Broken, Outcome, Placed, Unschedulable, schedule_one
from scheduler.debugger import Debugger
from scheduler.decision import Decision
from scheduler.extenders.extender import Extender
from scheduler.extenders.extenders import Extenders
from scheduler.feed import Feed
from scheduler.framework.binding_plugins import BindingCycle
from scheduler.framework.faults import Faults
from scheduler.framework.results import PluginError, Refused
from scheduler.framework.reuse import Passes
from scheduler.framework.runtime import Profiles
from scheduler.informers import Informers, PluginHandle
from scheduler.preemption.evictions import Evictions, PreemptionHandle
from scheduler.progress import Progress
from scheduler.queue import QueuedPod, SchedulingQueue
from scheduler.recorders import Recorders
from scheduler.reporter import Reporter
from scheduler.tracing import PodTraces

log = logging.getLogger(__name__)

SLICE = 0.005
"""Seconds for which the event loop is kept busy at a stretch."""
HANDOVER = 0.3
"""Seconds for which a leader that has resigned keeps quiet, before it tidies up: it and the next one share processors and API
servers."""
IDLE = 60.0
"""Seconds after which an idle loop looks again; it is woken for all it knows of."""


class Scheduler:
    """`name` is the replica's: the holder of the election."""

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
        """`patience`: what the schedulers of this process share, one after the other."""
        self._config = config
        self._clock = clock
        self._traces = PodTraces(clock, tracer)
        self._cache = Cache()
        self._passes = Passes(self._cache.nodes)
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
            scheduler_names=[each.scheduler_name for each in config.profiles],
            configuration=digest(config),
            stuck=self._stuck,
            patience=patience,
            clock=clock,
        )
        guarded = client.guarded(lambda: self._standby.fence)
        store = self._informers.pods.store
        self._recorders = Recorders(client.events, [each.scheduler_name for each in config.profiles], name, clock=clock)
        self._evictions = Evictions(guarded.pods, self._binder, store, self._recorders, self._activate, clock=clock)
        preemption = PreemptionHandle(self._cache, self._evictions, store, config.seed)
        self._extenders = Extenders(config.extenders)
        handle = PluginHandle(self._informers, self._binder.waiting, self._activate, preemption, guarded)
        frameworks = build(config, handle, self._extenders.binders)
        self._profiles = preemption.profiles = Profiles(frameworks)
        self._queue = SchedulingQueue(self._profiles, initial_backoff=config.initial_backoff, max_backoff=config.max_backoff)
        self._consulting = Consulting(self._cache, self._queue, store, config.seed)
        self._feed = feed = Feed(self._cache, self._queue, frameworks, clock.monotonic, self._look_again, clock.time)
        self._informers.pods.add_handler(feed.on_pods)
        self._informers.pods.add_handler(self._reject_the_gone)
        self._informers.nodes.add_handler(feed.on_nodes)
        for resource, informer in self._informers.others.items():
            informer.add_handler(partial(feed.on_objects, resource.plural))
        self.attempts = Attempts(partial(client.elections.history, config.election), clock)
        self._marks = guarded.pods
        self._reporter = Reporter(self._recorders, guarded.pods, store, clock=clock)
        self._faults = Faults()
        self._cycles: dict[str, BindingCycle] = {}
        """By uid, of the pods whose bind is not known to have ended."""
        self._wake = asyncio.Event()
        waiting = self._binder.waiting
        self.debugger = Debugger(
            name, self._cache, self._queue, self._informers, waiting, lambda: self._standby.token is not None, clock=clock
        )

    @property
    def checks(self) -> Mapping[str, Check]:
        return self._standby.checks

    def pending(self) -> Mapping[str, int]:
        """Pods that wait, by queue."""
        return self._queue.counts()

    def refusing(self) -> Mapping[str, int]:
        """Unschedulable pods, by the plugins that refused them."""
        return self._queue.refusals()

    def cached(self) -> Mapping[str, int]:
        """What the cache holds, by kube-scheduler's names."""
        return {"nodes": len(self._cache.nodes), "pods": len(self._cache), "assumed_pods": len(self._cache.assumed())}

    async def run(self) -> None:
        """Until cancelled. Use `stop` first, for a polite end."""
        try:
            async with asyncio.TaskGroup() as group:
                for part in (self._informers, self._binder, self._evictions, self._reporter, self._recorders):
                    group.create_task(unending(type(part).__name__, part.run))
                group.create_task(unending("Feed", partial(self._feed.run, self._clock)))
                group.create_task(unending("attempts", self.attempts.run))
                group.create_task(self._standby.run())  # which ends when it has resigned
        finally:
            await self._extenders.close()

    async def stop(self) -> None:
        """Resigns, so that another replica leads at once, and sends the last events; but first it lets that one begin."""
        led = self._standby.token is not None
        await self._standby.resign()
        if led:
            await self._clock.sleep(HANDOVER)
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._recorders.flush()

    # --- the election

    def _on_lost(self) -> None:
        for decision in self._binder.stand_down():
            self._queue_again(decision.queued.info)
        self._evictions.drop()
        self._reporter.drop()

    async def _lead(self, token: int) -> None:
        self._settle_earlier_terms()
        self._progress.begin(self._clock.monotonic())
        self._traces.forget()
        self._binder.begin(token)
        if self.attempts.begin(token):
            log.warning("token %d: earlier terms ended soon: each pod is marked before it is tried", token)
        placed = len(self._cache)
        log.info("token %d: %d nodes, %d pods placed, %d wait", token, len(self._cache.nodes), placed, len(self._queue))
        while self._leads(token):
            await self._work(token)

    def _leads(self, token: int) -> bool:
        return self._standby.token == token

    def _stuck(self) -> str | None:
        """What keeps this leader from going on; None: nothing. To be asked often while it leads."""
        now = self._clock.monotonic()
        return self._progress.stuck(self._queue.ready, self._binder.slow(now), now) or self._binder.stuck(now)

    # --- the work of a leader

    async def _work(self, token: int) -> None:
        """Makes decisions for one slice, or waits for something to do."""
        self._progress.doing = "makes decisions"
        started = now = self._clock.monotonic()
        while now - started < SLICE and self._binder.has_room and (queued := self._queue.pop(now)) is not None:
            if self.attempts.must_mark(queued.info.raw, now) and not await self._mark(queued, token):
                return
            info = queued.info
            if extenders := self._extenders.interested(info):
                await self._consult(queued, token, extenders, now)
                if not self._leads(token):
                    return
            else:
                kept = self._cache.nodes.nominated.node_of(info.uid)
                outcome = schedule_one(info, self._cache, self._profiles.of(info), self._config.seed, self._passes)
                self._conclude(queued, outcome, kept, token, now)
            now = self._clock.monotonic()
        if not self._binder.has_room:
            self._progress.doing = "waits for room among the pods that are being bound"
            await self._binder.room()
        elif self._queue.ready:
            await asyncio.sleep(0)
        else:
            await self._idle(now)

    async def _mark(self, queued: QueuedPod, token: int) -> bool:
        """Writes down that an attempt at the pod begins. False: it may not begin."""
        writing = errors_of(self._marks.update_status_batch, [marked(queued.info.raw, self._clock.time())])
        try:
            (problem,) = await self._consulting.held(queued, writing, lambda: self._leads(token))
        except Overtaken:
            return False
        if problem is not None:
            self._progress.tried()
            log.info("pod %s is not tried: the attempt cannot be marked: %s", queued.info.key, problem)
            self._queue.retry(queued, self._clock.monotonic())
        return problem is None

    async def _consult(self, queued: QueuedPod, token: int, extenders: Sequence[Extender], began: float) -> None:
        framework = self._profiles.of(queued.info)
        kept = self._cache.nodes.nominated.node_of(queued.info.uid)
        names = ", ".join(each.name for each in extenders)
        self._progress.expect(f"asks {names} about pod {queued.info.key}", sum(each.patience for each in extenders))
        outcome = await self._consulting.schedule(queued, framework, extenders, lambda: self._leads(token))
        if outcome is not None:
            self._conclude(queued, outcome, kept, token, began)

    def _conclude(self, queued: QueuedPod, outcome: Outcome, kept: str, token: int, began: float) -> None:
        """`kept`: the node where room was kept for the pod."""
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
            case Broken(error):
                metrics.attempts(profile, metrics.ERROR).note(now - began)
                self._traces.tried(queued, began, "error")
                log.debug("pod %s: %s", info.key, error)
                if isinstance(error, PluginError):
                    self._faults.note(error)
                    self._note_severe(error)
                self._queue.retry(queued, now, rarely=isinstance(error, PluginError) and error.took_long)
                self._reporter.failed(info, "SchedulerError", str(error), self._cache.nodes.nominated.node_of(info.uid))

    def _note_severe(self, error: PluginError) -> None:
        if error.severe:
            self._progress.failed(str(error), self._clock.monotonic())

    def _nominate(self, info: PodInfo, node: str, now: float) -> None:
        """Keeps room for the pod on a node; empty: nowhere. Pods of a lower priority that had it kept there look elsewhere."""
        events = [self._cache.nominate(info, node)]
        for other in self._cache.nodes.nominated.on(node):
            if other.priority < info.priority:
                events.append(self._cache.nominate(other, ""))
                self._queue.activate(other.uid, now)
        for event in events:
            if event is not None:
                self._queue.wake(event, self._cache.nodes, now)

    async def _idle(self, now: float) -> None:
        """Waits for a change, or until a backoff is over."""
        self._progress.doing = "waits for an event"
        self._wake.clear()
        due = self._queue.next_due()
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE if due is None else max(0.0, min(IDLE, due - now))):
                await self._wake.wait()

    def _look_again(self) -> None:
        self._wake.set()

    def _activate(self, uid: str) -> None:
        self._queue.activate(uid, self._clock.monotonic())
        self._look_again()

    # --- how binds end (scheduler.binding.Outcomes)

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

    def refused(self, decision: Decision, refused: Refused) -> None:
        """The pod waits for its backoff, not for an event that may help: that may have come while it was on its way."""
        current = self._given_up(decision)
        if current is not None:
            self._queue.unschedulable(decision.queued, frozenset([refused.plugin]), self._clock.monotonic(), missed=True)
            self._report(current, "Unschedulable", refused.message)

    def superseded(self, decision: Decision) -> None:
        self._traces.settled(decision, "superseded")
        if (cycle := self._end_cycle(decision)) is not None:
            self._undo(cycle)

    def fenced(self, token: int) -> None:
        log.warning("token %d is fenced: another leader has been elected", token, extra=TokenFenced(token).extra)
        self._standby.fenced(token)

    def _given_up(self, decision: Decision) -> PodInfo | None:
        """Ends a decision. The pod as it is now, if it still needs a node."""
        metrics.FAILED.inc()
        self._traces.settled(decision, "failed")
        current = self._forget(decision.queued.info)
        if current is not None:
            decision.queued.info = current
        return current

    def _report(self, pod: PodInfo, reason: str, message: str) -> None:
        """That it was not bound."""
        self._reporter.failed(pod, reason, message, self._cache.nodes.nominated.node_of(pod.uid))

    def _end_cycle(self, decision: Decision) -> BindingCycle | None:
        """The decision's binding cycle, unless it has ended before."""
        uid = decision.queued.info.uid
        return self._cycles.pop(uid) if decision.cycle is not None and self._cycles.get(uid) is decision.cycle else None

    def _settle_earlier_terms(self) -> None:
        """What earlier terms decided but have not bound by now will never be bound. Whether they deleted the victims that were
        to make room is unknown: pods that were promised room are tried again."""
        for info in self._cache.assumed():
            self._queue_again(info)
        for info in self._cache.nodes.nominated:
            self._queue.activate(info.uid, self._clock.monotonic())
        for uid, cycle in self._cycles.items():
            if self._cache.node_of(uid) == cycle.node:
                cycle.bound()
            else:
                self._undo(cycle)
        self._cycles.clear()

    def _reject_the_gone(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Pods need not wait in Permit any more that somebody else has bound or deleted."""
        if len(self._binder.waiting):
            for delta in deltas:
                uid = delta.obj.metadata.uid
                if (waiting := self._binder.waiting.get(uid)) is not None and not self._cache.is_assumed(uid):
                    waiting.reject("", "the pod is bound, or gone")

    def _queue_again(self, info: PodInfo) -> None:
        current = self._forget(info)
        if current is not None:
            self._queue.add(current, self._clock.monotonic())

    def _forget(self, info: PodInfo) -> PodInfo | None:
        """Takes back an assumption, and what plugins did for it. The pod as it is now, if it still needs a node."""
        event = self._cache.forget(info.uid)
        if (cycle := self._cycles.pop(info.uid, None)) is not None:
            self._undo(cycle)
        if event is None:
            return None
        self._queue.wake(event, self._cache.nodes, self._clock.monotonic())
        self._look_again()
        pod = self._informers.pods.store.get(info.key)
        return PodInfo(pod) if pod is not None and pod.metadata.uid == info.uid and not pod.spec.nodeName else None

    def _undo(self, cycle: BindingCycle) -> None:
        """That the pod is gone may have been told before: who waits for what was set aside for it was still refused then."""
        cycle.undo()
        if cycle.reserved:
            event = ClusterEvent(Change.RESERVATION_ENDED, cycle.node)
            self._queue.wake(event, self._cache.nodes, self._clock.monotonic())
            self._look_again()
