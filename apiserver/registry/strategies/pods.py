"""Pods: born Pending, with all defaults filled in; afterwards the spec hardly changes and the status moves forward.

What a pod says of the leader that bound it is the binding's to write (apiserver.registry.binding): whoever audits the cluster
goes by it. In what a client sends it is passed over, not refused: it may well be a copy of a pod that was bound.

A pod that a kubelet may be running has a grace to end in. If others end it, its condition DisruptionTarget says why.
Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination and
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""

from collections.abc import Iterable

from apiserver.registry.strategies.default_tolerations import DefaultTolerations
from apiserver.registry.strategies.pod_defaults import set_defaults
from apiserver.registry.strategies.templates import Templates
from apiserver.registry.strategy import StatusStrategy
from apiserver.registry.validation.labels import validate_pod_annotations
from apiserver.registry.validation.pod_resize import carry_over_resources, validate_resize
from apiserver.registry.validation.pod_status import validate_pod_status, validate_pod_status_update
from apiserver.registry.validation.pod_update import validate_spec_update
from apiserver.registry.validation.pod_warnings import name_warnings, spec_warnings
from apiserver.registry.validation.pods import validate_new_spec, validate_spec
from apiserver.registry.validation.volumes import validate_generated_claims
from pinnace.api import conditions, wellknown
from pinnace.api.core_v1_pb2 import Pod, PodSpec
from pinnace.api.meta_v1_pb2 import DeleteOptions
from pinnace.api.pods import ended, qos_class
from pinnace.api.resources import PODS
from pinnace.api.status import Violation
from pinnace.api.verbs_pb2 import Disruption
from pinnace.api.wellknown import DISRUPTION_TARGET, FENCE_ANNOTATION

NEGATIVE_GRACE = 1
"""What Kubernetes makes of a grace period below 0."""
MAX_GRACE = 2**31 - 1
"""Seconds, 68 years; longer is not given: its end must be an instant that can be written."""
MAX_COMPLETE = 16 << 10
"""Bytes of a completed pod that is remembered."""


class PodStrategy(StatusStrategy[Pod]):
    can_be_disrupted = True

    def __init__(self, tolerations: DefaultTolerations | None = None) -> None:
        """`tolerations`: those that every pod gets; None: the usual ones."""
        super().__init__(PODS)
        self._tolerations = tolerations or DefaultTolerations()
        self._completed = Templates(self._complete, lambda complete: len(complete) <= MAX_COMPLETE)
        self._judged = Templates(validate_new_spec, lambda violations: not violations)
        self._warned = Templates(lambda spec: tuple(spec_warnings(spec, "spec")), lambda warnings: not warnings)

    def set_defaults(self, obj: Pod) -> None:
        set_defaults(obj.spec)
        self._tolerations.complete(obj.spec)

    def prepare_create(self, obj: Pod) -> None:
        complete = self._completed(obj.spec)
        obj.ClearField("spec")
        obj.ClearField("status")
        obj.MergeFromString(complete)
        _set_fence(obj, None)

    def prepare_update(self, obj: Pod, old: Pod) -> None:
        """What admission resolved when the pod was created need not be repeated by who updates it."""
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

    def check(self, obj: Pod, out: list[Violation]) -> None:
        validate_spec(obj.spec, out)

    def check_new(self, obj: Pod, out: list[Violation]) -> None:
        out.extend(self._judged(obj.spec))
        if volumes := obj.spec.volumes:
            validate_generated_claims(obj.metadata.name, volumes, "spec.volumes", out)

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

    def check_status(self, obj: Pod, out: list[Violation]) -> None:
        validate_pod_status(obj.status, out)

    def check_status_change(self, new: Pod, old: Pod, out: list[Violation]) -> None:
        validate_pod_status_update(new, old, out)

    def warnings(self, obj: Pod) -> Iterable[str]:
        return *name_warnings(obj.metadata.name, "the Pod's hostname"), *self._warned(obj.spec)

    def grace_period(self, obj: Pod, options: DeleteOptions) -> int:
        """MAX_GRACE at most. Who deletes a pod again and does not say how many seconds leaves those that it has."""
        if not obj.spec.nodeName or ended(obj):
            return 0
        if options.HasField("gracePeriodSeconds"):
            grace = options.gracePeriodSeconds
            return min(grace if grace >= 0 else NEGATIVE_GRACE, MAX_GRACE)
        if obj.metadata.HasField("deletionGracePeriodSeconds"):
            return obj.metadata.deletionGracePeriodSeconds
        if obj.spec.HasField("terminationGracePeriodSeconds"):
            return min(obj.spec.terminationGracePeriodSeconds, MAX_GRACE)
        return wellknown.DEFAULT_GRACE_SECONDS

    def prepare_delete(self, obj: Pod, why: Disruption | None, now: float) -> None:
        if why is not None:
            conditions.say(obj.status.conditions, DISRUPTION_TARGET, "True", why.reason, why.message, now)

    def _complete(self, spec: PodSpec) -> bytes:
        """A new pod of this spec: with all defaults, and the status that it is born with. Encoded: a message
        of many small parts takes many times the memory."""
        pod = Pod(spec=spec)
        self.set_defaults(pod)
        pod.status.phase = "Pending"
        pod.status.qosClass = qos_class(pod.spec)
        if spec.schedulingGates:
            message = "Scheduling is blocked due to non-empty scheduling gates"
            pod.status.conditions.add(type="PodScheduled", status="False", reason="SchedulingGated", message=message)
        return pod.SerializeToString()


def _set_fence(pod: Pod, fence: str | None) -> None:
    annotations = pod.metadata.annotations
    if fence is not None:
        annotations[FENCE_ANNOTATION] = fence
    elif FENCE_ANNOTATION in annotations:
        del annotations[FENCE_ANNOTATION]
