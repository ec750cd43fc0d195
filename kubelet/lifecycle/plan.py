"""A pod's spec, prepared once for all pods with that spec, and the types of the state machine.

The plan says in which order containers start, which are restarted, and which hooks and probes run. Defaults are those of the
API server, which has applied them; an unset field has the same meaning.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from pinnace.api import wellknown
from pinnace.api.core_v1_pb2 import (
    Container,
    ContainerPort,
    ContainerStatus,
    HTTPGetAction,
    LifecycleHandler,
    Pod,
    PodSpec,
    Probe,
    ProbeHandler,
    TCPSocketAction,
    Toleration,
)
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.pods import ENDED, container_of_ephemeral
from pinnace.fit import Requests, has_node_requirements, pod_requests
from pinnace.kubelet.runtime.interface import CallKind, ContainerCall, Handler, Moment


class ProbePlan(NamedTuple):
    """A probe of a container. Times are in seconds."""

    kind: CallKind
    handler: Handler
    initial_delay: float
    period: float
    timeout: float
    successes: int
    """The number of consecutive successes for a success."""
    failures: int
    grace: float
    """The grace period after a failure of this probe."""


class ContainerPlan(NamedTuple):
    name: str
    restart_policy: str
    """The restart policy of the container. With Always, init containers are restarted only after a failure, sidecars always."""
    image: str = ""
    sidecar: bool = False
    grace: float = wellknown.DEFAULT_GRACE_SECONDS
    post_start: Handler | None = None
    pre_stop: Handler | None = None
    startup: ProbePlan | None = None
    readiness: ProbePlan | None = None
    liveness: ProbePlan | None = None
    attended: bool = False
    """The container has a postStart hook or probes, so running does not imply ready."""
    resources: bytes = b""
    """The fields allocatedResources and resources of the status, encoded as a ContainerStatus."""

    @property
    def waits_to_start(self) -> bool:
        """Whether `started` is false when the container begins to run."""
        return self.post_start is not None or self.startup is not None


class PodPlan(NamedTuple):
    main: tuple[ContainerPlan, ...]
    init: tuple[ContainerPlan, ...] = ()
    """Including sidecars, in the order of the spec."""
    grace: float = wellknown.DEFAULT_GRACE_SECONDS
    deadline: float | None = None
    """activeDeadlineSeconds."""
    gates: tuple[str, ...] = ()
    """Conditions of the pod that must be True before it is ready."""
    images: Mapping[str, str] = MappingProxyType({})
    """The images by container name, for containers that are restarted when the image changes. Init containers are not, except
    sidecars.
    """
    ephemeral: tuple[ContainerPlan, ...] = ()
    """Containers that were added to look at the pod. The pod does not depend on them."""
    plain: bool = False
    """Only main containers, without hooks and probes: the most frequent case."""


def build_pod_plan(spec: PodSpec) -> PodPlan:
    says = spec.HasField("terminationGracePeriodSeconds")
    grace = float(spec.terminationGracePeriodSeconds if says else wellknown.DEFAULT_GRACE_SECONDS)
    policy = spec.restartPolicy or "Always"
    init_policy = "Never" if policy == "Never" else "OnFailure"
    main = tuple(_plan_container(container, policy, grace) for container in spec.containers)
    init = tuple(_init_container(init_container, init_policy, grace) for init_container in spec.initContainers)
    deadline = float(spec.activeDeadlineSeconds) if spec.HasField("activeDeadlineSeconds") else None
    gates = tuple(gate.conditionType for gate in spec.readinessGates)
    ephemeral = tuple(
        ContainerPlan(container.name, "Never", container.image, grace=grace)
        for container in map(container_of_ephemeral, spec.ephemeralContainers)
    )
    plain = not (init or gates or ephemeral or deadline is not None or any(item.attended for item in main))
    images = {item.name: item.image for item in (*(item for item in init if item.sidecar), *main)}
    return PodPlan(main, init, grace, deadline, gates, MappingProxyType(images), ephemeral, plain)


def _init_container(container: Container, policy: str, grace: float) -> ContainerPlan:
    if container.restartPolicy == "Always":
        return _plan_container(container, "Always", grace)._replace(sidecar=True)
    # No hooks or probes: validation rejects them for init containers.
    return ContainerPlan(container.name, policy, container.image, grace=grace, resources=_encode_resources(container))


def _plan_container(container: Container, policy: str, grace: float) -> ContainerPlan:
    lifecycle, ports = container.lifecycle, container.ports
    post_start = _plan_handler(lifecycle.postStart, ports)
    startup = _plan_probe(CallKind.STARTUP, container.startupProbe, ports, grace)
    readiness = _plan_probe(CallKind.READINESS, container.readinessProbe, ports, grace)
    liveness = _plan_probe(CallKind.LIVENESS, container.livenessProbe, ports, grace)
    return ContainerPlan(
        container.name,
        policy,
        container.image,
        grace=grace,
        post_start=post_start,
        pre_stop=_plan_handler(lifecycle.preStop, ports),
        startup=startup,
        readiness=readiness,
        liveness=liveness,
        attended=any((post_start, startup, readiness, liveness)),
        resources=_encode_resources(container),
    )


def _encode_resources(container: Container) -> bytes:
    if not container.HasField("resources"):
        return b""
    status = ContainerStatus(allocatedResources=container.resources.requests, resources=container.resources)
    return status.SerializeToString(deterministic=True)


def _plan_probe(kind: CallKind, probe: Probe, ports: Sequence[ContainerPort], grace: float) -> ProbePlan | None:
    """The probe, or None. As in Kubernetes, a probe with an unknown port name has no effect."""
    handler = _plan_handler(probe.handler, ports)
    if handler is None:
        return None
    made = not isinstance(handler, HTTPGetAction | TCPSocketAction) or handler.port.intVal
    return ProbePlan(
        kind,
        handler,
        float(probe.initialDelaySeconds),
        float(probe.periodSeconds or wellknown.PROBE_PERIOD_SECONDS),
        float(probe.timeoutSeconds or wellknown.PROBE_TIMEOUT_SECONDS),
        probe.successThreshold or wellknown.PROBE_SUCCESSES,
        (probe.failureThreshold or wellknown.PROBE_FAILURES) if made else sys.maxsize,
        float(probe.terminationGracePeriodSeconds) if probe.HasField("terminationGracePeriodSeconds") else grace,
    )


def _plan_handler(handler: ProbeHandler | LifecycleHandler, ports: Sequence[ContainerPort]) -> Handler | None:
    """None: there is no handler, or its kind is not supported."""
    chosen: Handler | None = next((value for _, value in handler.ListFields()), None)
    if isinstance(chosen, HTTPGetAction):
        chosen = HTTPGetAction.FromString(chosen.SerializeToString())
        chosen.port.CopyFrom(_resolve_port(chosen.port, ports))
    elif isinstance(chosen, TCPSocketAction):
        chosen = TCPSocketAction(host=chosen.host, port=_resolve_port(chosen.port, ports))
    return chosen


def _resolve_port(port: IntOrString, ports: Sequence[ContainerPort]) -> IntOrString:
    """The port number; 0 if the container has no port of this name."""
    if not port.strVal:
        return port
    return IntOrString(
        intVal=next((container_port.containerPort for container_port in ports if container_port.name == port.strVal), 0)
    )


class PodTemplateFacts(NamedTuple):
    plan: PodPlan
    host_network: bool
    requests: Requests
    choosy: PodSpec | None
    """The spec, if it has a node selector or a required node affinity."""
    tolerations: Sequence[Toleration]


def get_template(pod: Pod) -> PodTemplateFacts:
    spec = PodSpec()
    spec.CopyFrom(pod.spec)
    spec.nodeName = ""
    return _facts_of_bytes(spec.SerializeToString())


@lru_cache(maxsize=16384)
def _facts_of_bytes(encoded: bytes) -> PodTemplateFacts:
    pod = Pod()
    pod.spec.ParseFromString(encoded)
    return PodTemplateFacts(
        build_pod_plan(pod.spec),
        pod.spec.hostNetwork,
        pod_requests(pod),
        pod.spec if has_node_requirements(pod.spec) else None,
        tuple(pod.spec.tolerations),
    )


class PodPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    def __init__(self, word: str) -> None:
        self.final = word in ENDED


TRANSITIONS = {
    PodPhase.PENDING: frozenset({PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED}),
    PodPhase.RUNNING: frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED}),
    PodPhase.SUCCEEDED: frozenset[PodPhase](),
    PodPhase.FAILED: frozenset[PodPhase](),
}
"""The phases that may follow each phase."""


class DesiredState(NamedTuple):
    """The desired state of a pod, reduced to its lifecycle."""

    plan: PodPlan
    grace: float | None
    """The grace period in seconds. None: the pod is not being deleted."""
    gated: str = ""
    """The message about readiness gates that are not True."""
    mounted_at: float = -math.inf
    """Monotonic time at which the volumes are mounted. No container starts before."""
    held: Mapping[str, str] = MappingProxyType({})
    """Containers that cannot be created yet, by name, with the reason. They do not start."""


class ConditionState(NamedTuple):
    """The value of a condition, and the time of its last change."""

    holds: bool
    since: Moment


class ProbeState(NamedTuple):
    """The state of a probe after its earlier calls."""

    counted: int = 0
    """The number of counted calls, and therefore the index of the next call."""
    begun: float | None = None
    """Monotonic start time of the last call."""
    run: int = 0
    """Consecutive successes, or, if negative, consecutive failures."""


NOTHING_KNOWN = ProbeState()


class KillReason(NamedTuple):
    """This attempt is stopped and restarted, because a hook or a probe failed, or because the container has a new image or new
    resources.
    """

    since: float
    grace: float
    message: str
    anyway: bool = False
    """The restart is immediate, even if restartPolicy is Never."""


class ContainerRecord(NamedTuple):
    """The record of a container that has hooks or probes, or has crashed."""

    attempt: int
    started: bool
    """The postStart hook has finished and the startup probe has succeeded, if they exist."""
    ready: bool
    hooked: bool
    """The postStart hook has finished, or there is none."""
    started_at: float = 0.0
    """Monotonic start time of the delays of readiness and liveness probes."""
    startup: ProbeState = NOTHING_KNOWN
    readiness: ProbeState = NOTHING_KNOWN
    liveness: ProbeState = NOTHING_KNOWN
    kill_reason: KillReason | None = None
    first_crash: int = 0
    """The attempt from which the back-off counts, because it ran long enough to reset the back-off."""
    warned: bool = False
    """The event about the back-off has been recorded."""


class PodTermination(NamedTuple):
    """The containers are being stopped permanently."""

    since: Moment
    grace: float
    reason: str = ""
    """status.reason of the failed pod. Empty: the containers' exit codes decide."""
    message: str = ""
    disrupts: bool = False
    """The node caused the end, and not the pod itself."""


