"""Measures another user of a gateway in a quiet phase and during an attack.

The user reads a pod READS times and creates WRITES pods per second, at fixed times, in a process of its own. A call counts for
the phase in which it began. A gap is a period in which no call was answered; its end may be after the phase.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pinnace.client.client import Client
from pinnace.cluster import processes, startup
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import APISERVER, GATEWAY, ProcessRecord
from pinnace.history.records import CallRecord, read_history
from pinnace.runtime import procfs
from pinnace.runtime.procfs import ProcessIdentity
from pinnace.verification.bench.report import percentile
from pinnace.verification.chaos.attacks.attacker import Attacker
from pinnace.verification.chaos.attacks.callers import create_attackers
from pinnace.verification.chaos.attacks.table import Attack
from pinnace.verification.chaos.bystander import Bystander, create_gateway_user

READS, WRITES = 60.0, 6.0
QUIET = 2.0
"""Seconds of the quiet phase. It begins WARM seconds after the user's first recorded call."""
WARM = 0.5
START_TIMEOUT = 20.0
POLL = 0.02


@dataclass(frozen=True, slots=True)
class Phase:
    """The user's calls of a phase. Times are in milliseconds. `failures`: the number of calls that did not succeed, by code."""

    rate: float
    p50: float
    p99: float
    longest_gap: float
    failures: dict[str, int]


@dataclass(frozen=True, slots=True)
class Measured:
    """`gateway_mb`, `apiserver_mb`: the growth of resident memory up to its peak during the attack, in MB. `outcomes`: those of
    the attacker."""

    quiet: Phase
    attacked: Phase
    gateway_mb: float
    apiserver_mb: float
    outcomes: dict[str, int]


async def measure(cluster: Cluster, client: Client, attack: Attack, folder: Path) -> Measured:
    """Measure an attack on a gateway that has just started, so that memory of earlier attacks is not reused."""
    certificates, user = await create_attackers(cluster, client), await create_gateway_user(cluster, client)
    (gateway,) = cluster.state.processes_of(GATEWAY)
    apiservers = [record.process for record in cluster.state.processes_of(APISERVER) if record.process]
    history, address = folder / "user.jsonl", gateway.plan.address
    attacker = Attacker(address, certificates, attack, attack.seconds + START_TIMEOUT)
    try:
        async with Bystander([address], user, history, (READS, WRITES)):
            _, server = await asyncio.gather(attacker.start_process(), _restart(cluster, gateway))
            await _first_call(history, time.monotonic())
            await asyncio.sleep(WARM)
            quiet = time.monotonic()
            await asyncio.sleep(QUIET)
            before = procfs.reset_peaks([server]), procfs.reset_peaks(apiservers)
            attacked = time.monotonic()
            attacker.begin_attack()
            await asyncio.sleep(attack.seconds)
            ended = time.monotonic()
            after = procfs.peak_memory([server]), procfs.peak_memory(apiservers)
            outcomes = await attacker.end_attack()
    finally:
        attacker.kill()
    calls = [record for record in read_history(history) if isinstance(record, CallRecord)]
    growth = [round(peak - least, 1) for peak, least in zip(after, before, strict=True)]
    return Measured(phase(calls, quiet, attacked), phase(calls, attacked, ended), growth[0], growth[1], dict(outcomes))


def phase(calls: Sequence[CallRecord], began: float, ended: float) -> Phase:
    """Return the figures of the calls that began in this period. Raises ValueError if there are none."""
    inside = [call for call in calls if began <= call.began < ended]
    took = sorted(call.ended - call.began for call in inside)
    last = max((call.ended for call in calls), default=ended)
    answered = [*sorted(call.ended for call in calls if call.outcome == "ok"), last]
    gaps = [later - earlier for earlier, later in pairwise(answered) if later > began and earlier < ended]
    failures = Counter(call.code or call.outcome for call in inside if call.outcome != "ok")
    return Phase(
        rate=round((len(inside) - failures.total()) / (ended - began), 1),
        p50=round(percentile(took, 0.5) * 1e3, 1),
        p99=round(percentile(took, 0.99) * 1e3, 1),
        longest_gap=round(max(gaps, default=ended - began) * 1e3, 1),
        failures=dict(failures),
    )


async def _restart(cluster: Cluster, record: ProcessRecord) -> ProcessIdentity:
    """Kill a process, and start it again at its address. Return it when it is ready."""
    assert record.process is not None
    cluster.kill(record.name)
    async with asyncio.timeout(START_TIMEOUT):
        assert await processes.wait_ended([record.process], START_TIMEOUT)
        cluster.start_without_waiting([record.name])
        while await startup.check_readiness([cluster.state.find_process(record.name)]):  # noqa: ASYNC110 (a process)
            await asyncio.sleep(POLL)
    process = cluster.state.find_process(record.name).process
    assert process is not None
    return process


async def _first_call(history: Path, since: float) -> None:
    """Wait until a call is in the history that succeeded after a time."""

    def recorded() -> bool:
        calls = [record for record in read_history(history) if isinstance(record, CallRecord)] if history.exists() else []
        return any(call.outcome == "ok" and call.began > since for call in calls)

    async with asyncio.timeout(START_TIMEOUT):
        while not await asyncio.to_thread(recorded):  # noqa: ASYNC110 (a file)
            await asyncio.sleep(POLL)
