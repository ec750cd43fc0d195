"""Hitting the leading scheduler while it works, and bringing it back.

Pods trickle in all the while, so that a leader always has something to bind. The gap is from the signal to the arrival, here,
of the first bind by the next leader; that one is known by the token that the API server leaves on every pod that is bound.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pinnace.api.elections_pb2 import Election
from pinnace.bench.errors import BenchError
from pinnace.bench.load import Load
from pinnace.bench.witness import BOUND, Witness
from pinnace.client.client import Client
from pinnace.cluster import processes, startup, view
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.links import Link, Links
from pinnace.cluster.proxy import Mode

TRICKLE_PODS, TRICKLE_INTERVAL = 2, 0.004
"""So many pods a call, and seconds between calls: the resolution of the gap."""
WARM_UP = 50
"""Pods that must be bound after the pods have begun to come in, before the leader is hit: in the midst of its work."""
IN_THE_CARD = 0.1
"""Seconds for which a leader works on although nothing that it sends arrives any more."""
PATIENCE = 30.0
POLL = 0.02


@dataclass(frozen=True, slots=True)
class Failover:
    """One change of leaders. `hit` is the monotonic time of the signal, `hit_at` the same as Unix time; `first_bind` is the
    monotonic time of the next leader's first bind."""

    old: Election
    hit: float
    hit_at: float
    first_bind: float

    @property
    def gap(self) -> float:
        return self.first_bind - self.hit


class Card:
    """The network cards of machines that may stand still: what a process has just sent stays in its card, and arrives when the
    machine goes on. Then the fence has something to refuse."""

    def __init__(self, links: Links) -> None:
        """`links` has those of the schedulers to the API servers."""
        self._links = links

    async def hold(self, source: str) -> None:
        """Returns when there is something in it. Raises HelperError."""
        await self._links.set(self._of(source), requests=Mode.HOLD)
        await asyncio.sleep(IN_THE_CARD)

    async def release(self, source: str) -> None:
        """Raises HelperError."""
        await self._links.set(self._of(source), requests=Mode.PASS)

    def _of(self, source: str) -> list[Link]:
        return [link for link in self._links.all if link[0] == source]


async def hit_leader(
    cluster: Cluster, client: Client, witness: Witness, number: signal.Signals, card: Card | None = None
) -> Failover:
    """Waits until the leader is at work, sends it the signal, and waits until another binds. With a `card` what it sends is
    held from just before; the gap counts from there. Raises BenchError, ClusterError, HelperError."""
    await witness.reached(BOUND, witness.history.counts[BOUND] + WARM_UP, PATIENCE)
    leader = await present_leader(client)
    hit, hit_at = time.monotonic(), time.time()
    if card:
        await card.hold(leader.holder)
    cluster.kill(leader.holder, number)
    first_bind = await witness.next_leader_binds(leader.token, PATIENCE)
    if first_bind < hit:
        raise BenchError(f"{leader.holder} had lost the election before it was hit; try again, on a quieter machine")
    return Failover(leader, hit, hit_at, first_bind)


async def present_leader(client: Client) -> Election:
    """Raises BenchError when nobody leads in time."""
    deadline = time.monotonic() + PATIENCE
    while not (found := await view.leader(client)):
        if time.monotonic() > deadline:
            raise BenchError(f"no scheduler leads after {PATIENCE:g} s")
        await asyncio.sleep(POLL)
    return found


async def bring_back(cluster: Cluster, name: str, number: signal.Signals) -> None:
    """Starts a scheduler that has ended, or wakes one that was frozen, and waits until it is ready. Raises ClusterError."""
    if number == signal.SIGSTOP:
        cluster.kill(name, signal.SIGCONT)
    else:
        ended = cluster.state.find(name).process
        await processes.gone([ended] if ended else [], PATIENCE)
        await cluster.start(name)
    deadline = time.monotonic() + PATIENCE
    while missing := await startup.readiness([cluster.state.find(name)]):
        if time.monotonic() > deadline:
            raise BenchError(f"not ready again after {PATIENCE:g} s: {missing.what}")
        await asyncio.sleep(POLL)


@asynccontextmanager
async def trickle(load: Load, client: Client, pods: int = TRICKLE_PODS) -> AsyncIterator[None]:
    """Creates so many pods every few milliseconds. Raises what a create raises, at the end."""
    stop = asyncio.Event()

    async def run() -> None:
        while not stop.is_set():
            await load.create([client], pods, batch=pods)
            await asyncio.sleep(TRICKLE_INTERVAL)

    creating = asyncio.create_task(run())
    try:
        yield
        stop.set()
        await creating
    finally:
        creating.cancel()
        await asyncio.wait((creating,))
