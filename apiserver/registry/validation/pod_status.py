"""What a status update may do to a pod: the phase moves forward, and what has ended stays ended.

    Pending --> Running --> Succeeded | Failed          Pending --> Succeeded | Failed
       '<-----> Unknown <-----'                         Succeeded, Failed: nothing leaves them

Unknown is no place in that order: a pod may go there while nobody can see it, and comes back to any phase.
"""

from collections.abc import Sequence

from apiserver.registry.validation.addresses import validate_ip
from apiserver.registry.validation.labels import validate_key
from apiserver.registry.validation.violations import IMMUTABLE, forbidden, invalid, unsupported
from pinnace.api import names
from pinnace.api.core_v1_pb2 import ContainerStatus, Pod, PodCondition, PodStatus
from pinnace.api.status import Violation

_NEXT = {
    "": ("Pending", "Running", "Succeeded", "Failed", "Unknown"),
    "Pending": ("Running", "Succeeded", "Failed", "Unknown"),
    "Running": ("Succeeded", "Failed", "Unknown"),
    "Unknown": ("Pending", "Running", "Succeeded", "Failed"),
    "Succeeded": (),
    "Failed": (),
}
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_STATUSES = ("True", "False", "Unknown")
_SYSTEM_CONDITIONS = frozenset({"PodScheduled", "Initialized", "ContainersReady", "Ready"})


def validate_pod_status(status: PodStatus, out: list[Violation]) -> None:
    """The status as it is."""
    if nominated := status.nominatedNodeName:
        out.extend(invalid("status.nominatedNodeName", nominated, problem) for problem in names.dns_subdomain(nominated))
    _validate_conditions(status.conditions, out)
    _validate_addresses(status, out)


def validate_pod_status_update(new: Pod, old: Pod, out: list[Violation]) -> None:
    """The step to the new status alone. Only the statuses are looked at, and what the old spec says of restarts."""
    status, before = new.status, old.status
    _validate_phase(status.phase, before.phase, out)
    if status.qosClass != before.qosClass:
        out.append(invalid("status.qosClass", status.qosClass, IMMUTABLE))
    if had := before.containerStatuses:
        _validate_containers(status.containerStatuses, had, old.spec.restartPolicy, "status.containerStatuses", out)
    if had := before.initContainerStatuses:
        sidecars = {container.name for container in old.spec.initContainers if container.restartPolicy == "Always"}
        had_init = [each for each in had if each.name not in sidecars]
        _validate_containers(
            status.initContainerStatuses, had_init, old.spec.restartPolicy, "status.initContainerStatuses", out
        )


def _validate_phase(new: str, old: str, out: list[Violation]) -> None:
    if new == old:
        return
    if new not in PHASES:
        out.append(unsupported("status.phase", new, PHASES))
    elif new not in _NEXT.get(old, PHASES):
        out.append(invalid("status.phase", new, f'may not change from "{old}"'))


def _validate_conditions(conditions: Sequence[PodCondition], out: list[Violation]) -> None:
    for index, condition in enumerate(conditions):
        kind, status = condition.type, condition.status
        if kind not in _SYSTEM_CONDITIONS:
            validate_key(kind, f"status.conditions[{index}].type", out)
        if status not in _STATUSES:
            out.append(unsupported(f"status.conditions[{index}].status", status, _STATUSES))


def _validate_addresses(status: PodStatus, out: list[Violation]) -> None:
    if address := status.podIP:
        validate_ip(address, "status.podIP", out)
    if address := status.hostIP:
        validate_ip(address, "status.hostIP", out)
    for index, each in enumerate(status.podIPs):
        validate_ip(each.ip, f"status.podIPs[{index}]", out)
    for index, host in enumerate(status.hostIPs):
        validate_ip(host.ip, f"status.hostIPs[{index}]", out)


def _validate_containers(
    new: Sequence[ContainerStatus], old: Sequence[ContainerStatus], restart: str, path: str, out: list[Violation]
) -> None:
    now = {status.name: (index, status) for index, status in enumerate(new)}
    for before in old:
        index, status = now.get(before.name, (0, None))
        if status is None:
            continue
        if status.restartCount < before.restartCount:
            out.append(
                invalid(f"{path}[{index}].restartCount", status.restartCount, f"may not decrease (it is {before.restartCount})")
            )
        if restart == "Always" or not before.state.HasField("terminated") or status.state.HasField("terminated"):
            continue
        if restart == "Never" or before.state.terminated.exitCode == 0:
            out.append(forbidden(f"{path}[{index}].state", "may not be transitioned to non-terminated state"))
