"""Free ports on loopback.

A component keeps its port for as long as the cluster lives, also while it is dead and waits to be started again. So ports are
taken from below the range from which the kernel serves outgoing connections: nothing sits on one by accident. And they are
taken in blocks in which nobody else has any: what is dead now, or not yet listening, is safe from other clusters.
"""

import random
import socket
import weakref

from pinnace.cluster.errors import ClusterError

LOWEST, HIGHEST = 15_000, 32_000
"""Linux hands out 32768-60999 by default (ip_local_port_range)."""
BLOCK = 40
"""Ports that belong together."""
ATTEMPTS = 1_000


class Ports:
    """`next()` gives a free port, each time another. As long as this object lives no other gives one of the same block, in any
    process: it sits on the block's first port itself."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._left: list[int] = []

    def next(self) -> int:
        while True:
            if not self._left:
                self._left = self._claim()
            port = self._left.pop()
            if is_free(f"127.0.0.1:{port}"):
                return port

    def _claim(self) -> list[int]:
        """The ports of a block. Raises ClusterError."""
        for _ in range(ATTEMPTS):
            first, *others = range(start := self._rng.randrange(LOWEST, HIGHEST, BLOCK), start + BLOCK)
            seat = _sit_on(first)
            if seat is not None:
                if all(is_free(f"127.0.0.1:{port}") for port in others):
                    weakref.finalize(self, seat.close)
                    return others
                seat.close()
        raise ClusterError(
            f"no {BLOCK} free ports in a row between {LOWEST} and {HIGHEST} on 127.0.0.1", hint="stop what uses them (ss -ltn)"
        )


def _sit_on(port: int) -> socket.socket | None:
    """Until it is closed the port is nobody else's. None: it is somebody's."""
    seat = socket.socket()
    try:
        seat.bind(("127.0.0.1", port))
    except OSError:
        seat.close()
        return None
    return seat


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
