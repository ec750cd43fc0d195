"""What a run must not take from the outside: time, chance and sockets."""

import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pinnace.client import connection, diagnosis
from tests.simulation.channel import SimPeer
from tests.simulation.loop import SimLoop
from tests.simulation.network import Network
from tests.simulation.process import PROCESS


@contextmanager
def sealed(loop: SimLoop, network: Network, seed: int) -> Iterator[None]:
    """While it lasts, `time` is the loop's, Connections go over the simulated network, and whatever draws chance from the
    process draws it from the seed.
    """

    def wall() -> float:
        return (PROCESS.get() or loop.world).clock.time()

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(int=random.getrandbits(128), version=4)

    def peer(endpoint: str, *more: object) -> SimPeer:
        return SimPeer(endpoint, network)

    async def unexplained(endpoint: str, secure: object) -> None:
        """Why a server cannot be reached is not looked into."""

    kept = (time.monotonic, time.time, time.perf_counter, uuid.uuid4, random.getstate())
    random.seed(seed)
    time.monotonic, time.time, time.perf_counter, uuid.uuid4 = loop.time, wall, loop.time, new_uuid
    real_peer, connection.Peer = connection.Peer, peer  # type: ignore[misc, assignment]
    real_probe, diagnosis.probe = diagnosis.probe, unexplained
    try:
        yield
    finally:
        time.monotonic, time.time, time.perf_counter, uuid.uuid4 = kept[:4]
        connection.Peer = real_peer  # type: ignore[misc]
        diagnosis.probe = real_probe
        random.setstate(kept[4])
