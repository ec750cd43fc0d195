"""Which writes a rule concerns."""

from typing import Any

import pytest

from pinnace.api.admissionregistration_v1_pb2 import Rule, RuleWithOperations
from pinnace.apiserver.webhooks.matching import Target, find_rules, match_rules

CREATE_PODS = Target("CREATE", ("v1",), "pods", "", True)


def rule(**more: Any) -> RuleWithOperations:
    """Return a rule about creates of pods, with other fields."""
    fields = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"} | more
    operations = fields.pop("operations", ["CREATE"])
    return RuleWithOperations(operations=operations, rule=Rule(**fields))


@pytest.mark.parametrize(
    ("fields", "target", "matches"),
    [
        ({}, CREATE_PODS, True),
        ({"operations": ["UPDATE"]}, CREATE_PODS, False),
        ({"operations": ["*"]}, CREATE_PODS._replace(operation="CONNECT"), True),
        ({"apiGroups": ["apps"]}, CREATE_PODS, False),
        ({"apiGroups": ["*"], "apiVersions": ["*"]}, CREATE_PODS._replace(api_versions=("apps/v1",)), True),
        ({"apiVersions": ["v2"]}, CREATE_PODS, False),
        ({"resources": ["pods"]}, CREATE_PODS._replace(subresource="status"), False),
        ({"resources": ["pods/status"]}, CREATE_PODS._replace(subresource="status"), True),
        ({"resources": ["pods/*"]}, CREATE_PODS, True),
        ({"resources": ["pods/*"]}, CREATE_PODS._replace(subresource="status"), True),
        ({"resources": ["*"]}, CREATE_PODS, True),
        ({"resources": ["*"]}, CREATE_PODS._replace(subresource="status"), False),
        ({"resources": ["*/scale"]}, CREATE_PODS._replace(subresource="scale"), True),
        ({"resources": ["*/*"]}, CREATE_PODS._replace(subresource="status"), True),
        ({"scope": "Namespaced"}, CREATE_PODS, True),
        ({"scope": "Cluster"}, CREATE_PODS, False),
        ({"scope": "Cluster"}, CREATE_PODS._replace(namespaced=False), True),
    ],
)
def test_rule_matches_target(fields: dict[str, Any], target: Target, matches: bool) -> None:
    assert match_rules([rule(**fields)], "Exact", target) == (target.api_versions[0] if matches else "")


def test_rule_for_other_version_matches_unless_exact() -> None:
    target = Target("CREATE", ("events.k8s.io/v1", "v1"), "events", "", True)
    rules = [rule(resources=["events"])]
    assert match_rules(rules, "Equivalent", target) == "v1"
    assert match_rules(rules, "Exact", target) == ""


def test_version_of_request_takes_precedence() -> None:
    target = Target("CREATE", ("events.k8s.io/v1", "v1"), "events", "", True)
    rules = [rule(resources=["events"]), rule(apiGroups=["events.k8s.io"], resources=["events"])]
    assert match_rules(rules, "Equivalent", target) == "events.k8s.io/v1"


def test_names_restrict_rule() -> None:
    (match,) = find_rules([(rule(), {"a"})], "Exact", CREATE_PODS)
    assert match.applies_to("a") and not match.applies_to("b")
