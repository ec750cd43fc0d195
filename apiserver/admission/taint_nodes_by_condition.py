"""TaintNodesByCondition: a new node takes no pods until somebody plays it.

Who plays a node takes the taint off once it is Ready. A node that is created Ready is not tainted, other than in Kubernetes: a
kubelet's fleet holds the leases of its nodes before it creates them (docs/kubelet.md), and so needs one write a node.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#taintnodesbycondition
"""

from apiserver.registry.admission import Request
from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node, Taint
from pinnace.api.resources import NODES
from pinnace.api.wellknown import NOT_READY_TAINT

_TAINT = Taint(key=NOT_READY_TAINT, effect="NoSchedule")


class TaintNodesByCondition:
    resources = (NODES,)

    def admit(self, request: Request, obj: Node) -> None:
        if conditions.is_true(obj.status.conditions, "Ready"):
            return
        if not any(taint.key == _TAINT.key and taint.effect == _TAINT.effect for taint in obj.spec.taints):
            obj.spec.taints.append(_TAINT)
