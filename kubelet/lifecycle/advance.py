"""One step of a pod: which containers start and stop, and the resulting phase and conditions. Also accept, refuse and adopt.

    starting   once the volumes are mounted: init containers one after another, each after the one before has succeeded (or,
               for a sidecar, started); then all main containers
    stopping   all containers except sidecars at once; then the sidecars one after another, in reverse order; when the grace
               period is over, the remaining ones at once

A pod stops because it is being deleted, its deadline has passed, an init container has failed for good, or its main containers
are done and only sidecars are left.
Source: https://kubernetes.io/docs/concepts/workloads/pods/init-containers/,
https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod, PodStatus
from pinnace.api.pods import ended
from pinnace.api.scalars import to_seconds
from pinnace.kubelet.lifecycle.container import StepBuilder, stop_container, sync_container
from pinnace.kubelet.lifecycle.plan import (
    TRANSITIONS,
    ConditionState,
    ContainerPlan,
    ContainerRecord,
    DesiredState,
    PodPhase,
    PodPlan,
    PodState,
    PodStep,
    PodTermination,
    RemovePod,
    StartContainer,
)
from pinnace.kubelet.runtime.interface import ContainerState, ContainerView, Moment, to_past_moment

DEADLINE_EXCEEDED = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
EVICTION_GRACE = 1.0
"""Seconds: Kubernetes' immediateEvictionGracePeriodSeconds. With 0, containers would be killed without SIGTERM."""
Views = Mapping[str, ContainerView]


def accept_pod(plan: PodPlan, now: Moment) -> PodState:
    return PodState(
        PodPhase.PENDING,
        now,
        ConditionState(not plan.init, now),
        ConditionState(False, now),
        ConditionState(False, now),
        images=plan.images,
    )


def reject_pod(reason: str, message: str, now: Moment) -> PodState:
    """The node rejects the pod. No container is created."""
    never = ConditionState(False, now)
    return PodState(PodPhase.FAILED, now, never, never, never, reason, message, refused=True, ended=now)


def was_accepted(pod: Pod) -> bool:
    """Whether an earlier kubelet process has accepted or finished the pod."""
    return pod.status.HasField("startTime") or ended(pod)


def adopt_pod_state(pod: Pod, plan: PodPlan, now: Moment) -> PodState:
    """The state of a pod that an earlier kubelet process accepted or rejected, from its reported status. Finished hooks do not
    run again; unfinished hooks do. Readiness is kept until a probe changes it. Requires that `was_accepted` is true.
    """
    status = pod.status
    since = to_past_moment(to_seconds(status.startTime), now)
    phase = next((phase for phase in PodPhase if phase == status.phase), PodPhase.PENDING)
    return PodState(
        phase,
        since,
        _reported_condition(status, "Initialized", not plan.init, since, now),
        _reported_condition(status, "ContainersReady", False, since, now),
        _reported_condition(status, "Ready", False, since, now),
        status.reason,
        status.message,
        refused=phase.final and not status.podIP,
        records=_container_records(status, plan, now),
        images=_reported_images(status, plan),
    )


def _reported_images(status: PodStatus, plan: PodPlan) -> Mapping[str, str]:
    said = {
        container_status.name: container_status.image
        for container_status in (*status.initContainerStatuses, *status.containerStatuses)
    }
    images = {name: said.get(name) or image for name, image in plan.images.items()}
    return plan.images if images == plan.images else images


def _reported_condition(status: PodStatus, kind: str, default: bool, since: Moment, now: Moment) -> ConditionState:
    said = conditions.find_condition(status.conditions, kind)
    if said is None:
        return ConditionState(default, since)
    return ConditionState(said.status == "True", to_past_moment(to_seconds(said.lastTransitionTime), now))


