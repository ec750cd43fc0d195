"""Which priority level a call is of (apiserver.flow.levels)."""

from collections.abc import Callable

from apiserver.auth.attributes import Action
from apiserver.auth.permissions import ELECTIONS_GROUP
from apiserver.auth.user import MASTERS, NODES_GROUP, User
from apiserver.flow.levels import CATCH_ALL, LEADER_ELECTION, NODE_HIGH, SYSTEM, WORKLOAD

_ALIVE = frozenset({"leases", "nodes", "nodes/status", "pods/status"})
_COMPONENTS = ("system:kube-", "system:controller:")
"""How the names of schedulers and controllers begin."""

Classifier = Callable[[User], str | None]
"""The level of somebody's calls of one method; None: they are exempt."""


def level_of(action: Action, *, pulse: bool) -> Classifier:
    """Of the method that needs this permission. `pulse`: requests are streamed, to keep alive whoever sends them."""

    def level(user: User) -> str | None:
        groups = user.groups
        if action.resource.startswith("/"):
            return CATCH_ALL
        if pulse and MASTERS in groups:
            return None
        if action.group == ELECTIONS_GROUP:
            return LEADER_ELECTION
        if NODES_GROUP in groups:
            return NODE_HIGH if action.resource in _ALIVE else SYSTEM
        return SYSTEM if user.name.startswith(_COMPONENTS) else WORKLOAD

    return level
