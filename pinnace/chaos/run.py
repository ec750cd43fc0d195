"""One chaos run: a cluster of its own, load, faults by a schedule, peace, and a verdict.

    links -> cluster, every connection through a link -> recorder -> load -> faults -> all undone -> settle -> check

A folder holds everything that the run writes: the history (chaos.jsonl, etcd.jsonl, a run log for each kubelet) and the logs.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pinnace.bench.machine import this_machine
from pinnace.bench.scratch import scratch_cluster
from pinnace.chaos.clocks import Clocks, find_library
from pinnace.chaos.engine import Engine, Say
from pinnace.chaos.faults.base import Kind
from pinnace.chaos.faults.table import CLOCKS
from pinnace.chaos.helper import Helper
from pinnace.chaos.journal import Journal
from pinnace.chaos.links import Links
from pinnace.chaos.load import PRIVATE, Load
from pinnace.chaos.recorder import Recorder
from pinnace.chaos.report import ChaosReport, Traffic
from pinnace.chaos.schedule import schedule
from pinnace.chaos.world import World
from pinnace.check import files, history
from pinnace.check.check import check
from pinnace.check.history import Record
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.etcd import find_etcd
from pinnace.cluster.fittings import Fittings
from pinnace.cluster.progress import Progress
from pinnace.cluster.spec import ETCD, KUBELET, NODE_PREFIX, ClusterSpec

SETTLE = 60.0
"""Seconds after the last fault within which all must be well."""
CATCH_UP = 30.0
JOURNAL, STORED, RUN_LOG = "chaos.jsonl", "etcd.jsonl", "{}.run.jsonl"


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds`: how long faults happen. `repeat`: the command line that makes the same run."""

    spec: ClusterSpec
    kinds: Sequence[Kind]
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
    clocks = Clocks(library, folder) if library and any(kind.name in CLOCKS for kind in kinds) else None
    started = datetime.now(UTC)
    with closing(clocks) if clocks else nullcontext(), Journal(folder / JOURNAL) as journal:
        what = f"{len(strikes)} faults in {options.seconds:g} s"
        faults = tuple(sorted({strike.kind.name for strike in strikes}))
        journal.write(history.Run(started.timestamp(), options.seed, what, faults=faults, private=PRIVATE, settle=SETTLE))
        async with _cluster(options.spec, folder, clocks, progress) as (cluster, world, recorder):
            nodes = [f"{NODE_PREFIX}{number}" for number in range(options.spec.nodes)]
            engine = Engine(world, journal, say)
            began = time.monotonic()
            async with Load(cluster.endpoints, journal, nodes, seed=options.seed) as load:
                progress.waiting(f"{what} to happen")
                await engine.run(strikes)
                seconds = time.monotonic() - began
                progress.waiting("all to be well again")
                settled = await load.settle(within=SETTLE)
                attempts = dict(load.attempts)
            await recorder.reached(settled.revision, CATCH_UP)
    progress.waiting("the verdict")
    traffic = Traffic()
    found = await asyncio.to_thread(lambda: check(traffic.counting(read(folder))))
    return ChaosReport(
        what, options.repeat, options.seed, started.isoformat(timespec="seconds"), seconds, _versions(), engine.damage,
        skipped, traffic, attempts, settled, found,
    )  # fmt: skip


def read(folder: Path) -> Iterator[Record]:
    """The history of a run. Raises HistoryError, OSError."""
    for path in (folder / JOURNAL, *sorted(set(folder.glob("*.jsonl")) - {folder / JOURNAL})):
        yield from files.read(path)


@asynccontextmanager
async def _cluster(
    spec: ClusterSpec, folder: Path, clocks: Clocks | None, progress: Progress
) -> AsyncIterator[tuple[Cluster, World, Recorder]]:
    """With a link between all that talk to each other, and its history recorded from the first revision on. Its logs are in the
    folder afterwards."""

    def arguments(process: str) -> Sequence[str]:
        return ("--run-log", str(folder / RUN_LOG.format(process))) if process.startswith(KUBELET) else ()

    def environment(process: str) -> Mapping[str, str]:
        return {} if clocks is None or process.startswith(ETCD) else clocks.environment(process)

    count = (spec.schedulers + spec.kubelets + spec.etcd_members) * spec.apiservers
    async with Links(count) as links:
        fittings = Fittings(links.wire, arguments, environment)
        async with scratch_cluster(spec, progress, fittings=fittings) as cluster, cluster.client() as client:
            etcd = [record.plan.address for record in cluster.state.of(ETCD)]
            try:
                async with (
                    Recorder(etcd, folder / STORED, folder / "recorder.log") as recorder,
                    Helper("apiserver.storage.etcd.surgery", "--etcd", ",".join(etcd)) as surgeon,
                ):
                    yield cluster, World(cluster, links, surgeon, client, clocks, lambda: recorder.revision, folder), recorder
            finally:
                shutil.copytree(cluster.folder.log("").parent, folder / "logs", dirs_exist_ok=True)


def _versions() -> Mapping[str, str]:
    etcd = ".".join(map(str, find_etcd().version))
    machine = this_machine()
    return {"commit": machine.commit, "python": machine.python, "etcd": etcd, "kernel": machine.kernel}
