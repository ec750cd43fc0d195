"""Row `backlog`: scheduling pods of a workload that wait already.

The schedulers run, hot, with every pod in their queues; but the benchmark itself holds the election. When it resigns, one of
them is elected and has all the work before it. So what is measured is scheduling, and no start of a process.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress

from pinnace.bench import outcome
from pinnace.bench.calibration import Bench
from pinnace.bench.churn import meanwhile
from pinnace.bench.errors import BenchError
from pinnace.bench.report import Run
from pinnace.bench.setting import BATCH, Setting, set_up
from pinnace.bench.throughput import PATIENCE
from pinnace.bench.usage import Meter
from pinnace.bench.witness import BOUND, History, witnessing
from pinnace.bench.workload import cpu_of
from pinnace.bench.workloads import Workload
from pinnace.client.caller import Caller
from pinnace.client.client import Client
from pinnace.client.election import Candidate
from pinnace.cluster import processes
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.progress import Progress
from pinnace.cluster.spec import ELECTION, KUBELET, SCHEDULER

HOLDER = "bench"
ELECTION_TIMEOUT = 10.0
QUIET_INTERVAL, QUIET_CPU, QUIET_TIMEOUT = 0.25, 0.03, 120.0
"""A scheduler has taken in what there is when it uses less than this much CPU time in an interval (all in seconds)."""


async def backlog(bench: Bench, workload: Workload, pods: int, progress: Progress, *, bound_only: bool = False) -> Run:
    """From the moment at which the schedulers are let go to the last bind that is seen. `bound_only`: nobody runs the pods."""
    cluster = bench.cluster
    async with cluster.client() as client, witnessing(client) as witness:
        setting = await set_up(bench, workload, pods, witness, progress)
        if bound_only:
            await processes.stop(cluster.state.of(KUBELET))  # with no controllers, their nodes stay Ready
        await quiet(cluster)
        progress.waiting("the schedulers to take in the backlog")
        async with leaderless(cluster, client) as caretaker:
            await setting.measured.create(bench.clients, pods, batch=BATCH)
            caretaker.check()
            await quiet(cluster)
            progress.waiting("the backlog to be scheduled")
            meter = Meter(cluster.state)
            async with meanwhile(workload.churn(client, setting.placed)) if workload.churn else nullcontext():
                caretaker.check()
                let_go = time.monotonic()
                resigning = asyncio.ensure_future(caretaker.candidate.resign())
                await witness.reached(BOUND, len(setting.placed.uids) + pods, PATIENCE)
                usage = meter.read()
            await resigning
    history = witness.history
    binds = [history.pods[uid].bound - let_go for uid in setting.measured.uids]
    return Run(
        bench.calibration,
        usage,
        samples={BOUND: binds, "first bind": [min(binds)]},
        items=pods,
        rate=pods / max(binds),
        violations=violations(history, workload, setting),
    )


def violations(history: History, workload: Workload, setting: Setting) -> dict[str, int]:
    """How often what must never be has been; see witness.py and outcome.py."""
    placed, measured = set(setting.placed.uids), set(setting.measured.uids)
    loads = ((placed, cpu_of(workload.placed.shape)), (measured, cpu_of(workload.measured.shape)))
    return history.violations(placed | measured) | {
        "overcommitted": outcome.overcommitted((node, cpu) for uids, cpu in loads for node in history.nodes(uids)),
        "misplaced": workload.misplaced(history.nodes(workload.constrained(placed, measured)), setting.zones),
        "wrongly_bound": sum(bool(seen.bound) for uid, seen in history.pods.items() if uid not in placed | measured),
    }


class Caretaker:
    """Leads and schedules nothing, until its candidate resigns."""

    def __init__(self, connection: Caller) -> None:
        self.elected = asyncio.Event()
        self.candidate = Candidate(
            connection, ELECTION, HOLDER, on_elected=lambda token: self.elected.set(), on_lost=self._lose
        )
        self._lost = ""

    def check(self) -> None:
        """Raises BenchError unless it has led ever since it was elected: otherwise a scheduler may have begun."""
        if self._lost or self.candidate.token is None:
            why = self._lost or "its heartbeats were late"
            raise BenchError(
                f"the benchmark lost the election before it let the schedulers go, so they may have begun early ({why}); "
                "try again with fewer pods, or on a quieter machine"
            )

    def _lose(self, reason: str) -> None:
        self._lost = self._lost or reason


@asynccontextmanager
async def leaderless(cluster: Cluster, client: Client) -> AsyncIterator[Caretaker]:
    """All schedulers run and none leads, since the caretaker does. Raises BenchError."""
    schedulers = [record.name for record in cluster.state.of(SCHEDULER)]
    await processes.stop(cluster.state.of(SCHEDULER))
    caretaker = Caretaker(client.connection)
    campaigning = asyncio.create_task(caretaker.candidate.run())
    try:
        try:
            async with asyncio.timeout(ELECTION_TIMEOUT):
                await caretaker.elected.wait()
        except TimeoutError:
            raise BenchError(f"the benchmark was not elected within {ELECTION_TIMEOUT:g} s of the schedulers' end") from None
        await asyncio.gather(*map(cluster.start, schedulers))
        yield caretaker
    finally:
        campaigning.cancel()
        with suppress(asyncio.CancelledError):
            await campaigning


async def quiet(cluster: Cluster) -> None:
    """Waits until the schedulers have taken in what there is: they use next to no CPU. Raises BenchError."""
    deadline = time.monotonic() + QUIET_TIMEOUT
    names = {record.name for record in cluster.state.of(SCHEDULER)}
    while time.monotonic() < deadline:
        meter = Meter(cluster.state)
        await asyncio.sleep(QUIET_INTERVAL)
        if all(usage.cpu_s <= QUIET_CPU for name, usage in meter.read().items() if name in names):
            return
    raise BenchError(f"the schedulers were still busy after {QUIET_TIMEOUT:g} s, with nothing to do")
