"""Row `failover`: the time without binds after the leading scheduler is killed, frozen or asked to stop.

Pods are created continuously, so that a leader always has pods to bind. The gap is the time from the signal until this process
receives the first bind by the next leader. The leader is identified by the token that the API server stores in each bound pod.
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
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, Fenced, error_of
from pinnace.cluster import processes, startup, view
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.links import Link, Links, Mode
from pinnace.cluster.startup import StartProgress
from pinnace.verification.bench import BenchError, usage
from pinnace.verification.bench.calibration import BenchCluster
from pinnace.verification.bench.load import CreatedPods
from pinnace.verification.bench.report import BenchRun
from pinnace.verification.bench.usage import ProcessMeter
from pinnace.verification.bench.witness import BOUND, PodWitness, watch_pods

TRICKLE_PODS, TRICKLE_INTERVAL = 2, 0.004
"""Pods per call, and seconds between calls. They determine the resolution of the gap."""
WARM_UP = 50
"""The number of pods that must be bound before the leader is signalled, so that it is busy."""
IN_THE_CARD = 0.1
"""Seconds for which a leader continues while its requests are held back."""
LEADER_TIMEOUT = 30.0
POLL = 0.02
SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP, "TERM": signal.SIGTERM}
WAKING = 2.0
"""Seconds in which the refusals of a resumed leader must be reported."""
VACANCY_POLL = 0.002
PROBE_POD = "impostor"
NOBODY = "nobody"
"""A scheduler that does not exist, so that no scheduler binds the pod."""


@dataclass(frozen=True, slots=True)
class FailoverResult:
    """One failover. `hit`: the monotonic time of the signal. `hit_at`: the same as Unix time. `first_bind`: the monotonic time
    of the next leader's first bind."""

    old: Election
    hit: float
    hit_at: float
    first_bind: float

    @property
    def gap(self) -> float:
        return self.first_bind - self.hit


class HeldLinks:
    """Simulates the network card of a machine that freezes: requests that were just sent are held back, and arrive when the
    machine resumes. The fence then rejects them."""

    def __init__(self, links: Links) -> None:
        """`links`: the links between the schedulers and the API servers."""
        self._links = links

    async def hold_requests(self, source: str) -> None:
        """Hold back requests, and return when some are held. Raises HelperError."""
        await self._links.set(self._find_link(source), requests=Mode.HOLD)
        await asyncio.sleep(IN_THE_CARD)

    async def release_requests(self, source: str) -> None:
        """Forward the held requests. Raises HelperError."""
        await self._links.set(self._find_link(source), requests=Mode.PASS)

    def _find_link(self, source: str) -> list[Link]:
        return [link for link in self._links.all_links if link[0] == source]


async def hit_leader(
    cluster: Cluster, client: Client, witness: PodWitness, number: signal.Signals, card: HeldLinks | None = None
) -> FailoverResult:
    """Wait until the leader is busy, send it the signal, and wait until another leader binds a pod. With `card`, requests are
    held back shortly before the signal, and the gap starts then. Raises BenchError, ClusterError, HelperError."""
    await witness.wait_for_stage(BOUND, witness.history.counts[BOUND] + WARM_UP, LEADER_TIMEOUT)
    leader = await present_leader(client)
    hit, hit_at = time.monotonic(), time.time()
    if card:
        await card.hold_requests(leader.holder)
    cluster.kill(leader.holder, number)
    first_bind = await witness.next_leader_binds(leader.token, LEADER_TIMEOUT)
    if first_bind < hit:
        raise BenchError(f"{leader.holder} lost the election before the signal; try again on a machine with less load")
    return FailoverResult(leader, hit, hit_at, first_bind)


async def present_leader(client: Client) -> Election:
    """Return the current leader. Raises BenchError if there is no leader within LEADER_TIMEOUT."""
    deadline = time.monotonic() + LEADER_TIMEOUT
    while not (election := await view.scheduler_leader(client)):
        if time.monotonic() > deadline:
            raise BenchError(f"timed out after {LEADER_TIMEOUT:g} s waiting for a leader")
        await asyncio.sleep(POLL)
    return election


async def bring_back(cluster: Cluster, name: str, number: signal.Signals) -> None:
    """Start a scheduler that has ended, or resume a frozen one, and wait until it is ready. Raises ClusterError."""
    if number == signal.SIGSTOP:
        cluster.kill(name, signal.SIGCONT)
    else:
        ended = cluster.state.find_process(name).process
        await processes.wait_ended([ended] if ended else [], LEADER_TIMEOUT)
        await cluster.start(name)
    deadline = time.monotonic() + LEADER_TIMEOUT
    while missing := await startup.check_readiness([cluster.state.find_process(name)]):
        if time.monotonic() > deadline:
            raise BenchError(f"timed out after {LEADER_TIMEOUT:g} s waiting for readiness: {missing.what}")
        await asyncio.sleep(POLL)


