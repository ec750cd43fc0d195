"""Priority: resolves a pod's priorityClassName into spec.priority and spec.preemptionPolicy, and refuses a second default, and
that a class of the system goes.

A second default would change the priority of every pod that names no class. Who makes two default classes at the same moment
gets both, as in Kubernetes: of several the one with the lowest value counts.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/

DefaultStorageClass: a claim that names no class gets the default one.

Source: https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass

TaintNodesByCondition: a new node takes no pods until somebody plays it.

Who plays a node takes the taint off once it is Ready. A node that is created Ready is not tainted, other than in Kubernetes: a
kubelet's fleet holds the leases of its nodes before it creates them (docs/kubelet.md), and so needs one write a node.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#taintnodesbycondition

TraceContext: a pod says which trace it is a part of, if the call that creates it is one that is kept.

It is here only where traces are. What a client has put there is dropped: it came with a copy of another pod, whose trace it is.
Who wants a pod in a trace of his own says so with the call (`traceparent` in its metadata).

NamespaceLifecycle: objects are created only in namespaces that exist and are not ending.

    create: the namespace is there, and Active --guard: it is the very version that was seen--> written
    delete: Terminating is written --from now on every such guard fails--> look whether it is empty --> gone

So no object can slip into a namespace between the look at it and its end, whichever servers the two go through. An update of
the namespace makes a guard fail, too: the create is admitted anew.

PersistentVolumeClaimResize: a claim grows only if its class says that volumes of it can.

What a claim asks for is what it was promised: where nobody makes its volume larger, it would be told a size that it never gets.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#persistentvolumeclaimresize
"""

from collections.abc import Mapping
from typing import Any

from apiserver import errors
from apiserver.cacher.cacher import ResourceCache
from apiserver.cacher.store import CacheEntry, SelectionPredicate
from apiserver.errors import Rejected
from apiserver.registry.admission import Operation, Request
from apiserver.registry.strategies.policy import SYSTEM_CLASSES
from apiserver.registry.validation.volumes import size_of
from apiserver.storage.interface import Guard
from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Namespace, Node, PersistentVolumeClaim, Pod, Taint
from pinnace.api.pods import class_of
from pinnace.api.resources import (
    ALL,
    DEFAULT_NAMESPACE,
    EVENTS,
    NAMESPACES,
    NODE_LEASE_NAMESPACE,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    PRIORITY_CLASSES,
    STORAGE_CLASSES,
    Object,
    Resource,
)
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.api.status import Code, Refusal, Violation
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.wellknown import CLASS_ANNOTATION, DEFAULT_CLASS_ANNOTATION, NOT_READY_TAINT, TRACE_ANNOTATION
from pinnace.runtime.tracing import Tracer

DEFAULT_POLICY = "PreemptLowerPriority"


class Priority:
    resources = (PODS,)
    asked = tuple((operation, PRIORITY_CLASSES) for operation in (Operation.CREATE, Operation.UPDATE, Operation.DELETE))

    def __init__(self, classes: ResourceCache[PriorityClass]) -> None:
        self._classes = classes
        self._everything = SelectionPredicate.parse(PRIORITY_CLASSES, "", "", "")
        self._known: tuple[int, PriorityClass | None] = (0, None)
        """The default class, and before it the version of the classes of which it is the default."""

    def admit(self, request: Request, obj: Pod) -> None:
        spec = obj.spec
        value, policy = self._resolve(obj)
        if spec.HasField("priority") and spec.priority != value:
            why = f"the integer value of priority ({spec.priority}) must not be provided in pod spec; "
            why += f"priority admission controller computed {value} from the given PriorityClass name"
            raise _refused(obj, why)
        spec.priority = value
        if spec.HasField("preemptionPolicy") and spec.preemptionPolicy != policy:
            why = f"the string value of PreemptionPolicy ({spec.preemptionPolicy[:64]}) must not be provided in pod spec; "
            why += f"priority admission controller computed {policy} from the given PriorityClass name"
            raise _refused(obj, why)
        spec.preemptionPolicy = policy

    def validate(self, request: Request, operation: Operation, obj: PriorityClass | None, old: PriorityClass | None) -> None:
        """Refuses who becomes the default beside another; of those that are there already, any may be changed otherwise."""
        if obj is None:
            if old is not None and old.metadata.name in SYSTEM_CLASSES:
                raise _forbidden(PRIORITY_CLASSES, old, "this is a system priority class and cannot be deleted")
            return
        if not obj.globalDefault or (old is not None and old.globalDefault):
            return
        default = self._default()
        if default is not None and default.metadata.name != obj.metadata.name:
            why = f"PriorityClass {default.metadata.name} is already marked as default. Only one default can exist"
            raise _forbidden(PRIORITY_CLASSES, obj, why)

    def _resolve(self, pod: Pod) -> tuple[int, str]:
        name = pod.spec.priorityClassName
        if name in SYSTEM_CLASSES:
            return SYSTEM_CLASSES[name], DEFAULT_POLICY
        if not name:
            default = self._default()
            if default is None:
                return 0, DEFAULT_POLICY
            pod.spec.priorityClassName = default.metadata.name
            return default.value, default.preemptionPolicy or DEFAULT_POLICY
        entry = self._classes.get(PRIORITY_CLASSES.key("", name))
        if entry is None:
            raise _refused(pod, f"no PriorityClass with name {name} was found")
        return entry.obj.value, entry.obj.preemptionPolicy or DEFAULT_POLICY

    def _default(self) -> PriorityClass | None:
        """The class for pods that name none: of several the one with the lowest value, as Kubernetes does."""
        version, default = self._known
        if version != self._classes.version:
            found = [entry.obj for entry in self._classes.select(self._everything) if entry.obj.globalDefault]
            default = min(found, key=lambda each: each.value, default=None)
            self._known = self._classes.version, default
        return default