def _container_records(status: PodStatus, plan: PodPlan, now: Moment) -> dict[str, ContainerRecord]:
    attended = {item.name for item in (*plan.init, *plan.main) if item.attended}
    return {
        container_status.name: ContainerRecord(
            container_status.restartCount,
            container_status.started,
            container_status.ready,
            hooked=True,
            started_at=to_past_moment(to_seconds(container_status.state.running.startedAt), now).monotonic,
        )
        for container_status in (*status.initContainerStatuses, *status.containerStatuses)
        if container_status.name in attended and container_status.state.HasField("running")
    }


class InitSummary(NamedTuple):
    """The result of a step for init containers."""

    complete: bool
    """The main containers can start."""
    alive: bool
    """An init container (no sidecar) has not terminated permanently."""
    failed: bool
    """An init container (no sidecar) has failed permanently."""
    sidecars: Sequence[tuple[ContainerPlan, ContainerView]]
    """Sidecars that have not terminated permanently."""
    ready: bool
    """All sidecars are ready."""


class MainSummary(NamedTuple):
    """The result of a step for main containers."""

    alive: bool
    """A container has not terminated permanently."""
    absent: bool
    """A container has never been started."""
    starting: bool
    """A container does not run yet, or its postStart hook has not finished."""
    failed: bool
    """A container has failed permanently."""
    ready: bool
    """All containers are ready."""


NO_INIT = InitSummary(complete=True, alive=False, failed=False, sidecars=(), ready=True)


def advance_pod(want: DesiredState, state: PodState, containers: Sequence[ContainerView], now: Moment) -> PodStep:
    """One step. `containers` are all containers that have been started. After executing the actions, observe and step again.
    Without actions, nothing happens until `wake_at`, or until the pod or a container changes.
    """
    deleting = want.grace is not None
    if state.phase.final:
        return PodStep(state, None, (RemovePod(),) if deleting else ())
    plan, ending, mounted = want.plan, state.ending, now.monotonic >= want.mounted_at
    if (
        plan.plain
        and mounted
        and not (deleting or want.held)
        and ending is None
        and (step := _advance_plain_pod(plan, state, containers, now))
    ):
        return step
    builder = StepBuilder(state, now)
    if deleting or plan.deadline is not None:
        ending = _plan_ending(want, state, builder)
    views = {view.name: view for view in containers}
    init = _sync_init_containers(plan.init, state, views, ending, builder) if plan.init else NO_INIT
    main = _sync_main_containers(plan.main, init.complete, views, ending, builder)
    done = not (main.alive or init.alive or (main.absent and ending is None and not init.failed))
    watching = _sync_ephemeral_containers(plan.ephemeral, done, views, ending, builder) if plan.ephemeral else False
    if (init.sidecars or watching) and done:
        if ending is None:  # the stop requests of the sidecars are obsolete
            return advance_pod(want, state._replace(ending=PodTermination(now, plan.grace)), containers, now)
        _stop_sidecars(init.sidecars, ending, builder)
    phase = _next_phase(main, ending, done and not init.sidecars and not watching)
    if not mounted:
        builder.hold_starts_until(want.mounted_at)
    elif want.held:
        builder.hold_containers(want.held)
    if builder.images is not plan.images:
        builder.images = _started_images(plan, builder)
    state = _next_state(want, state, phase, init.complete, init.ready and main.ready, ending, builder)
    if not state.phase.final:
        return PodStep(state, builder.wake_at, tuple(builder.actions))
    return PodStep(state, None, (*builder.actions, RemovePod()) if deleting else tuple(builder.actions))


def evict_pod_state(
    state: PodState, reason: str, message: str, now: Moment, *, grace: float = EVICTION_GRACE, disrupts: bool = True
) -> PodState:
    """The state of a pod that its node ends. Unchanged if the pod has finished or is already ending. `disrupts`: see Ending."""
    if state.phase.final or state.ending is not None:
        return state
    return state._replace(ending=PodTermination(now, grace, reason, message, disrupts))


