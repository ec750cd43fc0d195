"""The node table."""

from math import inf

from pinnace.fit import pod_requests
from pinnace.scheduler.cache.table import NodeTable
from tests.builders import make_node, make_pod

GI = 1 << 30
POD = pod_requests(make_pod("a").req(cpu="500m", memory="1Gi").build())


def test_row_says_what_a_node_has() -> None:
    nodes = NodeTable()
    nodes.add_node(make_node("n").capacity(cpu=4, memory="32Gi", pods=110).extended("example.com/gpu", 2).build(), [POD])
    assert nodes.names == ["n"] and nodes.row("n") == 0 and nodes.row("m") is None
    assert nodes.allocatable("cpu").tolist() == [4000]
    assert nodes.free("cpu").tolist() == [3500]
    assert nodes.free("memory").tolist() == [31 * GI]
    assert nodes.free("pods").tolist() == [109]
    assert nodes.free("example.com/gpu").tolist() == [2]
    assert nodes.free("example.com/tpu").tolist() == [0]


def test_removing_a_node_keeps_the_others_apart() -> None:
    nodes = NodeTable()
    for number in range(3):
        nodes.add_node(make_node(f"n{number}").capacity(cpu=number + 1, pods=10).label("zone", f"z{number}").build(), [])
    nodes.label("zone")
    nodes.remove_node("n0")
    nodes.add_requests("n2", POD)
    assert {name: nodes.free("cpu")[row] for row, name in enumerate(nodes.names)} == {"n1": 2000, "n2": 2500}
    assert {name: nodes.label("zone").at(row) for row, name in enumerate(nodes.names)} == {"n1": "z1", "n2": "z2"}
    assert [nodes.nodes[row].metadata.name for row in range(2)] == nodes.names
    assert all(nodes.row(name) == row for row, name in enumerate(nodes.names))


def test_update_keeps_what_pods_use() -> None:
    nodes = NodeTable()
    nodes.add_node(make_node("n").capacity(cpu=4, pods=10).taint("a").build(), [POD])
    nodes.update_node(make_node("n").capacity(cpu=8, pods=10, memory="2Gi").unschedulable().build())
    assert nodes.free("cpu").tolist() == [7500]
    assert nodes.free("memory").tolist() == [1 * GI]
    assert nodes.unschedulable.tolist() == [True]
    assert nodes.taints.uniform
    nodes.update_node(make_node("n").capacity(pods=10).build())
    assert nodes.free("cpu").tolist() == [-500]
    assert nodes.capacity_for_scoring(0).tolist() == [inf]


def test_resource_that_no_node_has_yet_is_counted() -> None:
    nodes = NodeTable()
    nodes.add_node(make_node("n").build(), [])
    nodes.add_requests("n", pod_requests(make_pod("g").container({"example.com/gpu": 1}).build()))
    nodes.update_node(make_node("n").extended("example.com/gpu", 2).build())
    assert nodes.free("example.com/gpu").tolist() == [1]


def test_released_row_is_free_again() -> None:
    nodes = NodeTable()
    nodes.add_node(make_node("n").build(), [])
    before = {resource: nodes.free(resource).tolist() for resource in ("cpu", "memory", "pods")}
    slack = nodes.free_for_scoring(0).tolist()
    nodes.add_requests("n", POD)
    assert nodes.free("cpu").tolist() != before["cpu"] and nodes.free_for_scoring(0).tolist() != slack
    nodes.remove_requests("n", POD)
    assert {resource: nodes.free(resource).tolist() for resource in before} == before
    assert nodes.free_for_scoring(0).tolist() == slack


def test_scores_count_pods_without_requests() -> None:
    nodes = NodeTable()
    nodes.add_node(make_node("n").capacity(cpu=1, memory="1Gi", pods=10).build(), [pod_requests(make_pod("a").req().build())])
    assert nodes.free("cpu").tolist() == [1000]
    assert nodes.free_for_scoring(0).tolist() == [900.0]


def test_label_columns_follow_the_nodes() -> None:
    nodes = NodeTable()
    nodes.add_node(make_node("a").label("zone", "east").build(), [])
    zone = nodes.label("zone")
    nodes.add_node(make_node("b").build(), [])
    assert zone.equal("east").tolist() == [True, False]
    nodes.update_node(make_node("b").label("zone", "west").build())
    assert zone.equal("west").tolist() == [False, True]
    assert nodes.label("zone") is zone


def test_old_label_columns_are_dropped() -> None:
    nodes = NodeTable()
    node = make_node("a").label("first", "x")
    for number in range(256):
        node.label(f"k{number}", "")
    nodes.add_node(node.build(), [])
    first = nodes.label("first")
    for number in range(255):
        nodes.label(f"k{number}")
    assert nodes.label("first") is first
    for number in range(256):
        nodes.label(f"k{number}")
    assert nodes.label("first") is not first
    assert nodes.label("first").at(0) == "x"


def test_label_that_no_node_has_takes_no_column_away() -> None:
    nodes = NodeTable()
    nodes.add_node(make_node("a").label("first", "x").build(), [])
    first = nodes.label("first")
    for number in range(1000):
        assert nodes.label(f"k{number}").uniform and not nodes.any_node_has_label(f"k{number}")
    assert nodes.label("first") is first


def test_label_is_known_as_long_as_some_node_has_it() -> None:
    nodes = NodeTable()
    nodes.add_node(make_node("a").build(), [])
    assert not nodes.any_node_has_label("zone")
    nodes.update_node(make_node("a").label("zone", "x").build())
    nodes.add_node(make_node("b").label("zone", "y").build(), [])
    assert nodes.label("zone").at(0) == "x" and nodes.label("zone").at(1) == "y"
    nodes.update_node(make_node("a").build())
    assert nodes.any_node_has_label("zone") and nodes.label("zone").at(0) is None
    nodes.remove_node("b")
    assert not nodes.any_node_has_label("zone") and nodes.label("zone").uniform and len(nodes.label("zone").codes) == 1


def test_images_follow_nodes() -> None:
    nodes = NodeTable()
    for name in ("a", "b", "c"):
        nodes.add_node(make_node(name).build() if name == "a" else make_node(name).image(7, "app:1").build(), [])
    assert nodes.image("app:1").tolist() == [0, 7 << 20, 7 << 20] and nodes.largest_image == 7 << 20
    nodes.update_node(make_node("a").image(9, "app:1").image(1, "other:1").build())
    assert nodes.image("app:1").tolist() == [9 << 20, 7 << 20, 7 << 20] and nodes.has_image("other:1")
    nodes.remove_node("a")
    assert dict(zip(nodes.names, nodes.image("app:1").tolist(), strict=True)) == {"b": 7 << 20, "c": 7 << 20}
    assert not nodes.has_image("other:1") and nodes.image("other:1").tolist() == [0, 0]
    nodes.remove_node("b")
    nodes.remove_node("c")
    assert not nodes.largest_image and not nodes.has_image("app:1")
