"""All scenarios, and the execution of one of them, from the start of its cluster to the verdict."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pinnace.client.errors import ApiError
from pinnace.cluster.spec import ELECTION
from pinnace.cluster.startup import StartProgress
from pinnace.history.verdict import Status, Verdict, verdict_document
from pinnace.runtime.logs import (
    LeadershipAbandoned,
    LeadershipLost,
    NodesReclaimed,
    NodesTakenOver,
    NodesYielded,
    TokenFenced,
    read_log,
)
from pinnace.verification.chaos import workers
from pinnace.verification.chaos.clients import HistoryJournal
from pinnace.verification.chaos.engine import build_run_record
from pinnace.verification.chaos.load import ChaosLoad
from pinnace.verification.chaos.log_scan import find_log_errors
from pinnace.verification.chaos.scenarios.base import Scenario, ScenarioContext, ScenarioError, ScenarioExpectation
from pinnace.verification.chaos.scenarios.clients import FloodWithoutRights, HostilePodsScenario, RacingWriters
from pinnace.verification.chaos.scenarios.components import (
    DuplicateKubelet,
    FreezeLeader,
    KillApiServer,
    KillLeader,
    PartitionLeader,
)
from pinnace.verification.chaos.scenarios.etcd import CompactHistory, EtcdDiskFull, EtcdLeader, EtcdQuorum, Restore
from pinnace.verification.chaos.scenarios.figures import (
    ScenarioMoment,
    list_compacted_watches,
    list_election_moments,
    list_log_moments,
)
from pinnace.verification.chaos.stage import JOURNAL, LOGS, start_chaos_cluster
from pinnace.verification.check.check import check_history
from pinnace.verification.check.index import History

SCENARIOS: dict[str, type[Scenario]] = {
    KillLeader.name: KillLeader,
    FreezeLeader.name: FreezeLeader,
    PartitionLeader.name: PartitionLeader,
    KillApiServer.name: KillApiServer,
    EtcdLeader.name: EtcdLeader,
    EtcdQuorum.name: EtcdQuorum,
    EtcdDiskFull.name: EtcdDiskFull,
    CompactHistory.name: CompactHistory,
    Restore.name: Restore,
    DuplicateKubelet.name: DuplicateKubelet,
    FloodWithoutRights.name: FloodWithoutRights,
    HostilePodsScenario.name: HostilePodsScenario,
    RacingWriters.name: RacingWriters,
}


STEADY = 1.0
"""Seconds of load before the fault."""
SETTLE = 20.0
"""Seconds after the fault within which the cluster must recover."""
CATCH_UP = 10.0
SHOWN = (LeadershipLost, TokenFenced, LeadershipAbandoned, NodesTakenOver, NodesYielded, NodesReclaimed)
"""The log events of schedulers and kubelets that the timeline includes."""


@dataclass(slots=True)
class ScenarioReport:
    """The result of a scenario. `moments`: events in order, in seconds after the first fault. `verdicts`: the verdicts on all
    invariants; the invariants that the scenario tests are displayed first. `lacking`: problems that remained after the
    recovery, and other failures."""

    name: str
    moments: Sequence[ScenarioMoment]
    expectations: Sequence[ScenarioExpectation]
    verdicts: Sequence[Verdict]
    shown: Sequence[str]
    lacking: Sequence[str]
    void: Sequence[str]
    calls: Mapping[str, int]
    rate: float
    saved_folder: str = ""

    @property
    def status(self) -> Status:
        """The status of the run. It is void if an invariant that the scenario tests was not examined."""
        if self.lacking or any(not e.good for e in self.expectations) or any(v.status == "violated" for v in self.verdicts):
            return "violated"
        return "void" if self.void or any(v.status != "holds" for v in self.tested) else "holds"

    @property
    def tested(self) -> list[Verdict]:
        """The displayed verdicts: those that the scenario tests, and all violated ones."""
        return [v for v in self.verdicts if v.name in self.shown or v.status == "violated"]

    def to_json(self) -> dict[str, Any]:
        return {
            "scenario": self.name,
            "status": self.status,
            "timeline": [{"at_ms": round(m.at * 1000, 1), "what": m.what, "fault": m.hit} for m in self.moments],
            "expectations": [asdict(expectation) for expectation in self.expectations],
            "verdicts": [verdict_document(verdict) for verdict in self.verdicts],
            "lacking": list(self.lacking),
            "void": list(self.void),
            "calls": dict(self.calls),
            "calls_per_s": round(self.rate, 1),
            "kept": self.saved_folder,
        }


async def perform_scenario(scenario: Scenario, folder: Path, progress: StartProgress, seed: int) -> ScenarioReport:
    """Execute a scenario. Afterwards all files are in `folder`, and no process of the cluster is left. Raises ScenarioError,
    ChaosError, LoadError, HelperError, NotPossible, ClusterError, HistoryError."""
    offset = time.time() - time.monotonic()
    rng = random.Random(seed)
    with HistoryJournal(folder / JOURNAL) as journal:
        journal.write(build_run_record(time.time(), seed, f"chaos {scenario.name}", SETTLE))
        async with start_chaos_cluster(scenario.spec, folder, progress, scenario.props) as on, on.cluster.client() as client:
            async with on.bystander, ChaosLoad(on.cluster.config, journal, on.nodes, seed=seed) as load:
                context = ScenarioContext(on, load, journal, client, rng)
                progress.waiting("the load and the fault")
                await asyncio.sleep(STEADY)
                try:
                    await _play_scenario(scenario, context)
                finally:
                    await on.under_test.undo_all_faults()
                progress.waiting("the recovery")
                settled = await load.stop_and_settle(within=SETTLE)
                reasons = await _read_term_ends(context)
                calls, rate = load.calls, load.rate
                lacking = [
                    *settled.lacking,
                    *workers.find_wrongly_succeeded(load.attempts),
                    *on.under_test.unstoppable_processes,
                ]
                lacking += [
                    f"{name} ended unexpectedly: exit code {code}" for name, code in on.under_test.find_crashed_processes()
                ]
            await on.recorder.wait_for_revision(settled.revision, CATCH_UP)
    lacking += find_log_errors(folder / LOGS, on.under_test.excuses)
    progress.waiting("the verdict")
    return await asyncio.to_thread(lambda: _build_report(scenario, folder, context, reasons, offset, lacking, calls, rate))


async def _play_scenario(scenario: Scenario, context: ScenarioContext) -> None:
    """Execute the scenario's actions. Raises ScenarioError with the events so far, and the exceptions of ClusterUnderTest."""
    try:
        try:
            await scenario.run_scenario(context)
        except ApiError as error:
            raise ScenarioError(f"a request to the cluster failed: {error}") from error
    except ScenarioError as error:
        error.moments = context.moments_relative_to_fault(context.moments)
        raise


