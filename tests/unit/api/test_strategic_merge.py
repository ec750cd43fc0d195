"""Strategic merge patches, with the results and messages of k8s.io/apimachinery/pkg/util/strategicpatch."""

import copy
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.core_v1_pb2 import NodeSpec, Pod, Service
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.strategic_merge import FormatError, ListOfListsError, MergeError, merge

Data = dict[str, Any]


def merged(live: Data, patch: Data, message: Descriptor) -> Data:
    before = copy.deepcopy((live, patch))
    result = merge(live, patch, message)
    assert (live, patch) == before, "the arguments are not modified"
    return result


def spec(live: Data, patch: Data) -> Data:
    """Merge the specs of pods."""
    result: Data = merged({"spec": live}, {"spec": patch}, Pod.DESCRIPTOR)["spec"]
    return result


def container(live: Data, patch: Data) -> Data:
    """Merge a container of a pod."""
    result: Data = spec({"containers": [{"name": "c", **live}]}, {"containers": [{"name": "c", **patch}]})["containers"][0]
    assert result.pop("name") == "c"
    return result


@pytest.mark.parametrize(
    ("live", "patch", "result"),
    [
        pytest.param(
            [{"name": "a", "image": "1", "tty": True}, {"name": "b"}],
            [{"name": "b", "image": "2"}, {"name": "a", "tty": None}, {"name": "c"}],
            [{"name": "b", "image": "2"}, {"name": "a", "image": "1"}, {"name": "c"}],
            id="items have the order of the patch",
        ),
        pytest.param(
            [{"name": "a"}, {"name": "b"}, {"name": "c"}],
            [{"name": "c", "image": "1"}, {"name": "a", "image": "2"}],
            [{"name": "b"}, {"name": "c", "image": "1"}, {"name": "a", "image": "2"}],
            id="other items keep their position",
        ),
        pytest.param(
            [{"name": "a"}, {"name": "b"}],
            [{"name": "c"}, {"name": "b", "image": "2"}],
            [{"name": "c"}, {"name": "a"}, {"name": "b", "image": "2"}],
            id="new items come first",
        ),
        pytest.param(
            [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y"}]}],
            [{"name": "a", "env": [{"name": "X", "$patch": "delete"}, {"name": "Z"}]}],
            [{"name": "a", "env": [{"name": "Z"}, {"name": "Y"}]}],
            id="nested lists",
        ),
        pytest.param([{"name": "a"}], [{"name": "b"}, {"$patch": "replace"}], [{"name": "b"}], id="replaced by a directive"),
        pytest.param([{"name": "a"}], [{"$patch": "replace"}], [], id="emptied by a directive"),
        pytest.param([{"name": "a"}], [], [{"name": "a"}], id="empty patch"),
        pytest.param([{"name": "a"}], 7, 7, id="another type is left to validation"),
    ],
)
def test_lists_with_a_merge_key(live: Any, patch: Any, result: Any) -> None:
    assert spec({"containers": live, "nodeName": "n"}, {"containers": patch}) == {"containers": result, "nodeName": "n"}


UDP, TCP = {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}
ZONE: Data = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}


def test_ports_are_merged_by_number_alone() -> None:
    """The first port with the number is meant (kubernetes#39188)."""
    assert container({"ports": [UDP, TCP]}, {"ports": [TCP | {"name": "dns"}]}) == {"ports": [TCP | {"name": "dns"}, TCP]}
    assert container({"ports": [UDP]}, {"ports": [TCP]}) == {"ports": [TCP]}
    assert container({"ports": [UDP, TCP]}, {"ports": [UDP | {"$patch": "delete"}]}) == {"ports": []}
    assert container({"env": [{"name": "A", "value": "1"}] * 2}, {"env": [{"name": "A", "value": "3"}]}) == {
        "env": [{"name": "A", "value": "3"}, {"name": "A", "value": "1"}]
    }
    live = {"spec": {"ports": [{"name": "udp", "port": 53, "protocol": "UDP"}, {"name": "tcp", "port": 53, "protocol": "TCP"}]}}
    patch = {"spec": {"ports": [{"port": 53, "protocol": "TCP", "nodePort": 30053}]}}
    assert merged(live, patch, Service.DESCRIPTOR)["spec"]["ports"] == [
        {"name": "udp", "port": 53, "protocol": "TCP", "nodePort": 30053},
        {"name": "tcp", "port": 53, "protocol": "TCP"},
    ]


def test_spread_constraints_are_merged_by_topology_key_alone() -> None:
    soft = ZONE | {"whenUnsatisfiable": "ScheduleAnyway"}
    assert spec({"topologySpreadConstraints": [ZONE]}, {"topologySpreadConstraints": [soft | {"maxSkew": 5}]}) == {
        "topologySpreadConstraints": [soft | {"maxSkew": 5}]
    }


