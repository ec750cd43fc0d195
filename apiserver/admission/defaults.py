"""Admission plugins that set defaults or check references to other objects.

Priority sets spec.priority and spec.preemptionPolicy of a pod from its priorityClassName. It refuses a second default class,
and the deletion of system classes. Two concurrent writes can still create two default classes, as in Kubernetes. Then the class
with the lowest value is used.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/

RuntimeClass adds the overhead and the scheduling of its runtime class to a pod. It refuses unknown classes and other
overheads.

Source: https://kubernetes.io/docs/concepts/containers/runtime-class/; plugin/pkg/admission/runtimeclass of Kubernetes 1.36,
including the messages.

DefaultStorageClass sets the default storage class in claims without a class.

Source: https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass

StorageObjectInUseProtection sets the finalizers of volumes and claims, so that they stay while they are used.

DefaultIngressClass sets the default ingress class in ingresses without a class.

Source: https://kubernetes.io/docs/concepts/services-networking/ingress/#default-ingress-class

TaintNodesByCondition adds the not-ready taint to new nodes. The kubelet removes it when the node is Ready. Unlike in
Kubernetes, a node that is created Ready is not tainted: a kubelet acquires the leases of its nodes before it creates them
(docs/kubelet.md), and needs only one write per node.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#taintnodesbycondition

TraceContext adds the trace context of the create call to the pod, if the call is sampled. The plugin is enabled only with
tracing. It removes an annotation that the client set, because it usually comes from a copy of another pod. A client joins a pod
to its own trace with `traceparent` in the metadata of the call.

NamespaceLifecycle refuses new objects in namespaces that do not exist or are Terminating.

    create: read the namespace, which must be Active --guard: the namespace has the same version--> write the object
    delete: write the phase Terminating, after which every such guard fails --> wait until it is empty --> delete the key

So no object can be created in a namespace after the check that it is empty, even through another server. After any other update
of the namespace the guard fails too, and the create is admitted again.

PersistentVolumeClaimResize allows a claim to grow only if its storage class allows volume expansion.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#persistentvolumeclaimresize
"""

from collections.abc import Mapping
from typing import Any

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Taint
from pinnace.api.networking_v1_pb2 import Ingress, IngressClass
from pinnace.api.node_v1_pb2 import RuntimeClass
from pinnace.api.pods import class_of
from pinnace.api.quantity import QuantityError, amounts
from pinnace.api.resources import (
    ALL,
    CUSTOM_OBJECTS,
    DEFAULT_NAMESPACE,
    EVENTS,
    INGRESS_CLASSES,
    INGRESSES,
    NAMESPACES,
    NODE_LEASE_NAMESPACE,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
    Object,
    Resource,
)
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.api.status import Code, Refusal, Violation
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.wellknown import (
    CLAIM_PROTECTION_FINALIZER,
    CLASS_ANNOTATION,
    DEFAULT_CLASS_ANNOTATION,
    DEFAULT_INGRESS_CLASS_ANNOTATION,
    INGRESS_CLASS_ANNOTATION,
    NOT_READY_TAINT,
    TRACE_ANNOTATION,
    VOLUME_PROTECTION_FINALIZER,
)
from pinnace.apiserver import errors
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.cacher.store import CacheEntry, SelectionPredicate
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest
from pinnace.apiserver.registry.strategies.policy import SYSTEM_CLASSES
from pinnace.apiserver.registry.validation.volumes import storage_size
from pinnace.apiserver.storage.interface import Guard
from pinnace.runtime.tracing import Tracer

DEFAULT_POLICY = "PreemptLowerPriority"

_NOT_READY_TAINT = Taint(key=NOT_READY_TAINT, effect="NoSchedule")

PERMANENT_NAMESPACES = (DEFAULT_NAMESPACE, "kube-system", "kube-public", NODE_LEASE_NAMESPACE)
"""Namespaces that the server creates at startup and never deletes."""
_PLURALS: Mapping[type, str] = {resource.message: resource.plural for resource in (*ALL, CUSTOM_OBJECTS)}

_RESIZE_REFUSED = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize "
    "(allowVolumeExpansion)"
)
_OTHER_OVERHEAD = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


