"""Binding a pod to a node: once, and only by who leads.

The step sets `spec.nodeName` and the condition PodScheduled. Together with the fence (a guard on the election's key) and the
compare on the pod's revision it is one etcd transaction: a pod is bound at most once, and never by a deposed leader. The token
under which it happened is left on the pod as an annotation, so that anyone can check it afterwards.
"""

from __future__ import annotations  # those of the steps below would be evaluated for every object

from apiserver.registry import errors
from apiserver.registry.deletion import copy
from apiserver.registry.errors import Rejected
from apiserver.registry.mutation import Mutation, Put, Version
from apiserver.storage.interface import Guard
from pinnace.api.core_v1_pb2 import Binding, Pod
from pinnace.api.names import dns_subdomain
from pinnace.api.pods_pb2 import Fence
from pinnace.api.resources import PODS, election_key
from pinnace.api.status import Code, Refusal
from pinnace.api.times import to_time
from pinnace.api.wellknown import FENCE_ANNOTATION

MAX_ELECTION = 253
"""Characters of a name: it becomes part of the transaction, and of what each binding is told."""


def guards(fence: Fence | None) -> tuple[Guard, ...]:
    """What must hold in etcd for a bind under this fence to commit."""
    return (Guard(election_key(fence.election), fence.token),) if fence is not None else ()


def bind(binding: Binding, fence: Fence | None, now: float) -> Mutation[Pod]:
    """Raises Rejected when the binding itself makes no sense. `now` in Unix seconds."""
    name, target = binding.metadata.name, binding.target
    if not name or not binding.metadata.namespace:
        raise Rejected(errors.bad_request("metadata.namespace and metadata.name of a binding name the pod: both are required"))
    if not target.name or target.kind not in ("", "Node"):
        raise Rejected(errors.bad_request(f'binding of pod "{name}": target must be a Node and have a name'))
    if problems := dns_subdomain(target.name):
        raise Rejected(errors.bad_request(f'binding of pod "{name}": target.name "{target.name[:64]}": {problems[0]}'))
    if fence is not None and (not 0 < len(fence.election) <= MAX_ELECTION or fence.token <= 0):
        raise Rejected(errors.bad_request(f"a fence needs an election, of at most {MAX_ELECTION} characters, and its token"))

    def step(version: Version[Pod] | None) -> Put[Pod]:
        if version is None:
            raise Rejected(errors.not_found(PODS, name))
        old = version.obj
        if binding.metadata.uid and binding.metadata.uid != old.metadata.uid:
            raise Rejected(errors.uid_mismatch(PODS, name, binding.metadata.uid, old.metadata.uid))
        if old.spec.nodeName:
            raise Rejected(_conflict("AlreadyBound", f'pod "{name}" is already assigned to node "{old.spec.nodeName}"'))
        if old.metadata.HasField("deletionTimestamp"):
            raise Rejected(_conflict("Deleting", f'pod "{name}" is being deleted, cannot be assigned to a node'))
        new = copy(PODS, old)
        new.spec.nodeName = target.name
        if fence is not None:
            new.metadata.annotations[FENCE_ANNOTATION] = f"{fence.election}/{fence.token}"
        _set_scheduled(new, now)
        return Put(new)

    return Mutation(PODS.key(binding.metadata.namespace, name), name, step, guards(fence))


def _conflict(reason: str, message: str) -> Refusal:
    return Refusal(Code.ABORTED, reason, message)


def _set_scheduled(pod: Pod, now: float) -> None:
    condition = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
    if condition is None:
        condition = pod.status.conditions.add(type="PodScheduled")
    condition.status, condition.reason, condition.message = "True", "", ""
    condition.lastTransitionTime.CopyFrom(to_time(now))
