"""What a pod's spec says of its life, prepared once for all pods of that spec: who starts when, who comes back, what is asked
of whom. Defaults are those of the API server, which has filled them in; what it left out here means the same.
"""

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from kubelet.runtime import CallKind, Handler
from pinnace.api import wellknown
from pinnace.api.core_v1_pb2 import (
    Container,
    ContainerPort,
    ContainerStatus,
    HTTPGetAction,
    LifecycleHandler,
    PodSpec,
    Probe,
    ProbeHandler,
    TCPSocketAction,
)
from pinnace.api.intstr_v1_pb2 import IntOrString


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
