"""The table form of the fit rules, for one pod and all nodes. A node is a row: an index into every column."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pinnace.fit.requests import ANY_IP, HostPort, Requests

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def insufficient_nodes(requests: Requests, free: Callable[[str], IntArray]) -> Iterator[tuple[str, BoolArray]]:
    """Yield each requested resource with a mask of the nodes that have too little of it.

    `free(resource)` returns the column of free amounts. It contains zeros for a resource that no node has.
    """
    for resource, wanted in requests.amounts:
        yield resource, free(resource) < wanted


class UsedPorts:
    """The used host ports of each node, as a sparse map."""

    def __init__(self) -> None:
        self._users: dict[tuple[str, int], dict[str, Counter[str]]] = {}
        """(protocol, port) -> node -> IP -> pods."""

    def add(self, node: str, ports: Sequence[HostPort]) -> None:
        for port in ports:
            self._users.setdefault((port.protocol, port.port), {}).setdefault(node, Counter())[port.ip] += 1

    def remove(self, node: str, ports: Sequence[HostPort]) -> None:
        """Undo an `add` of equal ports."""
        for port in ports:
            nodes = self._users[port.protocol, port.port]
            nodes[node] -= Counter((port.ip,))
            if not nodes[node]:
                del nodes[node]
                if not nodes:
                    del self._users[port.protocol, port.port]

    def count_nodes_using(self, ports: Sequence[HostPort]) -> int:
        """Return the number of nodes that use each port, on any IP, summed over the ports."""
        return sum(len(self._users.get((port.protocol, port.port), ())) for port in ports)

    def taken(self, ports: Sequence[HostPort]) -> set[str]:
        """Return the nodes on which at least one of the ports is in use."""
        result = set()
        for port in ports:
            for node, ips in self._users.get((port.protocol, port.port), {}).items():
                if port.ip == ANY_IP or port.ip in ips or ANY_IP in ips:
                    result.add(node)
        return result
