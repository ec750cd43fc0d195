"""What a run must not take from the outside: time, chance, sockets, and which commit this is."""

import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from pinnace.client import connection
from pinnace.kubelet import registration
from tests.simulation.channel import SimPeer
from tests.simulation.loop import SimLoop
from tests.simulation.network import Network
from tests.simulation.process import PROCESS

SHARED = getattr(random.random, "__self__")  # noqa: B009 (builtin functions have none, as far as types go)
DRAWS = [name for name in random.__all__ if getattr(getattr(random, name), "__self__", None) is SHARED]
"""The functions of `random` by which all of a process draw from one generator."""


@contextmanager
def sealed(loop: SimLoop, network: Network, seed: int) -> Iterator[None]:
    """While it lasts, `time` is the loop's, Connections go over the simulated network, and whatever draws chance from the
    process draws it from the seed. That is for this thread: others that tests have left behind keep time and chance, and would
    take some of ours.
    """
    chance = random.Random(seed)

    def wall() -> float:
        return (PROCESS.get() or loop.world).clock.time()

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(int=chance.getrandbits(128), version=4)

    def peer(endpoint: str, *more: object) -> SimPeer:
        return SimPeer(endpoint, network)

    async def unexplained(endpoint: str, secure: object) -> None:
        """Why a server cannot be reached is not looked into."""

    with ExitStack() as seals:
        for module, name, ours in (
            (time, "monotonic", loop.time),
            (time, "perf_counter", loop.time),
            (time, "time", wall),
            (uuid, "uuid4", new_uuid),
            (secrets, "token_bytes", lambda size: chance.randbytes(size)),
            *((random, name, getattr(chance, name)) for name in DRAWS),
        ):
            seals.enter_context(patch.object(module, name, _in_this_thread(ours, getattr(module, name))))
        seals.enter_context(patch.object(connection, "Peer", peer))
        seals.enter_context(patch.object(connection, "probe_server", unexplained))
        seals.enter_context(patch.object(registration, "build_version", lambda: "0.0.0"))
        yield


def _in_this_thread(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    me = threading.get_ident()

    def either(*args: Any, **kwargs: Any) -> Any:
        return (ours if threading.get_ident() == me else theirs)(*args, **kwargs)

    return either
