"""What a run must not take from the outside: time, chance, sockets, and the moments at which garbage is collected."""

import gc
import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pinnace.client import connection
from tests.simulation.channel import SimPeer
from tests.simulation.loop import SimLoop
from tests.simulation.network import Network
from tests.simulation.process import PROCESS


@contextmanager
def sealed(loop: SimLoop, network: Network, seed: int) -> Iterator[None]:
    """While it lasts, `time` is the loop's, Connections go over the simulated network, and whatever draws chance from the
    process draws it from the seed.

    The garbage collector is off: it would end forgotten async generators at moments that no seed decides. What reference
    counts free is freed at the same step in every run.
    """

    def wall() -> float:
        return (PROCESS.get() or loop.world).clock.time()

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(int=random.getrandbits(128), version=4)

    def peer(endpoint: str) -> SimPeer:
        return SimPeer(endpoint, network)

    kept = (time.monotonic, time.time, time.perf_counter, uuid.uuid4, random.getstate())
    collecting = gc.isenabled()
    gc.disable()
    gc.freeze()  # so that the collection at the end looks at this run's objects only
    random.seed(seed)
    time.monotonic, time.time, time.perf_counter, uuid.uuid4 = loop.time, wall, loop.time, new_uuid
    real_peer, connection.Peer = connection.Peer, peer  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        time.monotonic, time.time, time.perf_counter, uuid.uuid4 = kept[:4]
        connection.Peer = real_peer  # type: ignore[misc]
        random.setstate(kept[4])
        gc.unfreeze()
        if collecting:
            gc.enable()
