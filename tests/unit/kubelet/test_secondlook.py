"""A pod is not rejected because the kubelet has an outdated version of its node."""

import pytest

from pinnace.api.core_v1_pb2 import Node
from pinnace.kubelet.pod_admission import RETRY_INTERVAL, STALE_NODE_TIMEOUT
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.kubelet.fakeapi import FakeApi


@pytest.mark.parametrize(
    ("builder", "before", "after"),
    [
        (make_pod("a").req().node_selector("zone", "a"), make_node("n"), make_node("n").label("zone", "a")),
        (make_pod("a").req(), make_node("n").taint("full", effect="NoExecute"), make_node("n")),
        (make_pod("a").req(cpu="6"), make_node("n"), make_node("n").capacity(cpu=8, memory="32Gi", pods=110)),
    ],
    ids=["label", "taint", "room"],
)
async def test_pod_waits_for_the_current_version_of_its_node(
    api: FakeApi, builder: PodBuilder, before: NodeBuilder, after: NodeBuilder
) -> None:
    await start(api, before.build())
    api.create(builder)
    await api.clock.advance(RETRY_INTERVAL)
    assert api.phases("a") == []
    api.fleet.set_node(after.build())
    await api.clock.advance(0.0)
    assert api.phases("a") == ["Running"] and api.events == []


async def test_pod_is_rejected_once_the_node_version_is_current(api: FakeApi) -> None:
    await start(api, make_node("n").build())
    api.create(make_pod("a").req().node_selector("zone", "a"))
    api.nodes_known = int(api.pod("a").metadata.resourceVersion)
    await api.clock.advance(RETRY_INTERVAL)
    assert api.pod("a").status.reason == "NodeAffinity"


async def test_second_check_has_a_deadline(api: FakeApi) -> None:
    await start(api, make_node("n").build())
    api.create(make_pod("a").req().node_selector("zone", "a"))
    await api.clock.advance(STALE_NODE_TIMEOUT - 2 * RETRY_INTERVAL)
    assert api.phases("a") == []
    await api.clock.advance(3 * RETRY_INTERVAL)
    assert api.pod("a").status.reason == "NodeAffinity"


async def test_terminating_pod_does_not_wait(api: FakeApi) -> None:
    await start(api, make_node("n").build())
    api.create(make_pod("a").req().node_selector("zone", "a"))
    await api.clock.advance(RETRY_INTERVAL)
    api.delete("a")
    await api.clock.advance(RETRY_INTERVAL)
    assert len(api.fleet) == 0


async def test_deleted_pod_is_forgotten(api: FakeApi) -> None:
    await start(api, make_node("n").build())
    api.create(make_pod("a").req().node_selector("zone", "a"))
    await api.clock.advance(RETRY_INTERVAL)
    api.remove("a")
    await api.clock.advance(STALE_NODE_TIMEOUT)
    assert len(api.fleet) == 0 and api.events == []


async def start(api: FakeApi, node: Node) -> None:
    """Start a kubelet that has received no recent version of its node."""
    await api.start_fleet(node)
    api.nodes_known = 1