def _refused(pod: Pod, why: str) -> Rejected:
    return _forbidden(PODS, pod, why)


def _forbidden(resource: Resource[Any], obj: Object, why: str) -> Rejected:
    return Rejected(errors.forbidden(f'{resource.plural} "{obj.metadata.name}" is forbidden: {why}'))


class DefaultStorageClass:
    resources = (PERSISTENT_VOLUME_CLAIMS,)

    def __init__(self, classes: ResourceCache[StorageClass]) -> None:
        self._classes = classes
        self._everything = SelectionPredicate.parse(STORAGE_CLASSES, "", "", "")

    def admit(self, request: Request, obj: PersistentVolumeClaim) -> None:
        """A class that is named, be it the empty one, stays."""
        if obj.spec.HasField("storageClassName") or CLASS_ANNOTATION in obj.metadata.annotations:
            return
        if default := self._default():
            obj.spec.storageClassName = default

    def _default(self) -> str:
        """Of several the youngest, and of those the first by name, as Kubernetes does; empty: there is none."""
        found = [entry.obj for entry in self._classes.select(self._everything)]
        marked = [each.metadata for each in found if each.metadata.annotations.get(DEFAULT_CLASS_ANNOTATION) == "true"]
        youngest = min(marked, key=lambda each: (-each.creationTimestamp.seconds, each.name), default=None)
        return youngest.name if youngest is not None else ""


_TAINT = Taint(key=NOT_READY_TAINT, effect="NoSchedule")


class TaintNodesByCondition:
    resources = (NODES,)

    def admit(self, request: Request, obj: Node) -> None:
        if conditions.is_true(obj.status.conditions, "Ready"):
            return
        if not any(taint.key == _TAINT.key and taint.effect == _TAINT.effect for taint in obj.spec.taints):
            obj.spec.taints.append(_TAINT)


class TraceContext:
    resources = (PODS,)

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def admit(self, request: Request, obj: Pod) -> None:
        annotations = obj.metadata.annotations
        if traceparent := self._tracer.traceparent:
            annotations[TRACE_ANNOTATION] = traceparent
        else:
            annotations.pop(TRACE_ANNOTATION, None)


PERMANENT = (DEFAULT_NAMESPACE, "kube-system", "kube-public", NODE_LEASE_NAMESPACE)
"""These always exist: made at start-up, never deleted."""
_PLURALS: Mapping[type, str] = {resource.message: resource.plural for resource in ALL}


class NamespaceLifecycle:
    resources = tuple(resource for resource in ALL if resource.namespaced)
    guarded = tuple(resource for resource in resources if resource is not EVENTS)
    """Events go by themselves, and hold no namespace up."""

    def __init__(self, namespaces: ResourceCache[Namespace]) -> None:
        self._namespaces = namespaces

    def admit(self, request: Request, obj: Object) -> None:
        self._active(obj)

    def guards(self, obj: Object) -> tuple[Guard, ...]:
        if obj.metadata.namespace in PERMANENT:
            return ()
        entry = self._active(obj)
        return (Guard(entry.key, entry.create_revision, entry.mod_revision),)

    def _active(self, obj: Object) -> CacheEntry[Namespace]:
        """The namespace of an object that is to be created. Raises Rejected, in Kubernetes' words."""
        name = obj.metadata.namespace
        entry = self._namespaces.get(NAMESPACES.key("", name))
        if entry is None:
            message = f'namespaces "{name}" not found'
            raise Rejected(Refusal(Code.NOT_FOUND, "NamespaceNotFound", message))
        if entry.obj.metadata.HasField("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            message = f'{_PLURALS[type(obj)]} "{obj.metadata.name}" is forbidden: {why}'
            cause = Violation("metadata.namespace", f"namespace {name} is being terminated")
            raise Rejected(Refusal(Code.PERMISSION_DENIED, "NamespaceTerminating", message, (cause,)))
        return entry


_REFUSED = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize "
    "(allowVolumeExpansion)"
)


class PersistentVolumeClaimResize:
    asked = ((Operation.UPDATE, PERSISTENT_VOLUME_CLAIMS),)

    def __init__(self, classes: ResourceCache[StorageClass]) -> None:
        self._classes = classes

    def validate(self, request: Request, operation: Operation, obj: PersistentVolumeClaim, old: PersistentVolumeClaim) -> None:
        if size_of(obj.spec.resources.requests) <= size_of(old.spec.resources.requests):
            return
        entry = self._classes.get(STORAGE_CLASSES.key("", class_of(old)))
        if class_of(obj) != class_of(old) or entry is None or not entry.obj.allowVolumeExpansion:
            what = f'{PERSISTENT_VOLUME_CLAIMS.plural} "{obj.metadata.name}" is forbidden'
            raise Rejected(errors.forbidden(f"{what}: {_REFUSED}"))
