"""I5: an acknowledged write survives.

Every write that was answered with a revision is in etcd's history at that revision, with the content that the answer showed.
What etcd's history has at a revision cannot get lost later, only be replaced by a later revision: `history_whole` sees to that.
"""

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
    return ""
