"""Checkers for L1 (after the last fault, feasible pods are bound and Running within a limit), L2 (an election has a leader
within a limit, and leadership does not move without a fault), L3, L4 and L5 (pods are bound, and users receive responses, while
another user overloads the servers or a gateway) and F (values observed by faults are within their limits).

L1 and L2 need the phases of a run. L1 checks the pods that exist at the end of the run, `settle` seconds after the last fault
(or after their creation, if that is later). A pod is feasible if it is bound, or if an open node has free resources for it at
the end. Pods with constraints other than resources are not checked. If the limit of a pod has not expired at the end of the
run, the run was too short and is void.

For each gap of each election, L2 adds up the time without a leader that is not covered by faults. The elections named by the
run must have a leader from the load phase on. Other elections must have one after their first leader, unless the run declares
them unsteady. When a leader is replaced, a fault must have been active in the preceding `aftermath` seconds. A single bearable
fault is not sufficient. Harmless faults are ignored. A leader that is frozen for longer than `leaderless` seconds, without
another fault, must have lost leadership.

L3: an interval begins when a pod waits for a node, and ends with the next bind of any pod. Its uncovered time must not exceed
    `bind_within`. L3 checks pods under the run's `fenced` prefixes without constraints other than resources, from the load
    phase to the quiet phase.
L4: during a hostile fault, no call of the bystanders fails, and 90% of the calls take at most `answer_within` seconds.
L5: during an attack on a gateway, no call of the gateways' bystanders fails, and 99% take at most `gateway_answers_within`.
F:  a value that a fault read from its target is within its limits, and each fault that must read a value did so.

For L3, L4 and L5, a fault covers its duration and the following `aftermath` seconds, unless the run tolerates it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pinnace.api.resources import NODES
from pinnace.history.records import CallRecord, ElectionFacts, FaultRecord, NodeFacts, PodFacts, RunInfo, StoredChange
from pinnace.history.verdict import Findings
from pinnace.verification.check.index import History, find_fault_end, measure_uncovered

PODS_RUN = ("L1", "after the last fault, every feasible pod is bound and Running within a limit")
LEADERSHIP = ("L2", "there is a leader within a limit; leadership does not move without a fault")
BINDS_CONTINUE = ("L3", "while pods wait for a node, binds continue within a limit")
ANSWERED = ("L4", "users receive timely responses while another user overloads the servers")
GATEWAYS_ANSWER = ("L5", "users of a gateway receive timely responses while another user attacks it")
OBSERVATIONS = ("F", "the values that faults read from their targets are within limits")
FEWEST = 10
"""The minimum number of bystanders' calls during a fault. With fewer calls, L4 and L5 are not checked."""


def examine_pods(history: History, findings: Findings) -> None:
    quiet, end = history.phases.get("quiet"), history.phases.get("end")
    if quiet is None or end is None:
        return
    settle = _run_record(history).settle
    room = _FreeResources(history)
    unjudged = 0
    for versions in history.keys.values():
        pod = versions[-1].facts
        if not isinstance(pod, PodFacts) or pod.terminating:
            continue
        deadline = max(quiet, _creation_time(versions)) + settle
        running = next((stored.at for stored in versions if _is_running(stored, pod.uid)), None)
        if running is None and deadline > end:
            unjudged += bool(pod.node or room.find_node_for_pod(pod))
            continue
        findings.examined += 1
        key, at = versions[-1].key, versions[-1].at
        if running is not None:
            if running > deadline:
                findings.add_violation(
                    f"pod {key} was Running {running - quiet:.1f} s after the last fault, limit {settle:g} s", at=running
                )
        elif pod.node:
            findings.add_violation(f"pod {key} is {pod.phase} on {pod.node}, {end - quiet:.1f} s after the last fault", at=at)
        elif node := room.find_node_for_pod(pod):
            findings.add_violation(
                f"pod {key} is not bound {end - quiet:.1f} s after the last fault; node {node} has room", at=at
            )
    if unjudged:
        findings.void.append(f"the run ended {end - quiet:.1f} s after the last fault, before the limit of {unjudged} pods")


def examine_leaders(history: History, findings: Findings) -> None:
    load, end = history.phases.get("load"), history.phases.get("end")
    if load is None or end is None:
        return
    limit = _run_record(history).leaderless
    harmless = _run_record(history).harmless
    faults = [fault for fault in history.faults.values() if fault.fired and fault.name not in harmless]
    wanted = _run_record(history).elections
    for name in dict.fromkeys((*wanted, *history.elections)):
        if name in _run_record(history).unsteady:
            continue
        versions = history.elections.get(name, [])
        vacant = load if name in wanted else None  # the time since when there is no leader
        token = 0
        for stored in versions:
            if not stored.digest:
                vacant = stored.at
                continue
            if token and stored.create_revision != token and load <= stored.at <= end:
                findings.examined += 1
                _check_cause(
                    name, token, stored, stored.at if vacant is None else vacant, faults, _run_record(history), findings
                )
            if vacant is not None:
                _check_gap(name, max(vacant, load), min(stored.at, end), faults, limit, findings)
            vacant, token = None, stored.create_revision
        _check_frozen(name, versions, history, limit, findings)
        if vacant is not None and vacant < end:
            _check_gap(name, max(vacant, load), end, faults, limit, findings)
        findings.examined += 1


