"""All about the containers of a pod, or of a template of pods.

Source: kubectl, pkg/describe, describeContainers.
"""

from collections.abc import Mapping, Sequence

from pinnace.api.core_v1_pb2 import (
    Container,
    ContainerState,
    ContainerStatus,
    EnvFromSource,
    EnvVar,
    Probe,
    VolumeMount,
)
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.scalars import int_or_string
from pinnace.cli.describe.text import NONE, Detailed, Fields, Value, instant


def containers(described: Sequence[Container], statuses: Sequence[ContainerStatus] = ()) -> Fields:
    found = {status.name: status for status in statuses}
    return {container.name: _container(container, found.get(container.name)) for container in described}


def _container(container: Container, status: ContainerStatus | None) -> Fields:
    fields: dict[str, Value] = {"Image": container.image or NONE}
    if container.ports:
        fields["Ports"] = ", ".join(f"{p.containerPort}/{p.protocol or 'TCP'}" for p in container.ports)
        fields["Host Ports"] = ", ".join(f"{p.hostPort}/{p.protocol or 'TCP'}" for p in container.ports)
    spoken = (("Command", container.command), ("Args", container.args))
    fields |= {label: [line for word in words for line in word.split("\n")] for label, words in spoken if words}
    if status is not None:
        fields["State"] = _state(status.state)
        if status.HasField("lastState"):
            fields["Last State"] = _state(status.lastState)
        fields["Ready"] = str(status.ready)
        fields["Restart Count"] = str(status.restartCount)
    for label, quantities in (("Limits", container.resources.limits), ("Requests", container.resources.requests)):
        if quantities:
            fields[label] = quantities_of(quantities)
    probes = (("Liveness", "livenessProbe"), ("Readiness", "readinessProbe"), ("Startup", "startupProbe"))
    fields |= {label: _probe(getattr(container, name)) for label, name in probes if container.HasField(name)}
    return {**fields, **_surroundings(container)}


def _surroundings(container: Container) -> Fields:
    fields: dict[str, Value] = {}
    if container.envFrom:
        fields["Environment Variables from"] = [_environment_from(source) for source in container.envFrom]
    fields["Environment"] = {variable.name: _variable(variable) for variable in container.env}
    fields["Mounts"] = [_mount(mount) for mount in sorted(container.volumeMounts, key=lambda mount: mount.mountPath)]
    if container.volumeDevices:
        fields["Devices"] = [f"{device.devicePath} from {device.name}" for device in container.volumeDevices]
    return fields


def _state(state: ContainerState) -> Detailed:
    if state.HasField("running"):
        return Detailed("Running", {"Started": instant(state.running.startedAt)})
    if not state.HasField("terminated"):
        return Detailed("Waiting", _without_empty({"Reason": state.waiting.reason, "Message": state.waiting.message}))
    end = state.terminated
    details = {
        "Reason": end.reason,
        "Message": end.message,
        "Exit Code": str(end.exitCode),
        "Signal": str(end.signal or ""),
        "Started": instant(end.startedAt),
        "Finished": instant(end.finishedAt),
    }
    return Detailed("Terminated", _without_empty(details))


def _without_empty(fields: Mapping[str, str]) -> dict[str, str]:
    return {label: text for label, text in fields.items() if text}


def quantities_of(quantities: Mapping[str, Quantity]) -> list[str]:
    return [f"{name}: {quantity.string}" for name, quantity in sorted(quantities.items())]


def _probe(probe: Probe) -> str:
    """How it asks, and how often: `http-get http://:80/healthz delay=0s timeout=1s period=10s #success=1 #failure=3`."""
    times = f"delay={probe.initialDelaySeconds}s timeout={probe.timeoutSeconds}s period={probe.periodSeconds}s"
    return f"{_asking(probe)} {times} #success={probe.successThreshold} #failure={probe.failureThreshold}"


def _asking(probe: Probe) -> str:
    handler = probe.handler
    if handler.HasField("exec"):
        return f"exec [{' '.join(handler.exec.command)}]"
    if handler.HasField("httpGet"):
        get = handler.httpGet
        host = f"[{get.host}]" if ":" in get.host else get.host
        path = get.path if get.path.startswith("/") else f"/{get.path}"
        return f"http-get {(get.scheme or 'HTTP').lower()}://{host}:{int_or_string(get.port)}{path}"
    if handler.HasField("tcpSocket"):
        return f"tcp-socket {handler.tcpSocket.host}:{int_or_string(handler.tcpSocket.port)}"
    return f"grpc <pod>:{handler.grpc.port} {handler.grpc.service}".rstrip() if handler.HasField("grpc") else "unknown"


def _environment_from(source: EnvFromSource) -> str:
    kind, named = ("Secret", source.secretRef) if source.HasField("secretRef") else ("ConfigMap", source.configMapRef)
    prefix = f" with prefix '{source.prefix}'" if source.prefix else ""
    return f"{named.localObjectReference.name}  {kind}{prefix}  Optional: {str(named.optional).lower()}"


def _variable(variable: EnvVar) -> Value:
    source = variable.valueFrom
    if source.HasField("fieldRef"):
        return f"({source.fieldRef.apiVersion or 'v1'}:{source.fieldRef.fieldPath})"
    if source.HasField("resourceFieldRef"):
        return f"({source.resourceFieldRef.resource})"
    if source.HasField("secretKeyRef"):
        key = source.secretKeyRef
        told = f"<set to the key '{key.key}' in secret '{key.localObjectReference.name}'>"
        return f"{told}  Optional: {str(key.optional).lower()}"
    if source.HasField("configMapKeyRef"):
        named = source.configMapKeyRef
        told = f"<set to the key '{named.key}' of config map '{named.localObjectReference.name}'>"
        return f"{told}  Optional: {str(named.optional).lower()}"
    return variable.value.split("\n")


def _mount(mount: VolumeMount) -> str:
    """ "/data from db (rw)"."""
    part = mount.subPath or mount.subPathExpr
    flags = ["ro" if mount.readOnly else "rw", *([f'path="{part}"'] if part else [])]
    return f"{mount.mountPath} from {mount.name} ({','.join(flags)})"
