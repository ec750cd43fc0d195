"""Priority: resolves a pod's priorityClassName into spec.priority and spec.preemptionPolicy, and refuses a second default, and
that a class of the system goes.

A second default would change the priority of every pod that names no class. Who makes two default classes at the same moment
gets both, as in Kubernetes: of several the one with the lowest value counts.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

from typing import Any

from apiserver import errors
from apiserver.cacher.resource import ResourceCache
from apiserver.cacher.store import Selection
from apiserver.errors import Rejected
from apiserver.registry.admission import Operation, Request
from apiserver.registry.strategies.priorityclasses import SYSTEM_CLASSES
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS, PRIORITY_CLASSES, Object, Resource
from pinnace.api.scheduling_v1_pb2 import PriorityClass

DEFAULT_POLICY = "PreemptLowerPriority"


class Priority:
    resources = (PODS,)
    asked = tuple((operation, PRIORITY_CLASSES) for operation in (Operation.CREATE, Operation.UPDATE, Operation.DELETE))

    def __init__(self, classes: ResourceCache[PriorityClass]) -> None:
        self._classes = classes
        self._everything = Selection.parse(PRIORITY_CLASSES, "", "", "")
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
