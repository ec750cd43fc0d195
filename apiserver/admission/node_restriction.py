"""NodeRestriction: what a kubelet may change about its nodes, and that it writes neither pods nor events of others.

The node authoriser has seen to it that a fleet writes its own nodes only. It may register a node with labels and taints; later
it may change neither what decides which pods come to it, nor how much there is of anything: allocatable follows capacity, and
never exceeds it. A kubelet may remove the taint that a new node has until it is Ready, because a cluster may be without
controllers, which remove it too. Finalizers and ownerReferences are not a kubelet's: with a finalizer an administrator could
not delete the node, and with an owner the garbage collector deletes it (CVE-2025-5187).

A kubelet records events about its own nodes and about pods that are bound to them. Kubernetes does not restrict that. A pod
that does not exist may have been the kubelet's: its last events come when it is gone.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
"""

from collections.abc import Callable, Mapping

from apiserver import errors
from apiserver.auth.authentication import User
from apiserver.auth.authorizer import is_fleet
from apiserver.errors import Rejected
from apiserver.registry.admission import Operation, Request
from pinnace.api.core_v1_pb2 import Event, Node, Pod, Taint
from pinnace.api.machines import NATIVE, is_restricted
from pinnace.api.quantity import QuantityError, amount
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.resources import EVENTS, NODES, PODS
from pinnace.api.wellknown import FLEET_LABEL, NOT_READY_TAINT

Owns = Callable[[User, str], bool]
Place = Callable[[str, str], str | None]
"""The node of a pod, by namespace and name: "" when it is bound to none. None: there is no such pod."""


class NodeRestriction:
    """`owns(user, node)`: is the node the fleet's? `validate` raises Rejected."""

    asked = (
        (Operation.CREATE, NODES),
        (Operation.UPDATE, NODES),
        (Operation.UPDATE_STATUS, NODES),
        (Operation.UPDATE_STATUS, PODS),
        (Operation.DELETE, PODS),
        (Operation.CREATE, EVENTS),
        (Operation.UPDATE, EVENTS),
    )

    def __init__(self, owns: Owns, place: Place) -> None:
        self._owns = owns
        self._place = place

    def validate(
        self, request: Request, operation: Operation, obj: Node | Pod | Event | None, old: Node | Pod | Event | None
    ) -> None:
        user = request.user
        if user.fleet is None:
            return
        match obj, old:
            case (_, Pod()):
                self._its_pod(user, old)
            case (Event(), _):
                self._its_event(user, obj)
                if isinstance(old, Event):
                    self._its_event(user, old)
            case (Node(), None):
                for field in _META:
                    if getattr(obj.metadata, field):
                        raise _refused(obj.metadata.name, f"is not allowed to set {field}")
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

    def _its_event(self, user: User, event: Event) -> None:
        about = event.involvedObject
        match about.kind:
            case "Node":
                own = self._owns(user, about.name)
            case "Pod":
                node = self._place(about.namespace, about.name)
                own = node is None or (bool(node) and self._owns(user, node))
            case _:
                own = False
        if not own:
            message = (
                f'events "{event.metadata.name}" is forbidden: it is about {about.kind} "{about.name}", and User "{user.name}" '
                "records only events of its own nodes and their pods"
            )
            raise Rejected(errors.forbidden(message))


_META = ("ownerReferences", "finalizers")


def _spec(user: User, node: Node, old: Node) -> None:
    name = node.metadata.name
    _labels(user, name, old.metadata.labels, node.metadata.labels, "modify labels")
    new, before = _taints(node), _taints(old)
    if not new.keys() <= before.keys() or any(before[gone].key != NOT_READY_TAINT for gone in before.keys() - new.keys()):
        raise _refused(name, "is not allowed to modify taints")
    if node.spec.unschedulable != old.spec.unschedulable:
        raise _refused(name, "is not allowed to cordon or uncordon its nodes")
    for field in _META:
        if getattr(node.metadata, field) != getattr(old.metadata, field):
            raise _refused(name, f"is not allowed to modify {field}")


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
