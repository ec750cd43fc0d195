"""containerStatuses and initContainerStatuses of a pod: what is shown of each container, and as which bytes.

waiting      ContainerCreating, or PodInitializing in a pod with init containers; CrashLoopBackOff before a restart
running      its postStart hook is done; `started` when the startup probe has succeeded, `ready` when the readiness probe has
terminated   Completed, Error, or the runtime's own reason; ContainerStatusUnknown when the pod ended before it was started
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kubelet.lifecycle import Care, ContainerPlan, PodPlan, PodState, comes_back, delay, in_words
from kubelet.runtime import ContainerState, ContainerView, Exit
from pinnace.api.core_v1_pb2 import ContainerState as ContainerStateMessage
from pinnace.api.core_v1_pb2 import ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, PodStatus
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.scalars import to_time


class Shown(NamedTuple):
    """One container, as it is to be shown."""

    plan: ContainerPlan
    init: bool
    view: ContainerView | None
    care: Care | None
    running: bool
    started: bool
    ready: bool

    @property
    def matters(self) -> bool:
        """Does the pod's readiness depend on it?"""
        return not self.init or self.plan.sidecar

    @property
    def holds_up(self) -> bool:
        """Is it an init container for which the others still wait?"""
        return self.init and not (self.started if self.plan.sidecar else self.ready)


def plainly(plan: PodPlan, state: PodState, containers: Sequence[ContainerView]) -> bytes | None:
    """What `encode` says of a plain pod whose containers run since their first start, as nearly all do. None: it is none."""
    if not plan.plain or len(containers) != len(plan.main) or state.images is not plan.images:
        return None
    views, out = {view.name: view for view in containers}, b""
    for each in plan.main:
        view = views.get(each.name)
        if view is None or view.started is None or view.attempt or view.exit is not None:
            return None
        out += _encoded_running(each.name, each.image, False, 0, int(view.started.unix), each.resources)
    return out


def show(plan: PodPlan, state: PodState, containers: Sequence[ContainerView]) -> list[Shown]:
    """All containers, in the order of the spec, init containers first."""
    views = {view.name: view for view in containers}
    shown = [_shown(each, True, views.get(each.name), state) for each in plan.init] if plan.init else []
    return shown + [_shown(each, False, views.get(each.name), state) for each in plan.main]


def _shown(plan: ContainerPlan, init: bool, view: ContainerView | None, state: PodState) -> Shown:
    care = state.cares.get(plan.name) if state.cares else None
    running = view is not None and view.state is ContainerState.RUNNING
    if init and not plan.sidecar:  # it is ready when it is done
        done = view is not None and view.exit is not None and view.exit.code == 0
        return Shown(plan, init, view, care, running, running, done)
    if not plan.attended:
        return Shown(plan, init, view, care, running, running, running)
    if not running or view is None or care is None or care.attempt != view.attempt:
        return Shown(plan, init, view, care, False, False, False)
    return Shown(plan, init, view, care, care.hooked, care.started, care.ready)


def encode(metadata: ObjectMeta, plan: PodPlan, state: PodState, shown: Sequence[Shown]) -> bytes:
    """Encoded as a PodStatus. `metadata`: of the pod."""
    return b"".join(_container(each, metadata, plan, state) for each in shown)


def _container(shown: Shown, metadata: ObjectMeta, plan: PodPlan, state: PodState) -> bytes:
    view, name = shown.view, shown.plan.name
    image = state.images.get(name, shown.plan.image)
    if view is not None and view.started is not None and view.last_exit is None and shown.ready and shown.running:
        return _encoded_running(name, image, shown.init, view.attempt, int(view.started.unix), shown.plan.resources)
    status = PodStatus()
    target = (status.initContainerStatuses if shown.init else status.containerStatuses).add(
        name=name, image=image, ready=shown.ready, started=shown.started
    )
    target.MergeFromString(shown.plan.resources)
    if view is None:
        due = state.initialized.holds or shown.plan in plan.init[:1]
        target.state.CopyFrom(_LOST if state.phase.final and due else _waiting(plan))
    else:
        _set_state(target, view, shown, metadata, plan, over=state.phase.final or state.ending is not None)
    return status.SerializeToString()


@lru_cache(maxsize=1024)
def _encoded_running(name: str, image: str, init: bool, attempt: int, started: int, resources: bytes) -> bytes:
    """A container that is ready and has not ended before: nearly all of them."""
    status = PodStatus()
    target = (status.initContainerStatuses if init else status.containerStatuses).add(
        name=name, image=image, ready=True, started=True, restartCount=attempt
    )
    target.state.running.startedAt.seconds = started
    target.MergeFromString(resources)
    return status.SerializeToString()


def _set_state(
    target: ContainerStatus, view: ContainerView, shown: Shown, metadata: ObjectMeta, plan: PodPlan, *, over: bool
) -> None:
    """`over`: nothing of the pod comes back."""
    target.restartCount = view.attempt
    last_exit = view.last_exit
    if view.exit is None:
        if shown.running and view.started is not None:
            target.state.running.startedAt.seconds = int(view.started.unix)
        else:
            target.state.CopyFrom(_waiting(plan))
    elif not over and comes_back(shown.plan, view, shown.care):
        wait, pod = in_words(delay(view, shown.care)), f"{metadata.name}_{metadata.namespace}({metadata.uid})"
        target.state.waiting.reason = "CrashLoopBackOff"
        target.state.waiting.message = f"back-off {wait} restarting failed container={view.name} pod={pod}"
        last_exit = view.exit
    else:
        target.state.terminated.CopyFrom(_terminated(view.exit))
    if last_exit is not None:
        target.lastState.terminated.CopyFrom(_terminated(last_exit))


def _terminated(exit_: Exit) -> ContainerStateTerminated:
    return ContainerStateTerminated(
        exitCode=exit_.code,
        reason=exit_.reason or ("Error" if exit_.code else "Completed"),
        message=exit_.message,
        startedAt=to_time(exit_.started.unix),
        finishedAt=to_time(exit_.finished.unix),
    )


def _waiting(plan: PodPlan) -> ContainerStateMessage:
    return _INITIALIZING if plan.init else _CREATING


_CREATING = ContainerStateMessage(waiting=ContainerStateWaiting(reason="ContainerCreating"))
_INITIALIZING = ContainerStateMessage(waiting=ContainerStateWaiting(reason="PodInitializing"))
_LOST = ContainerStateMessage(
    terminated=ContainerStateTerminated(
        exitCode=137, reason="ContainerStatusUnknown", message="the pod ended before the container was started"
    )
)
