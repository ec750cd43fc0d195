"""Whether pods are where their workload lets them be. Pure: it judges by what the witness has seen.

overcommitted    nodes whose pods ask for more CPU than there is
misplaced        pods whose constraint is broken
wrongly bound    pods that were bound though they fit nowhere, or are held by a gate
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from pinnace.bench.workload import NODE_CPU

Check = Callable[[Sequence[str], Mapping[str, str]], int]
"""(the node of each pod that has the constraint, the zone of each node) -> how many pods are where they must not be."""


def anywhere(nodes: Sequence[str], zones: Mapping[str, str]) -> int:
    return 0


def at_most(number: int) -> Check:
    """Each beyond so many on its node."""
    return lambda nodes, zones: sum(max(0, pods - number) for pods in Counter(nodes).values())


def same_zone(nodes: Sequence[str], zones: Mapping[str, str]) -> int:
    """Each that is not in the zone where most are."""
    return len(nodes) - max(Counter(zones.get(node) for node in nodes).values(), default=0)


def within_zones(*allowed: str) -> Check:
    return lambda nodes, zones: sum(zones.get(node) not in allowed for node in nodes)


def even_zones(max_skew: int) -> Check:
    """Each that the fullest zone has beyond what the emptiest allows."""

    def check(nodes: Sequence[str], zones: Mapping[str, str]) -> int:
        pods = Counter(zones.get(node, "") for node in nodes)
        counts = [pods[zone] for zone in set(zones.values()) | set(pods)]
        return max(0, max(counts) - min(counts) - max_skew)

    return check


def overcommitted(placed: Iterable[tuple[str, int]]) -> int:
    """How many nodes have pods that ask for more CPU than they have. Of each pod: its node, and millicores."""
    taken = Counter[str]()
    for node, cpu in placed:
        taken[node] += cpu
    return sum(cpu > NODE_CPU for cpu in taken.values())
