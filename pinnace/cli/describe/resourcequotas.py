"""All about a quota: what is used of what there is.

Source: kubectl, pkg/describe, ResourceQuotaDescriber.
"""

from pinnace.api.core_v1_pb2 import ResourceQuota, ScopedResourceSelectorRequirement
from pinnace.cli.describe.common import head
from pinnace.cli.describe.text import Fields, Rows
from pinnace.printers.cluster import usage


def describe(quota: ResourceQuota) -> Fields:
    fields = head(quota.metadata)
    if quota.spec.scopes:
        fields["Scopes"] = ", ".join(sorted(quota.spec.scopes))
    if requirements := quota.spec.scopeSelector.matchExpressions:
        fields["Scope Selector"] = [_requirement(requirement) for requirement in requirements]
    fields["Resources"] = table(quota)
    return fields


def table(quota: ResourceQuota) -> Rows:
    return Rows(("Resource", "Used", "Hard"), usage(quota))


def _requirement(requirement: ScopedResourceSelectorRequirement) -> str:
    """ "PriorityClass In high, low", "BestEffort Exists"."""
    return f"{requirement.scopeName} {requirement.operator} {', '.join(requirement.values)}".rstrip()
