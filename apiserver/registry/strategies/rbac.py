"""Strategies of roles and role bindings. The roleRef of a binding is immutable.

Source: pkg/apis/rbac/validation of Kubernetes 1.36.
"""

from typing import TypeAlias

from pinnace.api import names
from pinnace.api.rbac_v1_pb2 import (
    AggregationRule,
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    Role,
    RoleBinding,
    RoleRef,
    Subject,
)
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategy import Strategy
from pinnace.apiserver.registry.validation.fields import invalid, required, unsupported, validate_selector

MAX_COMBINATIONS = 10_000
"""Maximum number of combinations of verb, resource and group (or URL), and name in the rules of a role. The check against
privilege escalation tests each combination. Kubernetes splits rules in the same way, without a limit."""
RBAC_GROUP = "rbac.authorization.k8s.io"
_SUBJECT_KINDS = ("ServiceAccount", "User", "Group")
AnyRole: TypeAlias = Role | ClusterRole
AnyBinding: TypeAlias = RoleBinding | ClusterRoleBinding


class RoleStrategy(Strategy[AnyRole]):
    """The strategy of Role and ClusterRole."""

    check_name = staticmethod(names.path_segment)

    def check_fields(self, obj: AnyRole, out: list[Violation]) -> None:
        number = sum(map(_count_combinations, obj.rules))
        if number > MAX_COMBINATIONS:
            detail = f'at most {MAX_COMBINATIONS:,} combinations of verb, group, resource and name: use "*", or split the role'
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


def _count_combinations(rule: PolicyRule) -> int:
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


class RoleBindingStrategy(Strategy[AnyBinding]):
    """The strategy of RoleBinding and ClusterRoleBinding. The RBAC API group is the default of apiGroup."""

    check_name = staticmethod(names.path_segment)

    def set_defaults(self, obj: AnyBinding) -> None:
        obj.roleRef.apiGroup = obj.roleRef.apiGroup or RBAC_GROUP
        for subject in obj.subjects:
            if not subject.apiGroup and subject.kind in ("User", "Group"):
                subject.apiGroup = RBAC_GROUP

    def check_fields(self, obj: AnyBinding, out: list[Violation]) -> None:
        namespaced = self.resource.namespaced
        _validate_role_ref(obj.roleRef, ("Role", "ClusterRole") if namespaced else ("ClusterRole",), out)
        for index, subject in enumerate(obj.subjects):
            _validate_subject(subject, f"subjects[{index}]", out, namespaced=namespaced)

    def check_change(self, new: AnyBinding, old: AnyBinding, out: list[Violation]) -> None:
        if new.roleRef != old.roleRef:
            shown = {field: getattr(new.roleRef, field) for field in ("apiGroup", "kind", "name")}
            out.append(invalid("roleRef", shown, "cannot change roleRef"))


def _validate_role_ref(role: RoleRef, kinds: tuple[str, ...], out: list[Violation]) -> None:
    if role.apiGroup != RBAC_GROUP:
        out.append(unsupported("roleRef.apiGroup", role.apiGroup, (RBAC_GROUP,)))
    if role.kind not in kinds:
        out.append(unsupported("roleRef.kind", role.kind, kinds))
    if not role.name:
        out.append(required("roleRef.name"))
    out.extend(invalid("roleRef.name", role.name, problem) for problem in names.path_segment(role.name))


def _validate_subject(subject: Subject, path: str, out: list[Violation], *, namespaced: bool) -> None:
    """Validate a subject. In a RoleBinding, the namespace of a service account defaults to that of the binding."""
    kind, name = subject.kind, subject.name
    if not name:
        out.append(required(f"{path}.name"))
    match kind:
        case "ServiceAccount":
            if name:
                out.extend(invalid(f"{path}.name", name, problem) for problem in names.dns_subdomain(name))
            if subject.apiGroup:
                out.append(unsupported(f"{path}.apiGroup", subject.apiGroup, ("",)))
            if not namespaced and not subject.namespace:
                out.append(required(f"{path}.namespace"))
        case "User" | "Group":
            if subject.apiGroup != RBAC_GROUP:
                out.append(unsupported(f"{path}.apiGroup", subject.apiGroup, (RBAC_GROUP,)))
        case _:
            out.append(unsupported(f"{path}.kind", kind, _SUBJECT_KINDS))
