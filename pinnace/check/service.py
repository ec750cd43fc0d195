"""What users get while one of them does harm, and what each fault shows of its target.

L3: while pods wait for a node, some are bound within a bound. A span begins when a pod waits and ends with the next bind of any
    pod; it is violated when its uncovered time exceeds `bind_within`. Pods that are judged are those under the run's `fenced`
    prefixes that ask for room only, from the load to the quiet phase.
L4: while one user does harm (a fault that the run calls hostile), the bystanders are answered: none of their calls fails, and
    nine of ten take at most `answer_within` seconds.
F:  a figure that a fault has read from its target is within its bounds, and each fault that must read one did.

For L3 and L4 a fault covers the time for which it is on and `aftermath` seconds after it, unless the run tolerates it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pinnace.check.faults import end_of, uncovered
from pinnace.check.history import Call, Fault, Run
from pinnace.check.index import History
from pinnace.check.verdict import Findings

BINDING, BINDING_STATEMENT = "L3", "while pods wait for a node, some are bound within a bound"
ANSWERING, ANSWERING_STATEMENT = "L4", "other users are answered in time while one of them does harm"
OBSERVED, OBSERVED_STATEMENT = "F", "each fault shows of its target what it must"
FEWEST = 10
"""Calls of bystanders during one fault; with fewer their times say nothing."""


def examine_binds(history: History, found: Findings) -> None:
    load, quiet = history.phases.get("load"), history.phases.get("quiet")
    if load is None or quiet is None:
        return
    run = history.run or Run(0.0)
    covering = _covering(history, run)
    waiting: set[str] = set()
    since = load

    def judge(until: float) -> None:
        found.examined += 1
        alone = uncovered(since, until, covering) if until - since > run.bind_within else 0.0
        if alone > run.bind_within:
            text = f"no pod was bound for {until - since:.1f} s, {alone:.1f} s of it without a fault that excuses it"
            found.violated(f"{text}; {len(waiting)} waited, bound {run.bind_within:g} s", at=until)

    for at, uid, waits, bound in _waits(history, run):
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


def _waits(history: History, run: Run) -> Iterator[tuple[float, str, bool, bool]]:
    """Each change of a pod: when, its uid, whether it waits for a node now, and whether it was just bound."""
    for stored, now, before in history.pods:
        if stored.key.startswith(run.fenced):
            facts = now or before
            assert facts is not None
            waits = now is not None and not now.node and not now.terminating and not now.picky and not now.finished
            yield stored.at, facts.uid, waits, now is not None and bool(now.node) and before is not None and not before.node


def examine_answers(history: History, found: Findings) -> None:
    run = history.run or Run(0.0)
    calls = [call for call in history.calls if call.client in run.bystanders]
    for fault in history.faults.values():
        if fault.fired and fault.name in run.hostile:
            _judge_answers(fault, _during(fault, calls, _covering(history, run)), run, found)


def _during(fault: Fault, calls: Sequence[Call], covering: Sequence[Fault]) -> list[Call]:
    """The calls that began while the fault was on, and that no covering fault touches."""
    until = end_of(fault)
    inside = (call for call in calls if fault.began <= call.began <= until)
    return [call for call in inside if not any(each.began <= call.ended and end_of(each) >= call.began for each in covering)]


def _judge_answers(fault: Fault, calls: Sequence[Call], run: Run, found: Findings) -> None:
    if len(calls) < FEWEST:
        return
    found.examined += len(calls)
    during = f"while {fault.name} {fault.target} was on"
    failed = [call for call in calls if call.outcome != "ok"]
    if failed:
        codes = ", ".join(sorted({call.code or call.outcome for call in failed}))
        found.violated(f"{len(failed)} of {len(calls)} calls of bystanders failed {during}: {codes}", at=failed[0].ended)
    took = sorted(call.ended - call.began for call in calls)
    usual = took[len(took) * 9 // 10]
    if usual > run.answer_within:
        text = f"a tenth of the bystanders' calls took {usual:.2f} s or more {during}, bound {run.answer_within:g} s"
        found.violated(text, at=fault.began)


def examine_observations(history: History, found: Findings) -> None:
    run = history.run or Run(0.0)
    for observed in history.observed:
        found.examined += 1
        low = observed.least is not None and observed.value < observed.least
        high = observed.most is not None and observed.value > observed.most
        if low or high:
            bound = f"at least {observed.least:g}" if low else f"at most {observed.most:g}"
            fault = history.faults.get(observed.fault)
            during = f" during {fault.name}" if fault else ""
            text = f"{observed.target}{during}: {observed.what} is {observed.value:g}, must be {bound}"
            found.violated(text, at=observed.at)
    reported = {observed.fault for observed in history.observed}
    for fault in history.faults.values():
        if fault.fired and fault.ended is not None and fault.name in run.observing and fault.id not in reported:
            found.void.append(f"fault {fault.id}, {fault.name} {fault.target}, observed nothing")


def _covering(history: History, run: Run) -> list[Fault]:
    """The faults that excuse a delay, each longer by the time that its target takes to recover."""
    fired = (fault for fault in history.faults.values() if fault.fired and fault.name not in run.tolerated)
    return [replace(fault, ended=end_of(fault) + run.aftermath) for fault in fired]