class PodState(NamedTuple):
    """The state of a pod between two steps."""

    phase: PodPhase
    accepted: Moment
    """status.startTime."""
    initialized: ConditionState
    containers_ready: ConditionState
    ready: ConditionState
    reason: str = ""
    message: str = ""
    gated: str = ""
    """The message about readiness gates; see Wanted."""
    refused: bool = False
    """The node rejected the pod. It has no containers."""
    ended: Moment | None = None
    """The time at which the phase became final. None for pods that had finished before this process adopted them."""
    ending: PodTermination | None = None
    records: Mapping[str, ContainerRecord] = MappingProxyType({})
    """By container name."""
    images: Mapping[str, str] = MappingProxyType({})
    """The image with which each container was started, by name. The same mapping as in the plan if no image has changed.
    """

    @property
    def ended_before_adoption(self) -> bool:
        """Whether the pod had finished when this process adopted it. The process then has not observed its containers."""
        return self.phase.final and self.ended is None

    @property
    def reported_fields(self) -> tuple[object, ...]:
        """The part of the state that is reported."""
        return (self[:10], self.images, [(name, record.started, record.ready) for name, record in self.records.items()])


class StartContainer(NamedTuple):
    container: str
    attempt: int


class StopContainer(NamedTuple):
    container: str
    grace: float


class StartCall(NamedTuple):
    """Starts a hook or a probe of the container."""

    container: str
    call: ContainerCall


class RecordEvent(NamedTuple):
    """An event for users."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str


class RemovePod(NamedTuple):
    """The pod has finished and is being deleted: after its final status is stored, delete it with grace period 0."""


Action: TypeAlias = StartContainer | StopContainer | StartCall | RecordEvent | RemovePod


class PodStep(NamedTuple):
    state: PodState
    wake_at: float | None
    """Monotonic time of the next step, if nothing changes before."""
    actions: tuple[Action, ...]
