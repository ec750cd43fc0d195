"""Nodes: taints, amounts, addresses, and what an update may change."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.names import _NO_KEY, _NO_VALUE
from pinnace.api.resources import NODES
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.unit.registry.objects import Data, created

STRATEGY = STRATEGIES["nodes"]
EFFECTS = 'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
NO_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def node(spec: Data | None = None, status: Data | None = None) -> Node:
    return from_dict(NODES, {"metadata": {"name": "n"}, "spec": spec or {}, "status": status or {}})


def copy(obj: Node) -> Node:
    result = Node()
    result.CopyFrom(obj)
    return result


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoExecute"}]}, []),
        ({"taints": [{"key": "a"}]}, ["spec.taints[0].effect: Required value"]),
        ({"taints": [{"key": "a", "effect": "x"}]}, [f'spec.taints[0].effect: Unsupported value: "x": {EFFECTS}']),
        (
            {"taints": [{"key": "a b", "value": "c d", "effect": "NoExecute"}]},
            [
                f'spec.taints[0].key: Invalid value: "a b": name part {_NO_KEY}',
                f'spec.taints[0].value: Invalid value: "c d": {_NO_VALUE[0]}',
            ],
        ),
        (
            {"taints": [{"key": "a", "effect": "NoExecute"}, {"key": "a", "value": "b", "effect": "NoExecute"}]},
            ['spec.taints[1]: Duplicate value: "a:NoExecute": taints must be unique by key and effect pair'],
        ),
        ({"podCIDRs": ["10.0.0.0/24", "fd00::/64"]}, []),
        (
            {"podCIDRs": ["x", "10.0.0.0/24", "10.0.0.0/24"]},
            [
                f'spec.podCIDRs[0]: Invalid value: "x": {NO_CIDR}',
                'spec.podCIDRs[2]: Duplicate value: "10.0.0.0/24"',
            ],
        ),
        ({"podCIDR": "junk"}, [f'spec.podCIDRs[0]: Invalid value: "junk": {NO_CIDR}']),
        (
            {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.9.0.0/24"]},
            ['spec.podCIDR: Invalid value: "10.0.0.0/24": must be the same as spec.podCIDRs[0]'],
        ),
        *(
            ({"podCIDRs": [name]}, [f'spec.podCIDRs[0]: Invalid value: "{name}": {NO_CIDR}'])
            for name in ("10.9.0.0/255.255.0.0", "10.9.0.1", "fe80::%eth0/64", "10.9.0.0/33")
        ),
        (
            {"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]},
            [
                'spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one CIDR for each IP '
                "family"
            ],
        ),
    ],
)
def test_spec(spec: Data, expected: list[str]) -> None:
    assert created(NODES, node(spec)) == expected
    old = node()
    new = node(spec)
    STRATEGY.prepare_update(new, old)
    assert [str(violation) for violation in STRATEGY.validate_update(new, old)] == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"capacity": {"cpu": "4", "memory": "32Gi", "pods": "110", "example.com/gpu": "2"}}, []),
        (
            {"capacity": {"cpu": "-1"}, "allocatable": {"pods": "1.5"}},
            [
                'status.capacity[cpu]: Invalid value: "-1": must be greater than or equal to 0',
                'status.allocatable[pods]: Invalid value: "1.5": must be an integer',
            ],
        ),
        (
            {"addresses": [{"type": "InternalIP", "address": "a"}, {"type": "InternalIP", "address": "a"}]},
            ['status.addresses[1]: Duplicate value: "InternalIP: a"'],
        ),
    ],
)
def test_status(status: Data, expected: list[str]) -> None:
    assert created(NODES, node(status=status)) == expected
    old, new = node(), node(status=status)
    STRATEGY.prepare_status_update(new, old)
    assert [str(violation) for violation in STRATEGY.validate_status_update(new, old)] == expected


def test_all_there_is_may_be_used_unless_the_node_says_otherwise() -> None:
    obj = node(status={"capacity": {"cpu": "4"}})
    STRATEGY.prepare_create(obj)
    assert obj.status.allocatable == obj.status.capacity
    obj = node(status={"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}})
    STRATEGY.prepare_create(obj)
    assert obj.status.allocatable["cpu"].string == "3"


@pytest.mark.parametrize(
    ("field", "old", "new", "allowed"),
    [
        ("providerID", "", "a", True),
        ("providerID", "a", "b", False),
        ("podCIDR", "", "10.0.0.0/24", True),
        ("podCIDR", "10.0.0.0/24", "", False),
        ("podCIDRs", [], ["10.0.0.0/24"], True),
        ("podCIDRs", ["10.0.0.0/24"], [], False),
        ("unschedulable", False, True, True),
        ("unschedulable", True, False, True),
    ],
)
def test_update(field: str, old: Any, new: Any, allowed: bool) -> None:
    before, after = node({field: old}), node({field: new})
    STRATEGY.prepare_update(after, before)
    expected = [] if allowed else [f'spec.{field}: Forbidden: node updates may not change {field} except from "" to valid']
    assert [str(violation) for violation in STRATEGY.validate_update(after, before)] == expected


@pytest.mark.parametrize("said", [{"podCIDR": "10.0.0.0/24"}, {"podCIDRs": ["10.0.0.0/24"]}])
def test_network_of_its_pods_need_be_said_once(said: Data) -> None:
    made, updated = node(said), node(said)
    assert created(NODES, made) == []
    STRATEGY.prepare_update(updated, made)
    assert STRATEGY.validate_update(updated, made) == []
    for item in (made, updated):
        assert (item.spec.podCIDR, list(item.spec.podCIDRs)) == ("10.0.0.0/24", ["10.0.0.0/24"])


def test_node_that_has_no_sound_network_can_still_be_changed_otherwise() -> None:
    """It may have been stored before anybody looked, and its network can never be changed."""
    old = node({"podCIDR": "junk"})
    new = node({"podCIDR": "junk", "unschedulable": True})
    STRATEGY.prepare_update(new, old)
    assert STRATEGY.validate_update(new, old) == []


def test_each_half_is_updated_alone() -> None:
    old = node({"unschedulable": True}, {"capacity": {"cpu": "4"}})
    wanted = node({"unschedulable": False}, {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}})
    new = copy(wanted)
    STRATEGY.prepare_update(new, old)
    assert (new.spec, new.status) == (wanted.spec, old.status)
    new = copy(wanted)
    new.metadata.labels["a"] = "b"
    STRATEGY.prepare_status_update(new, old)
    assert (new.metadata, new.spec, new.status) == (old.metadata, old.spec, wanted.status)


def test_node_that_is_created_with_less_allocatable_than_capacity_keeps_the_difference() -> None:
    """Its kubelet reconciles allocatable with capacity."""
    status = {
        "capacity": {"cpu": "64", "memory": "256Gi", "pods": "110"},
        "allocatable": {"cpu": "63500m", "memory": "255Gi", "pods": "200"},
    }
    obj = node(status=status)
    assert created(NODES, obj) == []
    assert obj.metadata.annotations["pinnace.io/reserved"] == "cpu=500m,memory=1Gi"


def test_own_annotation_of_reserved_resources_is_kept() -> None:
    obj = node(status={"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}})
    obj.metadata.annotations["pinnace.io/reserved"] = "cpu=2"
    assert created(NODES, obj) == []
    assert obj.metadata.annotations["pinnace.io/reserved"] == "cpu=2"


def test_node_that_reserves_nothing_says_nothing() -> None:
    obj = node(status={"capacity": {"cpu": "4"}})
    assert created(NODES, obj) == []
    assert not obj.metadata.annotations


def tainted(number: int, *more: str) -> Node:
    """With so many taints of its own, and those of controllers."""
    keys = [*(f"k{index}" for index in range(number)), *more]
    return node({"taints": [{"key": key, "effect": "NoSchedule"} for key in keys]})


def test_number_of_taints_is_bounded() -> None:
    """A node with 9,990 taints held up the scheduling of all pods; any kubelet can register one."""
    assert not created(NODES, tainted(100))
    assert created(NODES, tainted(101)) == ["spec.taints: Too many: 101: must have at most 100 items"]


def test_node_that_is_full_of_taints_can_be_taken_out_of_service() -> None:
    marked = tainted(100, "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    assert not STRATEGY.validate_update(marked, tainted(100))
    assert not created(NODES, marked)


def test_node_keeps_the_taints_that_it_has() -> None:
    assert not STRATEGY.validate_update(tainted(150), tainted(150))
    assert not STRATEGY.validate_update(tainted(140), tainted(150))
    assert STRATEGY.validate_update(tainted(151), tainted(150))


def equipped(number: int) -> Node:
    amounts = {f"example.com/r{index}": "1" for index in range(number)}
    return node(status={"capacity": amounts, "allocatable": amounts})


def test_number_of_resources_is_bounded() -> None:
    """A kubelet registered a node with 4,900 kinds of devices, and the scheduler was busy for 11 s."""
    assert not created(NODES, equipped(100))
    assert created(NODES, equipped(101)) == [
        f"status.{field}: Too many: 101: must have at most 100 items" for field in ("capacity", "allocatable")
    ]
    assert not STRATEGY.validate_status_update(equipped(150), equipped(150))
    assert len(STRATEGY.validate_status_update(equipped(151), equipped(150))) == 2
