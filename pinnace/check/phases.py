"""I10: a pod's status moves along the phase graph, by one writer, each transition once.

    Pending --> Running --> Succeeded | Failed          Pending --> Succeeded | Failed

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase. `Unknown` is left out: Kubernetes has no
longer set it since 2015, and nothing here does. A pod is born Pending. It is Running or Succeeded on a node only.

One writer: the kubelet that accepts a pod writes `startTime`, and every later one keeps it. A startTime that changes means that
two kubelets took the pod for theirs. Each transition once: no write stores again what is stored already.
"""

from pinnace.check.facts import PodFacts
from pinnace.check.index import History, PodChange
from pinnace.check.verdict import Findings

NAME, STATEMENT = "I10", "a pod's status moves along the phase graph, by one writer, each transition once"
TRANSITIONS = {
    "Pending": ("Pending", "Running", "Succeeded", "Failed"),
    "Running": ("Running", "Succeeded", "Failed"),
    "Succeeded": ("Succeeded",),
    "Failed": ("Failed",),
}
ON_A_NODE = ("Running", "Succeeded")


def examine(history: History, found: Findings) -> None:
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
