"""Rows `throughput` and `create`: pods from create to Running, and pods that are only created."""

from pinnace.bench.calibration import Bench
from pinnace.bench.load import Load, lost
from pinnace.bench.report import Run
from pinnace.bench.stagecpu import StageMeter
from pinnace.bench.usage import Meter
from pinnace.bench.witness import BOUND, RUNNING, witnessing

PATIENCE = 300.0
"""Seconds until a run is given up."""


async def throughput(bench: Bench, pods: int, batch: int) -> Run:
    """From the first create that is sent to the last pod that is seen Running; creating and scheduling at once."""
    load = Load()
    async with bench.cluster.client() as client, witnessing(client) as witness:
        meter = Meter(bench.cluster.state)
        await load.create(bench.clients, pods, batch=batch)
        await witness.reached(RUNNING, pods, PATIENCE)
        usage = meter.read()
    history = witness.history
    seen = list(history.pods.values())
    return Run(
        bench.calibration,
        usage,
        samples={
            "created": load.latencies,
            BOUND: [pod.bound - load.sent[pod.name] for pod in seen],
            RUNNING: [pod.running - load.sent[pod.name] for pod in seen],
        },
        items=pods,
        rate=pods / (max(pod.running for pod in seen) - load.began),
        violations=history.violations(load.uids),
    )


async def create(bench: Bench, pods: int, batch: int) -> Run:
    """From the first create that is sent to the last acknowledgement; nobody schedules. What was created is read back when
    all that is measured has been."""
    load = Load()
    stages = await StageMeter.start(bench.cluster.state)
    meter = Meter(bench.cluster.state)
    await load.create(bench.clients, pods, batch=batch)
    usage = meter.read()
    stage_cpu = await stages.read()
    elapsed = max(load.acknowledged.values()) - load.began
    return Run(
        bench.calibration,
        usage,
        {"created": load.latencies},
        items=pods,
        rate=pods / elapsed,
        violations={"lost": await lost(bench.clients[0], load.acknowledged)},
        stage_cpu=stage_cpu,
    )
