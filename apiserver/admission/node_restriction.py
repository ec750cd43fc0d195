"""NodeRestriction: what a kubelet's fleet may change about its nodes, and that it lets the pods of others alone.

The node authoriser has seen to it that a fleet writes its own nodes only. It may register a node with labels and taints; later
it may change neither what decides which pods come to it, nor how much there is of anything: allocatable follows capacity, and
never exceeds it. A kubelet may remove the taint that a new node has until it is Ready, because a cluster may be without
controllers, which remove it too.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
"""

from collections.abc import Callable, Mapping

from apiserver import errors
from apiserver.auth.nodes import is_fleet
from apiserver.auth.user import User
from apiserver.errors import Rejected
from apiserver.registry.admission import Operation, Request
from pinnace.api.core_v1_pb2 import Node, Pod, Taint
from pinnace.api.machines import NATIVE, is_restricted
from pinnace.api.quantity import QuantityError, amount
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.resources import NODES, PODS
from pinnace.api.wellknown import FLEET_LABEL, NOT_READY_TAINT

Owns = Callable[[User, str], bool]


class NodeRestriction:
    """`owns(user, node)`: is the node the fleet's? Raises Rejected through `validate`."""

    asked = (
        (Operation.CREATE, NODES),
        (Operation.UPDATE, NODES),
        (Operation.UPDATE_STATUS, NODES),
        (Operation.UPDATE_STATUS, PODS),
        (Operation.DELETE, PODS),
    )

    def __init__(self, owns: Owns) -> None:
        self._owns = owns

    def validate(self, request: Request, operation: Operation, obj: Node | Pod | None, old: Node | Pod | None) -> None:
        user = request.user
        if user.fleet is None:
            return
        match obj, old:
            case (_, Pod()):
                self._its_pod(user, old)
            case (Node(), None):
                _labels(user, obj.metadata.name, {}, obj.metadata.labels, "set the following labels")
            case (Node(), Node()) if operation is Operation.UPDATE:
                _spec(user, obj, old)
            case (Node(), Node()):
                _capacity(obj, old)

    def _its_pod(self, user: User, pod: Pod) -> None:
        if not pod.spec.nodeName or not self._owns(user, pod.spec.nodeName):
            where = f'is bound to node "{pod.spec.nodeName}"' if pod.spec.nodeName else "is bound to no node"
            message = (
                f'pods "{pod.metadata.name}" is forbidden: it {where}, and User "{user.name}" writes only pods of its own nodes'
            )
            raise Rejected(errors.forbidden(message))


def _spec(user: User, node: Node, old: Node) -> None:
    name = node.metadata.name
    _labels(user, name, old.metadata.labels, node.metadata.labels, "modify labels")
    new, before = _taints(node), _taints(old)
    if not new.keys() <= before.keys() or any(before[gone].key != NOT_READY_TAINT for gone in before.keys() - new.keys()):
        raise _refused(name, "is not allowed to modify taints")
    if node.spec.unschedulable != old.spec.unschedulable:
        raise _refused(name, "is not allowed to cordon or uncordon its nodes")
    if node.metadata.ownerReferences != old.metadata.ownerReferences:
        raise _refused(name, "is not allowed to modify ownerReferences")


def _labels(user: User, name: str, old: Mapping[str, str], new: Mapping[str, str], what: str) -> None:
    """`what`: is done, in Kubernetes' words. Of a node that its certificate names a fleet may say that it is its own."""
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    if name in user.nodes and is_fleet(user, new.get(FLEET_LABEL, "")):
        changed.discard(FLEET_LABEL)
    if refused := sorted(filter(is_restricted, changed)):
        raise _refused(name, f"is not allowed to {what}: {', '.join(refused)}")


def _taints(node: Node) -> dict[bytes, Taint]:
    """By all that they say."""
    return {taint.SerializeToString(): taint for taint in node.spec.taints}


def _capacity(node: Node, old: Node) -> None:
    """A kubelet reports each resource of its machine once. Of what there is it may hold back any part from pods."""
    name, before, after = node.metadata.name, old.status.capacity, node.status.capacity
    if before and before != after:
        native = {resource: after[resource] for resource in after if resource in before or resource not in NATIVE}
        if native != {resource: before[resource] for resource in before}:
            raise _refused(name, "is not allowed to modify status.capacity of a node that has been admitted")
    if node.status.allocatable != old.status.allocatable:
        known = old.status.allocatable
        for resource, value in node.status.allocatable.items():
            if (resource not in known or value != known[resource]) and _exceeds(resource, value, after):
                raise _refused(name, f"is not allowed to set status.allocatable of {resource} above the node's capacity")


def _exceeds(resource: str, value: Quantity, capacity: Mapping[str, Quantity]) -> bool:
    """False for what is no quantity: validation refuses it."""
    try:
        return amount(resource, value.string) > (amount(resource, capacity[resource].string) if resource in capacity else 0)
    except QuantityError:
        return False


def _refused(name: str, what: str) -> Rejected:
    return Rejected(errors.forbidden(f'nodes "{name}" is forbidden: a kubelet {what}'))
