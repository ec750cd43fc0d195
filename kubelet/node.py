"""Virtual nodes: their resources and addresses, and simulated faults.

    running --freeze--> frozen: writes and hears nothing of its pods --set--> running
            --power_off--> off: it has no pods --set--> booted: its pods are restarted --settle--> running

Faults that annotations declare:

    on a node   pinnace.io/fault: failed    power loss: no heartbeats, no writes, no containers; when the annotation is removed,
                                            the node boots and its pods are restarted
                pinnace.io/fault: frozen    network loss: no heartbeats, no writes, no watch events; containers go on
    on a pod    pinnace.io/crash.CONTAINER: "ATTEMPT CODE"
                                            that attempt of the container exits with this code

A crash names the attempt, so an annotation that is seen twice crashes the container once. Invalid values are ignored.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import ContainerStateTerminated, Node, Pod, Taint, Toleration
from pinnace.api.integers import parse_natural
from pinnace.api.names import is_extended_resource
from pinnace.api.pods import evicting_taints, tolerates
from pinnace.api.scalars import to_time
from pinnace.api.wellknown import CRASH_ANNOTATION, FAULT_ANNOTATION
from pinnace.fit import AdmissionPredicate, FitRefusal, NodeCapacity, Requests, allocatable_amounts, matches_node
from pinnace.fit.requests import DEFERRED, INFEASIBLE, PODS
from pinnace.kubelet.addresses import AddressPool, PodAddresses, host_ip, pod_cidr
from pinnace.kubelet.eviction import (
    PressureKind,
)
from pinnace.kubelet.lifecycle.plan import PodTemplateFacts

log = logging.getLogger(__name__)

POD_IPS = "podIPs"
"""The resource in the reason of a rejection if podCIDR has no free address."""
LOST_POWER = 255
"""The exit code of containers that ran when the machine lost power. Code and reason ("Unknown") are those of containerd."""


class VirtualNode:
    def __init__(self, node: Node, *, local: bool = False) -> None:
        """`local`: its addresses are in 127.0.0.0/8 (see kubelet.addresses), regardless of its podCIDR."""
        self._local = local
        self._host = host_ip(node.metadata.name, local=local)
        self._room = NodeCapacity(allocatable_amounts(node))
        self._network = self._pod_network_of(node)
        self._addresses = self._new_address_pool(node)
        self._node = node
        self._taints = evicting_taints(node)
        self._pods_by_uid: dict[str, tuple[Requests, str]] = {}

    def update(self, node: Node) -> None:
        """Apply a changed Node object. Running pods and their addresses are kept."""
        self._node = node
        self._taints = evicting_taints(node)
        self._room.allocatable = allocatable_amounts(node)
        if (network := self._pod_network_of(node)) != self._network:  # the node had no pod capacity when it was added
            self._network = network
            self._addresses = self._new_address_pool(node)
            for _, address in self._pods_by_uid.values():
                self._addresses.reserve(address)

    def _pod_network_of(self, node: Node) -> str:
        """The pod network of the node. podCIDR is immutable in the API."""
        if node.spec.podCIDR and not self._local:
            return node.spec.podCIDR
        return pod_cidr(node.metadata.name, self._room.allocatable.get(PODS, 0), local=self._local)

    def _new_address_pool(self, node: Node) -> AddressPool:
        try:
            return AddressPool(self._network)
        except ValueError as error:
            log.warning("node %s: podCIDR: %s; it is ignored", node.metadata.name, error)
            return AddressPool(pod_cidr(node.metadata.name, self._room.allocatable.get(PODS, 0), local=self._local))

    @property
    def allocatable(self) -> Mapping[str, int]:
        """The allocatable resources, by name."""
        return self._room.allocatable

    @property
    def counted_pods(self) -> Collection[str]:
        """The uids of the counted pods."""
        return self._pods_by_uid.keys()

    def admit_pod(self, uid: str, template: PodTemplateFacts) -> PodAddresses | FitRefusal:
        """Count the pod and allocate addresses, or return why it cannot run here. A pod is also rejected if no address is
        free.
        """
        if refusals := self._fit_refusals(template):
            return refusals[0]
        address = self._new_address(template)
        if not address:
            return FitRefusal(POD_IPS, 1, self._addresses.size, self._addresses.size)
        return self._count_pod(uid, template, address)

    def missing_resources_without(self, template: PodTemplateFacts, leaving: Iterable[str]) -> Mapping[str, int] | None:
        """The resources that a pod lacks after the pods `leaving` (uids) have ended. None: ending pods does not help."""
        refusals = self._fit_refusals(template)
        if not refusals or not all(refusal.resource for refusal in refusals):
            return None
        freed = Counter[str]()
        for uid in leaving:
            requests, _ = self._pods_by_uid[uid]
            freed.update(dict(requests.amounts))
        short = {
            refusal.resource: refusal.requested + refusal.used - refusal.capacity - freed[refusal.resource]
            for refusal in refusals
        }
        return {resource: amount for resource, amount in short.items() if amount > 0}

    def _fit_refusals(self, template: PodTemplateFacts) -> list[FitRefusal]:
        """Extended resources that the node does not list are ignored, as in Kubernetes: a scheduler extender accounts for them.
        Only NoExecute taints are checked.
        """
        refusals = [
            refusal
            for refusal in self._room.refusals(template.requests)
            if refusal.resource in self._room.allocatable or not is_extended_resource(refusal.resource)
        ]
        if template.choosy is not None and not matches_node(template.choosy, self._node):
            refusals.append(FitRefusal(predicate=AdmissionPredicate.NODE_AFFINITY))
        if not all(_is_tolerated(taint, template.tolerations) for taint in self._taints):
            refusals.append(FitRefusal(predicate=AdmissionPredicate.TAINT_TOLERATION))
        return refusals

    def readmit_pod(self, uid: str, template: PodTemplateFacts, address: str) -> PodAddresses:
        """Count a pod that an earlier process admitted, even if it does not fit. The pod keeps its address, if it is free."""
        if address:
            self._addresses.reserve(address)
        return self._count_pod(uid, template, address or self._new_address(template))

    def _new_address(self, template: PodTemplateFacts) -> str:
        """Empty when there is none left."""
        return self._host if template.host_network else self._addresses.allocate_address()

    def _count_pod(self, uid: str, template: PodTemplateFacts, address: str) -> PodAddresses:
        self._room.add(template.requests)
        self._pods_by_uid[uid] = template.requests, address
        return PodAddresses(self._host, address)

    def cannot_resize(self, uid: str, wanted: Requests) -> tuple[str, str] | None:
        """The reason and message of PodResizePending for a counted pod, or None if the node has the resources. Only resources
        that increase are compared.
        """
        requests, _ = self._pods_by_uid[uid]
        before = dict(requests.amounts)
        grown = tuple((resource, amount) for resource, amount in wanted.amounts if amount > before.get(resource, 0))
        for resource, amount in grown:
            if amount > (capacity := self._room.allocatable.get(resource, 0)):
                enough = f"Node didn't have enough capacity: {resource}, requested: {amount}, capacity: {capacity}"
                return INFEASIBLE, enough
        self._room.remove(requests)
        refusals = self._room.refusals(Requests(grown))
        self._room.add(requests)
        return (DEFERRED, refusals[0].admission_message) if refusals else None

    def recount_pod(self, uid: str, requests: Requests) -> None:
        """Count the new resources of the pod, even if they do not fit. No effect if the pod is not counted."""
        if (tenant := self._pods_by_uid.get(uid)) is not None:
            before, address = tenant
            self._room.remove(before)
            self._room.add(requests)
            self._pods_by_uid[uid] = requests, address

    def release_pod(self, uid: str) -> None:
        """Undo `admit_pod` and `readmit_pod`. No effect if the pod is not counted."""
        if (tenant := self._pods_by_uid.pop(uid, None)) is not None:
            requests, address = tenant
            self._room.remove(requests)
            self._addresses.release(address)


def _is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(toleration, taint.key, taint.value, taint.effect) for toleration in tolerations)


class VirtualNodes:
    def __init__(self, *, local: bool = False) -> None:
        """`local`: see VirtualNode."""
        self._local = local
        self._nodes: dict[str, VirtualNode] = {}
        self._off: set[str] = set()
        self._booted: set[str] = set()
        self._pressures: dict[str, Sequence[PressureKind]] = {}
        self.frozen: set[str] = set()
        self.nodes_with_declared_usage: set[str] = set()
        """Nodes that have or had pods with declared usage."""

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def node_of_pod(self, pod: Pod) -> VirtualNode | None:
        return self._nodes.get(pod.spec.nodeName)

    def can_write_status(self, name: str) -> bool:
        """Whether the fleet can write the status of the node."""
        return name in self._nodes and name not in self.frozen

    def counted_pods(self, name: str) -> Collection[str]:
        """The uids of the pods that are counted on the node."""
        node = self._nodes.get(name)
        return node.counted_pods if node is not None else ()

    def allocatable(self, name: str) -> Mapping[str, int]:
        """The allocatable resources of the node, by name."""
        node = self._nodes.get(name)
        return node.allocatable if node is not None else {}

    def set_node(self, node: Node) -> bool:
        """Add or update a node. Return whether it has just thawed."""
        name = node.metadata.name
        if (known := self._nodes.get(name)) is not None:
            known.update(node)
        else:
            self._nodes[name] = VirtualNode(node, local=self._local)
        if name in self._off:
            self._off.discard(name)
            self._booted.add(name)
        thawed = name in self.frozen
        self.frozen.discard(name)
        return thawed

    def drop_nodes(self, names: Collection[str]) -> None:
        for known in (self.frozen, self.nodes_with_declared_usage, self._off, self._booted):
            known.difference_update(names)
        for name in names:
            self._nodes.pop(name, None)
            self._pressures.pop(name, None)

    def power_off(self, names: Collection[str]) -> None:
        self.drop_nodes(names)
        self._off.update(names)

    def freeze_nodes(self, names: Collection[str]) -> None:
        """Freeze these nodes, unless they are powered off. After they thaw, their pods must be set again."""
        self.frozen.update(name for name in names if name in self._nodes)

    def is_on_frozen_node(self, pod: Pod) -> bool:
        """Whether nothing can be written about the pod because its node is frozen."""
        return pod.spec.nodeName in self.frozen

    def has_booted(self, pod: Pod) -> bool:
        """Whether the node lost power after the pod ran, according to the status of an earlier kubelet."""
        return pod.spec.nodeName in self._booted

    def mark_pods_set(self, names: Collection[str]) -> None:
        """All pods of these nodes have been set."""
        self._booted.difference_update(names)

    def set_pressures(self, name: str, pressures: Sequence[PressureKind]) -> None:
        """Set the pressures of the node, which admission checks."""
        self._pressures[name] = pressures

    def node_pressures(self, pod: Pod) -> Sequence[PressureKind]:
        """The pressures of the pod's node."""
        return self._pressures.get(pod.spec.nodeName, ())


