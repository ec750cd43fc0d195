"""I1: a pod UID is bound at most once, ever.

Replayed from etcd's history: a pod's `nodeName` goes from empty to a node once, and never changes again. A pod that is created
with a `nodeName` counts as bound.
"""

from pinnace.check.index import History
from pinnace.check.verdict import Findings

NAME, STATEMENT = "I1", "a pod UID is bound at most once, ever"


def examine(history: History, found: Findings) -> None:
    bound: dict[str, tuple[str, int, int]] = {}  # uid -> node, token, revision
    for stored, now, before in history.pods:
        if now is None:
            continue
        if not now.node:
            if before is not None and before.node:
                text = f"pod {stored.key} (uid {now.uid}) was on node {before.node}, and is on none any more"
                found.violated(text, revision=stored.revision, at=stored.at)
            continue
        if before is not None and (before.node, before.token) == (now.node, now.token):
            continue
        found.examined += 1
        if earlier := bound.get(now.uid):
            node, token, revision = earlier
            text = (
                f"pod {stored.key} (uid {now.uid}) was bound to {node} with token {token} at revision {revision}, "
                f"and again to {now.node} with token {now.token}"
            )
            found.violated(text, revision=stored.revision, at=stored.at)
        bound[now.uid] = (now.node, now.token, stored.revision)
