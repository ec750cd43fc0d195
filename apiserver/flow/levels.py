"""Priority levels, and which one a call is of.

Each level has seats that are its own, a share of all that there are, and lends those that it does not use. Names and shares are
those of Kubernetes' levels, as far as it has such calls:

    level             calls                                                                                shares
    (exempt)          the masters' streams of requests, heartbeats above all: no seats, no limit
    leader-election   Elections                                                                            10
    node-high         what keeps nodes alive: fleets' heartbeats, leases, nodes, and the status of pods    40
    system            what else fleets do; schedulers and controllers                                      50
    workload          everybody else                                                                       100

Health is no method of ours, and is never refused.

Source: https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#suggested-configuration-objects
"""

from collections.abc import Callable, Mapping

from apiserver.auth.attributes import Action
from apiserver.auth.permissions import ELECTIONS_GROUP
from apiserver.auth.user import MASTERS, NODES_GROUP, User

LEADER_ELECTION, NODE_HIGH, SYSTEM, WORKLOAD = "leader-election", "node-high", "system", "workload"
SHARES: Mapping[str, int] = {LEADER_ELECTION: 10, NODE_HIGH: 40, SYSTEM: 50, WORKLOAD: 100}
"""The more important first."""
_ALIVE = frozenset({"leases", "nodes", "nodes/status", "pods/status"})
_COMPONENTS = ("system:kube-", "system:controller:")
"""How the names of schedulers and controllers begin."""

Classifier = Callable[[User], str | None]
"""The level of somebody's calls of one method; None: they are exempt."""


def level_of(action: Action, *, pulse: bool) -> Classifier:
    """Of the method that needs this permission. `pulse`: requests are streamed, to keep alive whoever sends them."""

    def level(user: User) -> str | None:
        groups = user.groups
        if pulse and MASTERS in groups:
            return None
        if action.group == ELECTIONS_GROUP:
            return LEADER_ELECTION
        if NODES_GROUP in groups:
            return NODE_HIGH if action.resource in _ALIVE else SYSTEM
        return SYSTEM if user.name.startswith(_COMPONENTS) else WORKLOAD

    return level
