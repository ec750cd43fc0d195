"""Owners that wait for each other: objects that are deleted in the foreground, and own one another in a circle.

An owner is deleted after its dependents. In a circle each would wait for the next, so none waits for one of its own circle.
Whether a dependent waits for the owner in turn is found by two searches, one step each in turn:

    up     from the owner, through the owners that wait for it: finds all whose deletion the owner holds up
    down   from the dependent, through the dependents that it waits for

The dependent waits for the owner if `up` finds it. It does not if either search ends without the other's start. A circle that
was found is remembered: its other members need no search.

Any user who can create objects in one namespace can make circles and chains of any size. So a search looks at QUICK references.
Longer ones are made one at a time and with pauses; meanwhile other owners stay as they are, and are looked at again later. What
is no circle does not need the answer: its last dependents go, and then their owners. A search ends after MOST references. Then
the owner does not wait: the order of deletion in a structure of that size is given up, and every object goes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

from pinnace.api.resources import Object
from pinnace.runtime.clock import Clock
from pinnace.runtime.turns import Turn

QUICK = 100
"""References that any owner may look at in each direction: a millisecond."""
MOST = 500_000
"""References of one search: some seconds of CPU, in which others have their turns."""
PAUSE = 4.0
"""Times its length, after a long search, until the next one may begin."""
LATER = 1.0
"""Seconds until an owner that needs a long search is looked at again..."""
RATE = 50.0
"""...or as many as it takes so that there are no more than so many of them in a second."""
_EVERY = 64
"""Steps between two looks at the clock."""

Edges = Callable[[Object], Iterable[Object | None]]
"""From one object to others, an item for each reference that is looked at: None where it leads to no object that waits."""


class Later(Exception):
    """It takes a long search, which cannot be made now. `seconds`: after which to ask again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"again in {seconds:.0f} s")
        self.seconds = seconds


class Cycles:
    """`up`: from an object to the owners that wait for it. `down`: from an object that waits to the dependents that it waits
    for, and that wait themselves."""

    def __init__(self, up: Edges, down: Edges, clock: Clock) -> None:
        self._up = up
        self._down = down
        self._clock = clock
        self._numbers = count()
        self._circle: dict[str, int] = {}
        """By uid: the circle that an object was found to be in."""
        self._open: dict[str, None] = {}
        """The uids of owners that need a long search."""
        self._free_at = 0.0  # when the next long search may begin, on the monotonic clock

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._circle.pop(uid, None)
        self._open.pop(uid, None)

    async def wait_in_turn(self, owner: Object, dependents: Sequence[Object]) -> bool:
        """Do all of these dependents, which are being deleted in the foreground, wait for their owner in turn? Raises Later."""
        circle = self._circle.get(owner.metadata.uid)
        missing = {each.metadata.uid: each for each in dependents if circle is None or not self._is_in(circle, each)}
        if not missing:
            return True
        search = _Search(self._up, self._down, owner, missing)
        turn = Turn(self._clock)
        if (answer := await search.run(QUICK, turn)) is None:
            answer = await self._long(search, owner, turn)
        self._open.pop(owner.metadata.uid, None)
        return answer

    async def _long(self, search: "_Search", owner: Object, turn: Turn) -> bool:
        began = self._clock.monotonic()
        if began < self._free_at:
            self._open[owner.metadata.uid] = None
            raise Later(max(LATER, len(self._open) / RATE))
        self._free_at = float("inf")
        try:
            answer = await search.run(MOST, turn)
            if answer:
                self._circle.update(dict.fromkeys(await search.circle(turn), next(self._numbers)))
        finally:
            now = self._clock.monotonic()
            self._free_at = now + PAUSE * (now - began)
        return answer is not False

    def _is_in(self, circle: int, obj: Object) -> bool:
        return self._circle.get(obj.metadata.uid) == circle


class _Search:
    def __init__(self, up: Edges, down: Edges, owner: Object, missing: dict[str, Object]) -> None:
        """`missing`: dependents of which it is not known whether they wait for the owner."""
        self._down = down
        self._owner = owner
        self._missing = missing
        self._above: dict[str, Object] = {}
        self._below: dict[str, Object] = {}
        self._upwards = _walk(up, owner, self._above)
        self._downwards = _walk(down, next(iter(missing.values())), self._below)

    async def run(self, steps: int, turn: Turn) -> bool | None:
        """Do all of them wait for the owner? None: it takes more steps."""
        uid = self._owner.metadata.uid
        for step in range(1, steps + 1):
            if (found := next(self._upwards, None)) is None:
                return False
            self._missing.pop(found, None)
            if not self._missing:
                return True
            if uid not in self._below and next(self._downwards, None) is None and uid not in self._below:
                return False
            if step % _EVERY == 0:
                await turn.end()
        return None

    async def circle(self, turn: Turn) -> Iterable[str]:
        """The uids of what waits for the owner, and of what the owner waits for in turn."""
        members = dict[str, Object]()

        def down(obj: Object) -> Iterable[Object | None]:
            return (each if each is not None and each.metadata.uid in self._above else None for each in self._down(obj))

        for step, _ in enumerate(_walk(down, self._owner, members)):
            if step % _EVERY == 0:
                await turn.end()
            if step == MOST:
                break
        return members


def _walk(edges: Edges, start: Object, found: dict[str, Object]) -> Iterator[str]:
    """Adds all that can be reached to `found`, by uid. One step for each reference: the uid that it leads to, or ""."""
    found[start.metadata.uid] = start
    left = [start]
    yield start.metadata.uid
    while left:
        for each in edges(left.pop()):
            if each is None:
                yield ""
                continue
            uid = each.metadata.uid
            if uid not in found:
                found[uid] = each
                left.append(each)
            yield uid
