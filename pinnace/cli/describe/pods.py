"""Descriptions of pods, containers and volumes.

Source: kubectl, pkg/describe: describeContainers, describeVolumes. Volume types without a function here show their fields.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from pinnace.api import conditions, wellknown
from pinnace.api.core_v1_pb2 import (
    ConfigMapVolumeSource,
    Container,
    ContainerState,
    ContainerStatus,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    EnvFromSource,
    EnvVar,
    EphemeralVolumeSource,
    HostPathVolumeSource,
    PersistentVolumeClaimVolumeSource,
    Pod,
    Probe,
    ProjectedVolumeSource,
    SecretVolumeSource,
    Toleration,
    TopologySpreadConstraint,
    Volume,
    VolumeMount,
)
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.scalars import int_or_string
from pinnace.api.selectors import from_message
from pinnace.cli.describe import text
from pinnace.cli.describe.text import NONE, Detailed, Fields, NotShown, Rows, Value, annotations, controlled_by, instant, pairs
from pinnace.printers.columns import is_set
from pinnace.printers.storage import UNSET_FIELD, access_modes, size
from pinnace.printers.workloads import pod_status


def waits_for_scheduler(pod: Pod) -> bool:
    """Whether the pod has no node, and the default scheduler is responsible for it."""
    return waits_for_a_node(pod) and pod.spec.schedulerName in ("", wellknown.DEFAULT_SCHEDULER)


def waits_for_a_node(pod: Pod) -> bool:
    """Whether the pod has no node and can be scheduled."""
    waits = not pod.spec.nodeName and pod.status.phase in ("", "Pending") and not pod.spec.schedulingGates
    return waits and not is_set(pod.metadata.deletionTimestamp)


def describe_pod(pod: Pod, *, leaderless: str | NotShown = "", unknown: str = "") -> Fields:
    """Describe a pod. `leaderless` is the election of its scheduler, if it has no leader. `unknown` is a sentence if no
    scheduler has the profile of the pod."""
    meta, spec = pod.metadata, pod.spec
    fields: dict[str, Value] = {
        "Name": meta.name,
        "Namespace": meta.namespace,
        "UID": meta.uid,
        "Priority": str(spec.priority),
    }
    if spec.priorityClassName:
        fields["Priority Class Name"] = spec.priorityClassName
    if spec.serviceAccountName:
        fields["Service Account"] = spec.serviceAccountName
    fields |= {
        "Scheduler": spec.schedulerName or wellknown.DEFAULT_SCHEDULER,
        "Node": "/".join(filter(None, (spec.nodeName, pod.status.hostIP))) or NONE,
        "Start Time": instant(pod.status.startTime) or NONE,
        "Labels": pairs(meta.labels),
        "Annotations": annotations(meta),
        "Status": _status(pod),
    }
    if leaderless:
        told = leaderless if isinstance(leaderless, NotShown) else f'waiting: election "{leaderless}" has no leader'
        fields["Scheduling"] = told
    elif unknown:
        fields["Scheduling"] = f"waiting: {unknown}"
    if is_set(meta.deletionTimestamp):
        fields["Termination Grace Period"] = f"{meta.deletionGracePeriodSeconds}s"
    fields |= {label: text for label, text in (("Reason", pod.status.reason), ("Message", pod.status.message)) if text}
    fields |= {"IP": pod.status.podIP or NONE, **controlled_by(meta)}
    if pod.status.nominatedNodeName:
        fields["Nominated Node"] = pod.status.nominatedNodeName
    if spec.initContainers:
        fields["Init Containers"] = containers(spec.initContainers, pod.status.initContainerStatuses)
    for label, quantities in (("Limits", spec.resources.limits), ("Requests", spec.resources.requests)):
        if quantities:
            fields[label] = quantities_of(quantities)
    fields["Containers"] = containers(spec.containers, pod.status.containerStatuses)
    if spec.readinessGates:
        fields["Readiness Gates"] = Rows(("Type", "Status"), [_gate(pod, gate.conditionType) for gate in spec.readinessGates])
    fields |= {
        "Conditions": Rows(
            ("Type", "Status", "Reason", "Message"),
            [(c.type, c.status, c.reason, c.message) for c in pod.status.conditions],
        ),
        "Volumes": volumes(spec.volumes),
        "QoS Class": pod.status.qosClass or NONE,
        "Node-Selectors": pairs(spec.nodeSelector),
        "Tolerations": [toleration(t) for t in spec.tolerations],
    }
    if spec.topologySpreadConstraints:
        fields["Topology Spread Constraints"] = [_spread(constraint) for constraint in spec.topologySpreadConstraints]
    if spec.schedulingGates:
        fields["Scheduling Gates"] = [gate.name for gate in spec.schedulingGates]
    return fields


def _status(pod: Pod) -> str:
    if is_set(pod.metadata.deletionTimestamp):
        return f"Terminating (until {instant(pod.metadata.deletionTimestamp)})"
    word, phase = pod_status(pod), pod.status.phase
    return phase if word == phase else f"{phase} ({word})"


def _gate(pod: Pod, type_: str) -> tuple[str, str]:
    said = conditions.find(pod.status.conditions, type_)
    return type_, said.status if said else NONE


def toleration(toleration: Toleration) -> str:
    """Format a toleration: "key=value:NoExecute for 300s", "key:NoSchedule op=Exists", "op=Exists" (all taints)."""
    text = toleration.key
    if toleration.value:
        text += f"={toleration.value}"
    if toleration.effect:
        text += f":{toleration.effect}"
    if toleration.operator == "Exists":
        text = f"{text} op=Exists".strip()
    if toleration.HasField("tolerationSeconds"):
        text += f" for {toleration.tolerationSeconds}s"
    return text


def _spread(constraint: TopologySpreadConstraint) -> str:
    """Format a constraint: "zone:DoNotSchedule when max skew 1 is exceeded for selector app=web". Without a selector, no pods
    match."""
    text = f"{constraint.topologyKey}:{constraint.whenUnsatisfiable} when max skew {constraint.maxSkew} is exceeded"
    if not constraint.HasField("labelSelector"):
        return text
    return f"{text} for selector {str(from_message(constraint.labelSelector)) or NONE}"


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
    """Format a probe: `http-get http://:80/healthz delay=0s timeout=1s period=10s #success=1 #failure=3`."""
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
    """Format a mount: "/data from db (rw)"."""
    part = mount.subPath or mount.subPathExpr
    flags = ["ro" if mount.readOnly else "rw", *([f'path="{part}"'] if part else [])]
    return f"{mount.mountPath} from {mount.name} ({','.join(flags)})"


KINDS = {
    "hostPath": "HostPath (bare host directory volume)",
    "emptyDir": "EmptyDir (a temporary directory that shares a pod's lifetime)",
    "gcePersistentDisk": "GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)",
    "awsElasticBlockStore": "AWSElasticBlockStore (a Persistent Disk resource in AWS)",
    "secret": "Secret (a volume populated by a Secret)",
    "local": "LocalVolume (a persistent volume backed by local storage on a node)",
    "nfs": "NFS (an NFS mount that lasts the lifetime of a pod)",
    "iscsi": "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)",
    "persistentVolumeClaim": "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
    "rbd": "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)",
    "downwardAPI": "DownwardAPI (a volume populated by information about the pod)",
    "configMap": "ConfigMap (a volume populated by a ConfigMap)",
    "projected": "Projected (a volume that contains injected data from multiple sources)",
    "csi": "CSI (a Container Storage Interface (CSI) volume source)",
    "ephemeral": "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)",
}


def volumes(described: Iterable[Volume]) -> Fields:
    return {volume.name: source(volume.volumeSource, FORMS, otherwise="emptyDir") for volume in described}


def source(described: Message, forms: Mapping[str, Callable[[Any], Fields]], otherwise: str = "") -> Fields:
    """Describe a volume source. `forms` are the functions by field; other types show their fields. `otherwise` is the type of
    an empty source. A source that the API does not model is unknown."""
    kind = next((field.name for field, _ in described.ListFields()), "" if described.ByteSize() else otherwise)
    return {"Type": KINDS[kind], **forms.get(kind, text.fields)(getattr(described, kind))} if kind else {"Type": "<unknown>"}


def _host_path(source: HostPathVolumeSource) -> Fields:
    return {"Path": source.path, "HostPathType": source.type}


def _empty_dir(source: EmptyDirVolumeSource) -> Fields:
    return {"Medium": source.medium, "SizeLimit": source.sizeLimit.string or UNSET_FIELD}


def _secret(source: SecretVolumeSource) -> Fields:
    return {"SecretName": source.secretName, "Optional": _boolean(source.optional)}


def _config_map(source: ConfigMapVolumeSource) -> Fields:
    return {"Name": source.localObjectReference.name, "Optional": _boolean(source.optional)}


def _claim(source: PersistentVolumeClaimVolumeSource) -> Fields:
    return {"ClaimName": source.claimName, "ReadOnly": _boolean(source.readOnly)}


def _ephemeral(source: EphemeralVolumeSource) -> Fields:
    """Describe the template of the claim."""
    spec = source.volumeClaimTemplate.spec
    return {
        "StorageClass": spec.storageClassName,
        "Capacity": size(spec.resources.requests),
        "Access Modes": access_modes(spec.accessModes),
        "VolumeMode": spec.volumeMode or "Filesystem",
    }


def _downward(source: DownwardAPIVolumeSource) -> Fields:
    items = [f"{item.fieldRef.fieldPath or item.resourceFieldRef.resource} -> {item.path}" for item in source.items]
    return {"Items": items}


def _projected(source: ProjectedVolumeSource) -> Fields:
    return {"Sources": {str(index): text.fields(each) for index, each in enumerate(source.sources)}}


def _boolean(value: bool) -> str:
    return str(value).lower()


FORMS: Mapping[str, Callable[[Any], Fields]] = {
    "hostPath": _host_path,
    "emptyDir": _empty_dir,
    "secret": _secret,
    "configMap": _config_map,
    "persistentVolumeClaim": _claim,
    "ephemeral": _ephemeral,
    "downwardAPI": _downward,
    "projected": _projected,
}
"""Functions by field of the volume source."""
