"""Row `backlog`: scheduling pods that wait already.

The schedulers run, hot, with every pod in their queues; but the benchmark itself holds the election. When it resigns, one of
them is elected and has all the work before it. So what is measured is scheduling, and no start of a process.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from pinnace.bench.calibration import Bench
from pinnace.bench.errors import BenchError
from pinnace.bench.load import Load
from pinnace.bench.report import Run
from pinnace.bench.throughput import PATIENCE
from pinnace.bench.usage import Meter
from pinnace.bench.witness import BOUND, witnessing
from pinnace.client.client import Client
from pinnace.client.election import Candidate
from pinnace.cluster import processes
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import ELECTION, SCHEDULER

HOLDER = "bench"
ELECTION_TIMEOUT = 10.0
QUIET_INTERVAL, QUIET_CPU, QUIET_TIMEOUT = 0.25, 0.03, 30.0
"""A scheduler has taken in what there is when it uses less than this much CPU time in an interval (all in seconds)."""
BATCH = 500


async def backlog(bench: Bench, pods: int) -> Run:
    """From the moment at which the schedulers are let go to the last bind that is seen."""
    load = Load()
    cluster = bench.cluster
    async with cluster.client() as client, leaderless(cluster, client) as candidate, witnessing(client) as witness:
        await load.create(bench.clients, pods, batch=BATCH)
        await quiet(cluster)
        meter = Meter(cluster.state)
        let_go = time.monotonic()
        resigning = asyncio.ensure_future(candidate.resign())
        await witness.reached(BOUND, pods, PATIENCE)
        usage = meter.read()
        await resigning
    history = witness.history
    binds = [pod.bound - let_go for pod in history.pods.values()]
    return Run(
        bench.calibration,
        usage,
        samples={BOUND: binds, "first bind": [min(binds)]},
        items=pods,
        rate=pods / max(binds),
        violations=history.violations(load.uids),
    )


@asynccontextmanager
async def leaderless(cluster: Cluster, client: Client) -> AsyncIterator[Candidate]:
    """All schedulers run and none leads, since the candidate that is yielded does; until it resigns. Raises BenchError."""
    schedulers = [record.name for record in cluster.state.of(SCHEDULER)]
    await processes.stop(cluster.state.of(SCHEDULER))
    elected = asyncio.Event()
    candidate = Candidate(
        client.connection, ELECTION, HOLDER, on_elected=lambda token: elected.set(), on_lost=lambda reason: elected.clear()
    )
    campaigning = asyncio.create_task(candidate.run())
    try:
        try:
            async with asyncio.timeout(ELECTION_TIMEOUT):
                await elected.wait()
        except TimeoutError:
            raise BenchError(f"the benchmark was not elected within {ELECTION_TIMEOUT:g} s of the schedulers' end") from None
        await asyncio.gather(*map(cluster.start, schedulers))
        yield candidate
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
