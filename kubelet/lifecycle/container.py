"""One step of a container: hooks, probes, restarts with back-off, and exit. Pure.

    CREATED --> RUNNING --postStart done--> hooked --startup probe succeeded--> started: readiness and liveness are probed
                   |             |                              |                       |
                   |             '------ failed: KillReason ----+-----------------------'
                   |                        |
    asked to end --+-- preStop hook, within the grace --> Stop --> EXITED --> the next attempt, after the back-off; or none

Restarts: the first at once, then after 10 s, 20 s, 40 s, ... up to 5 minutes; an attempt that ran for 10 minutes resets the
back-off.

Probes:

    initial delay --> call --ended--> counted --(as many in a row as the threshold)--> result
                       ^                 |
                       +---- period -----+     from the start of one call to the start of the next

The calls of one probe do not overlap: the next one waits until the current one has ended. The order between the containers of
a pod is decided in `advance`.
Source: https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/,
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy,
https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/
"""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from pinnace.kubelet.lifecycle.plan import (
    Action,
    ContainerPlan,
    ContainerRecord,
    KillReason,
    PodPlan,
    PodState,
    PodTermination,
    ProbePlan,
    ProbeState,
    RecordEvent,
    StartCall,
    StartContainer,
    StopContainer,
)
from pinnace.kubelet.runtime.interface import (
    CallKind,
    CallView,
    ContainerCall,
    ContainerExit,
    ContainerState,
    ContainerView,
    Moment,
)
from pinnace.runtime.backoff import exponential_delay

BACKOFF = 10.0
"""Seconds before the second restart; each later one waits twice as long."""
BACKOFF_MAX = 300.0
BACKOFF_RESET = 600.0
"""Seconds after which a running container resets its back-off."""
MIN_GRACE = 2.0
"""The minimum of seconds between SIGTERM and SIGKILL, also after a preStop hook that has used the grace period. A grace period
of 0 kills immediately.
"""


def should_restart(plan: ContainerPlan, view: ContainerView, record: ContainerRecord | None) -> bool:
    """Whether a terminated container is restarted. A container that was stopped after a failed hook or probe is restarted
    regardless of its exit code, unless restartPolicy is Never. A container that was stopped for a new image is always
    restarted. The record of an earlier attempt is ignored.
    """
    assert view.exit is not None
    if plan.restart_policy == "Always":
        return True
    kill_reason = record.kill_reason if record is not None and record.attempt == view.attempt else None
    if kill_reason is not None and kill_reason.anyway:
        return True
    return plan.restart_policy == "OnFailure" and (view.exit.code != 0 or kill_reason is not None)


def ran_past_backoff_reset(exit_: ContainerExit) -> bool:
    return exit_.finished.monotonic - exit_.started.monotonic >= BACKOFF_RESET


def restart_backoff(view: ContainerView, record: ContainerRecord | None) -> float:
    """Seconds from the exit of an attempt to the start of the next."""
    assert view.exit is not None
    crashes = view.attempt - (record.first_crash if record is not None else 0)
    if crashes <= 0 or ran_past_backoff_reset(view.exit):
        return 0.0
    return exponential_delay(BACKOFF, BACKOFF_MAX, crashes - 1)


