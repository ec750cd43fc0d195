"""Checkers for I10 (a pod's phase follows the phase graph and has one writer), I11 (a pod runs on at most one node) and I13 (a
pod runs in one process at a time, and only while it exists).

I10:  Pending --> Running --> Succeeded | Failed          Pending --> Succeeded | Failed

`Unknown` is not a valid phase: Kubernetes has not set it since 2015, and no component sets it here. A pod is created Pending.
Only a bound pod can be Running or Succeeded. The kubelet that accepts a pod writes `startTime`, and later writes keep it. A
changed startTime means that two kubelets manage the pod. Each transition is written once: no write stores an unchanged object.
Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase

I11 and I13 use the run logs of the kubelets. Each process records when it starts and stops a pod, and writes a line every
second. Two processes of one fleet can run the same pod for at most LINGER seconds, until the older process receives the news of
its replacement. Time covered by a fault is excluded, except for faults that start a second process. At the end of the run, no
live process runs a pod that was deleted from etcd more than STOP_TIMEOUT seconds earlier. A pod that is Running in etcd has
been started by a process. A killed process writes no more lines, so its pods end with its last line. Logs without process names
are not checked for duplicate processes.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations

from pinnace.history.records import PodFacts
from pinnace.history.verdict import Findings
from pinnace.verification.check.index import History, PodChange, measure_uncovered

PHASES = ("I10", "a pod's status follows the phase graph, has one writer, and each transition is written once")
TRANSITIONS = {
    "Pending": ("Pending", "Running", "Succeeded", "Failed"),
    "Running": ("Running", "Succeeded", "Failed"),
    "Succeeded": ("Succeeded",),
    "Failed": ("Failed",),
}
ON_A_NODE = ("Running", "Succeeded")
ONE_PROCESS = ("I13", "a pod runs in one process at a time, and only while it exists")
LINGER = 3.0
"""Seconds. The observed maximum is 1.8 s, on a machine with eight processes per core."""
STOP_TIMEOUT = 15.0
"""Seconds. A client closes a watch that has been silent for this time."""
LIVING = 3.0
"""Seconds. A live process writes a line within this time."""
ONE_NODE = ("I11", "a pod runs on at most one node")


def examine_phases(history: History, findings: Findings) -> None:
    for change in history.pods:
        stored, now, before = change
        if now is None:
            continue
        if before is None or now.phase != before.phase:
            findings.examined += 1
        if problem := _phase_problem(now, before) or _is_repeated_change(history, change):
            findings.add_violation(f"pod {stored.key} (uid {now.uid}) {problem}", revision=stored.revision, at=stored.at)


def _phase_problem(now: PodFacts, before: PodFacts | None) -> str:
    if now.phase in ON_A_NODE and not now.node:
        return f"is {now.phase}, but not bound to a node"
    if before is None:
        return "" if now.phase in ("", "Pending") else f"was created {now.phase}, expected Pending"
    was = before.phase or "Pending"
    if now.phase not in TRANSITIONS.get(was, ()) and now.phase != before.phase:
        return f"went from {was} to {now.phase or 'no phase'}, expected one of {', '.join(TRANSITIONS.get(was, ()))}"
    if before.started and now.started != before.started:
        return f"was accepted at {before.started} (startTime) and again at {now.started}: two kubelets write its status"
    return ""


def _is_repeated_change(history: History, change: PodChange) -> str:
    if change.before is None:
        return ""
    before = history.find_replaced_version(change.stored)
    if before is not None and before.digest == change.stored.digest:
        return f"was written without a change since revision {before.revision}"
    return ""


@dataclass(slots=True)
class _ProcessRun:
    process: str
    key: str
    began: float
    ended: float | None = None
    """None if the pod was not stopped."""


def examine_processes(history: History, findings: Findings) -> None:
    if not history.ran:
        return
    runs = _list_runs_by_pod(history)
    last = _last_log_times(history)
    for uid, of_pod in runs.items():
        findings.examined += len(of_pod)
        _check_parallel_runs(history, uid, of_pod, last, findings)
    _check_leftover_runs(history, runs, last, findings)
    _check_start_after_bind(history, runs, findings)


def _list_runs_by_pod(history: History) -> dict[str, list[_ProcessRun]]:
    """Return the runs by pod uid. Runs of one process do not overlap."""
    runs: defaultdict[str, list[_ProcessRun]] = defaultdict(list)
    on: dict[tuple[str, str], _ProcessRun] = {}
    for ran in history.ran:
        if ran.what == "started":
            run = on[ran.process, ran.uid] = _ProcessRun(ran.process, ran.key, ran.at)
            runs[ran.uid].append(run)
        elif (ran.process, ran.uid) in on:
            on.pop((ran.process, ran.uid)).ended = ran.at
    return runs


def _last_log_times(history: History) -> dict[str, float]:
    """Return the time of the last line of each process."""
    last: dict[str, float] = {}
    for ran in history.ran:
        if ran.process:
            last[ran.process] = max(last.get(ran.process, 0.0), ran.at)
    return last


def _check_parallel_runs(
    history: History, uid: str, runs: list[_ProcessRun], last: dict[str, float], findings: Findings
) -> None:
    if len({run.process for run in runs}) == 1:
        return
    for one, other in combinations(runs, 2):
        if one.process == other.process or not (one.process and other.process):
            continue
        since = max(one.began, other.began)
        until = min(last[run.process] if run.ended is None else run.ended for run in (one, other))
        if until - since <= LINGER:
            continue
        doubling = history.run.doubling if history.run else ()
        faults = [fault for fault in history.faults.values() if fault.fired and fault.name not in doubling]
        if (both := measure_uncovered(since, until, faults)) > LINGER:
            text = f"ran in {one.process} and {other.process} concurrently for {both:.1f} s without a fault; limit {LINGER:g} s"
            findings.add_violation(f"pod {one.key} (uid {uid}) {text}", at=since)


def _check_leftover_runs(
    history: History, runs: dict[str, list[_ProcessRun]], last: dict[str, float], findings: Findings
) -> None:
    """Check that deleted pods do not run at the end."""
    end = history.phases.get("end")
    if end is None:
        return
    gone = {change.before.uid: change.stored.at for change in history.pods if change.now is None and change.before}
    for uid, at in gone.items():
        if at > end - STOP_TIMEOUT:
            continue
        for run in runs.get(uid, ()):
            lives = last.get(run.process, 0.0) > end - LIVING
            if lives and run.began <= end and (run.ended is None or run.ended > end):
                text = f"still ran in {run.process} at the end, {end - at:.1f} s after it was deleted"
                findings.add_violation(f"pod {run.key} (uid {uid}) {text}", at=end)


def _check_start_after_bind(history: History, runs: dict[str, list[_ProcessRun]], findings: Findings) -> None:
    for stored, now, before in history.pods:
        if now is not None and now.phase == "Running" and (before is None or before.phase != "Running") and now.uid not in runs:
            findings.add_violation(
                f"pod {stored.key} (uid {now.uid}) is Running, but no kubelet started it",
                revision=stored.revision,
                at=stored.at,
            )


def examine_nodes(history: History, findings: Findings) -> None:
    bound: dict[str, str] = {}
    for _, now, _ in history.pods:
        if now is not None and now.node:
            bound.setdefault(now.uid, now.node)
    first: dict[str, tuple[str, float]] = {}
    for ran in history.ran:
        if ran.what != "started":
            continue
        findings.examined += 1
        node, since = first.setdefault(ran.uid, (ran.node, ran.at))
        if ran.node != node:
            findings.add_violation(
                f"pod {ran.key} (uid {ran.uid}) runs on {ran.node}, but ran on {node} since {since:.3f}", at=ran.at
            )
        elif ran.node != (wanted := bound.get(ran.uid, "")):
            findings.add_violation(
                f"pod {ran.key} (uid {ran.uid}) runs on {ran.node}, but is bound to {wanted or 'no node'}", at=ran.at
            )
