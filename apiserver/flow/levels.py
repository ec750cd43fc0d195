"""Priority levels. Which one a call is of: apiserver.services.levels.

Each level has seats that are its own, a share of all that there are, and lends those that it does not use. Names and shares are
those of Kubernetes' levels, as far as it has such calls:

    level             calls                                                                                shares
    (exempt)          the masters' streams of requests, heartbeats above all: no seats, no limit
    leader-election   Elections                                                                            10
    node-high         what keeps nodes alive: fleets' heartbeats, leases, nodes, and the status of pods    40
    system            what else fleets do; schedulers and controllers                                      50
    workload          everybody else                                                                       100
    catch-all         anybody's, about no resource: health, reflection, version                            5

Source: https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#suggested-configuration-objects
"""

from collections.abc import Mapping

LEADER_ELECTION, NODE_HIGH, SYSTEM, WORKLOAD = "leader-election", "node-high", "system", "workload"
CATCH_ALL = "catch-all"
SHARES: Mapping[str, int] = {LEADER_ELECTION: 10, NODE_HIGH: 40, SYSTEM: 50, WORKLOAD: 100, CATCH_ALL: 5}
"""The more important first."""
