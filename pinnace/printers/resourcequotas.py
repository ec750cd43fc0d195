"""Quotas in a table: what is used of what there is, requests and limits apart.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printResourceQuota.
"""

from pinnace.api.core_v1_pb2 import ResourceQuota
from pinnace.printers.ages import since
from pinnace.printers.columns import Columns


def row(quota: ResourceQuota, now: float) -> tuple[str, ...]:
    shown = {name: f"{name}: {used}/{hard}" for name, used, hard in usage(quota)}
    return (
        quota.metadata.name,
        ", ".join(text for name, text in shown.items() if not name.startswith("limits.")),
        ", ".join(text for name, text in shown.items() if name.startswith("limits.")),
        since(quota.metadata.creationTimestamp, now),
    )


COLUMNS = Columns(headers=("NAME", "REQUEST", "LIMIT", "AGE"), wide=(), row=row)


def usage(quota: ResourceQuota) -> list[tuple[str, str, str]]:
    """Each resource that has been counted, by name: what is used, and the bound."""
    hard, used = quota.status.hard, quota.status.used
    return [(name, used[name].string if name in used else "0", hard[name].string) for name in sorted(hard)]
