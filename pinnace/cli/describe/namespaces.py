"""All about a namespace: how it is, and what its quotas and limit ranges allow.

Source: kubectl, pkg/describe, NamespaceDescriber.
"""

from collections.abc import Iterable

from pinnace.api.core_v1_pb2 import LimitRange, Namespace, ResourceQuota
from pinnace.cli.describe import limitranges, resourcequotas
from pinnace.cli.describe.common import head
from pinnace.cli.describe.text import Fields, NotShown, Rows, Value


def describe(
    namespace: Namespace, quotas: Iterable[ResourceQuota] | NotShown, ranges: Iterable[LimitRange] | NotShown
) -> Fields:
    """`quotas`, `ranges`: those that are in it."""
    fields: dict[str, Value] = {**head(namespace.metadata), "Status": namespace.status.phase}
    if namespace.status.conditions:
        conditions = [(c.type, c.status, c.reason, c.message) for c in namespace.status.conditions]
        fields["Conditions"] = Rows(("Type", "Status", "Reason", "Message"), conditions)
    fields["Resource Quotas"] = (
        quotas if isinstance(quotas, NotShown) else {each.metadata.name: resourcequotas.table(each) for each in quotas}
    )
    fields["Limit Ranges"] = (
        ranges if isinstance(ranges, NotShown) else {each.metadata.name: limitranges.table(each) for each in ranges}
    )
    return fields
