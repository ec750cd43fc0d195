"""I10: a pod's status moves along the phase graph, by one writer. I11: a pod runs on at most one node. I13: a pod runs in one
process at a time, and no longer than it exists.

I10:  Pending --> Running --> Succeeded | Failed          Pending --> Succeeded | Failed

`Unknown` is left out: Kubernetes has not set it since 2015, and nothing here does. A pod is created Pending. It is Running or
Succeeded on a node only. One writer: the kubelet that accepts a pod writes `startTime`, and every later write keeps it. A
startTime that changes means that two kubelets manage the pod. Each transition once: no write stores the same object again.
Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase

I11 and I13 use the run logs of the kubelets, in which each process records when it starts and stops a pod, and a line every
second. Two processes of one fleet (twins) may run the same pod for at most LINGER, the time that the older one needs to learn
that it has been evicted; time covered by a fault is not counted, except for faults that make twins. At the end of the run, no
living process runs a pod that etcd has not had for STOP_TIMEOUT. And a pod that is Running in etcd has been started by a
process. A process that is killed writes nothing more: its pods end with its last line. Logs whose lines name no process are not
checked for twins.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations

from pinnace.check.history import PodFacts
from pinnace.check.index import History, PodChange, uncovered
from pinnace.check.verdict import Findings

PHASES = ("I10", "a pod's status moves along the phase graph, by one writer, each transition once")
TRANSITIONS = {
    "Pending": ("Pending", "Running", "Succeeded", "Failed"),
    "Running": ("Running", "Succeeded", "Failed"),
    "Succeeded": ("Succeeded",),
    "Failed": ("Failed",),
}
ON_A_NODE = ("Running", "Succeeded")


def examine_phases(history: History, found: Findings) -> None:
    for change in history.pods:
        stored, now, before = change
        if now is None:
            continue
        if before is None or now.phase != before.phase:
            found.examined += 1
        if problem := _problem(now, before) or _repeated(history, change):
            found.violated(f"pod {stored.key} (uid {now.uid}) {problem}", revision=stored.revision, at=stored.at)


def _problem(now: PodFacts, before: PodFacts | None) -> str:
    if now.phase in ON_A_NODE and not now.node:
        return f"is {now.phase}, and on no node"
    if before is None:
        return "" if now.phase in ("", "Pending") else f"is born {now.phase}, expected Pending"
    was = before.phase or "Pending"
    if now.phase not in TRANSITIONS.get(was, ()) and now.phase != before.phase:
        return f"goes from {was} to {now.phase or 'no phase'}, expected one of {', '.join(TRANSITIONS.get(was, ()))}"
    if before.started and now.started != before.started:
        return f"was accepted at {before.started} (startTime), and again at {now.started}: two kubelets write its status"
    return ""


def _repeated(history: History, change: PodChange) -> str:
    if change.before is None:
        return ""
    before = history.before(change.stored)
    if before is not None and before.digest == change.stored.digest:
        return f"is stored again as it was at revision {before.revision}"
    return ""


ONE_PROCESS = ("I13", "a pod runs in one process at a time, and no longer than it is there")
LINGER = 3.0
"""Seconds. On a machine with eight processes for each of its cores 1.8 were seen."""
STOP_TIMEOUT = 15.0
"""Seconds: a watch that hears nothing for so long is given up by its client."""
LIVING = 3.0
"""Seconds within which a process that lives has said something."""


@dataclass(slots=True)
class _Run:
    process: str
    key: str
    began: float
    ended: float | None = None
    """None: it was not stopped."""


def examine_processes(history: History, found: Findings) -> None:
    if not history.ran:
        return
    runs = _runs(history)
    last = _last_words(history)
    for uid, of_pod in runs.items():
        found.examined += len(of_pod)
        _check_twins(history, uid, of_pod, last, found)
    _check_left(history, runs, last, found)
    _check_started(history, runs, found)


def _runs(history: History) -> dict[str, list[_Run]]:
    """By the uid of the pod; those that the same process begins are one after the other."""
    runs: defaultdict[str, list[_Run]] = defaultdict(list)
    on: dict[tuple[str, str], _Run] = {}
    for ran in history.ran:
        if ran.what == "started":
            run = on[ran.process, ran.uid] = _Run(ran.process, ran.key, ran.at)
            runs[ran.uid].append(run)
        elif (ran.process, ran.uid) in on:
            on.pop((ran.process, ran.uid)).ended = ran.at
    return runs


def _last_words(history: History) -> dict[str, float]:
    """When each process has said something last."""
    last: dict[str, float] = {}
    for ran in history.ran:
        if ran.process:
            last[ran.process] = max(last.get(ran.process, 0.0), ran.at)
    return last


def _check_twins(history: History, uid: str, runs: list[_Run], last: dict[str, float], found: Findings) -> None:
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
        if (both := uncovered(since, until, faults)) > LINGER:
            text = f"ran in {one.process} and in {other.process} at once for {both:.1f} s without a fault; bound {LINGER:g} s"
            found.violated(f"pod {one.key} (uid {uid}) {text}", at=since)


def _check_left(history: History, runs: dict[str, list[_Run]], last: dict[str, float], found: Findings) -> None:
    """What runs on although it is gone."""
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
                text = f"still ran in {run.process} at the end, {end - at:.1f} s after it was gone"
                found.violated(f"pod {run.key} (uid {uid}) {text}", at=end)


def _check_started(history: History, runs: dict[str, list[_Run]], found: Findings) -> None:
    for stored, now, before in history.pods:
        if now is not None and now.phase == "Running" and (before is None or before.phase != "Running") and now.uid not in runs:
            found.violated(
                f"pod {stored.key} (uid {now.uid}) is Running, and no kubelet has started it",
                revision=stored.revision,
                at=stored.at,
            )


ONE_NODE = ("I11", "a pod runs on at most one node")


def examine_nodes(history: History, found: Findings) -> None:
    bound: dict[str, str] = {}
    for _, now, _ in history.pods:
        if now is not None and now.node:
            bound.setdefault(now.uid, now.node)
    first: dict[str, tuple[str, float]] = {}
    for ran in history.ran:
        if ran.what != "started":
            continue
        found.examined += 1
        node, since = first.setdefault(ran.uid, (ran.node, ran.at))
        if ran.node != node:
            found.violated(f"pod {ran.key} (uid {ran.uid}) runs on {ran.node}, and ran on {node} since {since:.3f}", at=ran.at)
        elif ran.node != (wanted := bound.get(ran.uid, "")):
            found.violated(
                f"pod {ran.key} (uid {ran.uid}) runs on {ran.node}, and is bound to {wanted or 'no node'}", at=ran.at
            )
