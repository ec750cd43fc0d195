"""The nodes of a fleet: what each is like, and what has befallen it. No I/O.

played --freeze--> frozen: nothing is written or heard of its pods --set--> played
       --power_off--> off: it has no pods --set--> booted: what ran is brought, and runs no more --settle--> played
"""

from collections.abc import Collection, Mapping, Sequence

from kubelet.eviction import Kind
from kubelet.virtualnode import VirtualNode
from pinnace.api.core_v1_pb2 import Node, Pod


class VirtualNodes:
    def __init__(self, *, local: bool = False) -> None:
        """`local`: see VirtualNode."""
        self._local = local
        self._nodes: dict[str, VirtualNode] = {}
        self._off: set[str] = set()
        self._booted: set[str] = set()
        self._pressures: dict[str, Sequence[Kind]] = {}
        self.frozen: set[str] = set()
        self.consuming: set[str] = set()
        """Nodes that have, or had, pods that declare what they use."""

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def of(self, pod: Pod) -> VirtualNode | None:
        return self._nodes.get(pod.spec.nodeName)

    def is_played(self, name: str) -> bool:
        """Can anything be said of the node?"""
        return name in self._nodes and name not in self.frozen

    def tenants(self, name: str) -> Collection[str]:
        """The uids of the pods that use something of the node."""
        found = self._nodes.get(name)
        return found.tenants if found is not None else ()

    def allocatable(self, name: str) -> Mapping[str, int]:
        """What the node's pods may use, by resource name."""
        found = self._nodes.get(name)
        return found.allocatable if found is not None else {}

    def set(self, node: Node) -> bool:
        """Takes a node up, or learns what has changed of it. Has it thawed by that?"""
        name = node.metadata.name
        if (known := self._nodes.get(name)) is not None:
            known.update(node)
        else:
            self._nodes[name] = VirtualNode(node, local=self._local)
        if name in self._off:
            self._off.discard(name)
            self._booted.add(name)
        thawed = name in self.frozen
        self.frozen.discard(name)
        return thawed

    def drop(self, names: Collection[str]) -> None:
        for known in (self.frozen, self.consuming, self._off, self._booted):
            known.difference_update(names)
        for name in names:
            self._nodes.pop(name, None)
            self._pressures.pop(name, None)

    def power_off(self, names: Collection[str]) -> None:
        self.drop(names)
        self._off.update(names)

    def freeze(self, names: Collection[str]) -> None:
        """These lose their network, if they have power. When they have thawed their pods must be brought again."""
        self.frozen.update(name for name in names if name in self._nodes)

    def silences(self, pod: Pod) -> bool:
        """Can nothing be said of the pod, because its node is frozen?"""
        return pod.spec.nodeName in self.frozen

    def has_booted(self, pod: Pod) -> bool:
        """Since the pod ran, if an earlier kubelet says that it did?"""
        return pod.spec.nodeName in self._booted

    def settle(self, names: Collection[str]) -> None:
        """All pods of these nodes have been brought."""
        self._booted.difference_update(names)

    def press(self, name: str, pressures: Sequence[Kind]) -> None:
        """What the node is short of from now on; it does not admit everybody then."""
        self._pressures[name] = pressures

    def pressures(self, pod: Pod) -> Sequence[Kind]:
        """Of the pod's node."""
        return self._pressures.get(pod.spec.nodeName, ())
