"""Strategy and defaults of pods.

A new pod is Pending, and the server sets all defaults. Later, most fields of the spec are immutable, and the status changes.

The binding writes FENCE_ANNOTATION, which identifies the term of the leader that bound the pod (apiserver.registry.binding);
audits depend on it. Clients cannot set it. The server ignores their value and does not refuse the write, because it may come
from a copy of a bound pod.

A pod on a node has a grace period. The condition DisruptionTarget has the reason for a deletion by a component.
Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination and
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions

Source of the defaults: pkg/apis/core/v1/defaults.go of Kubernetes.

DefaultTolerationSeconds: by default, a pod tolerates a node that is not ready or unreachable for 300 seconds. In Kubernetes
this is an admission plugin. Here it is a default, so that it is computed once for all pods of a template.
Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#defaulttolerationseconds

ServiceAccount, too, is an admission plugin in Kubernetes. Here PodStrategy calls it (`PodAccounts`) before it sets defaults.

Most pods come from few templates. `SpecCache` caches the complete pod by the encoded spec and the account, and the violations
and warnings by the encoded complete spec. Equal specs may have different encodings, because the order of map entries is not
defined; then they are computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from pinnace.api import conditions, wellknown
from pinnace.api.codec import has_unknown_fields
from pinnace.api.core_v1_pb2 import (
    Container,
    EphemeralContainer,
    HTTPGetAction,
    LifecycleHandler,
    PersistentVolumeClaimSpec,
    PersistentVolumeSource,
    Pod,
    PodAffinityTerm,
    PodSpec,
    Probe,
    Toleration,
    TopologySpreadConstraint,
    Volume,
    VolumeSource,
)
from pinnace.api.meta_v1_pb2 import DeleteOptions, ObjectMeta
from pinnace.api.pods import container_of_ephemeral, ended, qos_class
from pinnace.api.quantity import QuantityError, amounts, format_amount
from pinnace.api.resources import PODS
from pinnace.api.status import Violation
from pinnace.api.verbs_pb2 import Disruption
from pinnace.api.wellknown import DISRUPTION_TARGET, FENCE_ANNOTATION, NOT_READY_TAINT, UNREACHABLE_TAINT
from pinnace.apiserver.registry.strategy import StatusStrategy
from pinnace.apiserver.registry.validation.containers import validate_ephemeral_containers
from pinnace.apiserver.registry.validation.fields import validate_pod_annotations
from pinnace.apiserver.registry.validation.pod_update import (
    carry_over_resources,
    validate_ephemeral_update,
    validate_pod_status,
    validate_pod_status_update,
    validate_resize,
    validate_spec_update,
)
from pinnace.apiserver.registry.validation.pods import name_warnings, spec_warnings, validate_new_spec, validate_spec
from pinnace.apiserver.registry.validation.volumes import validate_generated_claims
from pinnace.fit.requests import combine_containers, is_pod_level

NEGATIVE_GRACE = 1
"""The grace period in seconds that replaces a negative one, as in Kubernetes."""
MAX_GRACE = 2**31 - 1
"""Maximum grace period in seconds (68 years), so that a timestamp can represent its end."""
MAX_COMPLETE = 16 << 10
"""Maximum size in bytes of a completed pod in the cache."""

DEFAULT_FILE_MODE = 0o644
DEFAULT_TOKEN_SECONDS = 3600
_MAX_IMAGE = 512
"""Maximum length of an image name in the cache of pull policies, in characters."""

DEFAULT_TOLERATION_SECONDS = 300

V = TypeVar("V")
MAX_CACHED_SPECS = 512
MAX_CACHED_SPEC_SIZE = 8192
"""Maximum size in bytes of a spec in the cache."""
MAX_CACHED_WARNINGS = 8


class PodAccounts(Protocol):
    """The accounts of pods, and what they add to specs."""

    def find_account(self, pod: Pod) -> Hashable:
        """Return the account of a new pod; None if it needs none. Equal accounts complete equal specs equally. Raises
        Rejected."""
        ...

    def admit_spec(self, spec: PodSpec, account: Any, name: str) -> None:
        """Complete a spec with the account. `name`: of the pod, for messages. Raises Rejected."""
        ...


class SpecChecks:
    """What a complete spec says about all pods that have it. Violations and warnings are computed when they are first needed;
    few warnings, and that there are no violations, is cached."""

    def __init__(self, spec: PodSpec, encoded: bytes) -> None:
        self._encoded = encoded
        self._is_valid = False
        self._warnings: tuple[str, ...] | None = None
        self.has_label_keys = spreads_by_label_keys(spec)
        """Whether the values of labels are added to its selectors (`merge_label_keys`)."""
        self.generates_claims = any(volume.volumeSource.HasField("ephemeral") for volume in spec.volumes)
        """Whether it has ephemeral volumes."""

    def violations(self) -> list[Violation]:
        violations = [] if self._is_valid else validate_new_spec(PodSpec.FromString(self._encoded))
        self._is_valid = not violations
        return violations

    def warnings(self) -> tuple[str, ...]:
        if self._warnings is not None:
            return self._warnings
        warnings = tuple(spec_warnings(PodSpec.FromString(self._encoded), "spec"))
        if len(warnings) <= MAX_CACHED_WARNINGS:
            self._warnings = warnings
        return warnings


class PodStrategy(StatusStrategy[Pod]):
    has_generation = True
    is_graceful = True
    can_be_disrupted = True

    def __init__(self, tolerations: DefaultTolerationSeconds | None = None, accounts: PodAccounts | None = None) -> None:
        """`tolerations`: the tolerations that every pod gets. None: those of DefaultTolerationSeconds. `accounts`: None if pods
        get no credentials."""
        super().__init__(PODS)
        self._tolerations = tolerations or DefaultTolerationSeconds()
        self._accounts = accounts
        self._completions = SpecCache[bytes](lambda complete: len(complete) <= MAX_COMPLETE)
        self._checks = SpecCache[SpecChecks](lambda checks: True)

    def set_defaults(self, obj: Pod) -> None:
        set_defaults(obj.spec)
        self._tolerations.add_default_tolerations(obj.spec)

    def prepare_create(self, obj: Pod) -> None:
        account = self._accounts.find_account(obj) if self._accounts is not None else None
        complete = self._completions.get(obj.spec.SerializeToString(), account, lambda: self._complete_spec(obj, account))
        obj.ClearField("spec")
        obj.ClearField("status")
        obj.MergeFromString(complete)
        _set_fence(obj, None)

    def finish_create(self, obj: Pod) -> Iterable[str]:
        checks = self._check_spec(obj.spec)
        if checks.has_label_keys:
            merge_label_keys(obj)
        return *_name_warnings(obj), *checks.warnings()

    def prepare_update(self, obj: Pod, old: Pod) -> None:
        """Copy the fields that admission set at creation, if the update omits them."""
        spec, before = obj.spec, old.spec
        if not spec.HasField("priority") and before.HasField("priority"):
            spec.priority = before.priority
        if not spec.priorityClassName:
            spec.priorityClassName = before.priorityClassName
        if not spec.HasField("preemptionPolicy") and before.HasField("preemptionPolicy"):
            spec.preemptionPolicy = before.preemptionPolicy
        super().prepare_update(obj, old)
        _set_fence(obj, old.metadata.annotations.get(FENCE_ANNOTATION))

    def prepare_status_update(self, obj: Pod, old: Pod) -> None:
        super().prepare_status_update(obj, old)
        status, before = obj.status, old.status
        if not status.phase:
            status.phase = before.phase
        if not status.qosClass:
            status.qosClass = before.qosClass

    def check_metadata(self, obj: Pod, out: list[Violation]) -> None:
        super().check_metadata(obj, out)
        validate_pod_annotations(obj.metadata.annotations, "metadata.annotations", out)

    def check_fields(self, obj: Pod, out: list[Violation]) -> None:
        validate_spec(obj.spec, out)

    def check_new(self, obj: Pod, out: list[Violation]) -> None:
        checks = self._check_spec(obj.spec)
        if checks.has_label_keys:
            obj = Pod(metadata=ObjectMeta(name=obj.metadata.name, labels=obj.metadata.labels), spec=obj.spec)
            merge_label_keys(obj)
            checks = self._check_spec(obj.spec)
        out.extend(checks.violations())
        if checks.generates_claims:
            validate_generated_claims(obj.metadata.name, obj.spec.volumes, "spec.volumes", out)

    def check_change(self, new: Pod, old: Pod, out: list[Violation]) -> None:
        validate_spec_update(new.spec, old.spec, out)

    def prepare_resize(self, obj: Pod, old: Pod) -> None:
        resized = carry_over_resources(obj.spec, old.spec)
        version = obj.metadata.resourceVersion
        obj.CopyFrom(old)
        obj.metadata.resourceVersion = version
        obj.spec.CopyFrom(resized)
        self.set_defaults(obj)

    def validate_resize(self, obj: Pod, old: Pod) -> list[Violation]:
        return self._validate_change(obj, old, lambda new, before, out: validate_resize(new.spec, before.spec, out))

    def prepare_ephemeral_containers(self, obj: Pod, old: Pod) -> None:
        ephemeral, version = list(obj.spec.ephemeralContainers), obj.metadata.resourceVersion
        obj.CopyFrom(old)
        obj.metadata.resourceVersion = version
        del obj.spec.ephemeralContainers[:]
        obj.spec.ephemeralContainers.extend(ephemeral)
        for container in obj.spec.ephemeralContainers:
            set_ephemeral_defaults(container)

    def validate_ephemeral_containers(self, obj: Pod, old: Pod) -> list[Violation]:
        out: list[Violation] = []
        validate_ephemeral_containers(obj.spec, out)
        validate_ephemeral_update(obj.spec, old.spec, out)
        return out

    def check_status(self, obj: Pod, out: list[Violation]) -> None:
        validate_pod_status(obj.status, out)

    def check_status_change(self, new: Pod, old: Pod, out: list[Violation]) -> None:
        validate_pod_status_update(new, old, out)

    def warnings(self, obj: Pod) -> Iterable[str]:
        return *_name_warnings(obj), *self._check_spec(obj.spec).warnings()

    def grace_period(self, obj: Pod, options: DeleteOptions) -> int:
        """Return the grace period, at most MAX_GRACE. A second delete without a grace period keeps the present one."""
        if not obj.spec.nodeName or ended(obj):
            return 0
        if options.HasField("gracePeriodSeconds"):
            grace = options.gracePeriodSeconds
        elif obj.metadata.HasField("deletionGracePeriodSeconds"):
            grace = obj.metadata.deletionGracePeriodSeconds
        elif obj.spec.HasField("terminationGracePeriodSeconds"):
            grace = obj.spec.terminationGracePeriodSeconds
        else:
            grace = wellknown.DEFAULT_GRACE_SECONDS
        return min(grace if grace >= 0 else NEGATIVE_GRACE, MAX_GRACE)

    def prepare_delete(self, obj: Pod, why: Disruption | None, now: float) -> None:
        if why is not None:
            target = conditions.set_condition(obj.status.conditions, DISRUPTION_TARGET, "True", why.reason, why.message, now)
            target.observedGeneration = obj.metadata.generation

    def _check_spec(self, spec: PodSpec) -> SpecChecks:
        encoded = spec.SerializeToString()
        return self._checks.get(encoded, None, lambda: SpecChecks(spec, encoded))

    def _complete_spec(self, obj: Pod, account: Hashable) -> bytes:
        """Return the encoding of a new pod with this spec, with its account, all defaults and the initial status. The encoding
        uses much less memory than the message. Raises Rejected."""
        pod = Pod(spec=obj.spec)
        if self._accounts is not None and account is not None:
            self._accounts.admit_spec(pod.spec, account, obj.metadata.name)
        self.set_defaults(pod)
        pod.status.phase = "Pending"
        pod.status.qosClass = qos_class(pod.spec)
        if pod.spec.schedulingGates:
            message = "Scheduling is blocked due to non-empty scheduling gates"
            pod.status.conditions.add(type="PodScheduled", status="False", reason="SchedulingGated", message=message)
        return pod.SerializeToString()


def _name_warnings(pod: Pod) -> Iterable[str]:
    return name_warnings(pod.metadata.name, "the Pod's hostname")


def spreads_by_label_keys(spec: PodSpec) -> bool:
    """Return whether a spread constraint or an affinity term has matchLabelKeys or mismatchLabelKeys."""
    constraints = any(constraint.matchLabelKeys for constraint in spec.topologySpreadConstraints)
    return constraints or any(term.matchLabelKeys or term.mismatchLabelKeys for term in _affinity_terms(spec))


def merge_label_keys(pod: Pod) -> None:
    """Add the values that the pod's labels have for matchLabelKeys (In) and mismatchLabelKeys (NotIn) to the label selectors of
    its spread constraints and affinity terms. A label that changes later does not change their meaning.

    Source: pkg/registry/core/pod/strategy.go of Kubernetes 1.36 (mutatePodAffinity, mutateTopologySpreadConstraints).
    """
    labels = pod.metadata.labels
    for constraint in pod.spec.topologySpreadConstraints:
        _merge_keys(constraint, constraint.matchLabelKeys, "In", labels)
    for term in _affinity_terms(pod.spec):
        _merge_keys(term, term.matchLabelKeys, "In", labels)
        _merge_keys(term, term.mismatchLabelKeys, "NotIn", labels)


def _merge_keys(
    selecting: TopologySpreadConstraint | PodAffinityTerm, keys: Iterable[str], operator: str, labels: Mapping[str, str]
) -> None:
    if selecting.HasField("labelSelector"):
        for key in keys:
            if key in labels:
                selecting.labelSelector.matchExpressions.add(key=key, operator=operator, values=[labels[key]])


def _affinity_terms(spec: PodSpec) -> Iterator[PodAffinityTerm]:
    if not spec.HasField("affinity"):
        return
    for affinity in (spec.affinity.podAffinity, spec.affinity.podAntiAffinity):
        yield from affinity.requiredDuringSchedulingIgnoredDuringExecution
        for weighted in affinity.preferredDuringSchedulingIgnoredDuringExecution:
            yield weighted.podAffinityTerm


def _set_fence(pod: Pod, fence: str | None) -> None:
    annotations = pod.metadata.annotations
    if fence is not None:
        annotations[FENCE_ANNOTATION] = fence
    elif FENCE_ANNOTATION in annotations:
        del annotations[FENCE_ANNOTATION]


def set_defaults(spec: PodSpec) -> None:
    """Set the defaults of the spec of a pod."""
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


def set_ephemeral_defaults(ephemeral: EphemeralContainer) -> None:
    """Set the defaults of a container in an ephemeral container."""
    container = container_of_ephemeral(ephemeral)
    _default_container(container)
    ephemeral.ephemeralContainerCommon.ParseFromString(container.SerializeToString())


def set_template_defaults(spec: PodSpec) -> None:
    """Set the defaults of the spec of a pod template. The other defaults are set when a pod is created."""
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
    if spec.serviceAccountName != spec.serviceAccount:
        spec.serviceAccountName = spec.serviceAccountName or spec.serviceAccount
        spec.serviceAccount = spec.serviceAccountName
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
    if container.HasField("resources") and not container.resources.ListFields():
        container.ClearField("resources")  # clients write the empty message that they read
    for port in container.ports:
        if not port.protocol:
            port.protocol = "TCP"
    for variable in container.env:
        if variable.HasField("valueFrom") and variable.valueFrom.HasField("fieldRef"):
            reference = variable.valueFrom.fieldRef
            reference.apiVersion = reference.apiVersion or "v1"
    _default_probes_and_hooks(container)


def _default_requests(container: Container) -> None:
    """Set missing requests to the limits."""
    if container.HasField("resources"):
        requests, limits = container.resources.requests, container.resources.limits
        for name in limits:
            if name not in requests:
                requests[name].CopyFrom(limits[name])


def _default_pod_requests(spec: PodSpec) -> None:
    """Set missing requests of the pod to the sums of its containers' requests, or else to the limits of the pod."""
    requests = spec.resources.requests
    with suppress(QuantityError):  # validation reports it
        of_containers = combine_containers(spec, lambda container: amounts(container.resources.requests))
        for name in filter(is_pod_level, of_containers):
            if name not in requests:
                requests[name].string = format_amount(name, of_containers[name])
    for name, limit in spec.resources.limits.items():
        if name not in requests:
            requests[name].CopyFrom(limit)


