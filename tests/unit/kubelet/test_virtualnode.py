"""What a node admits."""

import pytest

from kubelet.template import template_of
from kubelet.virtualnode import VirtualNode
from pinnace.fit import Refusal
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
def test_extended_resources_that_no_node_has_are_somebody_elses_to_count(pod: PodBuilder, lacking: str | None) -> None:
    admitted = VirtualNode(make_node("n").extended(GPU, 2).build()).admit("uid", template_of(pod.build()))
    assert (admitted.resource if isinstance(admitted, Refusal) else None) == lacking
