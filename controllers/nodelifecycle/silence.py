"""Since when no kubelet holds a node's lease. Pure; times are monotonic seconds.

A Lease object exists only while a fleet's session beats (apiserver/services/fleet.py): that it is gone is the sign, not how old
its stamps are. The API server notices by itself that a fleet's stream has broken, or that it beats no more. Standbys keep count
as well, so that a new leader knows how long each node has been silent.
"""

from collections.abc import Mapping

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.resources import NODE_LEASE_NAMESPACE


def lease_key(node: str) -> str:
    """In the informer's store."""
    return f"{NODE_LEASE_NAMESPACE}/{node}"


class Silences:
    """`leases`: those that there are, by lease_key."""

    def __init__(self, leases: Mapping[str, Lease]) -> None:
        self._leases = leases
        self._since: dict[str, float] = {}

    def look(self, node: str, now: float) -> None:
        """The node, or its lease, has come or gone."""
        if lease_key(node) in self._leases:
            self._since.pop(node, None)
        else:
            self._since.setdefault(node, now)

    def forget(self, node: str) -> None:
        self._since.pop(node, None)

    def lasts(self, node: str, now: float) -> float | None:
        """Seconds for which nobody has held its lease; None: somebody does."""
        since = self._since.get(node)
        return None if since is None else now - since
