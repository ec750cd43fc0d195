"""Namespaces, events, priority classes, leases."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.names import _NO_LABEL
from pinnace.api.resources import EVENTS, EVENTS_V1, LEASES, NAMESPACES, PRIORITY_CLASSES, Object, Resource
from pinnace.apiserver.registry.strategies import STRATEGIES
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
        result = created(NAMESPACES, self.namespace(name))
        assert result[0] == f'metadata.name: Invalid value: "{name}": {problem}'

    def test_finalizers_are_keys(self) -> None:
        obj = self.namespace()
        obj.spec.finalizers.append("a/b/c")
        (violation,) = created(NAMESPACES, obj)
        assert violation.startswith('spec.finalizers[0]: Invalid value: "a/b/c": a valid label key')

    def test_update_changes_metadata_only(self) -> None:
        old, new = self.namespace(), self.namespace()
        assert created(NAMESPACES, old) == []
        new.metadata.annotations["a"] = "b"
        new.status.phase = "Terminating"
        assert changed(NAMESPACES, old, new) == []
        assert (new.spec, new.status, new.metadata.labels) == (old.spec, old.status, old.metadata.labels)


def event(**fields: Any) -> Any:
    return from_dict(EVENTS, EVENT | fields)


NEW_EVENT: Data = {
    "eventTime": "2026-01-31T12:00:00.000000Z", "reportingComponent": "example.com/c", "reportingInstance": "c-0",
    "action": "Start", "type": "Normal",
}  # fmt: skip
"""The fields of an event in the newer form."""
NOT_MATCHING = "does not match event.namespace"
QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


class TestEvents:
    """Source: pkg/apis/core/validation/events.go of Kubernetes"""

    def created_in_v1(self, obj: Any) -> list[str]:
        strategy = STRATEGIES[EVENTS.plural].in_version(EVENTS_V1.api_version)
        strategy.prepare_create(obj)
        return [str(violation) for violation in strategy.validate(obj)]

    def changed_in_v1(self, new: Any, old: Any) -> list[str]:
        return [str(item) for item in STRATEGIES[EVENTS.plural].in_version(EVENTS_V1.api_version).validate_update(new, old)]

    def test_events_have_no_defaults(self) -> None:
        obj = event()
        assert created(EVENTS, obj) == []
        assert (obj.type, obj.count) == ("", 0)

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({"involvedObject": {"kind": "Node", "name": "n"}}, []),
            ({"involvedObject": {}, "reason": "", "type": "Bad", "count": -1, "message": "m" * 2000}, []),
            ({"metadata": {"name": "A_b", "namespace": "default"}}, []),
            (
                {"involvedObject": {"kind": "Pod", "namespace": "other", "name": "a"}},
                [f'involvedObject.namespace: Invalid value: "other": {NOT_MATCHING}'],
            ),
            (
                {"metadata": {"name": "e", "namespace": "other"}, "involvedObject": {"kind": "Node", "name": "n"}},
                [f'involvedObject.namespace: Invalid value: "": {NOT_MATCHING}'],
            ),
        ],
    )
    def test_events_without_event_time_have_few_rules(self, change: Data, expected: list[str]) -> None:
        assert created(EVENTS, event(**change)) == expected

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({}, []),
            ({"involvedObject": {"kind": "Node", "name": "n"}}, []),
            ({"involvedObject": {"namespace": "other"}}, []),
            (
                {"reportingComponent": "a b"},
                [f'reportingComponent: Invalid value: "a b": {QUALIFIED}'],
            ),
            (
                {"reportingInstance": "", "action": "", "reason": ""},
                ["reportingInstance: Required value", "action: Required value", "reason: Required value"],
            ),
            (
                {"reportingInstance": "ä" * 65, "action": "a" * 129, "reason": "r" * 129, "message": "m" * 1025},
                [
                    'reportingInstance: Invalid value: "": can have at most 128 characters',
                    'action: Invalid value: "": can have at most 128 characters',
                    'reason: Invalid value: "": can have at most 128 characters',
                    'message: Invalid value: "": can have at most 1024 characters',
                ],
            ),
        ],
    )
    def test_events_with_event_time(self, change: Data, expected: list[str]) -> None:
        assert created(EVENTS, event(**NEW_EVENT | change)) == expected
        renamed = [item.replace("reportingComponent", "reportingController") for item in expected]
        assert self.created_in_v1(event(**NEW_EVENT | change)) == renamed

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({"metadata": {"name": "A_b", "namespace": "default"}}, ["metadata.name: "]),
            (
                {"type": "Bad", "count": 1, "source": {"host": "n"}, "firstTimestamp": "2026-01-31T12:00:00Z"},
                [
                    'type: Invalid value: "": has invalid value: Bad',
                    'firstTimestamp: Invalid value: "": needs to be unset',
                    'count: Invalid value: "": needs to be unset',
                    'source: Invalid value: "": needs to be unset',
                ],
            ),
            (
                {"series": {"count": 1}},
                ['series.count: Invalid value: "": should be at least 2', "series.lastObservedTime: Required value"],
            ),
        ],
    )
    def test_new_events_in_the_newer_version(self, change: Data, expected: list[str]) -> None:
        violations = self.created_in_v1(event(**NEW_EVENT | change))
        assert len(violations) == len(expected)
        assert all(violation.startswith(start) for violation, start in zip(violations, expected, strict=True))

    def test_newer_version_requires_an_event_time(self) -> None:
        assert self.created_in_v1(event(type="Normal")) == ["eventTime: Required value"]

    def test_updates_of_the_newer_version_change_only_the_series(self) -> None:
        old = event(**NEW_EVENT)
        series = {"count": 2, "lastObservedTime": "2026-01-31T12:00:01.000000Z"}
        assert self.changed_in_v1(event(**NEW_EVENT, series=series), old) == []
        assert self.changed_in_v1(event(**NEW_EVENT, series={"count": 1}), old) == [
            'series.count: Invalid value: "": should be at least 2',
            "series.lastObservedTime: Required value",
        ]
        other = event(**NEW_EVENT | {"reportingComponent": "d", "eventTime": "2026-01-31T12:00:00.000001Z", "type": "Warning"})
        assert self.changed_in_v1(other, old) == [
            'type: Invalid value: "Warning": field is immutable',
            'reportingController: Invalid value: "d": field is immutable',
            'eventTime: Invalid value: "2026-01-31T12:00:00.000001Z": field is immutable',
        ]
        assert changed(EVENTS, other, old) == []


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
