"""One chaos run: a cluster of its own, load, faults by a schedule, peace, and a verdict.

links -> cluster, every connection through a link -> recorder -> load -> faults -> all undone -> settle -> check
"""

import asyncio
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pinnace.bench.machine import this_machine
from pinnace.chaos import disks
from pinnace.chaos.clocks import Clocks, find_library
from pinnace.chaos.complaints import complaints
from pinnace.chaos.engine import Engine, Say
from pinnace.chaos.faults.base import Kind, Need
from pinnace.chaos.faults.limits import FULL
from pinnace.chaos.heading import heading
from pinnace.chaos.journal import Journal
from pinnace.chaos.load import Load
from pinnace.chaos.report import ChaosReport, Traffic
from pinnace.chaos.schedule import schedule, without_turn
from pinnace.chaos.stage import JOURNAL, LOGS, Props, read, stage
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
    skipped = {kind.name: reason for kind in options.kinds if (reason := lacking(kind, options.spec))}
    kinds = [kind.on(options.spec) for kind in options.kinds if kind.name not in skipped]
    strikes = schedule(options.seed, options.seconds, kinds, options.spec)
    idle = without_turn(kinds, strikes)
    library = find_library() if _needed(Need.FAKETIME, kinds) else None
    clocks = Clocks(library, folder) if library else None
    props = Props(clocks, disks=int(_needed(Need.DISK, kinds)))
    started = datetime.now(UTC)
    with clocks or nullcontext(), Journal(folder / JOURNAL) as journal:
        what = f"{len(strikes)} faults in {options.seconds:g} s"
        faults = tuple(sorted(kind.name for kind in kinds if options.named or kind.name not in idle))
        journal.write(heading(started.timestamp(), options.seed, what, SETTLE, faults))
        async with stage(options.spec, folder, progress, props) as on:
            engine = Engine(on.world, journal, say)
            began = time.monotonic()
            async with on.bystander, Load(on.cluster.config, journal, on.nodes, seed=options.seed) as load:
                progress.waiting(f"{what} to happen")
                await engine.run(strikes)
                seconds = time.monotonic() - began
                progress.waiting("all to be well again")
                settled = await load.settle(within=SETTLE)
                attempts = dict(load.attempts)
            await on.recorder.reached(settled.revision, CATCH_UP)
    engine.damage.misdeeds += complaints(folder / LOGS, on.world.excuses)
    progress.waiting("the verdict")
    traffic = Traffic()
    found = await asyncio.to_thread(lambda: check(traffic.counting(read(folder))))
    return ChaosReport(
        what, options.repeat, options.seed, started.isoformat(timespec="seconds"), seconds, _versions(), engine.damage,
        skipped, idle, traffic, attempts, settled, found,
    )  # fmt: skip


def lacking(kind: Kind, spec: ClusterSpec) -> str:
    """Why a kind of fault cannot be done on this machine, to a cluster like this; "" when it can."""
    there: Mapping[Need, Callable[[], bool]] = {
        Need.MEMBERS: lambda: spec.etcd_members > 1,
        Need.FAKETIME: lambda: find_library() is not None,
        Need.DISK: disks.available,
        Need.DEV_FULL: FULL.exists,
        Need.LIMITS: lambda: hasattr(resource, "prlimit"),
    }
    return next((need.value for need in kind.needs if not there[need]()), "")


def _needed(need: Need, kinds: Sequence[Kind]) -> bool:
    return any(need in kind.needs for kind in kinds)


def _versions() -> Mapping[str, str]:
    etcd = ".".join(map(str, find_etcd().version))
    machine = this_machine()
    return {"commit": machine.commit, "python": machine.python, "etcd": etcd, "kernel": machine.kernel}
