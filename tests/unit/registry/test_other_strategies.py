"""Namespaces, events, priority classes, leases."""

from typing import Any

import pytest

from apiserver.registry.strategies import STRATEGIES
from pinnace.api.codec import from_dict
from pinnace.api.names import _NO_LABEL
from pinnace.api.resources import EVENTS, LEASES, NAMESPACES, PRIORITY_CLASSES, Object, Resource
from tests.unit.registry.objects import Data, created

EVENT: Data = {
    "metadata": {"name": "e", "namespace": "default"},
    "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"},
    "reason": "Scheduled",
}


def changed(resource: Resource[Any], old: Object, new: Object) -> list[str]:
    """What is wrong with an update."""
    strategy = STRATEGIES[resource.plural]
    strategy.prepare_update(new, old)
    return [str(violation) for violation in strategy.validate_update(new, old)]


class TestNamespaces:
    def namespace(self, name: str = "team-a") -> Any:
        return from_dict(NAMESPACES, {"metadata": {"name": name}})

    def test_defaults(self) -> None:
        obj = self.namespace()
        obj.status.phase = "Terminating"
        assert created(NAMESPACES, obj) == []
        assert obj.status.phase == "Active"
        assert list(obj.spec.finalizers) == ["kubernetes"]
        assert dict(obj.metadata.labels) == {"kubernetes.io/metadata.name": "team-a"}

    @pytest.mark.parametrize(("name", "problem"), [("a.b", "must not contain dots"), ("A", _NO_LABEL[0])])
    def test_names_are_labels(self, name: str, problem: str) -> None:
        found = created(NAMESPACES, self.namespace(name))
        assert found[0] == f'metadata.name: Invalid value: "{name}": {problem}'

    def test_finalizers_are_keys(self) -> None:
        obj = self.namespace()
        obj.spec.finalizers.append("a/b/c")
        (violation,) = created(NAMESPACES, obj)
        assert violation.startswith('spec.finalizers[0]: Invalid value: "a/b/c": a valid label key')

    def test_an_update_changes_metadata_only(self) -> None:
        old, new = self.namespace(), self.namespace()
        assert created(NAMESPACES, old) == []
        new.metadata.annotations["a"] = "b"
        new.status.phase = "Terminating"
        assert changed(NAMESPACES, old, new) == []
        assert (new.spec, new.status, new.metadata.labels) == (old.spec, old.status, old.metadata.labels)


class TestEvents:
    def test_defaults(self) -> None:
        obj: Any = from_dict(EVENTS, EVENT)
        assert created(EVENTS, obj) == []
        assert (obj.type, obj.count) == ("Normal", 1)

    def test_a_series_counts_itself(self) -> None:
        obj: Any = from_dict(EVENTS, EVENT | {"series": {"count": 3}, "type": "Warning"})
        assert created(EVENTS, obj) == []
        assert (obj.type, obj.count) == ("Warning", 0)

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({"involvedObject": {"kind": "Node", "name": "n"}}, []),
            (
                {"involvedObject": {"kind": "Pod", "namespace": "other", "name": "a"}},
                ['involvedObject.namespace: Invalid value: "other": does not match event.namespace'],
            ),
            (
                {"involvedObject": {}, "reason": "", "type": "Bad", "count": -1},
                [
                    "involvedObject.kind: Required value",
                    "involvedObject.name: Required value",
                    "reason: Required value",
                    'type: Unsupported value: "Bad": supported values: "Normal", "Warning"',
                    "count: Invalid value: -1: must be greater than or equal to 0",
                ],
            ),
            (
                {"reason": "R" * 129, "message": "m" * 1025},
                [
                    "reason: Too long: may not be more than 128 bytes",
                    "message: Too long: may not be more than 1024 bytes",
                ],
            ),
        ],
    )
    def test_content(self, change: Data, expected: list[str]) -> None:
        assert created(EVENTS, from_dict(EVENTS, EVENT | change)) == expected

    def test_events_of_cluster_scoped_objects_are_in_default(self) -> None:
        data = EVENT | {"metadata": {"name": "e", "namespace": "other"}, "involvedObject": {"kind": "Node", "name": "n"}}
        assert created(EVENTS, from_dict(EVENTS, data)) == [
            'involvedObject.namespace: Invalid value: "": does not match event.namespace'
        ]

    def test_an_event_stays_with_its_object(self) -> None:
        old, new = from_dict(EVENTS, EVENT), from_dict(EVENTS, EVENT | {"count": 2, "message": "again"})
        assert changed(EVENTS, old, new) == []
        new.involvedObject.name = "b"
        assert changed(EVENTS, old, new) == ['involvedObject: Invalid value: "b": field is immutable']


class TestPriorityClasses:
    def priority(self, name: str = "high", **more: Any) -> Any:
        return from_dict(PRIORITY_CLASSES, {"metadata": {"name": name}, **more})

    def test_defaults(self) -> None:
        obj = self.priority(value=5)
        assert created(PRIORITY_CLASSES, obj) == []
        assert obj.preemptionPolicy == "PreemptLowerPriority"

    RESERVED = "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: "

    @pytest.mark.parametrize(
        ("name", "more", "expected"),
        [
            ("high", {"value": 1_000_000_000}, []),
            ("low", {"value": -(2**31), "preemptionPolicy": "Never"}, []),
            (
                "high",
                {"value": 1_000_000_001},
                ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
            ),
            (
                "high",
                {"preemptionPolicy": "Always"},
                ['preemptionPolicy: Unsupported value: "Always": supported values: "PreemptLowerPriority", "Never"'],
            ),
            ("system-node-critical", {"value": 2_000_001_000}, []),
            ("system-mine", {}, [RESERVED + "system-mine is not a known system priority class"]),
            (
                "system-node-critical",
                {"value": 7},
                [RESERVED + "value of system-node-critical PriorityClass must be 2000001000"],
            ),
            (
                "system-cluster-critical",
                {"value": 2_000_000_000, "globalDefault": True},
                [RESERVED + "globalDefault of system-cluster-critical PriorityClass must be false"],
            ),
        ],
    )
    def test_values(self, name: str, more: Data, expected: list[str]) -> None:
        assert created(PRIORITY_CLASSES, self.priority(name, **more)) == expected

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({"value": 5, "description": "new", "globalDefault": True}, []),
            ({"value": 6}, ["value: Forbidden: may not be changed in an update."]),
            (
                {"value": 5, "preemptionPolicy": "Never"},
                ['preemptionPolicy: Invalid value: "Never": field is immutable'],
            ),
        ],
    )
    def test_update(self, change: Data, expected: list[str]) -> None:
        old = self.priority(value=5)
        assert created(PRIORITY_CLASSES, old) == []
        assert changed(PRIORITY_CLASSES, old, self.priority(**change)) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0}, []),
        ({"leaseDurationSeconds": 0}, ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]),
        ({"leaseTransitions": -1}, ["spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"]),
        (
            {"preferredHolder": "b"},
            ["spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"],
        ),
    ],
)
def test_leases(spec: Data, expected: list[str]) -> None:
    def lease() -> Any:
        return from_dict(LEASES, {"metadata": {"name": "l", "namespace": "default"}, "spec": spec})

    assert created(LEASES, lease()) == expected
    assert changed(LEASES, from_dict(LEASES, {"metadata": {"name": "l", "namespace": "default"}}), lease()) == expected
