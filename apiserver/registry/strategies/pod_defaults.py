"""What a pod that does not say gets, as in Kubernetes (pkg/apis/core/v1/defaults.go)."""

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

from pinnace.api import wellknown
from pinnace.api.codec import says_more
from pinnace.api.core_v1_pb2 import (
    Container,
    HTTPGetAction,
    LifecycleHandler,
    PersistentVolumeClaimSpec,
    PersistentVolumeSource,
    PodSpec,
    Probe,
    Volume,
    VolumeSource,
)
from pinnace.api.quantity import QuantityError, amounts, format_amount
from pinnace.fit.requests import combine, is_pod_level

FILE_MODE = 0o644
TOKEN_SECONDS = 3600
_MAX_IMAGE = 512
"""Characters of an image's name that are remembered."""


def set_defaults(spec: PodSpec) -> None:
    """Of a pod."""
    set_template_defaults(spec)
    if not spec.HasField("enableServiceLinks"):
        spec.enableServiceLinks = True
    if not spec.HasField("preemptionPolicy"):
        spec.preemptionPolicy = "PreemptLowerPriority"
    for containers in (spec.containers, spec.initContainers):
        for container in containers:
            _default_requests(container)
            if spec.hostNetwork:
                _default_host_ports(container)
    if spec.HasField("resources"):
        _default_pod_requests(spec)


def set_template_defaults(spec: PodSpec) -> None:
    """Of a template: what its pods get beyond this they get when they are created."""
    if not spec.restartPolicy:
        spec.restartPolicy = "Always"
    if not spec.dnsPolicy:
        spec.dnsPolicy = "ClusterFirst"
    if not spec.schedulerName:
        spec.schedulerName = wellknown.DEFAULT_SCHEDULER
    if not spec.HasField("terminationGracePeriodSeconds"):
        spec.terminationGracePeriodSeconds = wellknown.DEFAULT_GRACE_SECONDS
    if not spec.HasField("securityContext"):
        spec.securityContext.SetInParent()
    for volume in spec.volumes:
        _default_volume(volume)
    for container in spec.containers:
        _default_container(container)
    if init_containers := spec.initContainers:
        for container in init_containers:
            _default_container(container)


def _default_container(container: Container) -> None:
    if not container.imagePullPolicy:
        container.imagePullPolicy = _pull_policy(container.image[:_MAX_IMAGE])
    if not container.terminationMessagePath:
        container.terminationMessagePath = "/dev/termination-log"
    if not container.terminationMessagePolicy:
        container.terminationMessagePolicy = "File"
    for port in container.ports:
        if not port.protocol:
            port.protocol = "TCP"
    for variable in container.env:
        if variable.HasField("valueFrom") and variable.valueFrom.HasField("fieldRef"):
            reference = variable.valueFrom.fieldRef
            reference.apiVersion = reference.apiVersion or "v1"
    _default_hooks(container)


def _default_requests(container: Container) -> None:
    """Who limits a resource and does not request it requests the limit."""
    if container.HasField("resources"):
        requests, limits = container.resources.requests, container.resources.limits
        for name in limits:
            if name not in requests:
                requests[name].CopyFrom(limits[name])


def _default_pod_requests(spec: PodSpec) -> None:
    """Requests of the pod as a whole are those of its containers, or else its limits."""
    requests = spec.resources.requests
    with suppress(QuantityError):  # validation reports it
        of_containers = combine(spec, lambda container: amounts(container.resources.requests))
        for name in filter(is_pod_level, of_containers):
            if name not in requests:
                requests[name].string = format_amount(name, of_containers[name])
    for name, limit in spec.resources.limits.items():
        if name not in requests:
            requests[name].CopyFrom(limit)


def _default_host_ports(container: Container) -> None:
    """Of a pod alone: a template that left the host network would keep them, and its pods one node each."""
    for port in container.ports:
        port.hostPort = port.hostPort or port.containerPort


def _default_hooks(container: Container) -> None:
    if container.HasField("livenessProbe"):
        _default_probe(container.livenessProbe)
    if container.HasField("readinessProbe"):
        _default_probe(container.readinessProbe)
    if container.HasField("startupProbe"):
        _default_probe(container.startupProbe)
    if container.HasField("lifecycle"):
        lifecycle = container.lifecycle
        _default_handlers(handler for name, handler in lifecycle.ListFields())


def _default_handlers(handlers: Iterable[LifecycleHandler]) -> None:
    for handler in handlers:
        if handler.HasField("httpGet"):
            _default_http(handler.httpGet)


def _default_probe(probe: Probe) -> None:
    probe.timeoutSeconds = probe.timeoutSeconds or wellknown.PROBE_TIMEOUT_SECONDS
    probe.periodSeconds = probe.periodSeconds or wellknown.PROBE_PERIOD_SECONDS
    probe.successThreshold = probe.successThreshold or wellknown.PROBE_SUCCESSES
    probe.failureThreshold = probe.failureThreshold or wellknown.PROBE_FAILURES
    if probe.handler.HasField("httpGet"):
        _default_http(probe.handler.httpGet)


def _default_http(action: HTTPGetAction) -> None:
    action.path = action.path or "/"
    action.scheme = action.scheme or "HTTP"


@lru_cache(maxsize=1024)
def _pull_policy(image: str) -> str:
    """Always for `latest`, which is what an image without tag and digest means; IfNotPresent for the others."""
    name, digested, _ = image.partition("@")
    _, _, tag = name.rpartition("/")[2].partition(":")
    return "Always" if tag == "latest" or not (tag or digested) else "IfNotPresent"


def _default_volume(volume: Volume) -> None:
    source = volume.volumeSource
    match [field.name for field, _ in source.ListFields()]:
        case [] if not says_more(source):
            source.emptyDir.SetInParent()
        case ["ephemeral"] if source.ephemeral.HasField("volumeClaimTemplate"):
            default_claim(source.ephemeral.volumeClaimTemplate.spec)
        case [("secret" | "configMap" | "downwardAPI" | "projected") as name]:
            details = getattr(source, name)
            if not details.HasField("defaultMode"):
                details.defaultMode = FILE_MODE
        case [_]:
            default_source(source)
    for projection in source.projected.sources:
        if projection.HasField("serviceAccountToken") and not projection.serviceAccountToken.HasField("expirationSeconds"):
            projection.serviceAccountToken.expirationSeconds = TOKEN_SECONDS


def default_source(source: VolumeSource | PersistentVolumeSource) -> None:
    """Of the sources that pods and persistent volumes share."""
    if source.HasField("hostPath") and not source.hostPath.HasField("type"):
        source.hostPath.type = ""
    if source.HasField("iscsi"):
        source.iscsi.iscsiInterface = source.iscsi.iscsiInterface or "default"
    if source.HasField("rbd"):
        rbd = source.rbd
        rbd.pool = rbd.pool or "rbd"
        rbd.user = rbd.user or "admin"
        rbd.keyring = rbd.keyring or "/etc/ceph/keyring"


def default_claim(spec: PersistentVolumeClaimSpec) -> None:
    if not spec.HasField("volumeMode"):
        spec.volumeMode = "Filesystem"