class Priority:
    resources = (PODS,)
    validated_operations = tuple(
        (operation, PRIORITY_CLASSES)
        for operation in (AdmissionOperation.CREATE, AdmissionOperation.UPDATE, AdmissionOperation.DELETE)
    )

    def __init__(self, classes: ResourceCache[PriorityClass]) -> None:
        self._classes = classes
        self._everything = SelectionPredicate.parse(PRIORITY_CLASSES, "", "", "")
        self._default_priority_class_cache: tuple[int, PriorityClass | None] = (0, None)
        """The version of the class cache, and the default class at that version."""

    def admit(self, request: WriteRequest, obj: Pod) -> None:
        spec = obj.spec
        value, policy = self._resolve_priority(obj)
        if spec.HasField("priority") and spec.priority != value:
            why = f"the integer value of priority ({spec.priority}) must not be provided in pod spec; "
            why += f"priority admission controller computed {value} from the given PriorityClass name"
            raise _pod_forbidden(obj, why)
        spec.priority = value
        if spec.HasField("preemptionPolicy") and spec.preemptionPolicy != policy:
            why = f"the string value of PreemptionPolicy ({spec.preemptionPolicy[:64]}) must not be provided in pod spec; "
            why += f"priority admission controller computed {policy} from the given PriorityClass name"
            raise _pod_forbidden(obj, why)
        spec.preemptionPolicy = policy

    def validate(
        self, request: WriteRequest, operation: AdmissionOperation, obj: PriorityClass | None, old: PriorityClass | None
    ) -> None:
        """Refuse a class that becomes a second default. Other changes of existing default classes are allowed."""
        if obj is None:
            if old is not None and old.metadata.name in SYSTEM_CLASSES:
                raise _forbidden_error(PRIORITY_CLASSES, old, "this is a system priority class and cannot be deleted")
            return
        if not obj.globalDefault or (old is not None and old.globalDefault):
            return
        default = self._default_priority_class()
        if default is not None and default.metadata.name != obj.metadata.name:
            why = f"PriorityClass {default.metadata.name} is already marked as default. Only one default can exist"
            raise _forbidden_error(PRIORITY_CLASSES, obj, why)

    def _resolve_priority(self, pod: Pod) -> tuple[int, str]:
        name = pod.spec.priorityClassName
        if name in SYSTEM_CLASSES:
            return SYSTEM_CLASSES[name], DEFAULT_POLICY
        if not name:
            default = self._default_priority_class()
            if default is None:
                return 0, DEFAULT_POLICY
            pod.spec.priorityClassName = default.metadata.name
            return default.value, default.preemptionPolicy or DEFAULT_POLICY
        entry = self._classes.get(PRIORITY_CLASSES.key("", name))
        if entry is None:
            raise _pod_forbidden(pod, f"no PriorityClass with name {name} was found")
        return entry.obj.value, entry.obj.preemptionPolicy or DEFAULT_POLICY

    def _default_priority_class(self) -> PriorityClass | None:
        """Return the default class: of several, the one with the lowest value, as in Kubernetes."""
        version, default = self._default_priority_class_cache
        if version != self._classes.version:
            defaults = [entry.obj for entry in self._classes.select(self._everything) if entry.obj.globalDefault]
            default = min(defaults, key=lambda priority_class: priority_class.value, default=None)
            self._default_priority_class_cache = self._classes.version, default
        return default


