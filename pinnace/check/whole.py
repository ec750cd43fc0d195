"""H: the history is whole. What all other verdicts rest on.

etcd gives every change the next revision. So what the recorder wrote has every revision from its first on, in order; a key is
created when it is absent, keeps its create_revision until it is deleted, and is deleted only when it is there. A recorder that
missed something, and a store that was set back, both show here.
"""

from pinnace.check.history import Stored
from pinnace.check.index import History
from pinnace.check.verdict import Findings

NAME, STATEMENT = "H", "etcd's history is whole: every revision, in order"
FIRST = 2
"""An empty etcd is at revision 1."""


def examine(history: History, found: Findings) -> None:
    last = FIRST - 1
    alive: dict[str, int] = {}
    for stored in history.stored:
        found.examined += 1
        revision = stored.revision
        if not last <= revision <= last + 1 or revision < FIRST:
            text = f"revision {revision} follows revision {last}: {'it goes back' if revision < last else 'some are missing'}"
            found.violated(text, revision=revision, at=stored.at)
        last = revision
        if problem := _problem(alive, stored):
            found.violated(f"{stored.key} {problem}", revision=revision, at=stored.at)


def _problem(alive: dict[str, int], stored: Stored) -> str:
    """Also keeps `alive`: the create_revision of each key that is there."""
    created = alive.get(stored.key)
    if not stored.digest:
        return "" if alive.pop(stored.key, None) else "is deleted, and was not there"
    alive[stored.key] = stored.create_revision
    expected = created or stored.revision
    return "" if stored.create_revision == expected else f"has create_revision {stored.create_revision}, expected {expected}"