def format_duration(seconds: float) -> str:
    """Go's format of a duration: 40s, 1m20s."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


class ProbeResult(NamedTuple):
    memory: ProbeState
    verdict: bool | None
    """None: below the thresholds, the previous result is kept."""
    call: ContainerCall | None
    """The call to start now."""
    wake_at: float | None
    failure: str
    """The failure that was counted in this step, if it is the first of a series."""


def latest_call(view: ContainerView, kind: CallKind) -> CallView | None:
    """The latest call of this kind."""
    for call in view.calls:
        if call.kind is kind:
            return call
    return None


def advance_probe(plan: ProbePlan, memory: ProbeState, view: ContainerView, since: float, now: Moment) -> ProbeResult:
    """One step of a probe. `since`: monotonic time from which the initial delay counts."""
    verdict, failure = None, ""
    latest = latest_call(view, plan.kind)
    if latest is not None and latest.number == memory.counted:
        if latest.ended is None:
            return ProbeResult(memory, None, None, latest.changes_at, "")
        memory = _count_result(memory, latest)
        if memory.run >= plan.successes:
            verdict = True
        elif -memory.run >= plan.failures:
            verdict = False
        failure = latest.failure if memory.run == -1 else ""
    due = since + plan.initial_delay if memory.begun is None else memory.begun + plan.period
    if now.monotonic < due:
        return ProbeResult(memory, verdict, None, due, failure)
    return ProbeResult(memory, verdict, ContainerCall(plan.kind, memory.counted, plan.handler, plan.timeout), None, failure)


def _count_result(memory: ProbeState, call: CallView) -> ProbeState:
    run = min(memory.run, 0) - 1 if call.failure else max(memory.run, 0) + 1
    return ProbeState(call.number + 1, call.begun.monotonic, run)


class ContainerSummary(NamedTuple):
    """The result of a step for a container."""

    alive: bool
    """The container has not terminated permanently."""
    up: bool
    """The container has run at least once, including its postStart hook."""
    started: bool
    """Containers that wait for this one can start."""
    ready: bool


OVER = ContainerSummary(False, True, False, False)
CREATING = ContainerSummary(True, False, False, False)
CRASHED = ContainerSummary(True, True, False, False)
READY = ContainerSummary(True, True, True, True)


class StepBuilder:
    """The working state of one step of a pod."""

    __slots__ = ("actions", "images", "now", "records", "wake_at")

    def __init__(self, state: PodState, now: Moment) -> None:
        self.now = now
        self.images = state.images
        self.actions: list[Action] = []
        self.wake_at: float | None = None
        self.records = state.records

    def hold_starts_until(self, until: float) -> None:
        """No container starts before this time."""
        self.actions = [action for action in self.actions if not isinstance(action, StartContainer)]
        self.wake_up_at(until)

    def hold_containers(self, names: Collection[str]) -> None:
        """These containers do not start."""
        self.actions = [
            action for action in self.actions if not (isinstance(action, StartContainer) and action.container in names)
        ]

    def wake_up_at(self, at: float | None) -> None:
        if at is not None and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    def has_outdated_image(self, plan: ContainerPlan) -> bool:
        """Whether the spec has another image than the running attempt."""
        return self.images.get(plan.name, plan.image) != plan.image

    def is_being_killed(self, plan: ContainerPlan, view: ContainerView) -> bool:
        """Whether this attempt must be stopped, even if the change has been reverted."""
        record = self.records.get(plan.name)
        return record is not None and record.attempt == view.attempt and record.kill_reason is not None

    def is_replaced(self, plan: ContainerPlan, view: ContainerView) -> bool:
        """Whether this attempt was stopped for a new image or new resources."""
        record = self.records.get(plan.name)
        return (
            record is not None
            and record.attempt == view.attempt
            and record.kill_reason is not None
            and record.kill_reason.anyway
        )

    def set_record(self, name: str, record: ContainerRecord) -> None:
        if self.records.get(name) != record:
            self.records = {**self.records, name: record}

    def add_event(self, type_: str, reason: str, message: str) -> None:
        self.actions.append(RecordEvent(type_, reason, message))


def sync_container(
    builder: StepBuilder, plan: ContainerPlan, view: ContainerView, ending: PodTermination | None
) -> ContainerSummary:
    """`ending`: how the pod ends. No container is restarted then, and the pod decides the order of stops."""
    if view.exit is not None:
        return OVER if ending is not None else _restart_exited(builder, plan, view)
    if (at := view.changes_at) is not None:
        builder.wake_up_at(at)
    if view.state is not ContainerState.RUNNING:
        return CRASHED if view.attempt else CREATING
    if not (plan.attended or builder.has_outdated_image(plan) or builder.is_being_killed(plan, view)):
        return READY
    record = _manage_attempt(builder, plan, view, ending)
    if (kill_reason := record.kill_reason) is not None and ending is None:
        stop_container(builder, plan, view, kill_reason.since, kill_reason.grace, kill_reason.message)
    return ContainerSummary(True, record.hooked or view.attempt > 0, record.started, record.ready)


def restart_for_resize(
    state: PodState, plan: PodPlan, views: Mapping[str, ContainerView], names: Collection[str], now: Moment
) -> PodState:
    """Restart these running containers with their new resources."""
    records = dict(state.records)
    for item in (*plan.init, *plan.main):
        if item.name in names:
            view, record = views[item.name], records.get(item.name)
            if record is None or record.attempt != view.attempt:
                record = _new_record(item, view, record)
            if record.kill_reason is None:
                message = f"Container {item.name} resize requires restart"
                records[item.name] = record._replace(kill_reason=KillReason(now.monotonic, item.grace, message, anyway=True))
    return state._replace(records=records)


def _restart_exited(builder: StepBuilder, plan: ContainerPlan, view: ContainerView) -> ContainerSummary:
    """Restart a terminated container now or later, if its policy allows it."""
    record, exit_ = builder.records.get(plan.name), view.exit
    assert exit_ is not None
    if not should_restart(plan, view, record):
        return OVER
    replaced = builder.has_outdated_image(plan) or builder.is_replaced(plan, view)
    at = exit_.finished.monotonic + (0.0 if replaced else restart_backoff(view, record))
    if builder.now.monotonic >= at:
        if replaced:  # attempts with another image or other resources do not count
            builder.set_record(plan.name, ContainerRecord(view.attempt, False, False, False, first_crash=view.attempt + 1))
        elif view.attempt and ran_past_backoff_reset(exit_):
            builder.set_record(plan.name, ContainerRecord(view.attempt, False, False, False, first_crash=view.attempt))
        builder.actions.append(StartContainer(plan.name, view.attempt + 1))
        return CRASHED
    builder.wake_up_at(at)
    record = record if record is not None and record.attempt == view.attempt else _new_record(plan, view, record)
    if not record.warned:
        builder.add_event("Warning", "BackOff", f"Back-off restarting failed container {plan.name}")
        builder.set_record(plan.name, record._replace(started=False, ready=False, warned=True))
    return CRASHED


def _new_record(plan: ContainerPlan, view: ContainerView, before: ContainerRecord | None) -> ContainerRecord:
    """The record of a new attempt."""
    started = not plan.waits_to_start
    return ContainerRecord(
        view.attempt,
        started,
        started and plan.readiness is None,
        hooked=plan.post_start is None,
        started_at=view.started.monotonic if view.started is not None else 0.0,
        first_crash=before.first_crash if before is not None else 0,
    )


def _manage_attempt(
    builder: StepBuilder, plan: ContainerPlan, view: ContainerView, ending: PodTermination | None
) -> ContainerRecord:
    """Run hooks and probes of a running attempt."""
    record = builder.records.get(plan.name)
    if record is None or record.attempt != view.attempt:
        record = _new_record(plan, view, record)
    if record.kill_reason is None and ending is None:
        if not record.hooked:
            record = _run_post_start(builder, plan, view, record)
        if record.hooked and not record.started:
            record = _run_startup_probe(builder, plan, view, record)
        if record.started:
            record = _run_liveness_probe(builder, plan, view, record)
    if record.kill_reason is None and ending is None and builder.has_outdated_image(plan):
        message = f"Container {plan.name} definition changed, will be restarted"
        record = record._replace(kill_reason=KillReason(builder.now.monotonic, plan.grace, message, anyway=True))
    if record.started:
        record = _run_readiness_probe(builder, plan, view, record)
    builder.set_record(plan.name, record)
    return record


def _run_post_start(builder: StepBuilder, plan: ContainerPlan, view: ContainerView, record: ContainerRecord) -> ContainerRecord:
    assert plan.post_start is not None
    call = latest_call(view, CallKind.POST_START)
    if call is None:
        builder.actions.append(StartCall(plan.name, ContainerCall(CallKind.POST_START, 0, plan.post_start, math.inf)))
        return record
    if call.ended is None:
        builder.wake_up_at(call.changes_at)
        return record
    if call.failure:
        builder.add_event("Warning", "FailedPostStartHook", "PostStartHook failed")
        return record._replace(kill_reason=KillReason(builder.now.monotonic, plan.grace, "FailedPostStartHook"))
    return _is_started(plan, record._replace(hooked=True), call.ended) if plan.startup is None else record._replace(hooked=True)


def _is_started(plan: ContainerPlan, record: ContainerRecord, since: Moment) -> ContainerRecord:
    return record._replace(started=True, ready=plan.readiness is None, started_at=since.monotonic)


def _run_startup_probe(
    builder: StepBuilder, plan: ContainerPlan, view: ContainerView, record: ContainerRecord
) -> ContainerRecord:
    assert plan.startup is not None
    memory, verdict = _run_probe(builder, plan, plan.startup, record.startup, view, record.started_at)
    record = record._replace(startup=memory)
    if verdict is None:
        return record
    return _is_started(plan, record, builder.now) if verdict else _kill_for(builder, plan, plan.startup, record)


def _run_readiness_probe(
    builder: StepBuilder, plan: ContainerPlan, view: ContainerView, record: ContainerRecord
) -> ContainerRecord:
    if plan.readiness is None:
        return record
    memory, verdict = _run_probe(builder, plan, plan.readiness, record.readiness, view, record.started_at)
    return record._replace(readiness=memory, ready=record.ready if verdict is None else verdict)


def _run_liveness_probe(
    builder: StepBuilder, plan: ContainerPlan, view: ContainerView, record: ContainerRecord
) -> ContainerRecord:
    if plan.liveness is None:
        return record
    memory, verdict = _run_probe(builder, plan, plan.liveness, record.liveness, view, record.started_at)
    record = record._replace(liveness=memory)
    return _kill_for(builder, plan, plan.liveness, record) if verdict is False else record


def _run_probe(
    builder: StepBuilder, plan: ContainerPlan, which: ProbePlan, memory: ProbeState, view: ContainerView, since: float
) -> tuple[ProbeState, bool | None]:
    probed = advance_probe(which, memory, view, since, builder.now)
    builder.wake_up_at(probed.wake_at)
    if probed.failure:
        builder.add_event("Warning", "Unhealthy", f"{which.kind.value} failed: {probed.failure}")
    if probed.call is not None and (probed.verdict is not False or which.kind is CallKind.READINESS):
        builder.actions.append(StartCall(plan.name, probed.call))
    return probed.memory, probed.verdict


def _kill_for(builder: StepBuilder, plan: ContainerPlan, which: ProbePlan, record: ContainerRecord) -> ContainerRecord:
    message = f"Container {plan.name} failed {which.kind.value.lower()}"
    if plan.restart_policy != "Never":
        message += ", will be restarted"
    return record._replace(kill_reason=KillReason(builder.now.monotonic, which.grace, message))


def stop_container(
    builder: StepBuilder, plan: ContainerPlan, view: ContainerView, since: float, grace: float, why: str = ""
) -> None:
    """Run the preStop hook if there is one and time remains, then stop the container with the remaining grace period.
    Repeated calls only shorten the grace period.
    """
    whole = max(grace, MIN_GRACE) if grace else 0.0
    if view.stop_grace is not None:
        if whole < view.stop_grace:
            builder.actions.append(StopContainer(plan.name, whole))
        return
    left = grace - (builder.now.monotonic - since)
    call = latest_call(view, CallKind.PRE_STOP) if plan.pre_stop is not None else None
    if call is None:
        builder.add_event("Normal", "Killing", why or f"Stopping container {plan.name}")
        if plan.pre_stop is not None and view.state is ContainerState.RUNNING and grace and left > 0:
            builder.actions.append(StartCall(plan.name, ContainerCall(CallKind.PRE_STOP, 0, plan.pre_stop, left)))
            return
    elif call.ended is None and left > 0:
        builder.wake_up_at(call.changes_at)
        builder.wake_up_at(since + grace)
        return
    elif call.ended is None or call.failure:
        builder.add_event("Warning", "FailedPreStopHook", "PreStopHook failed")
    builder.actions.append(StopContainer(plan.name, max(left, MIN_GRACE) if grace else 0.0))