class NodeFault(StrEnum):
    FAILED = "failed"
    FROZEN = "frozen"


class ContainerCrash(NamedTuple):
    container: str
    attempt: int
    code: int


def node_fault(node: Node) -> NodeFault | None:
    value = node.metadata.annotations.get(FAULT_ANNOTATION, "")
    return next((fault for fault in NodeFault if fault == value), None)


def requested_crashes(pod: Pod) -> Iterator[ContainerCrash]:
    for key, value in pod.metadata.annotations.items():
        if key.startswith(CRASH_ANNOTATION):
            attempt, code = map(parse_natural, value.partition(" ")[::2])
            if attempt is not None and code is not None:
                yield ContainerCrash(key.removeprefix(CRASH_ANNOTATION), attempt, code % 256)


def pod_after_reboot(pod: Pod, now: float) -> Pod:
    """The status of the pod after a power loss of its machine: no container runs. `now` is Unix time."""
    result = Pod()
    result.CopyFrom(pod)
    for status in (*result.status.initContainerStatuses, *result.status.containerStatuses):
        if status.state.HasField("running"):
            ended = ContainerStateTerminated(exitCode=LOST_POWER, reason="Unknown", finishedAt=to_time(now))
            ended.startedAt.CopyFrom(status.state.running.startedAt)
            status.state.Clear()
            status.state.terminated.CopyFrom(ended)
            status.ready = status.started = False
    return result
