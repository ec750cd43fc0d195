"""One container of a pod, one step: its hooks, its probes, its restarts and its end.

    CREATED --> RUNNING --postStart hook done--> hooked --startup probe succeeded--> started: readiness and liveness are probed
                   |             |                              |                       |
                   |             '------ failed: doomed --------+-----------------------'
                   |                        |
    asked to end --+-- preStop hook, within the grace --> Stop --> EXITED --> the next attempt, after the back-off; or none

What a container is to its pod (who starts before whom, who is stopped when) is not decided here but in `advance`.
Source: https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/
"""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from kubelet.lifecycle.backoff import comes_back, delay, ran_long
from kubelet.lifecycle.plan import ContainerPlan, PodPlan, ProbePlan
from kubelet.lifecycle.probes import call_of, probe
from kubelet.lifecycle.state import Action, Begin, Care, Doom, Ending, Note, PodState, ProbeMemory, Start, Stop
from kubelet.runtime import Call, CallKind, ContainerState, ContainerView, Instant

MIN_GRACE = 2.0
"""Seconds that a container has at least between being asked to end and being killed: also when its preStop hook has used up
all the grace. A grace of 0 is meant, and kills at once."""


class Standing(NamedTuple):
    """What a container comes to in a step."""

    alive: bool
    """It has not ended for good."""
    up: bool
    """It has come to run at least once, its postStart hook included."""
    started: bool
    """Those that wait for it may go on."""
    ready: bool


OVER = Standing(False, True, False, False)
CREATING = Standing(True, False, False, False)
CRASHED = Standing(True, True, False, False)
READY = Standing(True, True, True, True)


class Turn:
    """One step of one pod, as it comes to be."""

    __slots__ = ("actions", "cares", "images", "now", "wake_at")

    def __init__(self, state: PodState, now: Instant) -> None:
        self.now = now
        self.images = state.images
        self.actions: list[Action] = []
        self.wake_at: float | None = None
        self.cares = state.cares

    def hold(self, until: float) -> None:
        """Nothing starts before."""
        self.actions = [each for each in self.actions if not isinstance(each, Start)]
        self.wake(until)

    def wake(self, at: float | None) -> None:
        if at is not None and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    def outdated(self, plan: ContainerPlan) -> bool:
        """Is the container to have another image than it was started with?"""
        return self.images.get(plan.name, plan.image) != plan.image

    def condemned(self, plan: ContainerPlan, view: ContainerView) -> bool:
        """Is this attempt to be stopped, whatever has been changed back since?"""
        care = self.cares.get(plan.name)
        return care is not None and care.attempt == view.attempt and care.doom is not None

    def is_replaced(self, plan: ContainerPlan, view: ContainerView) -> bool:
        """Was this attempt stopped for another image or other resources?"""
        care = self.cares.get(plan.name)
        return care is not None and care.attempt == view.attempt and care.doom is not None and care.doom.anyway

    def remember(self, name: str, care: Care) -> None:
        if self.cares.get(name) != care:
            self.cares = {**self.cares, name: care}

    def note(self, type_: str, reason: str, message: str) -> None:
        self.actions.append(Note(type_, reason, message))


def attend(turn: Turn, plan: ContainerPlan, view: ContainerView, ending: Ending | None) -> Standing:
    """`ending`: of the pod. Then nothing comes back, and who is stopped when is up to the pod."""
    if view.exit is not None:
        return OVER if ending is not None else _again(turn, plan, view)
    if (at := view.changes_at) is not None:
        turn.wake(at)
    if view.state is not ContainerState.RUNNING:
        return CRASHED if view.attempt else CREATING
    if not (plan.attended or turn.outdated(plan) or turn.condemned(plan, view)):
        return READY
    care = _look_after(turn, plan, view, ending)
    if (doom := care.doom) is not None and ending is None:
        stop(turn, plan, view, doom.since, doom.grace, doom.message)
    return Standing(True, care.hooked or view.attempt > 0, care.started, care.ready)


def restart(
    state: PodState, plan: PodPlan, views: Mapping[str, ContainerView], names: Collection[str], now: Instant
) -> PodState:
    """Has these containers, which run, stopped and started with their new resources."""
    cares = dict(state.cares)
    for each in (*plan.init, *plan.main):
        if each.name in names:
            view, care = views[each.name], cares.get(each.name)
            if care is None or care.attempt != view.attempt:
                care = _fresh(each, view, care)
            if care.doom is None:
                message = f"Container {each.name} resize requires restart"
                cares[each.name] = care._replace(doom=Doom(now.monotonic, each.grace, message, anyway=True))
    return state._replace(cares=cares)


def _again(turn: Turn, plan: ContainerPlan, view: ContainerView) -> Standing:
    """Of a container that has ended: starts it again, now or later, if it comes back."""
    care, exit_ = turn.cares.get(plan.name), view.exit
    assert exit_ is not None
    if not comes_back(plan, view, care):
        return OVER
    replaced = turn.outdated(plan) or turn.is_replaced(plan, view)
    at = exit_.finished.monotonic + (0.0 if replaced else delay(view, care))
    if turn.now.monotonic >= at:
        if replaced:  # what it did with another image or other resources does not count
            turn.remember(plan.name, Care(view.attempt, False, False, False, first_crash=view.attempt + 1))
        elif view.attempt and ran_long(exit_):
            turn.remember(plan.name, Care(view.attempt, False, False, False, first_crash=view.attempt))
        turn.actions.append(Start(plan.name, view.attempt + 1))
        return CRASHED
    turn.wake(at)
    care = care if care is not None and care.attempt == view.attempt else _fresh(plan, view, care)
    if not care.warned:
        turn.note("Warning", "BackOff", f"Back-off restarting failed container {plan.name}")
        turn.remember(plan.name, care._replace(started=False, ready=False, warned=True))
    return CRASHED


