"""Free ports on loopback.

A component keeps its port for as long as the cluster lives, also while it is dead and waits to be started again. So ports are
taken from below the range from which the kernel serves outgoing connections: nothing sits on one by accident. And they are
taken in blocks in which nobody else has any: what is dead now, or not yet listening, is safe from other clusters.
"""

import fcntl
import os
import random
import socket
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

from pinnace.cluster.errors import ClusterError

LOWEST, HIGHEST = 15_000, 32_000
"""Linux hands out 32768-60999 by default (ip_local_port_range)."""
BLOCK = 40
"""Ports that belong together."""
ATTEMPTS = 1_000


class Ports:
    """`next()` gives a free port, each time another. As long as this object lives no other gives one of the same block, in this
    process or another one of the same user."""

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
            block = range(first := self._rng.randrange(LOWEST, HIGHEST, BLOCK), first + BLOCK)
            lock = _lock(first)
            if lock is not None and all(is_free(f"127.0.0.1:{port}") for port in block):
                weakref.finalize(self, os.close, lock)
                return list(block)
            if lock is not None:
                os.close(lock)
        raise ClusterError(
            f"no {BLOCK} free ports in a row between {LOWEST} and {HIGHEST} on 127.0.0.1", hint="stop what uses them (ss -ltn)"
        )


def _lock(first: int) -> int | None:
    """A file descriptor: until it is closed nobody else gets the block that begins there. None: somebody has it."""
    folder = Path(tempfile.gettempdir()) / f"pinnace-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder / str(first), os.O_RDWR | os.O_CREAT, 0o600)
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock
    os.close(lock)
    return None


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