def _default_host_ports(container: Container) -> None:
    """Set missing host ports to the container ports. Templates get no such default: it would remain if hostNetwork is removed
    later, and would limit the pods to one per node."""
    for port in container.ports:
        port.hostPort = port.hostPort or port.containerPort


def _default_probes_and_hooks(container: Container) -> None:
    if container.HasField("livenessProbe"):
        _default_probe(container.livenessProbe)
    if container.HasField("readinessProbe"):
        _default_probe(container.readinessProbe)
    if container.HasField("startupProbe"):
        _default_probe(container.startupProbe)
    if container.HasField("lifecycle"):
        lifecycle = container.lifecycle
        _default_lifecycle_handlers(handler for name, handler in lifecycle.ListFields())


def _default_lifecycle_handlers(handlers: Iterable[LifecycleHandler]) -> None:
    for handler in handlers:
        if handler.HasField("httpGet"):
            _default_http_get(handler.httpGet)


def _default_probe(probe: Probe) -> None:
    probe.timeoutSeconds = probe.timeoutSeconds or wellknown.PROBE_TIMEOUT_SECONDS
    probe.periodSeconds = probe.periodSeconds or wellknown.PROBE_PERIOD_SECONDS
    probe.successThreshold = probe.successThreshold or wellknown.PROBE_SUCCESSES
    probe.failureThreshold = probe.failureThreshold or wellknown.PROBE_FAILURES
    if probe.handler.HasField("httpGet"):
        _default_http_get(probe.handler.httpGet)


