"""Row `failover`: the time without binds after the leading scheduler was killed, frozen or asked to stop.

Pods are created all the time, so that a leader always has something to bind. The gap is from the signal to the arrival, here,
of the first bind by the next leader. The token that the API server leaves on every bound pod identifies the leader.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pinnace.api.core_v1_pb2 import Binding, Container, ObjectReference, Pod
from pinnace.api.elections_pb2 import Election, Term
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.pods_pb2 import Fence
from pinnace.api.scalars import to_seconds
from pinnace.bench import BenchError, usage
from pinnace.bench.calibration import Bench
from pinnace.bench.load import Load
from pinnace.bench.report import Run
from pinnace.bench.usage import Meter
from pinnace.bench.witness import BOUND, Witness, witnessing
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, Fenced, error_of
from pinnace.cluster import processes, startup, view
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.links import Link, Links, Mode
from pinnace.cluster.startup import Progress

TRICKLE_PODS, TRICKLE_INTERVAL = 2, 0.004
"""So many pods a call, and seconds between calls: the resolution of the gap."""
WARM_UP = 50
"""Pods that must be bound after the pods have begun to come in, before the leader is hit: in the midst of its work."""
IN_THE_CARD = 0.1
"""Seconds for which a leader works on although nothing that it sends arrives any more."""
LEADER_TIMEOUT = 30.0
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


class HeldLinks:
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
    cluster: Cluster, client: Client, witness: Witness, number: signal.Signals, card: HeldLinks | None = None
) -> Failover:
    """Waits until the leader is at work, sends it the signal, and waits until another binds. With a `card` what it sends is
    held from just before; the gap counts from there. Raises BenchError, ClusterError, HelperError."""
    await witness.reached(BOUND, witness.history.counts[BOUND] + WARM_UP, LEADER_TIMEOUT)
    leader = await present_leader(client)
    hit, hit_at = time.monotonic(), time.time()
    if card:
        await card.hold(leader.holder)
    cluster.kill(leader.holder, number)
    first_bind = await witness.next_leader_binds(leader.token, LEADER_TIMEOUT)
    if first_bind < hit:
        raise BenchError(f"{leader.holder} had lost the election before it was hit; try again, on a quieter machine")
    return Failover(leader, hit, hit_at, first_bind)


async def present_leader(client: Client) -> Election:
    """Raises BenchError when nobody leads in time."""
    deadline = time.monotonic() + LEADER_TIMEOUT
    while not (found := await view.leader(client)):
        if time.monotonic() > deadline:
            raise BenchError(f"no scheduler leads after {LEADER_TIMEOUT:g} s")
        await asyncio.sleep(POLL)
    return found


async def bring_back(cluster: Cluster, name: str, number: signal.Signals) -> None:
    """Starts a scheduler that has ended, or wakes one that was frozen, and waits until it is ready. Raises ClusterError."""
    if number == signal.SIGSTOP:
        cluster.kill(name, signal.SIGCONT)
    else:
        ended = cluster.state.find(name).process
        await processes.gone([ended] if ended else [], LEADER_TIMEOUT)
        await cluster.start(name)
    deadline = time.monotonic() + LEADER_TIMEOUT
    while missing := await startup.readiness([cluster.state.find(name)]):
        if time.monotonic() > deadline:
            raise BenchError(f"not ready again after {LEADER_TIMEOUT:g} s: {missing.what}")
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


SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP, "TERM": signal.SIGTERM}
WAKING = 2.0
"""Seconds for which a leader that was frozen is watched."""


async def failover(bench: Bench, number: signal.Signals, times: int, progress: Progress) -> Run:
    """Hits the leader so many times; brings it back after each. Where there are links its machine stands still with it: what it
    has just sent arrives when it goes on."""
    load, gaps, refused, refusals = Load(), list[float](), 0, 0
    cluster, card = bench.cluster, HeldLinks(bench.links) if bench.links else None
    async with cluster.client() as client, witnessing(client) as witness:
        meter = Meter(cluster.state)
        for turn in range(1, times + 1):
            progress.waiting(f"failover {turn} of {times}")
            async with trickle(load, bench.clients[0]):
                found = await hit_leader(cluster, client, witness, number, card)
            gaps.append(found.gap)
            holder = found.old.holder
            if card:
                cluster.kill(holder, signal.SIGCONT)
                before = await fenced(cluster, holder)
                await card.release(holder)
                binds = await _refusals(cluster, holder, before)
                refused, refusals = refused + binds, refusals + (binds > 0)
            await bring_back(cluster, holder, number)
        await witness.reached(BOUND, len(load.uids), LEADER_TIMEOUT)
        usage = meter.read()
    return Run(
        bench.calibration,
        usage,
        samples={"gap": gaps},
        items=len(load.uids),
        violations=witness.history.violations(load.uids),
        counts={"refused_binds": refused, "old_leaders_refused": refusals} if card else {},
    )


async def _refusals(cluster: Cluster, scheduler: str, before: int) -> int:
    """How many of its binds the fence has refused since it went on; it may take a moment until it knows."""
    now, deadline = before, time.monotonic() + WAKING
    while now == before and time.monotonic() < deadline:
        await asyncio.sleep(POLL)
        now = await fenced(cluster, scheduler)
    return now - before


async def fenced(cluster: Cluster, scheduler: str) -> int:
    """Binds that the fence has refused to it since it was started."""
    http = cluster.state.find(scheduler).plan.http
    return await usage.read_metric(http, "scheduler_bindings_total", result="fenced") or 0


VACANCY_POLL = 0.002


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """`at` is in seconds after the hit."""

    at: float
    what: str


class VacancyLog:
    """When it was first seen that nobody leads, by asking all the time."""

    def __init__(self) -> None:
        self.seen: float | None = None
        """Monotonic seconds."""

    async def record(self, client: Client) -> None:
        """Until cancelled, or seen."""
        while self.seen is None:
            try:
                if await view.leader(client) is None:
                    self.seen = time.monotonic()
            except ApiError:
                pass
            await asyncio.sleep(VACANCY_POLL)


def end_of_term(terms: Iterable[Term], failover: Failover) -> float | None:
    """When an API server ended the term of the leader that was hit (monotonic seconds, by its clock); None while that is not
    known, or only concluded."""
    term = next((term for term in terms if term.token == failover.old.token), None)
    if term is None or term.presumed or not term.HasField("ended"):
        return None
    return failover.hit + to_seconds(term.ended) - failover.hit_at


def timeline(failover: Failover, new: Election, vacancy: float | None) -> list[TimelineEntry]:
    """The moments of a failover in their order. `new` is the next leader, `vacancy` when nobody was seen to lead (monotonic
    seconds); None: it was too short to be seen, and is left out. The moment of the election is by the API server's clock."""
    elected = to_seconds(new.since) - failover.hit_at
    moments = [
        TimelineEntry(elected, f"{new.holder} is elected; its fencing token is {new.token}"),
        TimelineEntry(failover.gap, "its first pod is bound"),
    ]
    if vacancy is not None and vacancy >= failover.hit:
        at = min(vacancy - failover.hit, elected)  # the news of it took its time to get here
        moments.insert(0, TimelineEntry(at, "the API server has seen the connection break, and deletes the election's key"))
    return moments


PROBE_POD = "impostor"
NOBODY = "nobody"
"""A scheduler that does not exist: the pod waits for the impostor alone."""


async def is_fenced(client: Client, deposed: Election, node: str) -> bool:
    """Sends a bind with the token of a leader that was deposed; was it refused for that reason? Leaves nothing behind."""
    pod = Pod(metadata=ObjectMeta(name=PROBE_POD, namespace="default"))
    pod.spec.schedulerName = NOBODY
    pod.spec.containers.append(Container(name="c", image="none"))
    created = await client.pods.create(pod)
    binding = Binding(
        metadata=ObjectMeta(namespace="default", name=PROBE_POD, uid=created.metadata.uid),
        target=ObjectReference(kind="Node", name=node),
    )
    try:
        (item,) = await client.pods.bind_batch([binding], Fence(election=deposed.name, token=deposed.token))
    finally:
        await client.pods.delete(PROBE_POD, "default", grace=0, uid=created.metadata.uid)
    return isinstance(error_of(item), Fenced)
