"""One node of a fleet: the room that it has, and the addresses that it gives out. No I/O."""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from kubelet.addresses import Addresses, AddressPool, host_ip, pod_cidr
from kubelet.template import Template
from pinnace.api.core_v1_pb2 import Node, Taint, Toleration
from pinnace.api.names import is_extended_resource
from pinnace.api.pods import evicting, tolerates
from pinnace.fit import Predicate, Refusal, Requests, Room, allocatable, matches
from pinnace.fit.requests import DEFERRED, INFEASIBLE, PODS

log = logging.getLogger(__name__)

POD_IPS = "podIPs"
"""What a node is out of, in the reason of a refusal, when its podCIDR has no address left."""


class VirtualNode:
    def __init__(self, node: Node, *, local: bool = False) -> None:
        """`local`: its addresses are this machine's (see kubelet.addresses), whatever its podCIDR says."""
        self._local = local
        self._host = host_ip(node.metadata.name, local=local)
        self._room = Room(allocatable(node))
        self._network = self._network_of(node)
        self._addresses = self._pool(node)
        self._node = node
        self._taints = evicting(node)
        self._tenants: dict[str, tuple[Requests, str]] = {}

    def update(self, node: Node) -> None:
        """The node has changed: perhaps in what it has. Pods that it runs stay, with their addresses."""
        self._node = node
        self._taints = evicting(node)
        self._room.allocatable = allocatable(node)
        if (network := self._network_of(node)) != self._network:  # it was played before it was said how many pods it takes
            self._network = network
            self._addresses = self._pool(node)
            for _, address in self._tenants.values():
                self._addresses.reserve(address)

    def _network_of(self, node: Node) -> str:
        """Of its pods. That of a node that has said it once stays: the API server lets nobody change it."""
        if node.spec.podCIDR and not self._local:
            return node.spec.podCIDR
        return pod_cidr(node.metadata.name, self._room.allocatable.get(PODS, 0), local=self._local)

    def _pool(self, node: Node) -> AddressPool:
        try:
            return AddressPool(self._network)
        except ValueError as error:
            log.warning("node %s: podCIDR: %s; it is ignored", node.metadata.name, error)
            return AddressPool(pod_cidr(node.metadata.name, self._room.allocatable.get(PODS, 0), local=self._local))

    @property
    def allocatable(self) -> Mapping[str, int]:
        """What its pods may use, by resource name."""
        return self._room.allocatable

    @property
    def tenants(self) -> Collection[str]:
        """The uids of the pods that it counts."""
        return self._tenants.keys()

    def admit(self, uid: str, template: Template) -> Addresses | Refusal:
        """Counts a pod and gives it addresses, or says why it cannot run here. A pod for which no address is left is refused,
        too: nobody would find it."""
        if refusals := self._refusals(template):
            return refusals[0]
        address = self._new_address(template)
        if not address:
            return Refusal(POD_IPS, 1, self._addresses.size, self._addresses.size)
        return self._settle(uid, template, address)

    def lacking(self, template: Template, leaving: Iterable[str]) -> Mapping[str, int] | None:
        """What is missing for a pod when the tenants that are leaving, by uid, have gone. None: room would not help it."""
        refusals = self._refusals(template)
        if not refusals or not all(each.resource for each in refusals):
            return None
        freed = Counter[str]()
        for uid in leaving:
            requests, _ = self._tenants[uid]
            freed.update(dict(requests.amounts))
        short = {each.resource: each.requested + each.used - each.capacity - freed[each.resource] for each in refusals}
        return {resource: amount for resource, amount in short.items() if amount > 0}

    def _refusals(self, template: Template) -> list[Refusal]:
        """Extended resources that the node knows nothing of are somebody else's to count, as in Kubernetes: a scheduler
        extender's. Of taints only those count that would send the pod away again."""
        found = [
            refusal
            for refusal in self._room.refusals(template.requests)
            if refusal.resource in self._room.allocatable or not is_extended_resource(refusal.resource)
        ]
        if template.choosy is not None and not matches(template.choosy, self._node):
            found.append(Refusal(predicate=Predicate.NODE_AFFINITY))
        if not all(_tolerated(taint, template.tolerations) for taint in self._taints):
            found.append(Refusal(predicate=Predicate.TAINT_TOLERATION))
        return found

    def readmit(self, uid: str, template: Template, address: str) -> Addresses:
        """Counts a pod that had been admitted before, whether it fits or not. It keeps the address that it had, if any; it has
        none if none is left."""
        if address:
            self._addresses.reserve(address)
        return self._settle(uid, template, address or self._new_address(template))

    def _new_address(self, template: Template) -> str:
        """Empty when there is none left."""
        return self._host if template.host_network else self._addresses.take()

    def _settle(self, uid: str, template: Template, address: str) -> Addresses:
        self._room.add(template.requests)
        self._tenants[uid] = template.requests, address
        return Addresses(self._host, address)

    def cannot_resize(self, uid: str, wanted: Requests) -> tuple[str, str] | None:
        """Why a pod that counts cannot ask for as much, as reason and message of PodResizePending. None: it can. Only the
        resources of which it asks for more are compared: a pod may always shrink."""
        requests, _ = self._tenants[uid]
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

    def recount(self, uid: str, requests: Requests) -> None:
        """Counts what the pod asks for now, whether it fits or not; nothing, when the pod does not count."""
        if (tenant := self._tenants.get(uid)) is not None:
            before, address = tenant
            self._room.remove(before)
            self._room.add(requests)
            self._tenants[uid] = requests, address

    def vacate(self, uid: str) -> None:
        """Takes back `admit` and `readmit`; nothing, when the pod does not count."""
        if (tenant := self._tenants.pop(uid, None)) is not None:
            requests, address = tenant
            self._room.remove(requests)
            self._addresses.release(address)


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(each, taint.key, taint.value, taint.effect) for each in tolerations)
