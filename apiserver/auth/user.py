"""Who somebody is, as far as the API is concerned. Names and groups are Kubernetes'."""

from dataclasses import dataclass

from pinnace.api.nodenames import NodeNames

MASTERS = "system:masters"
"""Members may do everything, whatever the roles say."""
NODES_GROUP = "system:nodes"
AUTHENTICATED = "system:authenticated"
"""Everybody whom we know."""
NODE_PREFIX = "system:node:"


_NONE = NodeNames()


@dataclass(frozen=True)
class User:
    """`nodes`: the names that the certificate of a fleet gives to it."""

    name: str
    groups: tuple[str, ...] = ()
    nodes: NodeNames = _NONE

    @property
    def fleet(self) -> str | None:
        """The kubelet fleet that this is; None: it is none."""
        return self.name.removeprefix(NODE_PREFIX) if NODES_GROUP in self.groups and self.name.startswith(NODE_PREFIX) else None


SERVER = User("system:apiserver", (MASTERS,))
"""The API server itself, in what it does of its own accord."""
UNSECURED = User("system:unsecured", (MASTERS, AUTHENTICATED))
"""Whoever calls a server that runs with --insecure: nobody is told apart there."""
