"""I11: a pod runs on at most one node.

By the run logs of the kubelets: each pod (by uid) is started on one node only, and that is the one to which etcd's history says
that it was bound. A kubelet that was killed leaves no `stopped`, and the next one starts its pods again: on the same node.
"""

from pinnace.check.index import History
from pinnace.check.verdict import Findings

NAME, STATEMENT = "I11", "a pod runs on at most one node"


def examine(history: History, found: Findings) -> None:
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
