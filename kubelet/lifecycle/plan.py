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

from kubelet.runtime.interface import Call, CallKind, Handler, Instant
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
from pinnace.api.pods import ENDED
from pinnace.fit import Requests, insists, pod_requests


class ProbePlan(NamedTuple):
    """One probe of a container. Times in seconds."""

    kind: CallKind
    handler: Handler
    initial_delay: float
    period: float
    timeout: float
    successes: int
    """As many in a row are a success."""
    failures: int
    grace: float
    """That a container has to stop in, when this probe has failed."""


class ContainerPlan(NamedTuple):
    name: str
    restart_policy: str
    """Its own. An init container of a pod that restarts Always comes back only when it has failed; a sidecar always."""
    image: str = ""
    sidecar: bool = False
    grace: float = wellknown.DEFAULT_GRACE_SECONDS
    post_start: Handler | None = None
    pre_stop: Handler | None = None
    startup: ProbePlan | None = None
    readiness: ProbePlan | None = None
    liveness: ProbePlan | None = None
    attended: bool = False
    """It has a postStart hook or probes: that it runs does not say everything."""
    resources: bytes = b""
    """allocatedResources and resources of its status, encoded as a ContainerStatus."""

    @property
    def waits_to_start(self) -> bool:
        """Is it not started yet when it has come to run?"""
        return self.post_start is not None or self.startup is not None


class PodPlan(NamedTuple):
    main: tuple[ContainerPlan, ...]
    init: tuple[ContainerPlan, ...] = ()
    """With the sidecars among them, in their order."""
    grace: float = wellknown.DEFAULT_GRACE_SECONDS
    deadline: float | None = None
    """activeDeadlineSeconds."""
    gates: tuple[str, ...] = ()
    """Conditions that must be True, beside those of the containers, before the pod is ready."""
    images: Mapping[str, str] = MappingProxyType({})
    """By name, of the containers that are started anew when theirs changes. Init containers are not, but for sidecars."""
    plain: bool = False
    """Main containers and nothing else, none of them attended: nearly all pods."""


def plan_of(spec: PodSpec) -> PodPlan:
    says = spec.HasField("terminationGracePeriodSeconds")
    grace = float(spec.terminationGracePeriodSeconds if says else wellknown.DEFAULT_GRACE_SECONDS)
    policy = spec.restartPolicy or "Always"
    init_policy = "Never" if policy == "Never" else "OnFailure"
    main = tuple(_container(each, policy, grace) for each in spec.containers)
    init = tuple(_init_container(each, init_policy, grace) for each in spec.initContainers)
    deadline = float(spec.activeDeadlineSeconds) if spec.HasField("activeDeadlineSeconds") else None
    gates = tuple(gate.conditionType for gate in spec.readinessGates)
    plain = not (init or gates or deadline is not None or any(each.attended for each in main))
    images = {each.name: each.image for each in (*(each for each in init if each.sidecar), *main)}
    return PodPlan(main, init, grace, deadline, gates, MappingProxyType(images), plain)


def _init_container(container: Container, policy: str, grace: float) -> ContainerPlan:
    if container.restartPolicy == "Always":
        return _container(container, "Always", grace)._replace(sidecar=True)
    # It has neither hooks nor probes: validation refuses them.
    return ContainerPlan(container.name, policy, container.image, grace=grace, resources=_resources(container))


def _container(container: Container, policy: str, grace: float) -> ContainerPlan:
    lifecycle, ports = container.lifecycle, container.ports
    post_start = _handler(lifecycle.postStart, ports)
    startup = _probe(CallKind.STARTUP, container.startupProbe, ports, grace)
    readiness = _probe(CallKind.READINESS, container.readinessProbe, ports, grace)
    liveness = _probe(CallKind.LIVENESS, container.livenessProbe, ports, grace)
    return ContainerPlan(
        container.name,
        policy,
        container.image,
        grace=grace,
        post_start=post_start,
        pre_stop=_handler(lifecycle.preStop, ports),
        startup=startup,
        readiness=readiness,
        liveness=liveness,
        attended=any((post_start, startup, readiness, liveness)),
        resources=_resources(container),
    )


def _resources(container: Container) -> bytes:
    if not container.HasField("resources"):
        return b""
    status = ContainerStatus(allocatedResources=container.resources.requests, resources=container.resources)
    return status.SerializeToString(deterministic=True)


def _probe(kind: CallKind, probe: Probe, ports: Sequence[ContainerPort], grace: float) -> ProbePlan | None:
    """One that cannot be made, as its port has a name that the container does not have, never comes to a failure, as in
    Kubernetes: it says nothing of the container."""
    handler = _handler(probe.handler, ports)
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


def _handler(handler: ProbeHandler | LifecycleHandler, ports: Sequence[ContainerPort]) -> Handler | None:
    """None: there is none, or it is of a kind that is not modelled."""
    chosen: Handler | None = next((value for _, value in handler.ListFields()), None)
    if isinstance(chosen, HTTPGetAction):
        chosen = HTTPGetAction.FromString(chosen.SerializeToString())
        chosen.port.CopyFrom(_number(chosen.port, ports))
    elif isinstance(chosen, TCPSocketAction):
        chosen = TCPSocketAction(host=chosen.host, port=_number(chosen.port, ports))
    return chosen


def _number(port: IntOrString, ports: Sequence[ContainerPort]) -> IntOrString:
    """0, at which nobody answers, when the container has no port of that name."""
    if not port.strVal:
        return port
    return IntOrString(intVal=next((each.containerPort for each in ports if each.name == port.strVal), 0))