def _default_http_get(action: HTTPGetAction) -> None:
    action.path = action.path or "/"
    action.scheme = action.scheme or "HTTP"


@lru_cache(maxsize=1024)
def _pull_policy(image: str) -> str:
    """Return Always for the tag `latest`, which is the default without tag and digest, and IfNotPresent otherwise."""
    name, digested, _ = image.partition("@")
    _, _, tag = name.rpartition("/")[2].partition(":")
    return "Always" if tag == "latest" or not (tag or digested) else "IfNotPresent"


def _default_volume(volume: Volume) -> None:
    source = volume.volumeSource
    match [field.name for field, _ in source.ListFields()]:
        case [] if not has_unknown_fields(source):
            source.emptyDir.SetInParent()
        case ["ephemeral"] if source.ephemeral.HasField("volumeClaimTemplate"):
            default_volume_claim(source.ephemeral.volumeClaimTemplate.spec)
        case [("secret" | "configMap" | "downwardAPI" | "projected") as name]:
            details = getattr(source, name)
            if not details.HasField("defaultMode"):
                details.defaultMode = DEFAULT_FILE_MODE
        case [_]:
            default_volume_source(source)
    for projection in source.projected.sources:
        if projection.HasField("serviceAccountToken") and not projection.serviceAccountToken.HasField("expirationSeconds"):
            projection.serviceAccountToken.expirationSeconds = DEFAULT_TOKEN_SECONDS