class RuntimeClassAdmission:
    resources = (PODS,)
    validated_operations = ((AdmissionOperation.CREATE, PODS),)

    def __init__(self, classes: ResourceCache[RuntimeClass]) -> None:
        self._classes = classes

    def admit(self, request: WriteRequest, obj: Pod) -> None:
        if (runtime_class := self._find_runtime_class(obj)) is not None:
            _set_overhead(obj, runtime_class)
            _set_scheduling(obj, runtime_class)

    def validate(self, request: WriteRequest, operation: AdmissionOperation, obj: Pod, old: Pod | None) -> None:
        if not obj.spec.overhead:
            return
        runtime_class = self._find_runtime_class(obj)
        if runtime_class is None or not runtime_class.HasField("overhead"):
            raise _pod_forbidden(obj, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
        if not _is_same_overhead(obj, runtime_class):
            raise _pod_forbidden(obj, _OTHER_OVERHEAD)

    def _find_runtime_class(self, pod: Pod) -> RuntimeClass | None:
        """Return the class of a pod; None if it names none. Raises Rejected."""
        name = pod.spec.runtimeClassName
        if not name:
            return None
        entry = self._classes.get(RUNTIME_CLASSES.key("", name))
        if entry is None:
            raise _pod_forbidden(pod, f'pod rejected: RuntimeClass "{name}" not found')
        return entry.obj


def _set_overhead(pod: Pod, runtime_class: RuntimeClass) -> None:
    if not runtime_class.HasField("overhead"):
        return
    if pod.spec.overhead and not _is_same_overhead(pod, runtime_class):
        raise _pod_forbidden(pod, _OTHER_OVERHEAD)
    for name, amount in runtime_class.overhead.podFixed.items():
        pod.spec.overhead[name].CopyFrom(amount)


def _is_same_overhead(pod: Pod, runtime_class: RuntimeClass) -> bool:
    try:
        return amounts(pod.spec.overhead) == amounts(runtime_class.overhead.podFixed)
    except QuantityError:
        return False


def _set_scheduling(pod: Pod, runtime_class: RuntimeClass) -> None:
    """Add the node selector and the tolerations of the class. Raises Rejected if the selectors contradict each other."""
    selector, scheduling = pod.spec.nodeSelector, runtime_class.scheduling
    for key, value in scheduling.nodeSelector.items():
        if selector.get(key, value) != value:
            why = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = "
            raise _pod_forbidden(pod, why + selector[key])
        selector[key] = value
    present = list(pod.spec.tolerations)
    pod.spec.tolerations.extend(toleration for toleration in scheduling.tolerations if toleration not in present)


def _pod_forbidden(pod: Pod, why: str) -> Rejected:
    return _forbidden_error(PODS, pod, why)


def _forbidden_error(resource: Resource[Any], obj: Object, why: str) -> Rejected:
    return Rejected(errors.forbidden(f'{resource.plural} "{obj.metadata.name}" is forbidden: {why}'))


class DefaultClass:
    """The name of the default object of a kind: the one with this annotation. Of several, the newest is the default, then the
    first by name, as in Kubernetes."""

    def __init__(self, cache: ResourceCache[Any], resource: Resource[Any], annotation: str) -> None:
        self._cache = cache
        self._everything = SelectionPredicate.parse(resource, "", "", "")
        self._annotation = annotation

    def find_default_class(self) -> str:
        """Return the name; "" if there is no default."""
        classes = [entry.obj.metadata for entry in self._cache.select(self._everything)]
        marked = [metadata for metadata in classes if metadata.annotations.get(self._annotation) == "true"]
        newest = min(marked, key=lambda metadata: (-metadata.creationTimestamp.seconds, metadata.name), default=None)
        return newest.name if newest is not None else ""


class DefaultStorageClass:
    resources = (PERSISTENT_VOLUME_CLAIMS,)

    def __init__(self, classes: ResourceCache[StorageClass]) -> None:
        self._default = DefaultClass(classes, STORAGE_CLASSES, DEFAULT_CLASS_ANNOTATION)

    def admit(self, request: WriteRequest, obj: PersistentVolumeClaim) -> None:
        """Set the default class. An explicit class is kept, even if it is empty."""
        if obj.spec.HasField("storageClassName") or CLASS_ANNOTATION in obj.metadata.annotations:
            return
        if default := self._default.find_default_class():
            obj.spec.storageClassName = default


class StorageObjectInUseProtection:
    resources = (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS)

    def admit(self, request: WriteRequest, obj: PersistentVolume | PersistentVolumeClaim) -> None:
        """Set the finalizer of a new volume or claim, which a controller removes when nothing uses it."""
        is_claim = isinstance(obj, PersistentVolumeClaim)
        finalizer = CLAIM_PROTECTION_FINALIZER if is_claim else VOLUME_PROTECTION_FINALIZER
        if finalizer not in obj.metadata.finalizers:
            obj.metadata.finalizers.append(finalizer)


class DefaultIngressClass:
    resources = (INGRESSES,)

    def __init__(self, classes: ResourceCache[IngressClass]) -> None:
        self._default = DefaultClass(classes, INGRESS_CLASSES, DEFAULT_INGRESS_CLASS_ANNOTATION)

    def admit(self, request: WriteRequest, obj: Ingress) -> None:
        """Set the default class. An explicit class is kept, even if it is empty."""
        if obj.spec.HasField("ingressClassName") or INGRESS_CLASS_ANNOTATION in obj.metadata.annotations:
            return
        if default := self._default.find_default_class():
            obj.spec.ingressClassName = default


class TaintNodesByCondition:
    resources = (NODES,)

    def admit(self, request: WriteRequest, obj: Node) -> None:
        if conditions.is_condition_true(obj.status.conditions, "Ready"):
            return
        if not any(taint.key == _NOT_READY_TAINT.key and taint.effect == _NOT_READY_TAINT.effect for taint in obj.spec.taints):
            obj.spec.taints.append(_NOT_READY_TAINT)


class TraceContext:
    resources = (PODS,)

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def admit(self, request: WriteRequest, obj: Pod) -> None:
        annotations = obj.metadata.annotations
        if traceparent := self._tracer.traceparent:
            annotations[TRACE_ANNOTATION] = traceparent
        else:
            annotations.pop(TRACE_ANNOTATION, None)


class NamespaceLifecycle:
    resources = (*(resource for resource in ALL if resource.namespaced), CUSTOM_OBJECTS)
    guarded_resources = tuple(resource for resource in resources if resource is not EVENTS)
    """Events expire, and do not block the deletion of a namespace."""

    def __init__(self, namespaces: ResourceCache[Namespace]) -> None:
        self._namespaces = namespaces

    def admit(self, request: WriteRequest, obj: Object) -> None:
        if obj.metadata.namespace:
            self._require_active(obj, request.qualified)

    def guards(self, obj: Object) -> tuple[Guard, ...]:
        if obj.metadata.namespace in ("", *PERMANENT_NAMESPACES):
            return ()
        entry = self._require_active(obj)
        return (Guard(entry.key, entry.create_revision, entry.mod_revision),)

    def _require_active(self, obj: Object, qualified: str = "") -> CacheEntry[Namespace]:
        """Return the namespace of a new object. `qualified`: see WriteRequest. Raises Rejected with Kubernetes' messages."""
        name = obj.metadata.namespace
        entry = self._namespaces.get(NAMESPACES.key("", name))
        if entry is None:
            message = f'namespaces "{name}" not found'
            raise Rejected(Refusal(Code.NOT_FOUND, "NamespaceNotFound", message))
        if entry.obj.metadata.HasField("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            message = f'{qualified or _PLURALS[type(obj)]} "{obj.metadata.name}" is forbidden: {why}'
            cause = Violation("metadata.namespace", f"namespace {name} is being terminated")
            raise Rejected(Refusal(Code.PERMISSION_DENIED, "NamespaceTerminating", message, (cause,)))
        return entry


class PersistentVolumeClaimResize:
    validated_operations = ((AdmissionOperation.UPDATE, PERSISTENT_VOLUME_CLAIMS),)

    def __init__(self, classes: ResourceCache[StorageClass]) -> None:
        self._classes = classes

    def validate(
        self, request: WriteRequest, operation: AdmissionOperation, obj: PersistentVolumeClaim, old: PersistentVolumeClaim
    ) -> None:
        if storage_size(obj.spec.resources.requests) <= storage_size(old.spec.resources.requests):
            return
        entry = self._classes.get(STORAGE_CLASSES.key("", class_of(old)))
        if class_of(obj) != class_of(old) or entry is None or not entry.obj.allowVolumeExpansion:
            what = f'{PERSISTENT_VOLUME_CLAIMS.plural} "{obj.metadata.name}" is forbidden'
            raise Rejected(errors.forbidden(f"{what}: {_RESIZE_REFUSED}"))
