"""All about a binding of a role: which role, and who has it.

Source: kubectl, pkg/describe, RoleBindingDescriber and ClusterRoleBindingDescriber.
"""

from collections.abc import Sequence

from pinnace.api.core_v1_pb2 import Event
from pinnace.api.rbac_v1_pb2 import ClusterRoleBinding, RoleBinding
from pinnace.cli.describe.common import events_table, head
from pinnace.cli.describe.text import Fields, Rows


def describe(binding: RoleBinding | ClusterRoleBinding, events: Sequence[Event], now: float) -> Fields:
    subjects = [(subject.kind, subject.name, subject.namespace) for subject in binding.subjects]
    return {
        **head(binding.metadata),
        "Role": {"Kind": binding.roleRef.kind, "Name": binding.roleRef.name},
        "Subjects": Rows(("Kind", "Name", "Namespace"), subjects),
        "Events": events_table(events, now),
    }
