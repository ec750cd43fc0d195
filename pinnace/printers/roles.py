"""Roles and cluster roles in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printRole and printClusterRole.
"""

from pinnace.api.rbac_v1_pb2 import ClusterRole, Role
from pinnace.printers.ages import created_at
from pinnace.printers.columns import Columns


def row(role: Role | ClusterRole, now: float) -> tuple[str, ...]:
    return role.metadata.name, created_at(role.metadata.creationTimestamp)


COLUMNS = Columns(headers=("NAME", "CREATED AT"), wide=(), row=row)