async def _read_term_ends(context: ScenarioContext) -> dict[int, str]:
    """Return the reasons for the ends of the schedulers' terms by token."""
    try:
        return {term.token: term.reason for term in await context.client.elections.list_terms(ELECTION)}
    except ApiError:
        return {}


def _build_report(
    scenario: Scenario,
    folder: Path,
    context: ScenarioContext,
    reasons: Mapping[int, str],
    offset: float,
    lacking: Sequence[str],
    calls: Mapping[str, int],
    rate: float,
) -> ScenarioReport:
    records = scenario.read_history(folder)
    check_report, seen = check_history(records), History(records)
    end = seen.phases.get("quiet", float("inf"))
    moments = [
        *context.moments,
        *list_election_moments(records, ELECTION, context.zero, reasons),
        *list_compacted_watches(records, context.zero),
    ]
    for name in dict.fromkeys(context.watched):
        moments += list_log_moments(read_log(folder / LOGS / f"{name}.log"), name, context.zero, offset, SHOWN)
    timeline = context.moments_relative_to_fault(m for m in moments if m.at <= end)
    return ScenarioReport(
        scenario.name,
        timeline,
        scenario.judge_history(seen),
        check_report.verdicts,
        scenario.invariants,
        lacking,
        check_report.void,
        calls,
        rate,
    )
