"""How fast nodes may be emptied, zone by zone: many that are silent at once are rather a network's fault than their own. Pure.

    state of a zone      when                                             nodes emptied a second
    Normal                                                                Rates.eviction
    PartialDisruption    more than 2 are not ready, and a share of        Rates.secondary; none in a zone that is
                         Rates.unhealthy of all                           no larger than Rates.large
    FullDisruption       none is ready                                    Rates.eviction
    all zones so                                                          none, and none stays marked to be emptied

Nodes with the label node.kubernetes.io/exclude-disruption do not count for the state, and have turns as all others.

A turn that is given back, because its node is well again or gone, goes to who has the last one: so one node is told, not all.

After all zones were disrupted, nothing is emptied for RECOVERY seconds: the kubelets come back one after another.

Source: https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction, and ComputeZoneState there. The default
rates are a thousand times Kubernetes' (0.1 and 0.01 a second): there a node is 40 seconds late when it is found out, here
one, and a laptop is no data centre.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.wellknown import REGION_LABEL, ZONE_LABEL

FEW = 2
"""So many nodes that are not ready disrupt no zone."""
RECOVERY = 5.0
EXCLUDED_LABEL = "node.kubernetes.io/exclude-disruption"
"""Whatever its value is."""


class State(StrEnum):
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


@dataclass(frozen=True, slots=True)
class Rates:
    """Nodes a second; the share of nodes that are not ready from which a zone is disrupted; and the size from which a zone is
    large."""

    eviction: float = 100.0
    secondary: float = 10.0
    unhealthy: float = 0.55
    large: int = 50


def zone_of(node: Node) -> str:
    labels = node.metadata.labels
    region, zone = labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, "")
    return f"{region}:{zone}" if region or zone else ""


def counts(node: Node) -> bool:
    """For the state of its zone."""
    return EXCLUDED_LABEL not in node.metadata.labels


def state_of(healthy: int, unhealthy: int, threshold: float) -> State:
    if unhealthy and not healthy:
        return State.FULL
    if unhealthy > FEW and unhealthy / (healthy + unhealthy) >= threshold:
        return State.PARTIAL
    return State.NORMAL


class Zone:
    """Which nodes are well, and when the others may be emptied."""

    def __init__(self) -> None:
        self.nodes: dict[str, bool] = {}  # is it healthy?
        self.excluded: set[str] = set()  # of these
        self.unhealthy = 0  # of the others
        self.rate = 0.0
        self.turns: dict[str, float] = {}  # given out at this rate
        self.last_turn = float("-inf")

    def put(self, node: str, healthy: bool, counts: bool) -> bool:
        """Is that news?"""
        if self.nodes.get(node) is healthy and (node not in self.excluded) is counts:
            return False
        self.drop(node)
        self.nodes[node] = healthy
        if counts:
            self.unhealthy += not healthy
        else:
            self.excluded.add(node)
        return True

    def drop(self, node: str) -> None:
        healthy = self.nodes.pop(node, True)
        if node in self.excluded:
            self.excluded.remove(node)
        else:
            self.unhealthy -= not healthy

    @property
    def size(self) -> int:
        """Nodes that count."""
        return len(self.nodes) - len(self.excluded)

    def state(self, threshold: float) -> State:
        return state_of(self.size - self.unhealthy, self.unhealthy, threshold)

    def give_back(self, node: str, now: float) -> Collection[str]:
        """The node's turn, unless it has come. Whose is another now."""
        turn = self.turns.pop(node, now)
        if turn <= now:
            return ()
        last = max(self.turns, key=self.turns.__getitem__, default=node)
        latest = self.turns.get(last, turn)
        self.last_turn = max(turn, latest) - 1 / self.rate
        if latest <= turn:
            return ()
        self.turns[last] = turn
        return (last,)


class Zones:
    """Times are monotonic seconds."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._zones: dict[str, Zone] = {}
        self._zone_of: dict[str, str] = {}
        self._disrupted = False
        self._changed: set[str] = set()
        self._resumed = float("-inf")

    def note(self, node: str, zone: str, healthy: bool, now: float, *, counts: bool = True) -> None:
        """What is known of a node. `counts`: for the state of its zone."""
        if self._zone_of.get(node, zone) != zone:
            self.forget(node, now)
        found = self._zones.setdefault(zone, Zone())
        if not found.put(node, healthy, counts):
            return
        self._zone_of[node] = zone
        if healthy:
            self._changed.update(found.give_back(node, now))
        self._look(found, now)

    def forget(self, node: str, now: float) -> None:
        zone = self._zone_of.pop(node, None)
        if zone is None:
            return
        found = self._zones[zone]
        found.drop(node)
        self._changed.update(found.give_back(node, now))
        self._changed.discard(node)
        if not found.nodes:
            del self._zones[zone]
        self._look(found, now)

    @property
    def disrupted(self) -> bool:
        """Is no node of any zone ready, of those that count?"""
        return self._disrupted

    def states(self) -> dict[str, State]:
        return {name: zone.state(self._rates.unhealthy) for name, zone in self._zones.items()}

    def turn(self, node: str, now: float) -> float | None:
        """Seconds until this node may be emptied, 0: now. None: not before its zone is better. It keeps its turn, unless it
        gets an earlier one."""
        zone = self._zones[self._zone_of[node]]
        if not zone.rate:
            return None
        if node not in zone.turns:
            zone.turns[node] = zone.last_turn = max(now, self._resumed + RECOVERY, zone.last_turn + 1 / zone.rate)
        return max(0.0, zone.turns[node] - now)

    def take_changed(self) -> set[str]:
        """Nodes that are not well, and whose turns are others since this was last asked: the rate of their zone has changed, or
        a turn was given back."""
        changed, self._changed = self._changed, set()
        return changed

    def _rate(self, zone: Zone) -> float:
        if zone.state(self._rates.unhealthy) is not State.PARTIAL:
            return self._rates.eviction
        return self._rates.secondary if zone.size > self._rates.large else 0.0

    def _look(self, changed: Zone, now: float) -> None:
        states = [zone.unhealthy == zone.size for zone in self._zones.values() if zone.size]
        disrupted = bool(states) and all(states)
        concerned = (changed,) if disrupted is self._disrupted else self._zones.values()
        if self._disrupted and not disrupted:
            self._resumed = now
        self._disrupted = disrupted
        for zone in concerned:
            self._set_rate(zone)

    def _set_rate(self, zone: Zone) -> None:
        """A new rate gives turns anew."""
        rate = 0.0 if self._disrupted else self._rate(zone)
        if rate != zone.rate:
            zone.rate, zone.last_turn = rate, float("-inf")
            zone.turns.clear()
            self._changed.update(name for name, healthy in zone.nodes.items() if not healthy)
