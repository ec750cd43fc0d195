"""Admission of pods by a node."""

import pytest

from pinnace.fit import FitRefusal
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.lifecycle.plan import get_template
from pinnace.kubelet.node import VirtualNode
from tests.builders import PodBuilder, make_node, make_pod

GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("pod", "lacking"),
    [
        (make_pod("a").req(cpu=1), None),
        (make_pod("a").req(cpu=9), "cpu"),
        (make_pod("a").container({GPU: 1}), None),
        (make_pod("a").container({GPU: 3}), GPU),
        (make_pod("a").container({"example.com/licence": 1}), None),
        (make_pod("a").container({"example.com/licence": 1, "cpu": 9}), "cpu"),
        (make_pod("a").container({"hugepages-2Mi": "2Mi"}), "hugepages-2Mi"),
    ],
)
def test_kubelet_does_not_check_unknown_extended_resources(pod: PodBuilder, lacking: str | None) -> None:
    admitted = VirtualNode(make_node("n").extended(GPU, 2).build()).admit_pod("uid", get_template(pod.build()))
    assert (admitted.resource if isinstance(admitted, FitRefusal) else None) == lacking


@pytest.mark.parametrize(
    ("effect", "pod", "refused"),
    [
        ("NoExecute", make_pod("a"), True),
        ("NoExecute", make_pod("a").tolerate("gpu", "b"), True),
        ("NoExecute", make_pod("a").tolerate("gpu", "a", "NoSchedule"), True),
        ("NoExecute", make_pod("a").tolerate("gpu", "a"), False),
        ("NoExecute", make_pod("a").tolerate(operator="Exists"), False),
        ("NoSchedule", make_pod("a"), False),
        ("PreferNoSchedule", make_pod("a"), False),
    ],
)
def test_pod_that_does_not_tolerate_a_no_execute_taint_is_rejected(effect: str, pod: PodBuilder, refused: bool) -> None:
    node = VirtualNode(make_node("n").build())
    node.update(make_node("n").taint("gpu", "a", effect).build())
    admitted = node.admit_pod("uid", get_template(pod.build()))
    assert isinstance(admitted, FitRefusal) is refused
    if isinstance(admitted, FitRefusal):
        assert admitted.admission_reason == "TaintToleration"
        assert admitted.admission_message == "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"


def test_pod_is_rejected_while_no_address_is_free() -> None:
    built = make_node("n").build()
    built.spec.podCIDR = "10.0.1.0/29"
    node, template = VirtualNode(built), get_template(make_pod("a").build())
    admitted = [node.admit_pod(str(number), template) for number in range(6)]
    assert len({item.pod for item in admitted if isinstance(item, PodAddresses)}) == 5
    refusal = admitted[5]
    assert isinstance(refusal, FitRefusal) and refusal.admission_reason == "OutOfpodIPs"
    assert refusal.admission_message == "Node didn't have enough resource: podIPs, requested: 1, used: 5, capacity: 5"
    pod = make_pod("a").build()
    pod.spec.hostNetwork = True
    assert isinstance(node.admit_pod("host", get_template(pod)), PodAddresses), "the pod has the address of the node"
    node.release_pod("5")
    node.release_pod("0")
    assert isinstance(node.admit_pod("6", template), PodAddresses)


def test_pods_get_addresses_of_a_network_assigned_later() -> None:
    """A node from a manifest has no pod capacity and no network before its fleet sets them."""
    bare = make_node("n").build()
    bare.status.ClearField("capacity")
    bare.status.ClearField("allocatable")
    node = VirtualNode(bare)
    node.readmit_pod("early", get_template(make_pod("a").build()), "10.9.0.2")
    given = make_node("n").capacity(cpu=4, pods=500).build()
    given.spec.podCIDR = "10.9.0.0/23"
    node.update(given)
    admitted = [node.admit_pod(str(number), get_template(make_pod("a").build())) for number in range(499)]
    pods = {item.pod for item in admitted if isinstance(item, PodAddresses)}
    assert len(pods) == 499 and "10.9.0.2" not in pods
    assert all(address.startswith(("10.9.0.", "10.9.1.")) for address in pods)
