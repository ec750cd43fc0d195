"""Containers of a pod: the usual ones, init containers and sidecars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apiserver.registry.validation.addresses import validate_port
from apiserver.registry.validation.environment import validate_env, validate_env_from
from apiserver.registry.validation.probes import forbid_hooks, validate_hooks
from apiserver.registry.validation.resources import validate_requirements
from apiserver.registry.validation.security import validate_security
from apiserver.registry.validation.text import validate_no_null
from apiserver.registry.validation.violations import duplicate, forbidden, invalid, required, unsupported
from apiserver.registry.validation.volumes import validate_mounts
from pinnace.api import names
from pinnace.api.core_v1_pb2 import Container, ContainerPort, ContainerResizePolicy
from pinnace.api.status import Violation

_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_RESIZED = ("cpu", "memory")
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")
_NOT_A_SIDECAR = "may not be set for init containers without restartPolicy=Always"


@dataclass(slots=True)
class PodContext:
    """What a container's checks need to know of its pod."""

    volumes: Mapping[str, bool]
    grace: int
    host_network: bool


def validate_containers(containers: Sequence[Container], pod: PodContext, out: list[Violation]) -> set[str]:
    """The names that are taken."""
    if not containers:
        out.append(required("spec.containers"))
    taken: set[str] = set()
    host_ports: set[str] = set()
    for index, container in enumerate(containers):
        path = f"spec.containers[{index}]"
        _validate_container(container, pod, taken, host_ports, path, out)
        validate_hooks(container, pod.grace, path, out)
        if container.HasField("restartPolicy"):
            out.append(forbidden(f"{path}.restartPolicy", "may not be set for non-init containers"))
    return taken


def validate_init_containers(containers: Sequence[Container], taken: set[str], pod: PodContext, out: list[Violation]) -> None:
    for index, container in enumerate(containers):
        path = f"spec.initContainers[{index}]"
        _validate_container(container, pod, taken, set(), path, out)
        sidecar = False
        if container.HasField("restartPolicy"):
            sidecar = container.restartPolicy == "Always"
            if not sidecar:
                out.append(unsupported(f"{path}.restartPolicy", container.restartPolicy, ("Always",)))
        if sidecar:
            validate_hooks(container, pod.grace, path, out)
        else:
            forbid_hooks(container, _NOT_A_SIDECAR, path, out)


def _validate_container(
    container: Container, pod: PodContext, taken: set[str], host_ports: set[str], path: str, out: list[Violation]
) -> None:
    name, image = container.name, container.image
    if not name:
        out.append(required(f"{path}.name"))
    elif problems := names.dns_label(name):
        out.extend(invalid(f"{path}.name", name, problem) for problem in problems)
    elif name in taken:
        out.append(duplicate(f"{path}.name", name))
    taken.add(name)
    validate_image(image, path, out)
    validate_no_null(container.workingDir, f"{path}.workingDir", out)
    for field, words in (("command", container.command), ("args", container.args)):
        for index, word in enumerate(words):
            validate_no_null(word, f"{path}.{field}[{index}]", out)
    if container.terminationMessagePolicy not in _MESSAGE_POLICIES:
        where = f"{path}.terminationMessagePolicy"
        out.append(unsupported(where, container.terminationMessagePolicy, _MESSAGE_POLICIES))
    if container.imagePullPolicy not in _PULL_POLICIES:
        out.append(unsupported(f"{path}.imagePullPolicy", container.imagePullPolicy, _PULL_POLICIES))
    if ports := container.ports:
        _validate_ports(ports, pod.host_network, host_ports, f"{path}.ports", out)
    if env := container.env:
        validate_env(env, f"{path}.env", out)
    if env_from := container.envFrom:
        validate_env_from(env_from, f"{path}.envFrom", out)
    mounts, devices = container.volumeMounts, container.volumeDevices
    if mounts or devices:
        validate_mounts(mounts, devices, pod.volumes, container.securityContext.privileged, path, out)
    if container.HasField("resources"):
        validate_requirements(container.resources, f"{path}.resources", out)
    if policies := container.resizePolicy:
        _validate_resize(policies, f"{path}.resizePolicy", out)
    if container.HasField("securityContext"):
        validate_security(container.securityContext, f"{path}.securityContext", out)


def validate_image(image: str, path: str, out: list[Violation]) -> None:
    if not image:
        out.append(required(f"{path}.image"))
    elif image != image.strip():
        out.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))


def _validate_ports(
    ports: Sequence[ContainerPort], host_network: bool, host_ports: set[str], path: str, out: list[Violation]
) -> None:
    taken: set[str] = set()
    for index, port in enumerate(ports):
        where = f"{path}[{index}]"
        name, container_port, host_port, protocol = port.name, port.containerPort, port.hostPort, port.protocol
        if name:
            if problems := names.port_name(name):
                out.extend(invalid(f"{where}.name", name, problem) for problem in problems)
            elif name in taken:
                out.append(duplicate(f"{where}.name", name))
            taken.add(name)
        if not container_port:
            out.append(required(f"{where}.containerPort"))
        else:
            validate_port(container_port, f"{where}.containerPort", out)
        if protocol not in _PROTOCOLS:
            out.append(unsupported(f"{where}.protocol", protocol, _PROTOCOLS))
        if host_port:
            validate_port(host_port, f"{where}.hostPort", out)
            taking = f"{protocol}/{port.hostIP}/{host_port}"
            if taking in host_ports:
                out.append(duplicate(f"{where}.hostPort", taking))
            host_ports.add(taking)
        if host_network and host_port not in (0, container_port):
            out.append(invalid(f"{where}.hostPort", host_port, "must match `containerPort` when `hostNetwork` is true"))


def _validate_resize(policies: Sequence[ContainerResizePolicy], path: str, out: list[Violation]) -> None:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        if policy.resourceName in seen:
            out.append(duplicate(f"{path}[{index}]", policy.resourceName))
        seen.add(policy.resourceName)
        if policy.resourceName not in _RESIZED:
            out.append(unsupported(f"{path}[{index}].resourceName", policy.resourceName, _RESIZED))
        if policy.restartPolicy not in _RESIZE_POLICIES:
            out.append(unsupported(f"{path}[{index}].restartPolicy", policy.restartPolicy, _RESIZE_POLICIES))
