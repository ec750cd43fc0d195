"""A runtime without processes: containers only pass through their states.

Stages and annotations of the pod (both in kubelet.runtime.stages) declare what a container does. A container that still runs
when its grace period ends is killed: exit code 137 (128 + SIGKILL). Hooks and probes end as declared, whatever they would call;
only `sleep` sleeps. The state of a container is computed when it is read, so idle containers cost nothing.

The interface between the kubelet and what provides volumes, a CSI in small; and volumes that are pretended.

    a pod comes    its volumes are attached to the node, where they are not yet, and mounted for the pod; then containers start
    a pod is over  they are unmounted, and detached when no other pod of the node has them

What takes time are volumes that come from elsewhere: claims. The others (emptyDir, configMap and the like) are folders of the
node, and there at once. Nothing is ever waited for: `publish_volumes` begins, and says when it will be done.
Source: https://github.com/container-storage-interface/spec (ControllerPublishVolume, NodePublishVolume)
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, Protocol

from pinnace.api.core_v1_pb2 import ContainerStatus, Pod, SleepAction
from pinnace.api.scalars import to_seconds
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.runtime.interface import (
    CallKind,
    CallView,
    ContainerCall,
    ContainerExit,
    ContainerState,
    ContainerView,
    Moment,
    UnsupportedPod,
    VolumeProgress,
    reported_exit,
    to_past_moment,
)
from pinnace.kubelet.runtime.stages import PREFIX, Behaviour, PodBehaviour, Stages, annotated_behaviour, parse_seconds

KILLED = 137
NO_STAGES = Stages(())
ATTACH = f"{PREFIX}attach-seconds"
"""Annotation: seconds to attach a claim of the pod to a node."""
MOUNT = f"{PREFIX}mount-seconds"
"""Annotation: seconds to mount the claims of the pod."""


class _SimulatedAttempt(NamedTuple):
    """The planned course of a container, unless it is stopped."""

    name: str
    number: int
    starts: Moment
    ends: Moment | None
    code: int
    stop_grace: float | None
    last_exit: ContainerExit | None
    calls: tuple[CallView, ...] = ()
    """The planned ends of calls."""
    reason: str = ""
    """The reported end; see ContainerExit."""

    def view(self, now: Moment) -> ContainerView:
        if self.ends is not None and now.monotonic >= self.ends.monotonic:
            exit_ = ContainerExit(self.code, min(self.starts, self.ends), self.ends, self.reason)
            return self._build_view(ContainerState.EXITED, exit_.started, exit_, None, now)
        if now.monotonic < self.starts.monotonic:
            return self._build_view(ContainerState.CREATED, None, None, self.starts.monotonic, now)
        return self._build_view(ContainerState.RUNNING, self.starts, None, self.ends.monotonic if self.ends else None, now)

    def _build_view(
        self, state: ContainerState, started: Moment | None, exit_: ContainerExit | None, changes_at: float | None, now: Moment
    ) -> ContainerView:
        calls = tuple(_observe_attempt(call, now) for call in self.calls) if self.calls else ()
        return ContainerView(self.name, self.number, state, started, exit_, self.last_exit, self.stop_grace, changes_at, calls)


def _observe_attempt(planned: CallView, now: Moment) -> CallView:
    if planned.ended is None or now.monotonic >= planned.ended.monotonic:
        return planned
    return planned._replace(ended=None, failure="", changes_at=planned.ended.monotonic)


class _PodSandbox:
    __slots__ = ("attempts", "script")

    def __init__(self, script: PodBehaviour) -> None:
        self.script = script
        self.attempts: dict[str, _SimulatedAttempt] = {}


class SimulatedRuntime:
    """Implements pinnace.kubelet.runtime.interface.Runtime."""

    def __init__(self, default: Behaviour, stages: Stages = NO_STAGES) -> None:
        """`default`: for containers without a stage or an annotation."""
        self._default = default
        self._stages = stages
        self._unscripted = PodBehaviour(default, {})
        self._pods: dict[str, _PodSandbox] = {}

    def set_listener(self, notify: Callable[[str], None]) -> None:
        """No effect: all changes are known in advance."""

    def prepare_pod(self, pod: Pod, addresses: PodAddresses) -> None:
        self._pods[pod.metadata.uid] = _PodSandbox(self._parse_behaviour(pod))

    def _parse_behaviour(self, pod: Pod) -> PodBehaviour:
        """Raises UnsupportedPod."""
        behaviour = self._stages.behaviour_of(pod, self._default)
        if (declared := annotated_behaviour(pod, behaviour)) is not None:
            return declared
        return self._unscripted if behaviour is self._default else PodBehaviour(behaviour, {})

    def adopt_pod(self, pod: Pod, now: Moment) -> None:
        """A simulated container is restored from its reported status. A container that ran keeps its start and end times."""
        try:
            sandbox = _PodSandbox(self._parse_behaviour(pod))
        except UnsupportedPod:  # the annotations were changed after the pod was accepted
            sandbox = _PodSandbox(self._unscripted)
        self._pods[pod.metadata.uid] = sandbox
        groups = (pod.status.initContainerStatuses, pod.status.containerStatuses, pod.status.ephemeralContainerStatuses)
        for status in chain.from_iterable(groups):
            if attempt := _resume_attempt(status, sandbox.script.behaviour_of(status.name), now):
                sandbox.attempts[status.name] = attempt

    def resize_pod(self, pod: Pod) -> None:
        """No effect: declared usage does not depend on the runtime."""

    def start(self, uid: str, container: str, attempt: int, now: Moment) -> None:
        sandbox = self._pods[uid]
        before = sandbox.attempts.get(container)
        declared = sandbox.script.behaviour_of(container)
        starts = now.after(declared.start_seconds)
        last_exit = before.view(now).exit if before else None
        sandbox.attempts[container] = _plan_attempt(container, attempt, starts, declared, last_exit)

    def stop(self, uid: str, container: str, grace: float, now: Moment) -> None:
        sandbox = self._pods[uid]
        attempt, stop_seconds = sandbox.attempts[container], sandbox.script.behaviour_of(container).stop_seconds
        if now.monotonic < attempt.starts.monotonic:
            ends, code = now, KILLED
        elif attempt.stop_grace is None and stop_seconds <= grace and grace > 0:
            ends, code = now.after(stop_seconds), 0
        else:
            ends, code = now.after(grace), KILLED
        if attempt.ends is not None and attempt.ends <= ends:
            ends, code = attempt.ends, attempt.code
        sandbox.attempts[container] = attempt._replace(ends=ends, code=code, stop_grace=grace)

    def crash_container(self, uid: str, container: str, attempt: int, code: int, now: Moment) -> None:
        sandbox = self._pods.get(uid)
        result = sandbox.attempts.get(container) if sandbox is not None else None
        if sandbox is None or result is None or result.number != attempt:
            return
        if result.view(now).state is ContainerState.RUNNING:
            sandbox.attempts[container] = result._replace(ends=now, code=code)

    def call(self, uid: str, container: str, call: ContainerCall, now: Moment) -> None:
        sandbox = self._pods[uid]
        attempt = sandbox.attempts[container]
        takes, failure = _call_outcome(call, sandbox.script.behaviour_of(container), now.monotonic - attempt.starts.monotonic)
        if takes > call.timeout:
            takes, failure = call.timeout, f"timed out after {call.timeout:g} s"
        others = tuple(item for item in attempt.calls if item.kind is not call.kind)
        planned = CallView(call.kind, call.number, now, now.after(takes), failure, None)
        sandbox.attempts[container] = attempt._replace(calls=(*others, planned))

    def observe_containers(self, uid: str, now: Moment) -> Sequence[ContainerView]:
        sandbox = self._pods.get(uid)
        return [attempt.view(now) for attempt in sandbox.attempts.values()] if sandbox else ()

    def remove(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def kill_leftovers(self, uid: str) -> None:
        """No effect: nothing remains of an earlier process."""

    def retain_pods(self, nodes: Collection[str], uids: Collection[str]) -> None:
        """No effect: nothing remains of an earlier process."""

    def close(self) -> None:
        """No effect: no process can continue."""


def _call_outcome(call: ContainerCall, declared: Behaviour, age: float) -> tuple[float, str]:
    """The duration of the call, and its failure message or an empty string. `age`: seconds since the container began to run."""
    match call.kind:
        case CallKind.POST_START:
            takes, code = declared.post_start_seconds, declared.post_start_exit_code
        case CallKind.PRE_STOP:
            takes, code = declared.pre_stop_seconds, declared.pre_stop_exit_code
        case CallKind.STARTUP:
            takes, code = declared.probe_seconds, int(age < declared.started_after_seconds)
        case CallKind.READINESS:
            ready = declared.ready_after_seconds <= age < declared.unready_after_seconds
            takes, code = declared.probe_seconds, int(not ready)
        case CallKind.LIVENESS:
            takes, code = declared.probe_seconds, int(age >= declared.unhealthy_after_seconds)
    if isinstance(call.handler, SleepAction):
        takes = float(call.handler.seconds)
    return takes, f"exit code {code}" if code else ""


def _plan_attempt(
    name: str, number: int, starts: Moment, declared: Behaviour, last_exit: ContainerExit | None
) -> _SimulatedAttempt:
    ends = None if declared.run_seconds is None else starts.after(declared.run_seconds)
    return _SimulatedAttempt(name, number, starts, ends, declared.exit_code, None, last_exit)


def _resume_attempt(status: ContainerStatus, declared: Behaviour, now: Moment) -> _SimulatedAttempt | None:
    """The attempt in a reported status. None: the container never ran."""
    last_exit = reported_exit(status.lastState, now)
    if status.state.HasField("running"):
        started = to_past_moment(to_seconds(status.state.running.startedAt), now)
        return _plan_attempt(status.name, status.restartCount, started, declared, last_exit)
    ended, before = reported_exit(status.state, now), last_exit
    if ended is None:  # waiting for its first start or a restart; for a restart, the last state has its end
        ended, before = last_exit, None
    if ended is None:
        return None
    number, code = status.restartCount, ended.code
    return _SimulatedAttempt(status.name, number, ended.started, ended.finished, code, None, before, reason=ended.reason)


class PodVolumeManager(Protocol):
    def set_listener(self, report: Callable[[str, VolumeProgress], None], event: Callable[[Pod, str, str, str], None]) -> None:
        """Set the callbacks: `report(uid, progress)` for changes that no returned time announced, and `event(pod, type,
        reason, message)`. Called once, before all other methods.
        """
        ...

    async def run(self) -> None:
        """Run until cancelled."""
        ...

    def publish_volumes(self, pod: Pod, now: Moment) -> float:
        """Start to attach and mount the volumes of the pod. Return the monotonic time of completion. Infinite: unknown; the
        progress will be reported. Raises UnsupportedPod; then there is nothing to unpublish.
        """
        ...

    def adopt_volumes(self, pod: Pod, now: Moment, *, started: bool) -> float:
        """Like `publish_volumes`, for a pod that an earlier kubelet process accepted. If a container has started, the volumes
        are mounted.
        """
        ...

    def update(self, pod: Pod) -> None:
        """The pod has changed, such as its labels. No effect for an unknown pod."""
        ...

    def unpublish_volumes(self, pod: Pod) -> None:
        """Unmount the volumes of a finished or deleted pod. No effect for an unknown pod."""
        ...


class VolumeDelays(NamedTuple):
    """Default delays in seconds, for pods without annotations."""

    attach: float = 0.0
    mount: float = 0.0


AT_ONCE = VolumeDelays()


@dataclass(slots=True)
class _VolumeAttachment:
    done: float
    """Monotonic time."""
    pods: set[str] = field(default_factory=set)


class SimulatedVolumes:
    def __init__(self, delays: VolumeDelays = AT_ONCE) -> None:
        self._delays = delays
        self._attached: dict[tuple[str, str], _VolumeAttachment] = {}
        """By node and claim."""

    def set_listener(self, report: Callable[[str, VolumeProgress], None], event: Callable[[Pod, str, str, str], None]) -> None:
        """No effect: all changes are known in advance."""

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()

    def update(self, pod: Pod) -> None:
        """No effect: nothing is read from the pod later."""

    def publish_volumes(self, pod: Pod, now: Moment) -> float:
        return self._publish_claims(pod, self._declared_delays(pod), now)

    def adopt_volumes(self, pod: Pod, now: Moment, *, started: bool) -> float:
        try:
            delays = AT_ONCE if started else self._declared_delays(pod)
        except UnsupportedPod:  # the annotations were changed after the pod was accepted
            delays = AT_ONCE
        return self._publish_claims(pod, delays, now)

    def _publish_claims(self, pod: Pod, delays: VolumeDelays, now: Moment) -> float:
        done = now.monotonic
        for claim in _claim_keys(pod):
            key = pod.spec.nodeName, claim
            attachment = self._attached.get(key)
            if attachment is None:
                attachment = self._attached[key] = _VolumeAttachment(now.monotonic + delays.attach)
            attachment.pods.add(pod.metadata.uid)
            done = max(done, attachment.done + delays.mount, now.monotonic + delays.mount)
        return done

    def _declared_delays(self, pod: Pod) -> VolumeDelays:
        annotations = pod.metadata.annotations
        return VolumeDelays(
            parse_seconds(ATTACH, annotations[ATTACH]) if ATTACH in annotations else self._delays.attach,
            parse_seconds(MOUNT, annotations[MOUNT]) if MOUNT in annotations else self._delays.mount,
        )

    def unpublish_volumes(self, pod: Pod) -> None:
        for claim in _claim_keys(pod):
            key = pod.spec.nodeName, claim
            if (attachment := self._attached.get(key)) is not None:
                attachment.pods.discard(pod.metadata.uid)
                if not attachment.pods:
                    del self._attached[key]


def _claim_keys(pod: Pod) -> Iterator[str]:
    """namespace/name of each claim."""
    for volume in pod.spec.volumes:
        source = volume.volumeSource
        if source.HasField("persistentVolumeClaim"):
            yield f"{pod.metadata.namespace}/{source.persistentVolumeClaim.claimName}"
        elif source.HasField("ephemeral"):
            yield f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}"