def default_volume_source(source: VolumeSource | PersistentVolumeSource) -> None:
    """Set the defaults of sources that are common to pods and persistent volumes."""
    if source.HasField("hostPath") and not source.hostPath.HasField("type"):
        source.hostPath.type = ""
    if source.HasField("iscsi"):
        source.iscsi.iscsiInterface = source.iscsi.iscsiInterface or "default"
    if source.HasField("rbd"):
        rbd = source.rbd
        rbd.pool = rbd.pool or "rbd"
        rbd.user = rbd.user or "admin"
        rbd.keyring = rbd.keyring or "/etc/ceph/keyring"


def default_volume_claim(spec: PersistentVolumeClaimSpec) -> None:
    if not spec.HasField("volumeMode"):
        spec.volumeMode = "Filesystem"


class DefaultTolerationSeconds:
    def __init__(self, not_ready: int = DEFAULT_TOLERATION_SECONDS, unreachable: int = DEFAULT_TOLERATION_SECONDS) -> None:
        """`not_ready`, `unreachable`: tolerationSeconds for the two taints."""
        self._default_spec = PodSpec(
            tolerations=[
                Toleration(key=key, operator="Exists", effect="NoExecute", tolerationSeconds=seconds)
                for key, seconds in ((NOT_READY_TAINT, not_ready), (UNREACHABLE_TAINT, unreachable))
            ]
        )

    def add_default_tolerations(self, spec: PodSpec) -> None:
        tolerations = spec.tolerations
        if not tolerations:
            spec.MergeFrom(self._default_spec)
            return
        tolerated_keys = {toleration.key for toleration in tolerations if toleration.effect in ("NoExecute", "")}
        if "" not in tolerated_keys:
            tolerations.extend(
                toleration for toleration in self._default_spec.tolerations if toleration.key not in tolerated_keys
            )


class SpecCache(Generic[V]):
    """A cache of results for MAX_CACHED_SPECS encoded specs, which evicts the oldest entry. Threads may share it
    (pinnace.apiserver.registry.large)."""

    def __init__(self, is_cacheable: Callable[[V], bool]) -> None:
        """`is_cacheable`: returns whether a result may be cached. The result for a short spec may be large."""
        self._is_cacheable = is_cacheable
        self._results: dict[tuple[bytes, Hashable], V] = {}
        self._writes = Lock()

    def get(self, encoded: bytes, version: Hashable, compute: Callable[[], V]) -> V:
        """Return the result for an encoded spec. `version`: of what the result also depends on."""
        key = encoded, version
        cached = self._results.get(key)
        if cached is not None:
            return cached
        result = compute()
        if len(encoded) <= MAX_CACHED_SPEC_SIZE and self._is_cacheable(result):
            with self._writes:
                if len(self._results) >= MAX_CACHED_SPECS:
                    del self._results[next(iter(self._results))]
                self._results[key] = result
        return result
