"""Bindings of roles in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printRoleBinding and printClusterRoleBinding.
"""

from pinnace.api.rbac_v1_pb2 import ClusterRoleBinding, RoleBinding
from pinnace.printers.ages import since
from pinnace.printers.columns import Columns


def row(binding: RoleBinding | ClusterRoleBinding, now: float) -> tuple[str, ...]:
    role = binding.roleRef
    return (
        binding.metadata.name,
        f"{role.kind}/{role.name}",
        since(binding.metadata.creationTimestamp, now),
        *(", ".join(subjects(binding, kind)) for kind in ("User", "Group", "ServiceAccount")),
    )


COLUMNS = Columns(headers=("NAME", "ROLE", "AGE"), wide=("USERS", "GROUPS", "SERVICEACCOUNTS"), row=row)


def subjects(binding: RoleBinding | ClusterRoleBinding, kind: str) -> list[str]:
    """Names of the subjects of one kind; "namespace/name" of those that have a namespace."""
    return ["/".join(filter(None, (each.namespace, each.name))) for each in binding.subjects if each.kind == kind]
