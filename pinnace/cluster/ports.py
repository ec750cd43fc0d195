"""Free ports on loopback.

A component keeps its port for as long as the cluster lives, also while it is dead and waits to be started again. So ports are
taken from below the range from which the kernel serves outgoing connections: nothing sits on one by accident.
"""

import random
import socket

from pinnace.cluster.errors import ClusterError

LOWEST, HIGHEST = 15_000, 32_000
"""Linux hands out 32768-60999 by default (ip_local_port_range)."""
ATTEMPTS = 1_000


class Ports:
    """`next()` gives a free port, each time another. Free means now: nothing reserves it."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._given: set[int] = set()

    def next(self) -> int:
        for _ in range(ATTEMPTS):
            port = self._rng.randint(LOWEST, HIGHEST)
            if port not in self._given and is_free(f"127.0.0.1:{port}"):
                self._given.add(port)
                return port
        raise ClusterError(f"no free port between {LOWEST} and {HIGHEST} on 127.0.0.1", hint="stop what uses them (ss -ltn)")


def is_free(address: str) -> bool:
    """Whether a server could listen at host:port. Connections of an earlier server that still linger do not count."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True