def _check_cause(
    name: str, token: int, stored: StoredChange, at: float, faults: Iterable[FaultRecord], run: RunInfo, findings: Findings
) -> None:
    """Check that a fault explains a change of leadership. `at`: the time at which the previous leader lost it."""
    near = [fault for fault in faults if fault.began <= at <= find_fault_end(fault) + run.aftermath]
    if len(near) > 1 or any(fault.name not in run.bearable for fault in near):
        return
    cause = f"only the bearable fault {near[0].name} {near[0].target} was active" if near else "there was no recent fault"
    text = f'election "{name}": leadership moved from token {token} to {stored.create_revision}, and {cause}'
    findings.add_violation(text, revision=stored.revision, at=stored.at)


def _check_frozen(name: str, versions: list[StoredChange], history: History, limit: float, findings: Findings) -> None:
    """Check that a frozen leader loses leadership."""
    freezing = _run_record(history).freezing
    faults = [fault for fault in history.faults.values() if fault.fired]
    for fault in faults:
        due = fault.began + limit
        alone = not any(
            item is not fault and item.began <= due and find_fault_end(item) + limit >= fault.began for item in faults
        )
        if fault.name not in freezing or due > find_fault_end(fault) or not alone:
            continue
        leader, later = _leader_at(versions, fault.began), _leader_at(versions, due)
        if leader is None or leader[1] != fault.target:
            continue
        findings.examined += 1
        if leader == later:
            text = f"{fault.target} is frozen, but still leads with token {leader[0]} after {limit:g} s"
            findings.add_violation(f'election "{name}": {text}', at=due)


def _leader_at(versions: list[StoredChange], at: float) -> tuple[int, str] | None:
    """Return the token and holder of the election at this time, or None if it had no leader."""
    last = next((stored for stored in reversed(versions) if stored.at <= at), None)
    facts = last.facts if last is not None else None
    return (last.create_revision, facts.holder) if last is not None and isinstance(facts, ElectionFacts) else None


def _check_gap(name: str, since: float, until: float, faults: Iterable[FaultRecord], limit: float, findings: Findings) -> None:
    alone = measure_uncovered(since, until, faults)
    if alone > limit:
        text = f"no leader for {until - since:.1f} s, {alone:.1f} s of it without a fault; limit {limit:g} s"
        findings.add_violation(f'election "{name}": {text}', at=until)


def _run_record(history: History) -> RunInfo:
    return history.run or RunInfo(0.0)


def _creation_time(versions: list[StoredChange]) -> float:
    """Return the time at which the current pod was created."""
    return next((stored.at for stored in reversed(versions) if stored.create_revision == stored.revision), versions[0].at)


def _is_running(stored: StoredChange, uid: str) -> bool:
    facts = stored.facts
    return isinstance(facts, PodFacts) and facts.uid == uid and (facts.phase == "Running" or facts.finished)


class _FreeResources:
    """The free resources of the open nodes at the end of the history."""

    def __init__(self, history: History) -> None:
        self._free: dict[str, Counter[str]] = defaultdict(Counter)
        for key, versions in history.keys.items():
            facts = versions[-1].facts
            if isinstance(facts, NodeFacts) and facts.open:
                self._free[key.removeprefix(NODES.prefix)].update(dict(facts.allocatable))
        for versions in history.keys.values():
            facts = versions[-1].facts
            if isinstance(facts, PodFacts) and facts.node in self._free and not facts.finished:
                self._free[facts.node].subtract(dict(facts.requests))

    def find_node_for_pod(self, pod: PodFacts) -> str:
        """Return a node with free resources for the pod, or "" if there is none or the pod has other constraints."""
        if pod.picky:
            return ""
        return next(
            (name for name, free in self._free.items() if all(free[resource] >= amount for resource, amount in pod.requests)),
            "",
        )


