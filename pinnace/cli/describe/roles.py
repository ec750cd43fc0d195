"""All about a role: what it permits, a line for each thing.

Source: kubectl, pkg/describe, RoleDescriber and ClusterRoleDescriber.
"""

from collections.abc import Iterable, Iterator

from pinnace.api.rbac_v1_pb2 import ClusterRole, PolicyRule, Role
from pinnace.api.selectors import from_message
from pinnace.cli.describe.common import head
from pinnace.cli.describe.text import Fields, Rows

Thing = tuple[str, str, str]
"""A resource, a path that is none, the name of an object; what a rule does not speak of is ""."""


def describe(role: Role | ClusterRole) -> Fields:
    fields = head(role.metadata)
    if isinstance(role, ClusterRole) and role.HasField("aggregationRule"):
        selectors = role.aggregationRule.clusterRoleSelectors
        fields["Aggregates"] = [str(from_message(selector)) or "<all>" for selector in selectors]
    fields["PolicyRule"] = Rows(("Resources", "Non-Resource URLs", "Resource Names", "Verbs"), _rows(role.rules))
    return fields


def _rows(rules: Iterable[PolicyRule]) -> list[tuple[str, ...]]:
    """In the order of the rules; what several rules say of one thing is put together."""
    verbs: dict[Thing, dict[str, None]] = {}
    for rule in rules:
        for thing in _things(rule):
            verbs.setdefault(thing, {}).update(dict.fromkeys(rule.verbs))
    return [(resource, f"[{path}]", f"[{name}]", f"[{' '.join(said)}]") for (resource, path, name), said in verbs.items()]


def _things(rule: PolicyRule) -> Iterator[Thing]:
    for path in rule.nonResourceURLs:
        yield "", path, ""
    for group in rule.apiGroups:
        for resource in rule.resources:
            for name in rule.resourceNames or ("",):
                yield _in_group(resource, group), "", name


def _in_group(resource: str, group: str) -> str:
    """ "pods", "deployments.apps", "deployments.apps/scale"."""
    plural, slash, subresource = resource.partition("/")
    return f"{plural}{f'.{group}' if group else ''}{slash}{subresource}"
