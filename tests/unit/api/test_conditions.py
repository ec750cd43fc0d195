"""Conditions: they are found by type, and the transition time follows the status."""

from pinnace.api.conditions import find_condition, is_condition_true, set_condition
from pinnace.api.core_v1_pb2 import PodCondition, PodStatus
from pinnace.api.meta_v1_pb2 import Time


def test_missing_condition_is_added() -> None:
    status = PodStatus(conditions=[PodCondition(type="Other", status="True")])
    said = set_condition(status.conditions, "Ready", "False", "Why", "text", 7.5)
    expected = PodCondition(type="Ready", status="False", reason="Why", message="text", lastTransitionTime=Time(seconds=7))
    assert said == expected == find_condition(status.conditions, "Ready")
    assert [condition.type for condition in status.conditions] == ["Other", "Ready"]


def test_transition_time_changes_only_with_the_status() -> None:
    status = PodStatus()
    for value, reason, now, since in (("True", "A", 10, 10), ("True", "B", 20, 10), ("False", "B", 30, 30)):
        said = set_condition(status.conditions, "Ready", value, reason, reason.lower(), now)
        assert (said.status, said.reason, said.message) == (value, reason, reason.lower())
        assert said.lastTransitionTime.seconds == since
    assert len(status.conditions) == 1


def test_absent_condition_is_not_true() -> None:
    status = PodStatus(conditions=[PodCondition(type="A", status="True"), PodCondition(type="B", status="Unknown")])
    assert [is_condition_true(status.conditions, type_) for type_ in "ABC"] == [True, False, False]
    assert find_condition(status.conditions, "C") is None
