"""The table of checkers, and the check of a history."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from pinnace.history.records import Record
from pinnace.history.verdict import CheckReport, Findings, Verdict
from pinnace.verification.check import binding, consistency, liveness, pods, watches
from pinnace.verification.check.index import History


@dataclass(frozen=True, slots=True)
class HistoryChecker:
    """A checker. `examine(history, *findings)` receives one Findings for each of `invariants` (name, statement)."""

    invariants: tuple[tuple[str, str], ...]
    examine: Callable[..., None]


CHECKERS = (
    HistoryChecker((consistency.COMPLETE_HISTORY,), consistency.examine_completeness),
    HistoryChecker((binding.BIND_ONCE,), binding.examine_bind_once),
    HistoryChecker((binding.CAPACITY,), binding.examine_capacity),
    HistoryChecker((binding.FENCED_BINDS,), binding.examine_fencing),
    HistoryChecker((binding.ONE_HOLDER,), binding.examine_elections),
    HistoryChecker((consistency.DURABILITY,), consistency.examine_durability),
    HistoryChecker((consistency.MONOTONIC_READS,), consistency.examine_sessions),
    HistoryChecker((consistency.LINEARIZABILITY,), consistency.examine_linearizability),
    HistoryChecker((watches.WATCH_EVENTS, watches.BOOKMARKS), watches.examine_watches),
    HistoryChecker((pods.PHASES,), pods.examine_phases),
    HistoryChecker((pods.ONE_NODE,), pods.examine_nodes),
    HistoryChecker((watches.SNAPSHOT_PAGES,), watches.examine_pages),
    HistoryChecker((pods.ONE_PROCESS,), pods.examine_processes),
    HistoryChecker((liveness.PODS_RUN,), liveness.examine_pods),
    HistoryChecker((liveness.LEADERSHIP,), liveness.examine_leaders),
    HistoryChecker((liveness.BINDS_CONTINUE,), liveness.examine_binds),
    HistoryChecker((liveness.ANSWERED,), liveness.examine_answers),
    HistoryChecker((liveness.GATEWAYS_ANSWER,), liveness.examine_gateway_answers),
    HistoryChecker((liveness.OBSERVATIONS,), liveness.examine_observations),
)
NAMES = tuple(name for checker in CHECKERS for name, _ in checker.invariants)


def check_history(records: Iterable[Record], only: Collection[str] | None = None) -> CheckReport:
    """Check a history. `only`: the names of the invariants to check, by default those that the run is made for. Other
    invariants are reported as "not checked"."""
    history = History(records)
    only = only or (history.run.judged if history.run else None) or None
    verdicts: list[Verdict] = []
    void = _find_void_reasons(history)
    for checker in CHECKERS:
        findings = [Findings(name, statement) for name, statement in checker.invariants]
        if only is None or any(part.name in only for part in findings):
            checker.examine(history, *findings)
            verdicts += [part.make_verdict() for part in findings]
            void += [reason for part in findings for reason in part.void]
        else:
            verdicts += [Verdict(part.name, part.statement, "not checked") for part in findings]
    return CheckReport(verdicts, void)


def _find_void_reasons(history: History) -> list[str]:
    """Return the reasons why the run is void."""
    reasons = []
    if not history.stored:
        reasons.append("the history contains no writes")
    fired = {fault.name for fault in history.faults.values() if fault.fired}
    wanted = history.run.faults if history.run else ()
    reasons += [f'fault "{name}" did not fire' for name in wanted if name not in fired]
    return reasons
