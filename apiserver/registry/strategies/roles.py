"""Roles: what their rules must say, and what only those of a ClusterRole may.

Source: pkg/apis/rbac/validation of Kubernetes 1.36.
"""

from typing import TypeAlias

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.labels import validate_selector
from apiserver.registry.validation.violations import invalid, required
from pinnace.api import names
from pinnace.api.rbac_v1_pb2 import AggregationRule, ClusterRole, PolicyRule, Role
from pinnace.api.status import Violation

AnyRole: TypeAlias = Role | ClusterRole
MAX_COMBINATIONS = 10_000
"""Of a verb with a resource in a group, or a URL, and a name, in all rules of a role: so many things it is asked to allow when
somebody gives it away. Kubernetes takes rules apart likewise, and has no such bound."""


class RoleStrategy(Strategy[AnyRole]):
    """Of both kinds."""

    check_name = staticmethod(names.path_segment)

    def check(self, obj: AnyRole, out: list[Violation]) -> None:
        number = sum(map(_combinations, obj.rules))
        if number > MAX_COMBINATIONS:
            detail = (
                f'at most {MAX_COMBINATIONS:,} combinations of verb, group, resource and name: say "*", or make several roles'
            )
            out.append(invalid("rules", number, detail))
        for index, rule in enumerate(obj.rules):
            _validate_rule(rule, f"rules[{index}]", out, namespaced=self.resource.namespaced)
        if isinstance(obj, ClusterRole) and obj.HasField("aggregationRule"):
            _validate_aggregation(obj.aggregationRule, out)


def _validate_aggregation(rule: AggregationRule, out: list[Violation]) -> None:
    path = "aggregationRule.clusterRoleSelectors"
    if not rule.clusterRoleSelectors:
        out.append(required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
    for index, selector in enumerate(rule.clusterRoleSelectors):
        validate_selector(selector, f"{path}[{index}]", out)


def _combinations(rule: PolicyRule) -> int:
    things = len(rule.resources) * len(rule.apiGroups) + len(rule.nonResourceURLs)
    return len(rule.verbs) * things * max(1, len(rule.resourceNames))


def _validate_rule(rule: PolicyRule, path: str, out: list[Violation], *, namespaced: bool) -> None:
    if not rule.verbs:
        out.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    if urls := rule.nonResourceURLs:
        if namespaced:
            detail = "namespaced rules cannot apply to non-resource URLs"
            out.append(invalid(f"{path}.nonResourceURLs", urls, detail))
        if rule.apiGroups or rule.resources or rule.resourceNames:
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            out.append(invalid(f"{path}.nonResourceURLs", urls, detail))
        return
    if not rule.apiGroups:
        out.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.resources:
        out.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
