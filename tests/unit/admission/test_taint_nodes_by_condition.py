"""Which new nodes are kept free of pods until somebody plays them."""

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.machines import MachineShape
from pinnace.api.wellknown import NOT_READY_TAINT
from pinnace.apiserver.admission.defaults import TaintNodesByCondition
from pinnace.apiserver.auth.authentication import UNSECURED
from pinnace.apiserver.registry.admission import WriteRequest
from pinnace.kubelet.registration import FleetMachine, build_node
from tests.builders import make_node

NOT_READY = (NOT_READY_TAINT, "NoSchedule")


def taints(node: Node) -> list[tuple[str, str]]:
    TaintNodesByCondition().admit(WriteRequest(UNSECURED), node)
    return [(taint.key, taint.effect) for taint in node.spec.taints]


def test_node_without_conditions_is_tainted() -> None:
    assert taints(make_node("n").taint("gpu", "true").new()) == [("gpu", "NoSchedule"), NOT_READY]


def test_unready_node_is_tainted() -> None:
    for status in ("False", "Unknown"):
        node = make_node("n").new()
        node.status.conditions.add(type="Ready", status=status)
        assert taints(node) == [NOT_READY]


def test_ready_node_of_a_kubelet_is_not_tainted() -> None:
    """It holds the lease already, and would need two more writes."""
    assert taints(build_node("n", "fleet", FleetMachine(MachineShape({})), 0.0)) == []


def test_not_twice() -> None:
    assert taints(make_node("n").taint(NOT_READY_TAINT).new()) == [NOT_READY]


def test_to_evict_is_another_matter() -> None:
    result = taints(make_node("n").taint(NOT_READY_TAINT, effect="NoExecute").new())
    assert result == [(NOT_READY_TAINT, "NoExecute"), NOT_READY]
