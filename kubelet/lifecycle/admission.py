"""How a pod comes to a node: taken, refused, or taken up from where an earlier process had it."""

from collections.abc import Mapping

from kubelet.lifecycle.plan import PodPlan
from kubelet.lifecycle.state import Care, Fact, Phase, PodState
from kubelet.runtime import Instant, past
from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod, PodStatus
from pinnace.api.pods import ended
from pinnace.api.scalars import to_seconds


def accept(plan: PodPlan, now: Instant) -> PodState:
    return PodState(Phase.PENDING, now, Fact(not plan.init, now), Fact(False, now), Fact(False, now), images=plan.images)


def refuse(reason: str, message: str, now: Instant) -> PodState:
    """The node does not take the pod; no container of it is ever created."""
    never = Fact(False, now)
    return PodState(Phase.FAILED, now, never, never, never, reason, message, refused=True, ended=now)


def accepted(pod: Pod) -> bool:
    """Has an earlier kubelet process taken the pod up, or is it over without one?"""
    return pod.status.HasField("startTime") or ended(pod)


def adopt(pod: Pod, plan: PodPlan, now: Instant) -> PodState:
    """The state of a pod that an earlier kubelet process had accepted or refused, from the status that it reported. Hooks
    that were done are not called again, and what was ready stays so until a probe says otherwise; a hook that was not yet
    done is called again. `accepted` holds."""
    status = pod.status
    since = past(to_seconds(status.startTime), now)
    phase = next((phase for phase in Phase if phase == status.phase), Phase.PENDING)
    return PodState(
        phase,
        since,
        _fact(status, "Initialized", not plan.init, since, now),
        _fact(status, "ContainersReady", False, since, now),
        _fact(status, "Ready", False, since, now),
        status.reason,
        status.message,
        refused=phase.final and not status.podIP,
        cares=_cares(status, plan, now),
        images=_images(status, plan),
    )


def _images(status: PodStatus, plan: PodPlan) -> Mapping[str, str]:
    said = {each.name: each.image for each in (*status.initContainerStatuses, *status.containerStatuses)}
    images = {name: said.get(name) or image for name, image in plan.images.items()}
    return plan.images if images == plan.images else images


def _fact(status: PodStatus, kind: str, default: bool, since: Instant, now: Instant) -> Fact:
    said = conditions.find(status.conditions, kind)
    if said is None:
        return Fact(default, since)
    return Fact(said.status == "True", past(to_seconds(said.lastTransitionTime), now))


def _cares(status: PodStatus, plan: PodPlan, now: Instant) -> dict[str, Care]:
    attended = {each.name for each in (*plan.init, *plan.main) if each.attended}
    return {
        each.name: Care(
            each.restartCount,
            each.started,
            each.ready,
            hooked=True,
            started_at=past(to_seconds(each.state.running.startedAt), now).monotonic,
        )
        for each in (*status.initContainerStatuses, *status.containerStatuses)
        if each.name in attended and each.state.HasField("running")
    }
