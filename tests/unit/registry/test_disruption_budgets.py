"""Disruption budgets."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import POD_DISRUPTION_BUDGETS
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.unit.registry.objects import Data, created, labels


def budget(**spec: Any) -> Any:
    return from_dict(POD_DISRUPTION_BUDGETS, {"metadata": {"name": "b", "namespace": "default"}, "spec": spec})


def absent(number: int) -> list[Data]:
    """Requirements of a selector."""
    return [{"key": key, "operator": "DoesNotExist"} for key in labels(number)]


def one_of(number: int) -> Data:
    return {"key": "app", "operator": "In", "values": list(labels(number))}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}, []),
        ({"maxUnavailable": "25%", "unhealthyPodEvictionPolicy": "AlwaysAllow"}, []),
        ({"minAvailable": 1, "selector": {"matchLabels": labels(60), "matchExpressions": absent(40)}}, []),
        (
            {"minAvailable": 1, "selector": {"matchLabels": labels(60), "matchExpressions": absent(41)}},
            ["spec.selector: Too many: 101: must have at most 100 items"],
        ),
        (
            {"minAvailable": 1, "selector": {"matchExpressions": [one_of(500), one_of(501)]}},
            ["spec.selector.matchExpressions.values: Too many: 1001: must have at most 1000 items"],
        ),
        (
            {"minAvailable": 1, "maxUnavailable": "5%"},
            ['spec: Invalid value: "minAvailable: 1, maxUnavailable: 5%": minAvailable and maxUnavailable cannot be both set'],
        ),
        ({"minAvailable": -1}, ["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"]),
        ({"maxUnavailable": "101%"}, ['spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%']),
        (
            {"unhealthyPodEvictionPolicy": "x"},
            ['spec.unhealthyPodEvictionPolicy: Unsupported value: "x": supported values: "AlwaysAllow", "IfHealthyBudget"'],
        ),
    ],
)
def test_spec(spec: Data, expected: list[str]) -> None:
    assert created(POD_DISRUPTION_BUDGETS, budget(**spec)) == expected


def test_malformed_percentage_is_refused() -> None:
    (violation,) = created(POD_DISRUPTION_BUDGETS, budget(minAvailable="many"))
    assert violation.startswith('spec.minAvailable: Invalid value: "many": a valid percent string must be a numeric string')


def test_spec_may_change_and_the_status_is_written_apart() -> None:
    strategy = STRATEGIES[POD_DISRUPTION_BUDGETS.plural]
    old, new = budget(minAvailable=1), budget(maxUnavailable=1)
    new.status.disruptionsAllowed = 5
    strategy.prepare_update(new, old)
    assert strategy.validate_update(new, old) == []
    assert new.status.disruptionsAllowed == 0
    new.status.disruptionsAllowed = -1
    strategy.prepare_status_update(new, old)
    assert new.spec == old.spec
    assert [str(item) for item in strategy.validate_status_update(new, old)] == [
        "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0"
    ]
