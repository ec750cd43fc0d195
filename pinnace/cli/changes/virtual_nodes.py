"""New virtual nodes: whose they are, what they are called, what they look like. Pure.

A node is played by the kubelet fleet whose name is the value of its label `pinnace.io/fleet`. Until the fleet holds the node's
lease and has made it Ready, the taint that the API server gives to it keeps pods away.
"""

from collections.abc import Iterable, Iterator
from itertools import count

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.machines import MachineShape
from pinnace.api.wellknown import FLEET_LABEL, REGION_LABEL, ZONE_LABEL
from pinnace.cli.outcomes import ExitCode, Failure


def fleet_of(nodes: Iterable[Node], wanted: str | None) -> str:
    """The fleet that new nodes belong to: the one asked for, else the only one that has nodes. Raises Failure."""
    fleets = sorted({node.metadata.labels[FLEET_LABEL] for node in nodes if FLEET_LABEL in node.metadata.labels})
    if wanted is not None:
        return wanted
    if not fleets:
        raise Failure("no node belongs to a fleet yet", hint="name the kubelet's fleet with --fleet", code=ExitCode.NOT_FOUND)
    if len(fleets) > 1:
        raise Failure(f"there are {len(fleets)} fleets: {', '.join(fleets)}", hint="choose with --fleet", code=ExitCode.USAGE)
    return fleets[0]


def free_names(taken: Iterable[str], prefix: str) -> Iterator[str]:
    """Names after the highest number that is taken: node-10, node-11, ..."""
    numbers = [int(rest) for name in taken if name.startswith(prefix) and (rest := name.removeprefix(prefix)).isdecimal()]
    return (f"{prefix}{number}" for number in count(max(numbers, default=-1) + 1))


def new_node(name: str, fleet: str, shape: MachineShape, *, zoned: bool = False) -> Node:
    """`zoned`: in one of the shape's zones; else the fleet decides where it is."""
    node = Node()
    node.metadata.name = name
    node.metadata.labels.update(shape.labels)
    node.metadata.labels[FLEET_LABEL] = fleet
    if zoned:
        own = shape.default_labels(name, shape.resources)
        node.metadata.labels.update((key, own[key]) for key in (ZONE_LABEL, REGION_LABEL) if key in own)
    node.spec.taints.extend(shape.taints)
    for resource, amount in shape.resources.items():
        node.status.capacity[resource].string = amount
        node.status.allocatable[resource].string = amount
    return node