def _advance_plain_pod(plan: PodPlan, state: PodState, containers: Sequence[ContainerView], now: Moment) -> PodStep | None:
    """A fast path for the most frequent steps: no container exists, or all containers run. None: neither is the case."""
    if state.images is not plan.images or (state.records and any(record.kill_reason for record in state.records.values())):
        return None
    if not containers:
        return (
            PodStep(state, None, tuple([StartContainer(item.name, 0) for item in plan.main]))
            if state.phase is PodPhase.PENDING
            else None
        )
    if len(containers) != len(plan.main):
        return None
    wake_at = None
    for view in containers:
        if view.state is not ContainerState.RUNNING:
            return None
        at = view.changes_at
        if at is not None and (wake_at is None or at < wake_at):
            wake_at = at
    if not state.ready.holds:  # possible with ready containers: another writer marked the node unreachable
        ready = ConditionState(True, now)
        within = state.containers_ready if state.containers_ready.holds else ready
        state = PodState(
            PodPhase.RUNNING, state.accepted, state.initialized, within, ready, records=state.records, images=state.images
        )
    return PodStep(state, wake_at, ())


def _plan_ending(want: DesiredState, state: PodState, builder: StepBuilder) -> PodTermination | None:
    """The end of a pod that is being deleted or has a deadline. The grace period can only be shortened."""
    ending, plan, now = state.ending, want.plan, builder.now
    if ending is None and plan.deadline is not None:
        at = state.accepted.monotonic + plan.deadline
        if now.monotonic >= at:
            builder.add_event("Normal", DEADLINE_EXCEEDED, DEADLINE_MESSAGE)
            ending = PodTermination(now, plan.grace, DEADLINE_EXCEEDED, DEADLINE_MESSAGE)
        else:
            builder.wake_up_at(at)
    if want.grace is None:
        return ending
    if ending is None:
        return PodTermination(now, want.grace)
    if now.monotonic + want.grace < ending.since.monotonic + ending.grace:
        return ending._replace(since=now, grace=want.grace)
    return ending


def _sync_init_containers(
    plans: Sequence[ContainerPlan], state: PodState, views: Views, ending: PodTermination | None, builder: StepBuilder
) -> InitSummary:
    """An initialized pod remains initialized. Then only sidecars are checked, independently of each other. A sidecar that
    crashes after the next container has started does not block later containers.
    """
    complete, alive, failed, ready = True, False, False, True
    sidecars = []
    latest = max((index for index, plan in enumerate(plans) if plan.name in views), default=0)
    for index, plan in enumerate(plans):
        view = views.get(plan.name)
        if view is None:
            in_turn = plan.sidecar if state.initialized.holds else complete
            if in_turn and ending is None:
                builder.actions.append(StartContainer(plan.name, 0))
            complete = False
            ready = ready and not plan.sidecar
            continue
        standing = sync_container(builder, plan, view, ending)
        if plan.sidecar:
            complete = complete and (standing.started or index < latest)
            ready = ready and standing.ready
            if standing.alive:
                sidecars.append((plan, view))
        elif standing.alive:
            complete, alive = False, True
            if ending is not None:
                stop_container(builder, plan, view, ending.since.monotonic, ending.grace)
        elif view.exit is not None and view.exit.code != 0:
            complete, failed = False, True
    return InitSummary(complete or state.initialized.holds, alive, failed, sidecars, ready)


def _stop_sidecars(
    sidecars: Sequence[tuple[ContainerPlan, ContainerView]], ending: PodTermination, builder: StepBuilder
) -> None:
    """Stop the last sidecar, or all sidecars when the grace period is over."""
    end = ending.since.monotonic + ending.grace
    in_turn = builder.now.monotonic < end
    for plan, view in reversed(sidecars[-1:] if in_turn else sidecars):
        stop_container(builder, plan, view, ending.since.monotonic, ending.grace)
    if in_turn and len(sidecars) > 1:
        builder.wake_up_at(end)