def _fresh(plan: ContainerPlan, view: ContainerView, before: Care | None) -> Care:
    """What there is to remember of a new attempt."""
    started = not plan.waits_to_start
    return Care(
        view.attempt,
        started,
        started and plan.readiness is None,
        hooked=plan.post_start is None,
        started_at=view.started.monotonic if view.started is not None else 0.0,
        first_crash=before.first_crash if before is not None else 0,
    )


def _look_after(turn: Turn, plan: ContainerPlan, view: ContainerView, ending: Ending | None) -> Care:
    """Hooks and probes of an attempt that runs."""
    care = turn.cares.get(plan.name)
    if care is None or care.attempt != view.attempt:
        care = _fresh(plan, view, care)
    if care.doom is None and ending is None:
        if not care.hooked:
            care = _post_start(turn, plan, view, care)
        if care.hooked and not care.started:
            care = _startup(turn, plan, view, care)
        if care.started:
            care = _liveness(turn, plan, view, care)
    if care.doom is None and ending is None and turn.outdated(plan):
        message = f"Container {plan.name} definition changed, will be restarted"
        care = care._replace(doom=Doom(turn.now.monotonic, plan.grace, message, anyway=True))
    if care.started:
        care = _readiness(turn, plan, view, care)
    turn.remember(plan.name, care)
    return care


def _post_start(turn: Turn, plan: ContainerPlan, view: ContainerView, care: Care) -> Care:
    assert plan.post_start is not None
    call = call_of(view, CallKind.POST_START)
    if call is None:
        turn.actions.append(Begin(plan.name, Call(CallKind.POST_START, 0, plan.post_start, math.inf)))
        return care
    if call.ended is None:
        turn.wake(call.changes_at)
        return care
    if call.failure:
        turn.note("Warning", "FailedPostStartHook", "PostStartHook failed")
        return care._replace(doom=Doom(turn.now.monotonic, plan.grace, "FailedPostStartHook"))
    return _started(plan, care._replace(hooked=True), call.ended) if plan.startup is None else care._replace(hooked=True)


def _started(plan: ContainerPlan, care: Care, since: Instant) -> Care:
    return care._replace(started=True, ready=plan.readiness is None, started_at=since.monotonic)


def _startup(turn: Turn, plan: ContainerPlan, view: ContainerView, care: Care) -> Care:
    assert plan.startup is not None
    memory, verdict = _probe(turn, plan, plan.startup, care.startup, view, care.started_at)
    care = care._replace(startup=memory)
    if verdict is None:
        return care
    return _started(plan, care, turn.now) if verdict else _doomed(turn, plan, plan.startup, care)


def _readiness(turn: Turn, plan: ContainerPlan, view: ContainerView, care: Care) -> Care:
    if plan.readiness is None:
        return care
    memory, verdict = _probe(turn, plan, plan.readiness, care.readiness, view, care.started_at)
    return care._replace(readiness=memory, ready=care.ready if verdict is None else verdict)


def _liveness(turn: Turn, plan: ContainerPlan, view: ContainerView, care: Care) -> Care:
    if plan.liveness is None:
        return care
    memory, verdict = _probe(turn, plan, plan.liveness, care.liveness, view, care.started_at)
    care = care._replace(liveness=memory)
    return _doomed(turn, plan, plan.liveness, care) if verdict is False else care


def _probe(
    turn: Turn, plan: ContainerPlan, which: ProbePlan, memory: ProbeMemory, view: ContainerView, since: float
) -> tuple[ProbeMemory, bool | None]:
    probed = probe(which, memory, view, since, turn.now)
    turn.wake(probed.wake_at)
    if probed.failure:
        turn.note("Warning", "Unhealthy", f"{which.kind.value} failed: {probed.failure}")
    if probed.call is not None and (probed.verdict is not False or which.kind is CallKind.READINESS):
        turn.actions.append(Begin(plan.name, probed.call))
    return probed.memory, probed.verdict


def _doomed(turn: Turn, plan: ContainerPlan, which: ProbePlan, care: Care) -> Care:
    message = f"Container {plan.name} failed {which.kind.value.lower()}"
    if plan.restart_policy != "Never":
        message += ", will be restarted"
    return care._replace(doom=Doom(turn.now.monotonic, which.grace, message))


def stop(turn: Turn, plan: ContainerPlan, view: ContainerView, since: float, grace: float, why: str = "") -> None:
    """Calls the preStop hook, if there is one and time for it, and then asks the container to end, in what is left of the
    grace. One that was asked already is asked again only when it has less time now."""
    whole = max(grace, MIN_GRACE) if grace else 0.0
    if view.stop_grace is not None:
        if whole < view.stop_grace:
            turn.actions.append(Stop(plan.name, whole))
        return
    left = grace - (turn.now.monotonic - since)
    call = call_of(view, CallKind.PRE_STOP) if plan.pre_stop is not None else None
    if call is None:
        turn.note("Normal", "Killing", why or f"Stopping container {plan.name}")
        if plan.pre_stop is not None and view.state is ContainerState.RUNNING and grace and left > 0:
            turn.actions.append(Begin(plan.name, Call(CallKind.PRE_STOP, 0, plan.pre_stop, left)))
            return
    elif call.ended is None and left > 0:
        turn.wake(call.changes_at)
        turn.wake(since + grace)
        return
    elif call.ended is None or call.failure:
        turn.note("Warning", "FailedPreStopHook", "PreStopHook failed")
    turn.actions.append(Stop(plan.name, max(left, MIN_GRACE) if grace else 0.0))
