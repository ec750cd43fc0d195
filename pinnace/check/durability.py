"""I5: an acknowledged write survives.

Every write that was answered with a revision is in etcd's history at that revision, with the content that the answer showed.
And it is what was asked for, not only what was answered: a pod that was deleted is gone or marked there, and one that was
written has the labels that it was to have. Else a write that is answered and never done would pass for one that found nothing
to do. What etcd's history has at a revision cannot get lost later, only be replaced by a later revision: `whole` sees to that.
"""

from pinnace.check.facts import PodFacts
from pinnace.check.history import Call, Item, Stored
from pinnace.check.index import History
from pinnace.check.verdict import Findings

NAME, STATEMENT = "I5", "an acknowledged write survives kill -9 of anything"
READS = ("get", "list")


def examine(history: History, found: Findings) -> None:
    for call in history.calls:
        if call.outcome != "ok" or call.verb in READS:
            continue
        for item in call.items:
            if item.outcome == "ok":
                found.examined += 1
                stored = history.version(item.key, item.revision)
                if problem := _problem(history, call, item, stored):
                    text = f"{call.verb} of {item.key} by {call.client} was acknowledged by {call.server}, but {problem}"
                    found.violated(text, revision=item.revision, at=call.ended)


def _problem(history: History, call: Call, item: Item, stored: Stored | None) -> str:
    if item.revision > history.last_revision:
        return f"the history ends at revision {history.last_revision}"
    if stored is None:
        return "nothing was written to it at that revision"
    if call.verb != "delete" and not stored.digest:
        return "it was deleted at that revision"
    if stored.digest and item.digest and item.digest != stored.digest:
        return f"something else is stored there (digest {stored.digest}, answered {item.digest})"
    if isinstance(stored.facts, PodFacts):
        if call.verb == "delete" and not stored.facts.terminating:
            return "the pod is there at that revision, and not marked to be deleted"
        if item.labels not in (None, stored.facts.labels):
            was, wanted = stored.facts.labels or "none", item.labels or "none"
            return f"other labels are stored there (digest {was}, asked for {wanted})"
    return ""