def test_merge_keys_of_other_types_are_not_equal() -> None:
    assert container({"ports": [TCP]}, {"ports": [{"containerPort": 53.0}]}) == {"ports": [{"containerPort": 53.0}, TCP]}


@pytest.mark.parametrize(
    ("field", "live", "patch", "result"),
    [
        ("tolerations", [{"key": "a"}], [{"key": "b"}], [{"key": "b"}]),
        ("nodeSelector", {"a": "1"}, {"b": "2"}, {"a": "1", "b": "2"}),
        ("hostAliases", [{"ip": "1"}], [{"ip": "2"}], [{"ip": "2"}, {"ip": "1"}]),
        ("schedulingGates", [{"name": "a"}], [{"name": "a", "$patch": "delete"}], []),
        ("imagePullSecrets", [{"name": "a"}], [{"name": "b"}], [{"name": "b"}, {"name": "a"}]),
        ("ephemeralContainers", [{"name": "a", "env": [{"name": "A"}]}], [{"name": "a", "env": [{"name": "B"}]}],
         [{"name": "a", "env": [{"name": "B"}, {"name": "A"}]}]),
    ],
)  # fmt: skip
def test_fields_of_a_pod(field: str, live: Any, patch: Any, result: Any) -> None:
    assert spec({field: live}, {field: patch}) == {field: result}


@pytest.mark.parametrize(
    ("message", "live", "patch", "result"),
    [
        (NodeSpec, {"taints": [{"key": "a"}]}, {"taints": [{"key": "b"}]}, {"taints": [{"key": "b"}]}),
        (NodeSpec, {"podCIDRs": ["a"]}, {"podCIDRs": ["b"]}, {"podCIDRs": ["b", "a"]}),
        (
            Pod,
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other"}]}},
            {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other"}]}},
        ),
        (
            PodDisruptionBudget,
            {"spec": {"selector": {"matchLabels": {"a": "1"}}}},
            {"spec": {"selector": {"matchLabels": {"b": "1"}}}},
            {"spec": {"selector": {"matchLabels": {"b": "1"}}}},
        ),
        (
            Deployment,
            {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}},
            {"spec": {"strategy": {"type": "Recreate"}}},
            {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}},
        ),
        (ObjectMeta, {"ownerReferences": [{"uid": "1"}]}, {"ownerReferences": [{"uid": "2"}]},
         {"ownerReferences": [{"uid": "2"}, {"uid": "1"}]}),
        (ObjectMeta, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "c", "c"]}, {"finalizers": ["b", "a", "c"]}),
        (ObjectMeta, {"finalizers": ["a", "b", "c"]}, {"finalizers": ["c", "a"]}, {"finalizers": ["b", "c", "a"]}),
        (ObjectMeta, {"managedFields": [{"manager": "a"}]}, {"managedFields": [{}]}, {"managedFields": [{}]}),
    ],
)  # fmt: skip
def test_fields_of_other_messages(message: Any, live: Data, patch: Data, result: Data) -> None:
    assert merged(live, patch, message.DESCRIPTOR) == result