@asynccontextmanager
async def create_in_background(load: CreatedPods, client: Client, pods: int = TRICKLE_PODS) -> AsyncIterator[None]:
    """Create `pods` pods every few milliseconds in the background. Raises the errors of creates at the end."""
    stop = asyncio.Event()

    async def run() -> None:
        while not stop.is_set():
            await load.create_pods([client], pods, batch=pods)
            await asyncio.sleep(TRICKLE_INTERVAL)

    creating = asyncio.create_task(run())
    try:
        yield
        stop.set()
        await creating
    finally:
        creating.cancel()
        await asyncio.wait((creating,))


async def measure_failovers(bench: BenchCluster, number: signal.Signals, times: int, progress: StartProgress) -> BenchRun:
    """Run `times` failovers. The leader is restarted or resumed after each one. With links, requests of the frozen leader are
    held back and arrive when it resumes."""
    load, gaps, refused, refusals = CreatedPods(), list[float](), 0, 0
    cluster, card = bench.cluster, HeldLinks(bench.links) if bench.links else None
    async with cluster.client() as client, watch_pods(client) as witness:
        meter = ProcessMeter(cluster.state)
        for turn in range(1, times + 1):
            progress.waiting(f"failover {turn} of {times}")
            async with create_in_background(load, bench.clients[0]):
                result = await hit_leader(cluster, client, witness, number, card)
            gaps.append(result.gap)
            holder = result.old.holder
            if card:
                cluster.kill(holder, signal.SIGCONT)
                before = await count_fenced_binds(cluster, holder)
                await card.release_requests(holder)
                binds = await _count_new_fenced_binds(cluster, holder, before)
                refused, refusals = refused + binds, refusals + (binds > 0)
            await bring_back(cluster, holder, number)
        await witness.wait_for_stage(BOUND, len(load.uids), LEADER_TIMEOUT)
        usage = meter.read_usage()
    return BenchRun(
        bench.calibration,
        usage,
        samples={"gap": gaps},
        items=len(load.uids),
        violations=witness.history.count_violations(load.uids),
        counts={"refused_binds": refused, "old_leaders_refused": refusals} if card else {},
    )


async def _count_new_fenced_binds(cluster: Cluster, scheduler: str, before: int) -> int:
    """Return the number of the scheduler's binds that the fence has rejected since it resumed."""
    now, deadline = before, time.monotonic() + WAKING
    while now == before and time.monotonic() < deadline:
        await asyncio.sleep(POLL)
        now = await count_fenced_binds(cluster, scheduler)
    return now - before


async def count_fenced_binds(cluster: Cluster, scheduler: str) -> int:
    """Return the number of the scheduler's binds that the fence has rejected since its start."""
    http = cluster.state.find_process(scheduler).plan.http
    return await usage.read_metric(http, "scheduler_bindings_total", result="fenced") or 0


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An event of a failover. `at`: seconds after the signal."""

    at: float
    what: str


class VacancyLog:
    """Polls for the time at which the election has no leader."""

    def __init__(self) -> None:
        self.seen: float | None = None
        """The time at which no leader was first observed, in monotonic seconds."""

    async def poll_vacancy(self, client: Client) -> None:
        """Poll until the vacancy is observed or the task is cancelled."""
        while self.seen is None:
            try:
                if await view.scheduler_leader(client) is None:
                    self.seen = time.monotonic()
            except ApiError:
                pass
            await asyncio.sleep(VACANCY_POLL)


def find_end_of_term(terms: Iterable[Term], failover: FailoverResult) -> float | None:
    """Return the time at which an API server ended the term of the old leader, in monotonic seconds by its clock. Return None
    if the time is unknown or an estimate."""
    term = next((term for term in terms if term.token == failover.old.token), None)
    if term is None or term.presumed or not term.HasField("ended"):
        return None
    return failover.hit + to_seconds(term.ended) - failover.hit_at


def build_timeline(failover: FailoverResult, new: Election, vacancy: float | None) -> list[TimelineEntry]:
    """Return the events of a failover in order. `new`: the next leader. `vacancy`: the monotonic time at which no leader was
    observed, or None if it was too short to be observed. The time of the election is by the API server's clock."""
    elected = to_seconds(new.since) - failover.hit_at
    moments = [
        TimelineEntry(elected, f"{new.holder} is elected with fencing token {new.token}"),
        TimelineEntry(failover.gap, "the new leader binds its first pod"),
    ]
    if vacancy is not None and vacancy >= failover.hit:
        at = min(vacancy - failover.hit, elected)  # the observation has a delay
        moments.insert(0, TimelineEntry(at, "the API server detects the broken connection and deletes the election's key"))
    return moments


async def is_fenced(client: Client, deposed: Election, node: str) -> bool:
    """Send a bind with the token of a deposed leader, and return whether the fence rejected it. The pod is deleted
    afterwards."""
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