def examine_binds(history: History, findings: Findings) -> None:
    load, quiet = history.phases.get("load"), history.phases.get("quiet")
    if load is None or quiet is None:
        return
    run = history.run or RunInfo(0.0)
    covering = _extended_faults(history, run)
    waiting: set[str] = set()
    since = load

    def judge(until: float) -> None:
        findings.examined += 1
        alone = measure_uncovered(since, until, covering) if until - since > run.bind_within else 0.0
        if alone > run.bind_within:
            text = f"no pod was bound for {until - since:.1f} s, {alone:.1f} s of it without an excusing fault"
            findings.add_violation(f"{text}; {len(waiting)} waited, limit {run.bind_within:g} s", at=until)

    for at, uid, waits, bound in _list_waiting_changes(history, run):
        if at > quiet:
            break
        if waits and not waiting:
            since = max(at, load)
        if bound and waiting and at >= load:
            judge(at)
            since = at
        (waiting.add if waits else waiting.discard)(uid)
    if waiting:
        judge(quiet)


def _list_waiting_changes(history: History, run: RunInfo) -> Iterator[tuple[float, str, bool, bool]]:
    """Yield the changes of pods: time, uid, whether the pod waits for a node, and whether it was bound by this change."""
    for stored, now, before in history.pods:
        if stored.key.startswith(run.fenced):
            facts = now or before
            assert facts is not None
            waits = now is not None and not now.node and not now.terminating and not now.picky and not now.finished
            yield stored.at, facts.uid, waits, now is not None and bool(now.node) and before is not None and not before.node


def examine_answers(history: History, findings: Findings) -> None:
    run = history.run or RunInfo(0.0)
    _examine_calls(history, run.bystanders, run.hostile, _LatencyLimit(90, run.answer_within), findings)


def examine_gateway_answers(history: History, findings: Findings) -> None:
    run = history.run or RunInfo(0.0)
    _examine_calls(history, run.gateway_bystanders, run.attacks, _LatencyLimit(99, run.gateway_answers_within), findings)


@dataclass(frozen=True, slots=True)
class _LatencyLimit:
    """This percentile of the latencies is at most `seconds`."""

    percentile: int
    seconds: float


def _examine_calls(
    history: History, clients: Sequence[str], faults: Sequence[str], limit: _LatencyLimit, findings: Findings
) -> None:
    run = history.run or RunInfo(0.0)
    calls = [call for call in history.calls if call.client in clients]
    for fault in history.faults.values():
        if fault.fired and fault.name in faults:
            _check_latency(fault, _calls_during_fault(fault, calls, _extended_faults(history, run)), limit, findings)


def _calls_during_fault(fault: FaultRecord, calls: Sequence[CallRecord], covering: Sequence[FaultRecord]) -> list[CallRecord]:
    """Return the calls that began during the fault and do not overlap with a covering fault."""
    until = find_fault_end(fault)
    inside = (call for call in calls if fault.began <= call.began <= until)
    return [
        call for call in inside if not any(item.began <= call.ended and find_fault_end(item) >= call.began for item in covering)
    ]


def _check_latency(fault: FaultRecord, calls: Sequence[CallRecord], limit: _LatencyLimit, findings: Findings) -> None:
    if len(calls) < FEWEST:
        return
    findings.examined += len(calls)
    during = f"during {fault.name} {fault.target}"
    failed = [call for call in calls if call.outcome != "ok"]
    if failed:
        codes = ", ".join(sorted({call.code or call.outcome for call in failed}))
        findings.add_violation(
            f"{len(failed)} of {len(calls)} calls of bystanders failed {during}: {codes}", at=failed[0].ended
        )
    took = sorted(call.ended - call.began for call in calls)
    usual = took[len(took) * limit.percentile // 100]
    if usual > limit.seconds:
        part = f"{100 - limit.percentile}% of the bystanders' calls"
        text = f"{part} took {usual:.2f} s or more {during}, limit {limit.seconds:g} s"
        findings.add_violation(text, at=fault.began)


def examine_observations(history: History, findings: Findings) -> None:
    run = history.run or RunInfo(0.0)
    for observed in history.observed:
        findings.examined += 1
        low = observed.least is not None and observed.value < observed.least
        high = observed.most is not None and observed.value > observed.most
        if low or high:
            bound = f"at least {observed.least:g}" if low else f"at most {observed.most:g}"
            fault = history.faults.get(observed.fault)
            during = f" during {fault.name}" if fault else ""
            text = f"{observed.target}{during}: {observed.what} is {observed.value:g}, must be {bound}"
            findings.add_violation(text, at=observed.at)
    reported = {observed.fault for observed in history.observed}
    for fault in history.faults.values():
        if fault.fired and fault.ended is not None and fault.name in run.observing and fault.id not in reported:
            findings.void.append(f"fault {fault.id}, {fault.name} {fault.target}, did not record an observation")


def _extended_faults(history: History, run: RunInfo) -> list[FaultRecord]:
    """Return the faults that excuse a delay, each extended by the recovery time of its target."""
    fired = (fault for fault in history.faults.values() if fault.fired and fault.name not in run.tolerated)
    return [replace(fault, ended=find_fault_end(fault) + run.aftermath) for fault in fired]
