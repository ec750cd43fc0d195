"""Validation of containers, init containers and sidecars: environment variables, ports, probes, lifecycle hooks and security
contexts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pinnace.api import names
from pinnace.api.codec import has_unknown_fields
from pinnace.api.core_v1_pb2 import (
    AppArmorProfile,
    ConfigMapKeySelector,
    Container,
    ContainerPort,
    ContainerResizePolicy,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    HTTPGetAction,
    Lifecycle,
    LifecycleHandler,
    PodSecurityContext,
    PodSpec,
    Probe,
    ProbeHandler,
    SeccompProfile,
    SecretKeySelector,
    SecurityContext,
)
from pinnace.api.pods import container_of_ephemeral
from pinnace.api.status import Violation
from pinnace.apiserver.registry.validation.fields import (
    NEGATIVE,
    duplicate,
    forbidden,
    invalid,
    not_found,
    range_message,
    required,
    unsupported,
    validate_no_null,
    validate_port,
    validate_port_or_name,
    validate_requirements,
)
from pinnace.apiserver.registry.validation.volumes import (
    validate_amount_selector,
    validate_field_selector,
    validate_mounts,
    validate_volumes,
)

_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_RESIZABLE_RESOURCES = ("cpu", "memory")
_FORBIDDEN_EPHEMERAL_FIELDS = (
    "ports", "resources", "resizePolicy", "restartPolicy", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
)  # fmt: skip
_NOT_EPHEMERAL = "cannot be set for an Ephemeral Container"
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")
_NOT_A_SIDECAR = "may not be set for init containers without restartPolicy=Always"

_ENV_POD_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)

_HTTP_SCHEMES = ("HTTP", "HTTPS")
_PROBE_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
CONTAINER_HOOK_FIELDS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")

MAX_USER_ID = 2**31 - 1
MAX_SYSCTL = 253
"""Maximum length of a sysctl name in characters."""
_SYSCTL_PATTERN = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_is_sysctl = re.compile(_SYSCTL_PATTERN, re.ASCII).fullmatch
_SECURITY_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_PROC_MOUNTS = ("Default", "Unmasked")
_GROUP_CHANGES = ("Always", "OnRootMismatch")


@dataclass(slots=True)
class PodContext:
    """Properties of the pod that the checks of its containers need."""

    volumes: Mapping[str, bool]
    grace: int
    host_network: bool


def validate_containers(containers: Sequence[Container], pod: PodContext, out: list[Violation]) -> set[str]:
    """Validate the containers and return their names."""
    if not containers:
        out.append(required("spec.containers"))
    taken: set[str] = set()
    host_ports: set[str] = set()
    for index, container in enumerate(containers):
        path = f"spec.containers[{index}]"
        _validate_container(container, pod, host_ports, path, out)
        validate_hooks(container, pod.grace, path, out)
        _validate_unique(container.name, taken, path, out)
        if container.HasField("restartPolicy"):
            out.append(forbidden(f"{path}.restartPolicy", "may not be set for non-init containers"))
    return taken


def validate_init_containers(containers: Sequence[Container], taken: set[str], pod: PodContext, out: list[Violation]) -> None:
    for index, container in enumerate(containers):
        path = f"spec.initContainers[{index}]"
        _validate_container(container, pod, set(), path, out)
        _validate_unique(container.name, taken, path, out)
        sidecar = False
        if container.HasField("restartPolicy"):
            sidecar = container.restartPolicy == "Always"
            if not sidecar:
                out.append(unsupported(f"{path}.restartPolicy", container.restartPolicy, ("Always",)))
        if sidecar:
            validate_hooks(container, pod.grace, path, out)
        else:
            forbid_hooks(container, _NOT_A_SIDECAR, path, out)


def validate_ephemeral_containers(spec: PodSpec, out: list[Violation]) -> None:
    """Validate the ephemeral containers of a pod. Pods rely on none of them, so they have no ports, probes or resources."""
    path = "spec.ephemeralContainers"
    mountable = validate_volumes(spec.volumes, "spec.volumes", [])
    context = PodContext(mountable, spec.terminationGracePeriodSeconds, spec.hostNetwork)
    others = {container.name for container in (*spec.containers, *spec.initContainers)}
    taken = set(others)
    for index, ephemeral in enumerate(spec.ephemeralContainers):
        where, container = f"{path}[{index}]", container_of_ephemeral(ephemeral)
        _validate_container(container, context, set(), where, out)
        _validate_unique(container.name, taken, where, out)
        if ephemeral.targetContainerName and ephemeral.targetContainerName not in others:
            out.append(not_found(f"{where}.targetContainerName", ephemeral.targetContainerName))
        given = {field.name for field, _ in container.ListFields()}
        out.extend(forbidden(f"{where}.{field}", _NOT_EPHEMERAL) for field in _FORBIDDEN_EPHEMERAL_FIELDS if field in given)
        for number, mount in enumerate(container.volumeMounts):
            fields = [field for field in ("subPath", "subPathExpr") if getattr(mount, field)]
            out.extend(forbidden(f"{where}.volumeMounts[{number}].{field}", _NOT_EPHEMERAL) for field in fields)


def _validate_container(container: Container, pod: PodContext, host_ports: set[str], path: str, out: list[Violation]) -> None:
    name, image = container.name, container.image
    if not name:
        out.append(required(f"{path}.name"))
    elif problems := names.dns_label(name):
        out.extend(invalid(f"{path}.name", name, problem) for problem in problems)
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


def _validate_unique(name: str, taken: set[str], path: str, out: list[Violation]) -> None:
    if name and name in taken:
        out.append(duplicate(f"{path}.name", name))
    taken.add(name)


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
        if policy.resourceName not in _RESIZABLE_RESOURCES:
            out.append(unsupported(f"{path}[{index}].resourceName", policy.resourceName, _RESIZABLE_RESOURCES))
        if policy.restartPolicy not in _RESIZE_POLICIES:
            out.append(unsupported(f"{path}[{index}].restartPolicy", policy.restartPolicy, _RESIZE_POLICIES))


def validate_env(variables: Sequence[EnvVar], path: str, out: list[Violation]) -> None:
    for index, variable in enumerate(variables):
        name = variable.name
        if not name:
            out.append(required(f"{path}[{index}].name"))
        elif problems := names.env_name(name):
            out.extend(invalid(f"{path}[{index}].name", name, problem) for problem in problems)
        validate_no_null(variable.value, f"{path}[{index}].value", out)
        if variable.HasField("valueFrom"):
            _validate_source(variable.valueFrom, variable.value, f"{path}[{index}].valueFrom", out)


def validate_env_from(sources: Sequence[EnvFromSource], path: str, out: list[Violation]) -> None:
    for index, source in enumerate(sources):
        where = f"{path}[{index}]"
        if source.prefix:
            out.extend(invalid(f"{where}.prefix", source.prefix, problem) for problem in names.env_name(source.prefix))
        given = [field for field in ("configMapRef", "secretRef") if source.HasField(field)]
        for field in given:
            _validate_name(getattr(source, field).localObjectReference.name, f"{where}.{field}.name", out)
        if len(given) > 1:
            out.append(invalid(where, "", "may not have more than one field specified at a time"))
        elif not given and not has_unknown_fields(source):
            out.append(invalid(where, "", "must specify one of: `configMapRef` or `secretRef`"))


def _validate_source(source: EnvVarSource, value: str, path: str, out: list[Violation]) -> None:
    given = [field.name for field, _ in source.ListFields()]
    if "fieldRef" in given:
        validate_field_selector(source.fieldRef, _ENV_POD_FIELDS, f"{path}.fieldRef", out)
    if "resourceFieldRef" in given:
        validate_amount_selector(source.resourceFieldRef, f"{path}.resourceFieldRef", out)
    if "configMapKeyRef" in given:
        _validate_key(source.configMapKeyRef, f"{path}.configMapKeyRef", out)
    if "secretKeyRef" in given:
        _validate_key(source.secretKeyRef, f"{path}.secretKeyRef", out)
    if not given and not has_unknown_fields(source):
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        out.append(invalid(path, "", detail))
    elif value:
        out.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        out.append(invalid(path, "", "may not have more than one field specified at a time"))


def _validate_key(selector: ConfigMapKeySelector | SecretKeySelector, path: str, out: list[Violation]) -> None:
    _validate_name(selector.localObjectReference.name, f"{path}.name", out)
    if not selector.key:
        out.append(required(f"{path}.key"))
    else:
        out.extend(invalid(f"{path}.key", selector.key, problem) for problem in names.config_key(selector.key))


def _validate_name(name: str, path: str, out: list[Violation]) -> None:
    if not name:
        out.append(required(path))
    else:
        out.extend(invalid(path, name, problem) for problem in names.dns_subdomain(name))


def validate_hooks(container: Container, grace: int, path: str, out: list[Violation]) -> None:
    """Validate the probes and lifecycle hooks. `grace`: terminationGracePeriodSeconds of the pod."""
    if container.HasField("lifecycle"):
        _validate_lifecycle(container.lifecycle, grace, f"{path}.lifecycle", out)
    if container.HasField("livenessProbe"):
        _validate_probe(container.livenessProbe, f"{path}.livenessProbe", out)
        _validate_single_success(container.livenessProbe, f"{path}.livenessProbe", out)
    if container.HasField("readinessProbe"):
        probe = container.readinessProbe
        _validate_probe(probe, f"{path}.readinessProbe", out)
        if probe.HasField("terminationGracePeriodSeconds"):
            where = f"{path}.readinessProbe.terminationGracePeriodSeconds"
            out.append(invalid(where, probe.terminationGracePeriodSeconds, "must not be set for readinessProbes"))
    if container.HasField("startupProbe"):
        _validate_probe(container.startupProbe, f"{path}.startupProbe", out)
        _validate_single_success(container.startupProbe, f"{path}.startupProbe", out)


def forbid_hooks(container: Container, detail: str, path: str, out: list[Violation]) -> None:
    out.extend(forbidden(f"{path}.{field}", detail) for field in CONTAINER_HOOK_FIELDS if container.HasField(field))


def _validate_lifecycle(lifecycle: Lifecycle, grace: int, path: str, out: list[Violation]) -> None:
    if lifecycle.HasField("postStart"):
        _validate_handler(lifecycle.postStart, f"{path}.postStart", out)
        _validate_sleep(lifecycle.postStart, grace, f"{path}.postStart.sleep", out)
    if lifecycle.HasField("preStop"):
        _validate_handler(lifecycle.preStop, f"{path}.preStop", out)
        _validate_sleep(lifecycle.preStop, grace, f"{path}.preStop.sleep", out)


def _validate_sleep(handler: LifecycleHandler, grace: int, path: str, out: list[Violation]) -> None:
    if handler.HasField("sleep") and not 0 <= handler.sleep.seconds <= max(0, grace):
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        out.append(invalid(path, handler.sleep.seconds, detail))


def _validate_probe(probe: Probe, path: str, out: list[Violation]) -> None:
    _validate_handler(probe.handler, path, out)
    for field in _PROBE_COUNTS:
        value = getattr(probe, field)
        if value < 0:
            out.append(invalid(f"{path}.{field}", value, NEGATIVE))
    if probe.HasField("terminationGracePeriodSeconds") and probe.terminationGracePeriodSeconds <= 0:
        out.append(
            invalid(f"{path}.terminationGracePeriodSeconds", probe.terminationGracePeriodSeconds, "must be greater than 0")
        )


def _validate_single_success(probe: Probe, path: str, out: list[Violation]) -> None:
    if probe.successThreshold != 1:
        out.append(invalid(f"{path}.successThreshold", probe.successThreshold, "must be 1"))


def _validate_handler(handler: ProbeHandler | LifecycleHandler, path: str, out: list[Violation]) -> None:
    first, *more = [field.name for field, _ in handler.ListFields()] or [""]
    out.extend(forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in more)
    match first:
        case "":
            if not has_unknown_fields(handler):
                out.append(required(path, "must specify a handler type"))
        case "exec" if not handler.exec.command:
            out.append(required(f"{path}.exec.command"))
        case "exec":
            for index, word in enumerate(handler.exec.command):
                validate_no_null(word, f"{path}.exec.command[{index}]", out)
        case "httpGet":
            _validate_http(handler.httpGet, f"{path}.httpGet", out)
        case "tcpSocket":
            validate_port_or_name(handler.tcpSocket.port, f"{path}.tcpSocket.port", out)
        case "grpc" if isinstance(handler, ProbeHandler):
            validate_port(handler.grpc.port, f"{path}.grpc.port", out)


def _validate_http(action: HTTPGetAction, path: str, out: list[Violation]) -> None:
    validate_port_or_name(action.port, f"{path}.port", out)
    if action.scheme not in _HTTP_SCHEMES:
        out.append(unsupported(f"{path}.scheme", action.scheme, _HTTP_SCHEMES))
    for header in action.httpHeaders:
        out.extend(invalid(f"{path}.httpHeaders", header.name, problem) for problem in names.http_header(header.name))


def validate_security(context: SecurityContext, path: str, out: list[Violation]) -> None:
    """Validate the security context of a container."""
    _validate_common(context, path, out)
    if context.privileged and context.HasField("allowPrivilegeEscalation") and not context.allowPrivilegeEscalation:
        out.append(invalid(path, "", "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
    if context.HasField("procMount") and context.procMount not in _PROC_MOUNTS:
        out.append(unsupported(f"{path}.procMount", context.procMount, _PROC_MOUNTS))


def validate_pod_security(context: PodSecurityContext, path: str, out: list[Violation]) -> None:
    if not context.ListFields():
        return
    _validate_common(context, path, out)
    if context.HasField("fsGroup"):
        _validate_id(context.fsGroup, f"{path}.fsGroup", out)
    for index, group in enumerate(context.supplementalGroups):
        _validate_id(group, f"{path}.supplementalGroups[{index}]", out)
    if context.HasField("fsGroupChangePolicy") and context.fsGroupChangePolicy not in _GROUP_CHANGES:
        out.append(unsupported(f"{path}.fsGroupChangePolicy", context.fsGroupChangePolicy, _GROUP_CHANGES))
    seen: set[str] = set()
    for index, sysctl in enumerate(context.sysctls):
        where, name = f"{path}.sysctls[{index}].name", sysctl.name
        if not name:
            out.append(required(where))
        elif len(name) > MAX_SYSCTL or not _is_sysctl(name):
            detail = f"must have at most {MAX_SYSCTL} characters and match regex ^{_SYSCTL_PATTERN}$"
            out.append(invalid(where, name, detail))
        elif name in seen:
            out.append(duplicate(where, name))
        seen.add(name)


def _validate_common(context: SecurityContext | PodSecurityContext, path: str, out: list[Violation]) -> None:
    if context.HasField("runAsUser"):
        _validate_id(context.runAsUser, f"{path}.runAsUser", out)
    if context.HasField("runAsGroup"):
        _validate_id(context.runAsGroup, f"{path}.runAsGroup", out)
    if context.HasField("seccompProfile"):
        _validate_profile(context.seccompProfile, "seccomp", f"{path}.seccompProfile", out)
    if context.HasField("appArmorProfile"):
        _validate_profile(context.appArmorProfile, "AppArmor", f"{path}.appArmorProfile", out)


def _validate_id(value: int, path: str, out: list[Violation]) -> None:
    if not 0 <= value <= MAX_USER_ID:
        out.append(invalid(path, value, range_message(0, MAX_USER_ID)))


def _validate_profile(profile: SeccompProfile | AppArmorProfile, what: str, path: str, out: list[Violation]) -> None:
    if not profile.type:
        field = path.rpartition(".")[2]
        out.append(required(f"{path}.type", f"type is required when {field} is set"))
    elif profile.type not in _SECURITY_PROFILES:
        out.append(unsupported(f"{path}.type", profile.type, _SECURITY_PROFILES))
    elif profile.type == "Localhost":
        if not profile.localhostProfile:
            out.append(required(f"{path}.localhostProfile", f"must be set when {what} type is Localhost"))
    elif profile.HasField("localhostProfile"):
        detail = f"can only be set when {what} type is Localhost"
        out.append(invalid(f"{path}.localhostProfile", profile.localhostProfile, detail))
