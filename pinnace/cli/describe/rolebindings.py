"""All about a binding of a role: which role, and who has it.

Source: kubectl, pkg/describe, RoleBindingDescriber and ClusterRoleBindingDescriber.
"""

from pinnace.api.rbac_v1_pb2 import ClusterRoleBinding, RoleBinding
from pinnace.cli.describe.common import head
from pinnace.cli.describe.text import Fields, Rows


def describe(binding: RoleBinding | ClusterRoleBinding) -> Fields:
    subjects = [(subject.kind, subject.name, subject.namespace) for subject in binding.subjects]
    return {
        **head(binding.metadata),
        "Role": {"Kind": binding.roleRef.kind, "Name": binding.roleRef.name},
        "Subjects": Rows(("Kind", "Name", "Namespace"), subjects),
    }
