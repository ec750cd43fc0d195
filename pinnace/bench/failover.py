"""Row `failover`: how long nobody binds after the leading scheduler was killed, frozen or asked to stop."""

import signal

from pinnace.bench import metrics
from pinnace.bench.calibration import Bench
from pinnace.bench.leaders import PATIENCE, bring_back, hit_leader, trickle
from pinnace.bench.load import Load
from pinnace.bench.report import Run
from pinnace.bench.usage import Meter
from pinnace.bench.witness import BOUND, witnessing
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.progress import Progress
from pinnace.cluster.spec import SCHEDULER

SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP, "TERM": signal.SIGTERM}


async def failover(bench: Bench, number: signal.Signals, times: int, progress: Progress) -> Run:
    """Hits the leader so many times; brings it back after each."""
    load, gaps = Load(), list[float]()
    cluster = bench.cluster
    async with cluster.client() as client, witnessing(client) as witness:
        meter = Meter(cluster.state)
        for turn in range(1, times + 1):
            progress.waiting(f"failover {turn} of {times}")
            async with trickle(load, bench.clients[0]):
                found = await hit_leader(cluster, client, witness, number)
            gaps.append(found.gap)
            await bring_back(cluster, found.old.holder, number)
        await witness.reached(BOUND, len(load.uids), PATIENCE)
        usage = meter.read()
        refused = await refused_binds(cluster) if number == signal.SIGSTOP else None
    return Run(
        bench.calibration,
        usage,
        samples={"gap": gaps},
        items=len(load.uids),
        violations=witness.history.violations(load.uids),
        counts={} if refused is None else {"refused_binds": refused},
    )


async def refused_binds(cluster: Cluster) -> int | None:
    """Binds that the fence has refused to the schedulers since they were started; None: they do not count that."""
    https = [record.plan.http for record in cluster.state.of(SCHEDULER)]
    counted = [await metrics.read(http, "scheduler_bindings_total", result="fenced") for http in https]
    return sum(count for count in counted if count is not None) if None not in counted else None
