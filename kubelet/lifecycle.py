"""The life of one pod on its node, as a pure function that moves it exactly one step.

                        accept                                  all containers started
    bound pod --------------------> Pending ----------------------------------------------> Running
        |                              |                                                     |   ^ |
        | refuse                       | every container has exited for good                 |   | | a container exits and
        v                              v                                                     v   +-+ its restartPolicy
      Failed                       Succeeded (all with code 0), Failed (else) <--------------'       brings it back

    deletionTimestamp, in any phase: stop the containers -> Succeeded or Failed -> Remove

Guarantees:
* A phase changes only along TRANSITIONS; Succeeded and Failed are final.
* `advance` decides by what is wanted, the pod's state and the containers as they are seen now (level-triggered): a step that
  is taken twice asks for the same things, and one that was missed is made up for by the next.
* Only monotonic time decides. A clock that is set changes nothing but the stamps that people read.
* A pod that is being deleted starts nothing any more, and is removed only when none of its containers runs.

Not here: what a container does (kubelet.runtime), whether the node has room (kubelet.admission), the status message
(kubelet.status), and anything that waits.
Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from kubelet.runtime import ContainerState, ContainerView, Exit, Instant, past
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.times import to_seconds

RESTART_BACKOFF = 10.0
"""Seconds before the second restart; the first is immediate, each later one waits twice as long."""
RESTART_BACKOFF_MAX = 300.0
RESTART_BACKOFF_RESET = 600.0
"""A container that ran this long has earned an immediate restart."""


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    def __init__(self, word: str) -> None:
        self.final = word in ("Succeeded", "Failed")


TRANSITIONS = {
    Phase.PENDING: frozenset({Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED}),
    Phase.RUNNING: frozenset({Phase.SUCCEEDED, Phase.FAILED}),
    Phase.SUCCEEDED: frozenset[Phase](),
    Phase.FAILED: frozenset[Phase](),
}
"""The phases that may follow each phase."""


class Wanted(NamedTuple):
    """What the API asks for, as far as it concerns the life of a pod."""

    containers: tuple[str, ...]
    restart_policy: str
    grace: float | None
    """Seconds that the containers have to stop; None: the pod is not being deleted."""


class PodState(NamedTuple):
    """What a step leaves behind for the next one."""

    phase: Phase
    accepted: Instant
    """status.startTime."""
    ready: bool
    ready_changed: Instant
    reason: str = ""
    message: str = ""


class Start(NamedTuple):
    container: str
    attempt: int


class Stop(NamedTuple):
    container: str
    grace: float


class Remove(NamedTuple):
    """The pod is over, and somebody wants it gone: once its final status is reported, delete it with grace 0."""


Action = Start | Stop | Remove


class Step(NamedTuple):
    state: PodState
    wake_at: float | None
    """Monotonic time of the next step, if nothing else happens before."""
    actions: tuple[Action, ...]


def accept(now: Instant) -> PodState:
    return PodState(Phase.PENDING, now, ready=False, ready_changed=now)


def refuse(reason: str, message: str, now: Instant) -> PodState:
    """The node does not take the pod; no container of it is ever created."""
    return PodState(Phase.FAILED, now, ready=False, ready_changed=now, reason=reason, message=message)


def accepted(pod: Pod) -> bool:
    """Has an earlier kubelet process taken the pod up, or is it over without one?"""
    return pod.status.HasField("startTime") or pod.status.phase in (Phase.SUCCEEDED, Phase.FAILED)


def adopt(pod: Pod, now: Instant) -> PodState:
    """The state of a pod that an earlier kubelet process had accepted or refused, from the status that it
    reported. `accepted` holds."""
    status = pod.status
    ready = next((c for c in status.conditions if c.type == "Ready"), None)
    since = past(to_seconds(status.startTime), now)
    return PodState(
        next((phase for phase in Phase if phase == status.phase), Phase.PENDING),
        since,
        ready=ready is not None and ready.status == "True",
        ready_changed=past(to_seconds(ready.lastTransitionTime), now) if ready else since,
        reason=status.reason,
        message=status.message,
    )


def advance(want: Wanted, state: PodState, containers: Sequence[ContainerView], now: Instant) -> Step:
    """One step. `containers` are those that have ever been started. After the actions are carried out, observe and step
    again; without actions nothing will happen until `wake_at` or until the pod or a container changes."""
    deleting = want.grace is not None
    if state.phase.final:
        return Step(state, None, (Remove(),) if deleting else ())
    actions: list[Action] = []
    wake_at: float | None = None
    alive = starting = failed = False
    ready = True
    for view in containers:
        next_change = view.changes_at
        if view.exit is None:
            alive = True
            starting = starting or (view.state is ContainerState.CREATED and view.attempt == 0)
            if want.grace is not None and (view.stop_grace is None or want.grace < view.stop_grace):
                actions.append(Stop(view.name, want.grace))
        elif not deleting and restarts(want.restart_policy, view.exit):
            alive = True
            next_change = restart_at(view.exit, view.attempt)
            if now.monotonic >= next_change:
                actions.append(Start(view.name, view.attempt + 1))
        else:
            failed = failed or view.exit.code != 0
        ready = ready and view.state is ContainerState.RUNNING
        if next_change is not None and (wake_at is None or next_change < wake_at):
            wake_at = next_change
    absent = len(containers) < len(want.containers)
    if absent and not deleting:
        started = [view.name for view in containers]
        actions += [Start(name, 0) for name in want.containers if name not in started]
    if alive or (absent and not deleting):
        phase = Phase.PENDING if absent or starting else Phase.RUNNING
    else:
        phase = Phase.FAILED if absent or failed else Phase.SUCCEEDED
    state = _next(state, phase, ready, now)
    if state.phase.final:
        return Step(state, None, (*actions, Remove()) if deleting else tuple(actions))
    return Step(state, wake_at, tuple(actions))


def restart_at(exit_: Exit, attempt: int) -> float:
    """Monotonic time at which a container that ended its `attempt` so may start again: crash loops slow down."""
    ran = exit_.finished.monotonic - exit_.started.monotonic
    if attempt == 0 or ran >= RESTART_BACKOFF_RESET:
        return exit_.finished.monotonic
    return exit_.finished.monotonic + min(RESTART_BACKOFF * 2.0 ** min(attempt - 1, 32), RESTART_BACKOFF_MAX)


def restarts(policy: str, exit_: Exit) -> bool:
    """Does a container that ended so come back? `policy` is spec.restartPolicy; empty is Always."""
    return policy in ("Always", "") or (policy == "OnFailure" and exit_.code != 0)


def _next(before: PodState, phase: Phase, running: bool, now: Instant) -> PodState:
    """The state with this phase, if it may follow, and with readiness: all containers of a Running pod run."""
    if phase is not before.phase and phase not in TRANSITIONS[before.phase]:
        phase = before.phase
    ready = running and phase is Phase.RUNNING
    if phase is before.phase and ready is before.ready:
        return before
    changed = before.ready_changed if ready is before.ready else now
    return PodState(phase, before.accepted, ready, changed, before.reason, before.message)
