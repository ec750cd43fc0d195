"""The names and conditions of definitions."""

from typing import Any

from pinnace.apiextensions.naming import compute_status, get_condition, is_established, set_condition, terminating_condition
from tests.unit.apiextensions.definitions import make_definition

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def make_named(plural: str, kind: str, *short_names: str, group: str = "example.com") -> dict[str, Any]:
    names = {"plural": plural, "kind": kind, "shortNames": list(short_names), "categories": ["all"]}
    crd = make_definition(group=group, names=names)
    crd["metadata"]["name"] = f"{plural}.{group}"
    return crd


def accept(crd: dict[str, Any], *others: dict[str, Any], now: str = NOW) -> dict[str, Any]:
    """Set the status of a definition, and return it."""
    crd["status"] = compute_status(crd, others, now) or crd["status"]
    return crd


def condition_of(crd: dict[str, Any], kind: str) -> tuple[Any, ...]:
    condition = get_condition(crd, kind) or {}
    return tuple(condition.get(name) for name in ("status", "reason", "message"))


def test_first_definition_is_established() -> None:
    crd = accept(make_named("widgets", "Widget", "w"))
    assert is_established(crd)
    assert crd["status"]["acceptedNames"] == crd["spec"]["names"]
    assert compute_status(crd, [], LATER) is None


def test_conflicting_names_are_not_accepted_until_they_are_free() -> None:
    first = accept(make_named("widgets", "Widget", "w"))
    second = accept(make_named("gadgets", "Widget", "g", "w"), first)
    assert condition_of(second, "NamesAccepted") == ("False", "ListKindConflict", '"WidgetList" is already in use')
    assert condition_of(second, "Established") == ("False", "NotAccepted", "not all names are accepted")
    accepted = {"plural": "gadgets", "categories": ["all"]}
    assert second["status"]["acceptedNames"] == accepted
    accept(second, now=LATER)
    assert is_established(second)
    assert (get_condition(second, "Established") or {})["lastTransitionTime"] == LATER


def test_names_of_other_groups_do_not_conflict() -> None:
    first = accept(make_named("widgets", "Widget", "w"))
    assert is_established(accept(make_named("widgets", "Widget", "w", group="other.org"), first))


def test_established_definition_stays_established_when_new_names_conflict() -> None:
    first = accept(make_named("widgets", "Widget", "w"))
    second = accept(make_named("gadgets", "Gadget"), first)
    second["spec"]["names"]["shortNames"] = ["w", "widgets"]
    accept(second, first, now=LATER)
    expected = ("False", "ShortNamesConflict", '["w" is already in use, "widgets" is already in use]')
    assert condition_of(second, "NamesAccepted") == expected
    assert is_established(second)
    assert "shortNames" not in second["status"]["acceptedNames"]


def test_approval_has_condition_for_groups_of_community() -> None:
    crd = make_named("widgets", "Widget", group="x.k8s.io")
    crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, experimental"}
    expected = ("False", "UnapprovedAnnotation", 'not approved: "unapproved, experimental"')
    assert condition_of(accept(crd), "KubernetesAPIApprovalPolicyConformant") == expected


def test_condition_keeps_time_while_status_stays() -> None:
    status: dict[str, Any] = {}
    set_condition(status, terminating_condition("InstanceDeletionPending", "soon", NOW))
    set_condition(status, terminating_condition("InstanceDeletionInProgress", "now", LATER))
    [condition] = status["conditions"]
    assert (condition["reason"], condition["lastTransitionTime"]) == ("InstanceDeletionInProgress", NOW)
    set_condition(status, terminating_condition("InstanceDeletionCompleted", "done", LATER, status="False"))
    assert status["conditions"][0]["lastTransitionTime"] == LATER
