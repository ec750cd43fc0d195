"""The table form: one pod and all nodes at once. A node is a row, an index into every column."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pinnace.fit.requests import ANY_IP, HostPort, Requests

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def insufficient(requests: Requests, free: Callable[[str], IntArray]) -> Iterator[tuple[str, BoolArray]]:
    """For each resource that is asked for: its name, and the nodes that have too little of it.

    `free(resource)` is a column: what each node has left; zeros for a resource that no node has.
    """
    for resource, wanted in requests.amounts:
        yield resource, free(resource) < wanted


class UsedPorts:
    """Which nodes have which host ports taken, by node name. Sparse: it holds only what is in use."""

    def __init__(self) -> None:
        self._users: dict[tuple[str, int], dict[str, Counter[str]]] = {}
        """(protocol, port) -> node -> IP -> pods."""

    def add(self, node: str, ports: Sequence[HostPort]) -> None:
        for port in ports:
            self._users.setdefault((port.protocol, port.port), {}).setdefault(node, Counter())[port.ip] += 1

    def remove(self, node: str, ports: Sequence[HostPort]) -> None:
        """Takes back an `add` of equal ports."""
        for port in ports:
            nodes = self._users[port.protocol, port.port]
            nodes[node] -= Counter((port.ip,))
            if not nodes[node]:
                del nodes[node]
                if not nodes:
                    del self._users[port.protocol, port.port]

    def users(self, ports: Sequence[HostPort]) -> int:
        """On how many nodes each of these ports is in use, with any IP; all of them together."""
        return sum(len(self._users.get((port.protocol, port.port), ())) for port in ports)

    def taken(self, ports: Sequence[HostPort]) -> set[str]:
        """The nodes where one of these ports is not free."""
        found = set()
        for port in ports:
            for node, ips in self._users.get((port.protocol, port.port), {}).items():
                if port.ip == ANY_IP or port.ip in ips or ANY_IP in ips:
                    found.add(node)
        return found
