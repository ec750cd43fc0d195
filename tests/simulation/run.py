"""One run: a seed is played, its history judged.

prepare --> load, and blows --> quiet: faults are over --> all is well, or PATIENCE is over --> end --> check
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pinnace.api.resources import PODS
from pinnace.history.records import Record, RunInfo, RunPhase
from pinnace.history.verdict import Verdict
from pinnace.verification.chaos.load import FENCED
from pinnace.verification.chaos.workers import ANOTHER, CONTESTED
from pinnace.verification.check.check import NAMES, check_history
from tests.simulation.cluster import Cluster
from tests.simulation.determinism import sealed
from tests.simulation.etcd import SimEtcd
from tests.simulation.faults import Nemesis
from tests.simulation.journal import MemoryJournal
from tests.simulation.loop import START, SimLoop, Stuck
from tests.simulation.network import Frame, Network
from tests.simulation.plan import BEARABLE, BEARABLE_WITH_OTHERS, DOUBLING, FREEZING, Kind, Plan, plan
from tests.simulation.process import EPOCH, PROCESS, Process
from tests.simulation.workload import ELECTION, PATIENCE, Workload

SETTLING = 2.5
"""Seconds, at least, between the last fault and the end: whoever is going to lead leads by then."""
LEADERLESS = 3.0
"""Seconds without a leader, at most: a lease that runs out, and a little more."""
ENDINGS = ("pinnace.client.standby", "pinnace.scheduler.scheduler")
"""The loggers that tell of a term that has ended by itself."""
JUDGED: dict[Kind, tuple[str, ...]] = {
    Kind.ELECTION: tuple(name for name in NAMES if name not in ("I2", "L1")),  # candidates bind to nodes that nobody has
    Kind.STORAGE: tuple(name for name in NAMES if name != "L1"),
    Kind.WHOLE: NAMES,
}


@dataclass(slots=True)
class Outcome:
    """What came of a seed. `problems`: empty is good. `digest`: equal in every replay."""

    plan: Plan
    problems: list[str]
    verdicts: list[Verdict]
    digest: str
    steps: int
    seconds: float
    """Virtual."""
    records: int
    faults: list[str] = field(default_factory=list)
    history: Sequence[Record] = ()
    """If it is kept."""


class Complaints(logging.Handler):
    """Log records that say that something is wrong with the product: errors are bugs here."""

    def __init__(self, loop: SimLoop, say: Callable[[str], None] | None) -> None:
        super().__init__(logging.INFO if say else logging.ERROR)
        self.errors: list[str] = []
        self.ending: set[str] = set()
        """As Cluster.ending."""
        self._loop = loop
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.levelno >= logging.ERROR:
            process = PROCESS.get()
            if record.name not in ENDINGS or process is None or process.name not in self.ending:
                self.errors.append(
                    f"{process.name if process else 'world'} logged at {self._loop.time() - START:.3f} s: {text}"
                )
        if self._say:
            self._say(text)


def play(seed: int, *, say: Callable[[str], None] | None = None, bug: str = "", keep: bool = False) -> Outcome:
    """Runs a seed. `say` gets the lines of a trace: time, process, what. `bug`: the name of the planted bug, for the history.
    `keep`: whether the outcome contains the history."""
    made = plan(seed)
    loop = SimLoop(seed)

    def tell(text: str) -> None:
        if say:
            process = PROCESS.get()
            say(f"{loop.time() - START:9.4f} {process.name if process else '-':14} {text}")

    def trace(source: Process, target: Process, frame: Frame) -> None:
        if say:
            what = " ".join(f"{len(part)} bytes" if isinstance(part, bytes) else str(part) for part in frame)
            say(f"{loop.time() - START:9.4f} {source.name} -> {target.name}: {what}")

    complaints = Complaints(loop, tell if say else None)
    root = logging.getLogger()
    level = root.level
    root.addHandler(complaints)
    root.setLevel(logging.INFO if say else logging.ERROR)
    rng = random.Random(f"world {seed}")
    network = Network(loop, random.Random(f"network {seed}"), trace)
    network.weather.jitter = made.jitter
    journal = MemoryJournal(loop.world.clock)
    problems: list[str] = []
    try:
        with sealed(loop, network, seed):
            etcd = SimEtcd(
                loop.world.clock,
                random.Random(f"etcd {seed}"),
                on_changes=journal.changed,
                on_compaction=journal.compacted,
            )
            cluster = Cluster(loop, network, etcd, journal, rng, made.servers)
            complaints.ending = cluster.ending
            try:
                problems += loop.run(_story(made, cluster, tell, bug))
            except Stuck as stuck:
                problems.append(f"stuck: {stuck}")
            problems += loop.failures
    finally:
        root.removeHandler(complaints)
        root.setLevel(level)
    problems += complaints.errors
    report = check_history(journal.records)
    for verdict in report.violated_verdicts:
        problems += [f"{verdict.name} ({verdict.statement}): {violation.text}" for violation in verdict.violations[:3]]
    return Outcome(
        plan=made,
        problems=problems,
        verdicts=list(report.verdicts),
        digest=f"{journal.digest()}-{loop.steps}-{loop.rng.getrandbits(32):08x}",
        steps=loop.steps,
        seconds=loop.time() - START,
        records=len(journal.records),
        faults=[blow.fault for blow in made.blows],
        history=tuple(journal.records) if keep else (),
    )


async def _story(made: Plan, cluster: Cluster, tell: Callable[[str], None], bug: str) -> list[str]:
    """What was lacking at the end."""
    clock, journal = cluster.loop.world.clock, cluster.journal
    names = tuple(dict.fromkeys(blow.fault for blow in made.blows))
    journal.write(
        RunInfo(
            EPOCH,
            made.seed,
            f"simulation of {made.kind.value}: {', '.join(names)}",
            judged=JUDGED[made.kind],
            bug=bug,
            private=(f"{PODS.prefix}{CONTESTED}/",),
            fenced=FENCED,
            settle=PATIENCE,
            elections=(ELECTION,) if made.kind is not Kind.STORAGE else (),
            unsteady=(ANOTHER,),
            leaderless=LEADERLESS,
            bearable=BEARABLE + (BEARABLE_WITH_OTHERS if made.servers > 1 else ()),
            freezing=FREEZING,
            doubling=DOUBLING,
        )
    )
    cluster.start_servers()
    if made.kind is Kind.WHOLE:
        cluster.start_schedulers(made.replicas)
        cluster.start_fleet(made.nodes, made.capacity)
    workload = Workload(cluster, made)
    operator = Process("operator", cluster.loop)
    await operator.start(workload.prepare)
    journal.write(RunPhase(clock.monotonic(), "load"))
    workload.start()
    began = clock.monotonic()
    nemesis = Nemesis(cluster, tell)
    async with asyncio.TaskGroup() as blows:
        for blow in made.blows:
            await clock.sleep(max(0.0, began + blow.at - clock.monotonic()))
            blows.create_task(nemesis.strike(blow))
        await clock.sleep(max(0.0, began + made.seconds - clock.monotonic()))
        workload.stop()
    tell("quiet")
    journal.write(RunPhase(clock.monotonic(), "quiet"))
    await clock.sleep(SETTLING)
    lacking = await workload.well()
    journal.write(RunPhase(clock.monotonic(), "end"))
    return lacking
