"""How many peers a gRPC server lets connect, and how long one has to show who it is.

Anybody who reaches a port may connect to it and say nothing. Each connection takes a descriptor and some 20 KB, and gRPC waits
two minutes for its certificate: who opened some hundred a second took all descriptors, and the process could neither reach etcd
nor let anybody else in.
"""

import resource

HANDSHAKE = 5.0
"""Seconds."""
SHARE = 0.75
"""Of the descriptors that the process may have: the others are for what it opens itself."""


def options(most: int, servers: int = 1, share: float = SHARE) -> tuple[tuple[str, int], ...]:
    """For each of so many servers of a process, which together let at most `most` peers connect. Others are hung up on, and
    those that are there stay. `share`: of the descriptors, which they may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY:
        most = min(most, int(limit * share))
    return (
        ("grpc.server_handshake_timeout_ms", int(HANDSHAKE * 1000)),
        ("grpc.max_allowed_incoming_connections", max(1, most // servers)),
    )
