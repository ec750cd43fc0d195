"""Names, labels, annotations, owners, finalizers: the same rules for every kind."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.names import _NO_KEY, _NO_LABEL, _NO_SUBDOMAIN, _NO_VALUE, label_key
from pinnace.api.resources import ALL, PODS, REPLICA_SETS, Resource
from tests.unit.registry.objects import CONTAINER, Data, copy, created, pod, ready, updated

OWNER: Data = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
NAMES = "metadata.name: Required value: name or generateName is required"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"name": "a.b-c.0"}, []),
        ({"name": "a" * 253}, []),
        ({"name": ""}, [NAMES]),
        ({"name": "A"}, [f'metadata.name: Invalid value: "A": {_NO_SUBDOMAIN[0]}']),
        ({"name": "a" * 254}, [f'metadata.name: Invalid value: "{"a" * 128}...": must be no more than 253 characters']),
        ({"generateName": "web-"}, []),
        ({"generateName": "-web"}, [f'metadata.generateName: Invalid value: "-web": {_NO_SUBDOMAIN[0]}']),
        ({"namespace": ""}, ["metadata.namespace: Required value"]),
        ({"namespace": "a.b"}, ['metadata.namespace: Invalid value: "a.b": must not contain dots']),
        ({"namespace": "A"}, [f'metadata.namespace: Invalid value: "A": {_NO_LABEL[0]}']),
        ({"labels": {"app": "web", "example.com/x": "", "a.b_c-d": "A.b_c-d"}}, []),
        ({"labels": {"": "x"}}, ['metadata.labels: Invalid value: "": name part must be non-empty']),
        ({"labels": {"a b": "x"}}, [f'metadata.labels: Invalid value: "a b": name part {_NO_KEY}']),
        ({"labels": {"a": "x y"}}, [f'metadata.labels: Invalid value: "x y": {_NO_VALUE[0]}']),
        ({"labels": {"a": "x" * 64}}, [f'metadata.labels: Invalid value: "{"x" * 64}": must be no more than 63 bytes']),
        ({"annotations": {"Example.com/A": "anything at all\n{}"}}, []),
        ({"annotations": {"a b": ""}}, [f'metadata.annotations: Invalid value: "a b": name part {_NO_KEY}']),
        ({"annotations": {"a": "x" * (256 << 10)}}, ["metadata.annotations: Too long: may not be more than 262144 bytes"]),
        ({"annotations": {"a": "ä" * (128 << 10)}}, ["metadata.annotations: Too long: may not be more than 262144 bytes"]),
        ({"annotations": {"a": "x" * (256 << 10 - 1)}}, []),
        ({"finalizers": ["example.com/f", "kubernetes"]}, []),
        ({"finalizers": ["a b/"]}, [f'metadata.finalizers: Invalid value: "a b/": {problem}' for problem in label_key("a b/")]),
        ({"finalizers": ["orphan", "example.com/f"]}, []),
        (
            {"finalizers": ["orphan", "foregroundDeletion"]},
            [
                'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: '
                "finalizer orphan and foregroundDeletion cannot be both set"
            ],
        ),
        (
            {"finalizers": ["mine"]},
            ['metadata.finalizers: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified'],
        ),
        ({"ownerReferences": [OWNER, OWNER | {"controller": True}]}, []),
        (
            {"ownerReferences": [{}]},
            [f"metadata.ownerReferences[0].{field}: Required value: must not be empty" for field in OWNER],
        ),
        *(
            (
                {"ownerReferences": [OWNER | {"apiVersion": version}]},
                [
                    f'metadata.ownerReferences[0].apiVersion: Invalid value: "{version}": '
                    "must be <group>/<version> or <version>"
                ],
            )
            for version in ("apps/v1/ReplicaSet", "apps/")
        ),
        (
            {"ownerReferences": [OWNER | {"controller": True}, OWNER | {"name": "s", "controller": True}]},
            [
                'metadata.ownerReferences: Invalid value: "ReplicaSet/s": Only one reference can have Controller set to true. '
                'Found "true" in references for ReplicaSet/r and ReplicaSet/s'
            ],
        ),
        (
            {"ownerReferences": [OWNER | {"apiVersion": "v1", "kind": "Event"}]},
            ['metadata.ownerReferences[0]: Invalid value: "r": /v1, Kind=Event is disallowed from being an owner'],
        ),
    ],
)  # fmt: skip
def test_metadata(metadata: Data, expected: list[str]) -> None:
    assert created(PODS, pod(metadata=metadata)) == expected


COST = "controller.kubernetes.io/pod-deletion-cost"


@pytest.mark.parametrize("text", ["0", "-10", "2147483647", "-2147483648", "text", "", "008", "+10", "1.5", "2147483648"])
def test_pod_deletion_cost_is_a_number(text: str) -> None:
    """Of 32 bits: what is no number would be no cost, and a pod that is dear would go first."""
    wrong = [f'metadata.annotations[{COST}]: Invalid value: "{text}": must be a 32bit integer']
    sound = text in ("0", "-10", "2147483647", "-2147483648")
    obj = pod(metadata={"annotations": {COST: text}})
    assert created(PODS, obj) == ([] if sound else wrong)
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {COST: text}}, "spec": {"containers": [CONTAINER]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    result = created(REPLICA_SETS, from_dict(REPLICA_SETS, {"metadata": {"name": "a", "namespace": "default"}, "spec": spec}))
    assert result == ([] if sound else [f"spec.template.{item.removeprefix('metadata.')}" for item in wrong])
    old = ready(pod())
    new = copy(old)
    new.metadata.annotations[COST] = text
    assert updated(new, old) == ([] if sound else wrong)


def test_all_violations_are_reported_at_once() -> None:
    result = created(PODS, pod(metadata={"name": "A", "labels": {"a b": "c d"}, "finalizers": ["/"]}))
    assert [violation.partition(":")[0] for violation in result] == [
        "metadata.name",
        "metadata.labels",
        "metadata.labels",
        "metadata.finalizers",
        "metadata.finalizers",
    ]


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
def test_every_kind_has_a_name_and_its_scope(resource: Resource[Any]) -> None:
    obj = resource.message()
    result = created(resource, obj)
    assert NAMES in result
    assert ("metadata.namespace: Required value" in result) == resource.namespaced
    obj.metadata.name, obj.metadata.namespace = "a", "default"
    result = created(resource, obj)
    assert ("metadata.namespace: Forbidden: not allowed on this type" in result) == (not resource.namespaced)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda m: m.labels.update({"new": "label"}), []),
        (lambda m: setattr(m, "name", "b"), ['metadata.name: Invalid value: "b": field is immutable']),
        (lambda m: setattr(m, "namespace", "b"), ['metadata.namespace: Invalid value: "b": field is immutable']),
        (lambda m: setattr(m, "uid", "b"), ['metadata.uid: Invalid value: "b": field is immutable']),
        (
            lambda m: setattr(m.creationTimestamp, "seconds", 7),
            ["metadata.creationTimestamp: Invalid value: 7: field is immutable"],
        ),
        (
            lambda m: setattr(m.deletionTimestamp, "seconds", 7),
            ["metadata.deletionTimestamp: Invalid value: 7: field is immutable"],
        ),
        (lambda m: m.finalizers.append("example.com/f"), []),
        (lambda m: m.labels.update({"a": "b c"}), [f'metadata.labels: Invalid value: "b c": {_NO_VALUE[0]}']),
    ],
)
def test_update(change: Any, expected: list[str]) -> None:
    old = ready(pod())
    new = copy(old)
    change(new.metadata)
    assert updated(new, old) == expected


def test_terminating_object_gets_no_new_finalizers() -> None:
    old = ready(pod(metadata={"finalizers": ["example.com/a", "example.com/b"]}))
    old.metadata.deletionTimestamp.seconds = 1
    new = copy(old)
    new.metadata.finalizers.remove("example.com/a")
    assert updated(new, old) == []
    new.metadata.finalizers.append("example.com/c")
    assert updated(new, old) == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        "found new finalizers example.com/c"
    ]


def test_number_of_owners_is_bounded() -> None:
    """The garbage collector asked the API about 9,000 owners of one object, again with each look."""

    def owned(number: int) -> Data:
        return {"name": "a", "ownerReferences": [OWNER | {"uid": f"u{index}"} for index in range(number)]}

    assert created(PODS, pod(metadata=owned(100))) == []
    assert created(PODS, pod(metadata=owned(101))) == ["metadata.ownerReferences: Too many: must have at most 100 items"]
