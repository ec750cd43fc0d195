"""I3: no bind but by the present leader of the pod's scheduler.

Each fenced bind leaves its election and token on the pod. The transaction that bound it compared the election's key as it was
*before* it; so at the revision before that of the bind, the key must have existed with that token as its create_revision. The
key's value must name the scheduler of the pod: a token of another election, such as that of the controllers, says nothing about
who schedules. Histories of version 1 do not have these names.

A bind without a fence asks nobody, and anyone may do it by hand; but not of the pods that the run calls fenced.
"""

from pinnace.api.resources import election_key
from pinnace.check.facts import ElectionFacts
from pinnace.check.index import History
from pinnace.check.verdict import Findings

NAME, STATEMENT = "I3", "no bind but by the present leader of the pod's scheduler"


def examine(history: History, found: Findings) -> None:
    fenced = history.run.fenced if history.run else ()
    named = history.run is None or history.run.version >= 2
    for stored, now, before in history.pods:
        if now is not None and now.node and not now.by_scheduler and stored.key.startswith(fenced):
            if before is None or before.node != now.node or before.by_scheduler:
                found.examined += 1
                found.violated(
                    f"pod {stored.key} was bound to {now.node} without a fence", revision=stored.revision, at=stored.at
                )
            continue
        if now is None or not now.by_scheduler or (before is not None and before.token == now.token):
            continue
        found.examined += 1
        leader = history.state(election_key(now.election), stored.revision - 1)
        if leader is None or leader.create_revision != now.token:
            valid = f"the token was {leader.create_revision}" if leader else "nobody led"
            text = f'pod {stored.key} was bound to {now.node} with token {now.token} of election "{now.election}", when {valid}'
            found.violated(text, revision=stored.revision, at=stored.at)
        elif named and isinstance(leader.facts, ElectionFacts) and now.scheduler not in leader.facts.scheduler_names:
            scope = ", ".join(leader.facts.scheduler_names) or "no scheduler"
            by = f'the leader of election "{now.election}", which binds for {scope}'
            text = f'pod {stored.key} of scheduler "{now.scheduler}" was bound to {now.node} by {by}'
            found.violated(text, revision=stored.revision, at=stored.at)
