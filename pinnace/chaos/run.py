"""One chaos run: a cluster of its own, load, faults by a schedule, peace, and a verdict.

links -> cluster, every connection through a link -> recorder -> load -> faults -> all undone -> settle -> check
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pinnace.bench.machine import this_machine
from pinnace.chaos.clocks import Clocks, find_library
from pinnace.chaos.complaints import complaints
from pinnace.chaos.engine import Engine, Say
from pinnace.chaos.faults.base import Kind
from pinnace.chaos.faults.table import CLOCKS
from pinnace.chaos.heading import heading
from pinnace.chaos.journal import Journal
from pinnace.chaos.load import Load
from pinnace.chaos.report import ChaosReport, Traffic
from pinnace.chaos.schedule import schedule, without_turn
from pinnace.chaos.stage import JOURNAL, LOGS, read, stage
from pinnace.check.check import check
from pinnace.cluster.etcd import find_etcd
from pinnace.cluster.progress import Progress
from pinnace.cluster.spec import ClusterSpec

SETTLE = 60.0
"""Seconds after the last fault within which all must be well."""
CATCH_UP = 30.0


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds`: how long faults happen. `named`: somebody asked for just these kinds, so that each must happen, or nothing is
    proven; of all that there are a short run deals some. `repeat`: the command line that makes the same run."""

    spec: ClusterSpec
    kinds: Sequence[Kind]
    named: bool
    seconds: float
    seed: int
    repeat: str


async def run(options: Options, folder: Path, progress: Progress, say: Say) -> ChaosReport:
    """Everything is in `folder` afterwards, and nothing of the cluster is left. Raises ChaosError, LoadError, ClusterError,
    HelperError, HistoryError."""
    library = find_library()
    skipped = tuple(kind.name for kind in options.kinds if kind.name in CLOCKS and library is None)
    kinds = [kind for kind in options.kinds if kind.name not in skipped]
    strikes = schedule(options.seed, options.seconds, kinds, options.spec)
    idle = without_turn(kinds, strikes)
    clocks = Clocks(library, folder) if library and any(kind.name in CLOCKS for kind in kinds) else None
    started = datetime.now(UTC)
    with clocks or nullcontext(), Journal(folder / JOURNAL) as journal:
        what = f"{len(strikes)} faults in {options.seconds:g} s"
        faults = tuple(sorted(kind.name for kind in kinds if options.named or kind.name not in idle))
        journal.write(heading(started.timestamp(), options.seed, what, SETTLE, faults))
        async with stage(options.spec, folder, progress, clocks) as on:
            engine = Engine(on.world, journal, say)
            began = time.monotonic()
            async with Load(on.cluster.config, journal, on.nodes, seed=options.seed) as load:
                progress.waiting(f"{what} to happen")
                await engine.run(strikes)
                seconds = time.monotonic() - began
                progress.waiting("all to be well again")
                settled = await load.settle(within=SETTLE)
                attempts = dict(load.attempts)
            await on.recorder.reached(settled.revision, CATCH_UP)
    engine.damage.misdeeds += complaints(folder / LOGS)
    progress.waiting("the verdict")
    traffic = Traffic()
    found = await asyncio.to_thread(lambda: check(traffic.counting(read(folder))))
    return ChaosReport(
        what, options.repeat, options.seed, started.isoformat(timespec="seconds"), seconds, _versions(), engine.damage,
        skipped, idle, traffic, attempts, settled, found,
    )  # fmt: skip


def _versions() -> Mapping[str, str]:
    etcd = ".".join(map(str, find_etcd().version))
    machine = this_machine()
    return {"commit": machine.commit, "python": machine.python, "etcd": etcd, "kernel": machine.kernel}
