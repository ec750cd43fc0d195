"""How fast an autoscaler changes the replicas."""

import pytest

from pinnace.api.autoscaling_v2_pb2 import HPAScalingPolicy, HPAScalingRules
from pinnace.controllers.scalingrules import (
    Bounds,
    Recommendation,
    ScalingHistory,
    limit_by_behavior,
    limit_by_default,
    scale_down_limit,
    scale_up_limit,
)

NOW = 10_000.0
UP = HPAScalingRules(
    selectPolicy="Max",
    stabilizationWindowSeconds=0,
    policies=[
        HPAScalingPolicy(type="Pods", value=4, periodSeconds=15),
        HPAScalingPolicy(type="Percent", value=100, periodSeconds=15),
    ],
)
DOWN = HPAScalingRules(selectPolicy="Max", policies=[HPAScalingPolicy(type="Percent", value=100, periodSeconds=15)])


def rules(*policies: tuple[str, int, int], select: str = "Max", window: int | None = 0) -> HPAScalingRules:
    made = HPAScalingRules(
        selectPolicy=select, policies=[HPAScalingPolicy(type=kind, value=value, periodSeconds=p) for kind, value, p in policies]
    )
    if window is not None:
        made.stabilizationWindowSeconds = window
    return made


@pytest.mark.parametrize(
    ("proposal", "bounds", "replicas", "reason"),
    [
        (3, Bounds(2, 1, 10), 3, "DesiredWithinRange"),
        (30, Bounds(3, 1, 100), 6, "ScaleUpLimit"),
        (30, Bounds(1, 1, 100), 4, "ScaleUpLimit"),
        (30, Bounds(5, 1, 8), 8, "TooManyReplicas"),
        (1, Bounds(2, 2, 8), 2, "TooFewReplicas"),
    ],
)
def test_default_limits_one_step(proposal: int, bounds: Bounds, replicas: int, reason: str) -> None:
    result = limit_by_default(ScalingHistory(), proposal, bounds, 300.0, NOW)
    assert (result.replicas, result.limited[0]) == (replicas, reason)
    assert result.is_limited is (reason != "DesiredWithinRange")


def test_highest_recommendation_of_the_window_holds() -> None:
    history = ScalingHistory()
    assert limit_by_default(history, 4, Bounds(4, 1, 10), 300.0, NOW).able[0] == "ReadyForNewScale"
    held = limit_by_default(history, 2, Bounds(4, 1, 10), 300.0, NOW + 299)
    assert (held.replicas, held.able[0]) == (4, "ScaleDownStabilized")
    assert limit_by_default(history, 2, Bounds(4, 1, 10), 300.0, NOW + 301).replicas == 2
    assert len(history.recommendations) == 2  # old ones are dropped


def test_lowest_recommendation_of_the_window_holds_up() -> None:
    history = ScalingHistory([Recommendation(2, NOW - 20)])
    up = rules(("Pods", 100, 15), window=30)
    held = limit_by_behavior(history, 8, Bounds(2, 1, 10), up, DOWN, 300.0, NOW)
    assert (held.replicas, held.able[0]) == (2, "ScaleUpStabilized")
    assert limit_by_behavior(history, 8, Bounds(2, 1, 10), up, DOWN, 300.0, NOW + 31).replicas == 8


def test_default_window_applies_to_a_behavior_without_one() -> None:
    history = ScalingHistory([Recommendation(5, NOW - 100)])
    assert limit_by_behavior(history, 1, Bounds(5, 1, 10), UP, DOWN, 300.0, NOW).replicas == 5
    history = ScalingHistory([Recommendation(5, NOW - 100)])
    assert limit_by_behavior(history, 1, Bounds(5, 1, 10), UP, rules(("Percent", 100, 15)), 300.0, NOW).replicas == 1


@pytest.mark.parametrize(
    ("select", "limit"),
    [("Max", 20), ("Min", 14), ("Disabled", 10)],
)
def test_policy_up_is_selected(select: str, limit: int) -> None:
    assert scale_up_limit(10, ScalingHistory(), rules(("Pods", 4, 60), ("Percent", 100, 60), select=select), NOW) == limit


@pytest.mark.parametrize(("select", "limit"), [("Max", 5), ("Min", 6), ("Disabled", 10)])
def test_policy_down_is_selected(select: str, limit: int) -> None:
    assert scale_down_limit(10, ScalingHistory(), rules(("Pods", 4, 60), ("Percent", 50, 60), select=select), NOW) == limit


def test_changes_of_the_period_count() -> None:
    history, both = ScalingHistory(), (rules(("Pods", 4, 60)), rules(("Pods", 2, 60)))
    history.record_change(10, 13, both, NOW)
    assert scale_up_limit(13, history, both[0], NOW + 30) == 14  # one of four is left
    assert scale_up_limit(13, history, both[0], NOW + 61) == 17
    result = limit_by_behavior(history, 20, Bounds(14, 1, 50), *both, 0.0, NOW + 30)
    assert (result.replicas, result.limited[0]) == (15, "ScaleUpLimit")
    history.record_change(14, 12, both, NOW + 100)
    assert [event.change for event in history.downs] == [2]
    assert scale_down_limit(12, history, both[1], NOW + 120) == 12


def test_percent_rounds_up_both_numbers_of_pods() -> None:
    """Otherwise 10 % of one pod would never add one."""
    assert scale_up_limit(1, ScalingHistory(), rules(("Percent", 10, 60)), NOW) == 2
    assert scale_down_limit(1, ScalingHistory(), rules(("Percent", 10, 60)), NOW) == 0