class Template(NamedTuple):
    plan: PodPlan
    host_network: bool
    requests: Requests
    choosy: PodSpec | None
    """The spec, if it insists on labels of the node."""
    tolerations: Sequence[Toleration]


def template_of(pod: Pod) -> Template:
    spec = PodSpec()
    spec.CopyFrom(pod.spec)
    spec.nodeName = ""
    return _of_bytes(spec.SerializeToString())


@lru_cache(maxsize=16384)
def _of_bytes(encoded: bytes) -> Template:
    pod = Pod()
    pod.spec.ParseFromString(encoded)
    return Template(
        plan_of(pod.spec),
        pod.spec.hostNetwork,
        pod_requests(pod),
        pod.spec if insists(pod.spec) else None,
        tuple(pod.spec.tolerations),
    )


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    def __init__(self, word: str) -> None:
        self.final = word in ENDED


TRANSITIONS = {
    Phase.PENDING: frozenset({Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED}),
    Phase.RUNNING: frozenset({Phase.SUCCEEDED, Phase.FAILED}),
    Phase.SUCCEEDED: frozenset[Phase](),
    Phase.FAILED: frozenset[Phase](),
}
"""The phases that may follow each phase."""


class DesiredState(NamedTuple):
    """What the API asks for, as far as it concerns the life of a pod."""

    plan: PodPlan
    grace: float | None
    """Seconds that the containers have to stop; None: the pod is not being deleted."""
    gated: str = ""
    """Which readiness gates are not True, in Kubernetes' words."""
    mounted_at: float = -math.inf
    """Monotonic time at which the pod's volumes are there: no container starts before."""


class Condition(NamedTuple):
    """A condition: does it hold, and since when is that so?"""

    holds: bool
    since: Instant


class ProbeMemory(NamedTuple):
    """What is known of a probe from its earlier calls."""

    counted: int = 0
    """Calls that have been counted; so this is the number of the next."""
    begun: float | None = None
    """Monotonic time at which the last of them began."""
    run: int = 0
    """How many in a row have succeeded, or, negative, failed."""


NOTHING_KNOWN = ProbeMemory()


class KillReason(NamedTuple):
    """A hook or a probe has failed, or the container needs another image or a restart with other resources: this attempt is
    stopped, and another follows."""

    since: float
    grace: float
    message: str
    anyway: bool = False
    """Another follows at once, even if restartPolicy is Never."""


class ContainerRecord(NamedTuple):
    """What is remembered of a container that needs more than to be started and stopped: one that has a hook or a probe, or
    that has crashed."""

    attempt: int
    started: bool
    """Its postStart hook is done and its startup probe has succeeded, as far as it has them."""
    ready: bool
    hooked: bool
    """The postStart hook is done, or there is none."""
    started_at: float = 0.0
    """Monotonic; the delays of readiness and liveness probes count from it."""
    startup: ProbeMemory = NOTHING_KNOWN
    readiness: ProbeMemory = NOTHING_KNOWN
    liveness: ProbeMemory = NOTHING_KNOWN
    kill_reason: KillReason | None = None
    first_crash: int = 0
    """The attempt from which the back-off counts: it ran long enough for a new beginning."""
    warned: bool = False
    """That it waits before its restart has been said."""


class Ending(NamedTuple):
    """The containers are being stopped, for good."""

    since: Instant
    grace: float
    reason: str = ""
    """Why the pod will have failed, as status.reason; empty: its containers say how it went."""
    message: str = ""
    disrupts: bool = False
    """It is its node's need that ends the pod, and nothing that the pod has done."""


class PodState(NamedTuple):
    """What a step leaves behind for the next one."""

    phase: Phase
    accepted: Instant
    """status.startTime."""
    initialized: Condition
    containers_ready: Condition
    ready: Condition
    reason: str = ""
    message: str = ""
    gated: str = ""
    """Readiness gates that are not True; see Wanted."""
    refused: bool = False
    """The node did not take the pod: nothing of it has ever been there."""
    ended: Instant | None = None
    """When the phase became final; None, too, of a pod that had ended before this process took it up."""
    ending: Ending | None = None
    records: Mapping[str, ContainerRecord] = MappingProxyType({})
    """By the container's name."""
    images: Mapping[str, str] = MappingProxyType({})
    """What each container has been started with, by its name; of one that has not been started, nothing counts. The plan's own
    where nothing has changed."""

    @property
    def over_before(self) -> bool:
        """Had it ended when this process took it up? Then nobody here has seen its containers."""
        return self.phase.final and self.ended is None

    @property
    def told(self) -> tuple[object, ...]:
        """What others are told of it."""
        return (self[:10], self.images, [(name, record.started, record.ready) for name, record in self.records.items()])


class Start(NamedTuple):
    container: str
    attempt: int


class Stop(NamedTuple):
    container: str
    grace: float


class BeginCall(NamedTuple):
    """Call a hook or a probe of the container."""

    container: str
    call: Call


class RecordEvent(NamedTuple):
    """Something that users are told as an event."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str


class RemovePod(NamedTuple):
    """The pod is over, and somebody wants it gone: once its final status is reported, delete it with grace 0."""


Action: TypeAlias = Start | Stop | BeginCall | RecordEvent | RemovePod


class Step(NamedTuple):
    state: PodState
    wake_at: float | None
    """Monotonic time of the next step, if nothing else happens before."""
    actions: tuple[Action, ...]
