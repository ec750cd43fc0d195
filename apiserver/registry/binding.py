"""Binding a pod to a node: once, and only by the leader of its scheduler.

The step sets `spec.nodeName` and the condition PodScheduled, ends the pod's nomination, and hands on the binding's labels and
annotations. One etcd transaction has the write, the compare on the pod's revision and the fence: a guard on the election's key.

    a pod is bound at most once                      the compare on its revision, and its empty nodeName
    not by a deposed leader                          the guard
    not by a leader of other schedulers' pods        the names that it campaigned for (apiserver.registry.fencing.HeldTerm)

The term under which a pod was bound is left on it as an annotation, so that anyone can check it afterwards.
"""

from __future__ import annotations  # those of the steps below would be evaluated for every object

from collections.abc import Iterable

from apiserver import errors
from apiserver.errors import Rejected
from apiserver.registry.deletion import copy
from apiserver.registry.fencing import HeldTerm
from apiserver.registry.mutation import Mutation, Put, Version
from apiserver.registry.strategy import MAX_PARTS, parts_exceeded
from apiserver.registry.validation.fields import validate_annotations, validate_labels
from pinnace.api import conditions, wellknown
from pinnace.api.core_v1_pb2 import Binding, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.names import dns_subdomain
from pinnace.api.resources import PODS
from pinnace.api.status import Code, Refusal, Violation
from pinnace.api.wellknown import FENCE_ANNOTATION


def bind(bindings: Iterable[Binding], term: HeldTerm | None, now: float) -> list[Mutation[Pod] | Refusal]:
    """The mutation for each binding, or what is wrong with it. `term`: in which the caller leads; None: no fence.
    `now` in Unix seconds."""
    return [refusal_of(binding) or _mutation(binding, term, now) for binding in bindings]


def refusal_of(binding: Binding) -> Refusal | None:
    """Why a binding itself makes no sense."""
    name, target = binding.metadata.name, binding.target
    if not name or not binding.metadata.namespace:
        return errors.bad_request("metadata.namespace and metadata.name of a binding name the pod: both are required")
    if not target.name or target.kind not in ("", "Node"):
        return errors.bad_request(f'binding of pod "{name}": target must be a Node and have a name')
    if problems := dns_subdomain(target.name):
        return errors.bad_request(f'binding of pod "{name}": target.name "{target.name[:64]}": {problems[0]}')
    return None


def _mutation(binding: Binding, term: HeldTerm | None, now: float) -> Mutation[Pod]:
    metadata, node = binding.metadata, binding.target.name
    name = metadata.name

    def step(version: Version[Pod] | None) -> Put[Pod]:
        if version is None:
            raise Rejected(errors.not_found(PODS, name))
        old = version.obj
        if metadata.uid and metadata.uid != old.metadata.uid:
            raise Rejected(errors.uid_mismatch(PODS, name, metadata.uid, old.metadata.uid))
        if metadata.resourceVersion and metadata.resourceVersion != str(version.revision):
            raise Rejected(errors.stale(PODS, name, metadata.resourceVersion, version.revision))
        if (
            term is not None
            and (scheduler := old.spec.schedulerName or wellknown.DEFAULT_SCHEDULER) not in term.scheduler_names
        ):
            raise Rejected(_foreign(name, scheduler, term))
        if old.spec.nodeName:
            raise Rejected(_conflict("AlreadyBound", f'pod "{name}" is already assigned to node "{old.spec.nodeName}"'))
        if old.metadata.HasField("deletionTimestamp"):
            raise Rejected(_conflict("Deleting", f'pod "{name}" is being deleted, cannot be assigned to a node'))
        if old.spec.schedulingGates:
            raise Rejected(_conflict("Gated", f'pod "{name}" has non-empty .spec.schedulingGates: remove them first'))
        new = copy(PODS, old)
        new.spec.nodeName = node
        new.status.ClearField("nominatedNodeName")
        if metadata.labels or metadata.annotations:
            _hand_on(metadata, new, old)
        if term is not None:
            new.metadata.annotations[FENCE_ANNOTATION] = term.name
        conditions.say(new.status.conditions, "PodScheduled", "True", "", "", now)
        return Put(new)

    return Mutation(PODS.key(metadata.namespace, name), name, step, (term.guard,) if term is not None else ())


def _hand_on(said: ObjectMeta, pod: Pod, old: Pod) -> None:
    """The labels and annotations of the binding become the pod's. Under which fence it is bound nobody says but the server.
    Raises Rejected."""
    metadata = pod.metadata
    metadata.labels.update(said.labels)
    metadata.annotations.update(said.annotations)
    metadata.annotations.pop(FENCE_ANNOTATION, None)
    out: list[Violation] = []
    validate_labels(metadata.labels, "metadata.labels", out)
    validate_annotations(metadata.annotations, "metadata.annotations", out)
    if out:
        raise Rejected(errors.invalid(PODS, metadata.name, out))
    if parts_exceeded(pod, old):
        raise Rejected(errors.too_much(PODS, metadata.name, MAX_PARTS))


def _foreign(name: str, scheduler: str, term: HeldTerm) -> Refusal:
    """The hint is for the one who configures the scheduler."""
    election = term.name.rpartition("/")[0]
    why = f'its scheduler is "{scheduler}", and the leader of election "{election}" did not campaign for it'
    message = f'pods "{name}" is forbidden: {why}'
    hint = f'configure a profile with schedulerName "{scheduler}" in the scheduler that leads "{election}"'
    return Refusal(Code.PERMISSION_DENIED, "Forbidden", message, metadata=(("hint", hint),))


def _conflict(reason: str, message: str) -> Refusal:
    return Refusal(Code.ABORTED, reason, message)
