"""Quotas and limit ranges."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import LIMIT_RANGES, RESOURCE_QUOTAS
from tests.unit.registry.objects import Data, changed, created, status_changed

UNQUALIFIED = "must be a standard resource type or fully qualified"
EXPRESSIONS = "spec.scopeSelector.matchExpressions"


def quota(**spec: Any) -> Any:
    return from_dict(RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": "default"}, "spec": spec})


def limit_range(*items: Data) -> Any:
    return from_dict(LIMIT_RANGES, {"metadata": {"name": "l", "namespace": "default"}, "spec": {"limits": list(items)}})


def scoped(scope: str, operator: str, *values: str) -> Data:
    return {"matchExpressions": [{"scopeName": scope, "operator": operator, "values": list(values)}]}


class TestQuotas:
    @pytest.mark.parametrize(
        "name",
        [
            "cpu",
            "requests.cpu",
            "limits.memory",
            "requests.ephemeral-storage",
            "requests.storage",
            "pods",
            "services.nodeports",
            "persistentvolumeclaims",
            "hugepages-2Mi",
            "requests.hugepages-2Mi",
            "requests.example.com/gpu",
            "count/jobs.batch",
            "fast.storageclass.storage.k8s.io/requests.storage",
        ],
    )
    def test_quota_accepts_countable_resources(self, name: str) -> None:
        assert created(RESOURCE_QUOTAS, quota(hard={name: "3"})) == []

    @pytest.mark.parametrize(
        ("hard", "expected"),
        [
            ({"storage": "1Gi"}, ['"storage": must be a standard resource for quota']),
            ({"gpu": "1"}, [f'"gpu": {UNQUALIFIED}', '"gpu": must be a standard resource for quota']),
            ({"cpu": "-1"}, ['"-1": must be greater than or equal to 0']),
            ({"pods": "1500m"}, ['"1500m": must be an integer']),
            ({"services.nodeports": "0.5"}, ['"0.5": must be an integer']),
            ({"count/pods": "1500m"}, ['"1500m": must be an integer']),
            ({"cpu": "1500m", "memory": "1Gi"}, []),
        ],
    )
    def test_amounts(self, hard: Data, expected: list[str]) -> None:
        result = [f"spec.hard[{next(iter(hard))}]: Invalid value: {item}" for item in expected]
        assert created(RESOURCE_QUOTAS, quota(hard=hard)) == result

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ({"scopes": ["Terminating", "NotBestEffort"], "hard": {"cpu": "1", "pods": "1"}}, []),
            ({"scopes": ["BestEffort"], "hard": {"pods": "1", "count/jobs.batch": "1"}}, []),
            ({"scopes": ["x"]}, ['spec.scopes: Invalid value: ["x"]: unsupported scope']),
            (
                {"scopes": ["BestEffort"], "hard": {"cpu": "1"}},
                ['spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource'],
            ),
            (
                {"scopes": ["BestEffort", "NotBestEffort"]},
                ['spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes'],
            ),
            ({"scopeSelector": scoped("PriorityClass", "In", "high"), "hard": {"pods": "1"}}, []),
            ({"scopeSelector": scoped("VolumeAttributesClass", "In", "gold"), "hard": {"requests.storage": "1Gi"}}, []),
            ({"scopeSelector": scoped("Terminating", "Exists")}, []),
            (
                {"scopeSelector": scoped("x", "x")},
                [
                    f'{EXPRESSIONS}[0].scopeName: Invalid value: "x": unsupported scope',
                    f'{EXPRESSIONS}[0].operator: Invalid value: "x": not a valid selector operator',
                ],
            ),
            (
                {"scopeSelector": scoped("PriorityClass", "In")},
                [
                    f"{EXPRESSIONS}[0].values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' "
                    "for scope selector"
                ],
            ),
            (
                {"scopeSelector": scoped("PriorityClass", "Exists", "high"), "hard": {"services": "1"}},
                [
                    f'{EXPRESSIONS}[0].scopeName: Invalid value: "PriorityClass": unsupported scope applied to resource',
                    f"{EXPRESSIONS}[0].values: Invalid value: [\"high\"]: must be no value when `operator` is 'Exist' or "
                    "'DoesNotExist' for scope selector",
                ],
            ),
        ],
    )
    def test_scopes(self, spec: Data, expected: list[str]) -> None:
        assert created(RESOURCE_QUOTAS, quota(**spec)) == expected

    def test_most_scopes_only_exist(self) -> None:
        (violation,) = created(RESOURCE_QUOTAS, quota(scopeSelector=scoped("BestEffort", "In", "a")))
        assert violation.startswith(f"{EXPRESSIONS}[0].operator: Invalid value: \"In\": must be 'Exist' when scope is any of ")

    def test_scopes_of_a_selector_conflict_as_well(self) -> None:
        both = [scoped(scope, "Exists")["matchExpressions"][0] for scope in ("Terminating", "NotTerminating")]
        assert created(RESOURCE_QUOTAS, quota(scopeSelector={"matchExpressions": both})) == [
            f'{EXPRESSIONS}: Invalid value: ["Terminating","NotTerminating"]: conflicting scopes'
        ]

    def test_amounts_may_change_and_scopes_not(self) -> None:
        old = quota(hard={"cpu": "1"}, scopes=["Terminating", "NotBestEffort"])
        assert changed(RESOURCE_QUOTAS, quota(hard={"pods": "1"}, scopes=["NotBestEffort", "Terminating"]), old) == []
        assert changed(RESOURCE_QUOTAS, quota(scopes=["Terminating"]), old) == [
            'spec.scopes: Invalid value: ["Terminating"]: field is immutable'
        ]

    def test_status_is_written_apart(self) -> None:
        old, new = quota(hard={"pods": "2"}), quota(hard={"pods": "3"})
        new.status.used["pods"].string = "1"
        assert created(RESOURCE_QUOTAS, new) == []
        assert not new.HasField("status")
        new.status.used["pods"].string = "1"
        assert changed(RESOURCE_QUOTAS, new, old) == []
        assert not new.HasField("status")
        new.status.hard["pods"].string, new.status.used["pods"].string = "2", "1"
        assert status_changed(RESOURCE_QUOTAS, new, old) == []
        assert (new.spec, new.status.used["pods"].string) == (old.spec, "1")
        new.status.hard["gpu"].string, new.status.used["pods"].string = "2", "-1"
        assert status_changed(RESOURCE_QUOTAS, new, old) == [
            f'status.hard[gpu]: Invalid value: "gpu": {UNQUALIFIED}',
            'status.hard[gpu]: Invalid value: "gpu": must be a standard resource for quota',
            'status.used[pods]: Invalid value: "-1": must be greater than or equal to 0',
        ]

    @pytest.mark.parametrize(
        ("spec", "kept"),
        [
            ({"hard": {"pods": "9"}}, True),
            ({"hard": {"pods": "3", "services": "1"}}, False),
            ({"hard": {"pods": "3"}, "scopeSelector": scoped("PriorityClass", "In", "high")}, False),
        ],
    )
    def test_usage_is_kept_while_the_scope_is_unchanged(self, spec: Data, kept: bool) -> None:
        old, new = quota(hard={"pods": "3"}), quota(**spec)
        old.status.used["pods"].string = "2"
        assert changed(RESOURCE_QUOTAS, new, old) == []
        assert ("pods" in new.status.used) is kept


class TestLimitRanges:
    def test_defaults_of_containers(self) -> None:
        obj = limit_range({
            "type": "Container",
            "max": {"cpu": "2", "memory": "2Gi"},
            "min": {"cpu": "100m", "example.com/gpu": "1"},
            "default": {"memory": "1Gi"},
        })  # fmt: skip
        assert created(LIMIT_RANGES, obj) == []
        (item,) = obj.spec.limits
        assert {name: amount.string for name, amount in item.default.items()} == {"cpu": "2", "memory": "1Gi"}
        assert {name: amount.string for name, amount in item.defaultRequest.items()} == {
            "cpu": "2",
            "memory": "1Gi",
            "example.com/gpu": "1",
        }

    def test_only_containers_have_defaults(self) -> None:
        obj = limit_range({"type": "Pod", "max": {"cpu": "2"}}, {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}})
        assert created(LIMIT_RANGES, obj) == []
        assert not any(item.default or item.defaultRequest for item in obj.spec.limits)

    @pytest.mark.parametrize(
        ("item", "expected"),
        [
            ({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}, "min": {"cpu": "1"}, "max": {"cpu": "2"}}, []),
            ({"type": "example.com/Thing", "max": {"storage": "1"}}, []),
            ({"type": "Disk"}, ['type: Invalid value: "Disk": must be a standard limit type or fully qualified']),
            ({}, ['type: Invalid value: "": name part must be non-empty']),
            (
                {"type": "Pod", "max": {"storage": "1"}},
                ['max[storage]: Invalid value: "storage": must be a standard resource for containers'],
            ),
            (
                {"type": "Pod", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}},
                [f"{field}: Forbidden: may not be specified when `type` is 'Pod'" for field in ("default", "defaultRequest")],
            ),
            (
                {"type": "PersistentVolumeClaim"},
                ["limits: Required value: either minimum or maximum storage value is required, but neither was provided"],
            ),
            (
                {"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "2"}},
                ['min[cpu]: Invalid value: "2": min value 2 is greater than max value 1'],
            ),
            (
                {"type": "Container", "min": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "3"}},
                [
                    'defaultRequest[cpu]: Invalid value: "3": default request value 3 is greater than default limit value 1',
                    'default[cpu]: Invalid value: "1": min value 2 is greater than default value 1',
                ],
            ),
            (
                {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}},
                ['defaultRequest[cpu]: Invalid value: "500m": min value 1 is greater than default request value 500m'],
            ),
            (
                {"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "3"}},
                [
                    'defaultRequest[cpu]: Invalid value: "3": default request value 3 is greater than max value 2',
                    'default[cpu]: Invalid value: "3": default value 3 is greater than max value 2',
                ],
            ),
            (
                {"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}},
                ['maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1'],
            ),
            (
                {"type": "Pod", "max": {"cpu": "3"}, "min": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}},
                ['maxLimitRequestRatio[cpu]: Invalid value: "2": ratio 2 is greater than max/min = 1.500000'],
            ),
            ({"type": "Pod", "max": {"cpu": "3"}, "min": {"cpu": "0"}, "maxLimitRequestRatio": {"cpu": "2"}}, []),
            (
                {"type": "Container", "default": {"example.com/gpu": "2"}, "defaultRequest": {"example.com/gpu": "1"}},
                [
                    'defaultRequest[example.com/gpu]: Invalid value: "1": default value 2 must equal to defaultRequest value 1 '
                    "in example.com/gpu"
                ],
            ),
        ],
    )
    def test_items(self, item: Data, expected: list[str]) -> None:
        result = [f"spec.limits[0].{each}" for each in expected]
        assert created(LIMIT_RANGES, limit_range(item)) == result
        assert changed(LIMIT_RANGES, limit_range(item), limit_range()) == result

    def test_amounts_that_are_none(self) -> None:
        """They come in as protobuf: nobody has looked at their syntax yet."""
        obj = limit_range({"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "1"}})
        obj.spec.limits[0].max["cpu"].string = "lots"
        (violation,) = created(LIMIT_RANGES, obj)
        assert violation.startswith('spec.limits[0].max[cpu]: Invalid value: "lots": "lots" is not a quantity')

    def test_limit_range_has_each_type_once(self) -> None:
        assert created(LIMIT_RANGES, limit_range({"type": "Pod"}, {"type": "Pod"})) == [
            'spec.limits[1].type: Duplicate value: "Pod"'
        ]
