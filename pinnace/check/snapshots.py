"""The state of etcd at many revisions, in one pass over the history."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sortedcontainers import SortedDict

from pinnace.api.resources import prefix_of
from pinnace.check.history import Stored
from pinnace.check.index import History


class State:
    """What is there at one revision. Keys of one resource are kept in order."""

    def __init__(self) -> None:
        self._resources: dict[str, SortedDict] = {}

    def apply(self, stored: Stored) -> None:
        resource = self._resources.get(place := prefix_of(stored.key))
        if resource is None:
            resource = self._resources[place] = SortedDict()
        if stored.digest:
            resource[stored.key] = stored
        else:
            resource.pop(stored.key, None)

    def range(self, prefix: str, after: str = "", upto: str = "") -> Iterator[Stored]:
        """The keys that begin with `prefix`, in order: those after `after`, and not after `upto` ("": to the end)."""
        resource = self._resources.get(prefix_of(prefix))
        if resource is None:
            return
        end = upto or prefix + "\U0010ffff"
        for key in resource.irange(max(prefix, after), end, inclusive=(not after, True)):
            yield resource[key]


@dataclass(frozen=True, slots=True)
class Look:
    """Somebody who wants to see the state at a revision."""

    revision: int
    see: Callable[[State], None]


def visit(history: History, looks: Iterable[Look]) -> None:
    """Shows everybody the state they want. A revision after the last is not shown: the history does not know."""
    state = State()
    changes = iter(history.stored)
    change = next(changes, None)
    for look in sorted(looks, key=lambda look: look.revision):
        if look.revision > history.last_revision:
            return
        while change is not None and change.revision <= look.revision:
            state.apply(change)
            change = next(changes, None)
        look.see(state)