@pytest.mark.parametrize(
    ("live", "patch", "result"),
    [
        ({"labels": {"b": "1", "c": "1"}}, {"labels": {"$patch": "replace", "c": "2"}}, {"labels": {"c": "2"}}),
        ({"labels": {"b": "1"}, "name": "a"}, {"labels": {"$patch": "delete"}}, {"labels": {}, "name": "a"}),
        ({"labels": {"b": "1"}}, {"annotations": {"$patch": "replace", "c": "2"}}, {"labels": {"b": "1"}}),
        ({"labels": {"b": "1", "c": "1"}}, {"labels": {"$retainKeys": ["b", "d"], "d": "2"}}, {"labels": {"b": "1", "d": "2"}}),
        ({"labels": {"b": "1"}}, {"labels": {"$retainKeys": [], "c": None}}, {"labels": {}}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a", "x"]}, {"finalizers": ["b"]}),
        ({}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
         {"finalizers": ["c", "b"]}),
        ({}, {"ownerReferences": [{"uid": "1"}, {"uid": "2", "$patch": "delete"}]}, {"ownerReferences": [{"uid": "1"}]}),
        ({}, {"labels": {"a": None, "b": "1"}}, {"labels": {"b": "1"}}),
        ({"finalizers": ["a", "b"]}, {"$setElementOrder/finalizers": ["b", "a"]}, {"finalizers": ["b", "a"]}),
        ({}, {"$setElementOrder/finalizers": ["b"]}, {}),
        ({}, {"$setElementOrder/finalizers": ["b", "a"], "finalizers": ["b", "a"]}, {"finalizers": ["b", "a"]}),
    ],
)  # fmt: skip
def test_directives(live: Data, patch: Data, result: Data) -> None:
    assert merged(live, patch, ObjectMeta.DESCRIPTOR) == result


def test_set_element_order_sorts_items() -> None:
    """`kubectl set image` and `kubectl apply` send this directive."""
    live = {"containers": [{"name": "a", "image": "a:1"}, {"name": "b"}, {"name": "other"}]}
    order = [{"name": "new"}, {"name": "b"}, {"name": "a"}]
    patch = {"$setElementOrder/containers": order, "containers": [{"name": "new"}, {"name": "a", "image": "a:2"}]}
    assert spec(live, patch)["containers"] == [{"name": "new"}, {"name": "b"}, {"name": "a", "image": "a:2"}, {"name": "other"}]
    deletes = {"$setElementOrder/containers": order[1:], "containers": [{"name": "other", "$patch": "delete"}]}
    assert spec(live, deletes)["containers"] == [{"name": "b"}, {"name": "a", "image": "a:1"}]


def test_merge_of_a_volume_keeps_only_retained_fields() -> None:
    live = {"volumes": [{"name": "a", "emptyDir": {"medium": "Memory"}}]}
    patch = {"volumes": [{"name": "a", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}
    assert spec(live, patch) == {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}


CONTAINERS = [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize(
    ("patch", "error", "message"),
    [
        ({"$patch": "fly"}, MergeError, "unknown patch type: fly in map: map[$patch:fly]"),
        ({"$patch": "merge", "nodeName": "n"}, MergeError, "unknown patch type: merge in map: map[$patch:merge nodeName:n]"),
        ({"$patch": 1}, MergeError, "unknown patch type: %!s(int64=1) in map: map[$patch:1]"),
        ({"$retainKeys": "name"}, FormatError, "invalid patch format of retainKeys"),
        ({"$retainKeys": ["containers"], "nodeName": "n"}, FormatError, "invalid patch format of retainKeys"),
        ({"$deleteFromPrimitiveList": ["a"]}, FormatError, "invalid patch format of primitive list"),
        ({"$setElementOrder": []}, FormatError, "invalid patch format of setElementOrder list"),
        ({"$setElementOrder/containers": "a"}, MergeError, "expected a []interface {}, but received a string"),
        ({"$setElementOrder/containers": [], "containers": None}, MergeError,
         "expected a []interface {}, but received a %!s(<nil>)"),
        ({"$setElementOrder/colours": []}, MergeError,
         'unable to find api field in struct PodSpec for the json field "colours"'),
        ({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}, MergeError,
         "The order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n"),
        ({"$setElementOrder/containers": CONTAINERS, "containers": CONTAINERS[::-1]}, MergeError,
         "The order in patch list:\n[map[name:b] map[name:a]]\n "
         "doesn't match $setElementOrder list:\n[map[name:a] map[name:b]]\n"),
        ({"containers": [{"image": "i"}]}, MergeError, "map: map[image:i] does not contain declared merge key: name"),
        ({"containers": [{"$patch": "delete"}]}, MergeError,
         "map: map[$patch:delete] does not contain declared merge key: name"),
        ({"containers": [{"name": "a", "$patch": "merge"}]}, MergeError, "merging lists cannot yet be specified in the patch"),
        ({"containers": [{"name": "a", "$patch": "fly"}]}, MergeError,
         "unknown patch type: fly in map: map[$patch:fly name:a]"),
        ({"containers": ["a"]}, MergeError, "list element types are not identical: [[map[name:a] map[name:b]] [a]]"),
        ({"containers": [["a"]]}, ListOfListsError, "lists of lists are not supported"),
        ({"$deleteFromPrimitiveList/tolerations": [{"key": "a"}]}, MergeError,
         "cannot merge lists without merge key for struct"),
    ],
)  # fmt: skip
def test_invalid_patch_gets_the_message_of_kubernetes(patch: Data, error: type[ValueError], message: str) -> None:
    live = {"spec": {"containers": CONTAINERS, "tolerations": [{"key": "a"}]}}
    with pytest.raises(error) as caught:
        merge(live, {"spec": patch}, Pod.DESCRIPTOR)
    assert str(caught.value) == message


class Counted(str):
    """Counts its comparisons."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("field", ["finalizers", "ownerReferences", "$deleteFromPrimitiveList/finalizers"])
def test_list_items_are_not_compared_pairwise(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pairwise lookups, a patch of 60 KB would need a hundred million of them."""
    monkeypatch.setattr(Counted, "compared", 0)
    objects = field == "ownerReferences"

    def items(prefix: str) -> list[Any]:
        return [{"uid": Counted(f"{prefix}{i}")} if objects else Counted(f"{prefix}{i}") for i in range(500)]

    merge({"finalizers": items("a"), "ownerReferences": items("a")}, {field: items("b") + items("a")}, ObjectMeta.DESCRIPTOR)
    assert Counted.compared <= 10_000