def _sync_main_containers(
    plans: Sequence[ContainerPlan], may_start: bool, views: Views, ending: PodTermination | None, builder: StepBuilder
) -> MainSummary:
    """In order. A container with a postStart hook delays the next ones until the hook has finished."""
    alive, absent, starting, failed, ready = False, False, False, False, True
    may_start = may_start and ending is None
    for plan in plans:
        view = views.get(plan.name)
        if view is None:
            absent, ready = True, False
            if may_start:
                builder.actions.append(StartContainer(plan.name, 0))
                may_start = plan.post_start is None
            continue
        standing = sync_container(builder, plan, view, ending)
        ready = ready and standing.ready
        if standing.alive:
            alive = True
            if not standing.up:
                starting = True
                may_start = may_start and plan.post_start is None
            if ending is not None:
                stop_container(builder, plan, view, ending.since.monotonic, ending.grace)
        elif view.exit is not None and view.exit.code != 0:
            failed = True
    return MainSummary(alive, absent, starting, failed, ready)


def _sync_ephemeral_containers(
    plans: Sequence[ContainerPlan], done: bool, views: Views, ending: PodTermination | None, builder: StepBuilder
) -> bool:
    """They start at once, even while init containers run, and are not restarted. Returns whether one of them runs."""
    running = False
    for plan in plans:
        view = views.get(plan.name)
        if view is None:
            if ending is None and not done:
                builder.actions.append(StartContainer(plan.name, 0))
        elif sync_container(builder, plan, view, ending).alive:
            running = True
            if ending is not None:
                stop_container(builder, plan, view, ending.since.monotonic, ending.grace)
    return running


def _next_phase(main: MainSummary, ending: PodTermination | None, over: bool) -> PodPhase:
    if not over:
        return PodPhase.PENDING if main.absent or main.starting else PodPhase.RUNNING
    ended_well = not (main.absent or main.failed or (ending is not None and ending.reason))
    return PodPhase.SUCCEEDED if ended_well else PodPhase.FAILED


def _next_state(
    want: DesiredState,
    before: PodState,
    phase: PodPhase,
    initialized: bool,
    ready: bool,
    ending: PodTermination | None,
    builder: StepBuilder,
) -> PodState:
    """The state with this phase, if the transition is allowed, and with the conditions that follow from it."""
    if phase is not before.phase and phase not in TRANSITIONS[before.phase]:
        phase = before.phase
    ready = ready and phase is PodPhase.RUNNING
    all_ready = ready and not want.gated
    if (
        phase is before.phase
        and ready is before.containers_ready.holds
        and all_ready is before.ready.holds
        and initialized is before.initialized.holds
        and ending is before.ending
        and builder.records is before.records
        and builder.images is before.images
        and want.gated == before.gated
    ):
        return before
    over = ending if phase.final and ending is not None else None
    return PodState(
        phase,
        before.accepted,
        _changed_condition(before.initialized, initialized, builder.now),
        _changed_condition(before.containers_ready, ready, builder.now),
        _changed_condition(before.ready, all_ready, builder.now),
        over.reason if over is not None else "",
        over.message if over is not None else "",
        want.gated,
        ended=builder.now if phase.final else None,
        ending=ending,
        records=builder.records,
        images=builder.images,
    )


def _started_images(plan: PodPlan, builder: StepBuilder) -> Mapping[str, str]:
    """The images with which the containers were started, by name."""
    started = {action.container for action in builder.actions if isinstance(action, StartContainer)}
    images = {name: image if name in started else builder.images.get(name, image) for name, image in plan.images.items()}
    if images == plan.images:
        return plan.images
    return builder.images if images == builder.images else images


def _changed_condition(before: ConditionState, holds: bool, now: Moment) -> ConditionState:
    return before if holds is before.holds else ConditionState(holds, now)
