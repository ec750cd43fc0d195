"""Binding: assign a pod to a node. A pod is bound once, and only by the leader of its scheduler.

A bind sets `spec.nodeName` and the condition PodScheduled, clears the nomination, and copies the labels and annotations of the
binding to the pod. One etcd transaction contains the write, the compare on the pod's revision, and the fence, which is a guard
on the key of the election.

    Guarantee                                        Mechanism
    a pod is bound at most once                      the compare on its revision, and the check that nodeName is empty
    a former leader cannot bind                      the guard
    a leader cannot bind pods of other schedulers    the scheduler names of its term (apiserver.registry.fencing.FencedTerm)

The annotation FENCE_ANNOTATION of a bound pod contains the term, so that checkers can verify the binding later.
"""

from __future__ import annotations  # otherwise, annotations of nested functions are evaluated at every call

from collections.abc import Iterable

from pinnace.api import conditions, wellknown
from pinnace.api.core_v1_pb2 import Binding, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.names import dns_subdomain
from pinnace.api.ownership import exclude_added, has_status_owner
from pinnace.api.resources import PODS
from pinnace.api.status import Code, Refusal, Violation
from pinnace.api.wellknown import FENCE_ANNOTATION
from pinnace.apiserver import errors
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.deletion import copy_without_version
from pinnace.apiserver.registry.fencing import FencedTerm
from pinnace.apiserver.registry.mutation import Mutation, ObjectVersion, PutObject
from pinnace.apiserver.registry.strategy import MAX_PARTS, has_too_many_items
from pinnace.apiserver.registry.validation.fields import validate_annotations, validate_labels


def build_bind_mutations(bindings: Iterable[Binding], term: FencedTerm | None, now: float) -> list[Mutation[Pod] | Refusal]:
    """Return a mutation or a refusal for each binding. `term`: the term of the caller; None for a call without a fence.
    `now` is in Unix seconds."""
    return [malformed_binding_refusal(binding) or _bind_mutation(binding, term, now) for binding in bindings]


def malformed_binding_refusal(binding: Binding) -> Refusal | None:
    """Return the refusal of a malformed binding, or None."""
    name, target = binding.metadata.name, binding.target
    if not name or not binding.metadata.namespace:
        return errors.bad_request("metadata.namespace, metadata.name: Required value: a binding needs the name of its pod")
    if not target.name or target.kind not in ("", "Node"):
        return errors.bad_request(f'binding of pod "{name}": target must be a Node and have a name')
    if problems := dns_subdomain(target.name):
        return errors.bad_request(f'binding of pod "{name}": target.name "{target.name[:64]}": {problems[0]}')
    return None


def _bind_mutation(binding: Binding, term: FencedTerm | None, now: float) -> Mutation[Pod]:
    metadata, node = binding.metadata, binding.target.name
    name = metadata.name

    def step(version: ObjectVersion[Pod] | None) -> PutObject[Pod]:
        if version is None:
            raise Rejected(errors.not_found(PODS, name))
        old = version.obj
        if metadata.uid and metadata.uid != old.metadata.uid:
            raise Rejected(errors.uid_mismatch(PODS, name, metadata.uid, old.metadata.uid))
        if metadata.resourceVersion and metadata.resourceVersion != str(version.revision):
            raise Rejected(errors.stale_resource_version(PODS, name, metadata.resourceVersion, version.revision))
        if (
            term is not None
            and (scheduler := old.spec.schedulerName or wellknown.DEFAULT_SCHEDULER) not in term.scheduler_names
        ):
            raise Rejected(_foreign_scheduler_refusal(name, scheduler, term))
        if old.spec.nodeName:
            raise Rejected(_conflict_refusal("AlreadyBound", f'pod "{name}" is already assigned to node "{old.spec.nodeName}"'))
        if old.metadata.HasField("deletionTimestamp"):
            raise Rejected(_conflict_refusal("Deleting", f'pod "{name}" is being deleted, cannot be assigned to a node'))
        if old.spec.schedulingGates:
            raise Rejected(_conflict_refusal("Gated", f'pod "{name}" has non-empty .spec.schedulingGates: remove them first'))
        new = copy_without_version(PODS, old)
        new.spec.nodeName = node
        new.status.ClearField("nominatedNodeName")
        if metadata.labels or metadata.annotations:
            _copy_binding_metadata(metadata, new, old)
        if term is not None:
            new.metadata.annotations[FENCE_ANNOTATION] = term.name
        conditions.set_condition(new.status.conditions, "PodScheduled", "True", "", "", now)
        if metadata.labels or metadata.annotations or _adds_owned_condition(old):
            new.metadata.ownership = exclude_added(PODS, old.metadata.ownership, old, new)
        return PutObject(new)

    return Mutation(PODS.key(metadata.namespace, name), name, step, (term.guard,) if term is not None else ())


def _adds_owned_condition(pod: Pod) -> bool:
    """Return whether a bind adds PodScheduled to a status that has an owner. Nobody owns the condition then."""
    return has_status_owner(pod.metadata.ownership) and conditions.find_condition(pod.status.conditions, "PodScheduled") is None


def _copy_binding_metadata(binding_metadata: ObjectMeta, pod: Pod, old: Pod) -> None:
    """Copy the labels and annotations of the binding to the pod. The server alone sets FENCE_ANNOTATION. Raises Rejected."""
    metadata = pod.metadata
    metadata.labels.update(binding_metadata.labels)
    metadata.annotations.update(binding_metadata.annotations)
    metadata.annotations.pop(FENCE_ANNOTATION, None)
    out: list[Violation] = []
    validate_labels(metadata.labels, "metadata.labels", out)
    validate_annotations(metadata.annotations, "metadata.annotations", out)
    if out:
        raise Rejected(errors.invalid(PODS, metadata.name, out))
    if has_too_many_items(pod, old):
        raise Rejected(errors.too_many_items(PODS, metadata.name, MAX_PARTS))


def _foreign_scheduler_refusal(name: str, scheduler: str, term: FencedTerm) -> Refusal:
    """Return the refusal for a pod of another scheduler. The hint addresses the administrator of the scheduler."""
    election = term.name.rpartition("/")[0]
    why = f'its scheduler is "{scheduler}", and the leader of election "{election}" did not campaign for it'
    message = f'pods "{name}" is forbidden: {why}'
    hint = f'configure a profile with schedulerName "{scheduler}" in the scheduler that leads "{election}"'
    return Refusal(Code.PERMISSION_DENIED, "Forbidden", message, metadata=(("hint", hint),))


def _conflict_refusal(reason: str, message: str) -> Refusal:
    return Refusal(Code.ABORTED, reason, message)
