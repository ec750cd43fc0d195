"""Row `failover`: how long nobody binds after the leading scheduler was killed, frozen or asked to stop."""

import asyncio
import signal
import time

from pinnace.bench import metrics
from pinnace.bench.calibration import Bench
from pinnace.bench.leaders import PATIENCE, POLL, Card, bring_back, hit_leader, trickle
from pinnace.bench.load import Load
from pinnace.bench.report import Run
from pinnace.bench.usage import Meter
from pinnace.bench.witness import BOUND, witnessing
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.progress import Progress

SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP, "TERM": signal.SIGTERM}
WAKING = 2.0
"""Seconds for which a leader that was frozen is watched."""


async def failover(bench: Bench, number: signal.Signals, times: int, progress: Progress) -> Run:
    """Hits the leader so many times; brings it back after each. Where there are links its machine stands still with it: what it
    has just sent arrives when it goes on."""
    load, gaps, refused, refusals = Load(), list[float](), 0, 0
    cluster, card = bench.cluster, Card(bench.links) if bench.links else None
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
        await witness.reached(BOUND, len(load.uids), PATIENCE)
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
    return await metrics.read(http, "scheduler_bindings_total", result="fenced") or 0
