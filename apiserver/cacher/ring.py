"""The recent past of one resource, from which watches resume.

    forgotten | floor | events, by revision ...............| now
                      '-- everything after the floor is here

Bounded by count and by bytes. When it is full the oldest events go, some at once (an eighth of the bound: moving the rest costs
a list as much for one as for many), and the floor rises to the last of them.
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Generic, Protocol, TypeVar


class Dated(Protocol):
    @property
    def revision(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes."""
        ...


E = TypeVar("E", bound=Dated)
_REVISION = attrgetter("revision")


class Ring(Generic[E]):
    """Events in revision order, several to a revision. `floor`: one who knows the state at this revision can go on from it."""

    def __init__(self, max_events: int, max_bytes: int, floor: int = 0) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: list[E] = []
        self._bytes = 0
        self.floor = floor

    def __len__(self) -> int:
        return len(self._events)

    @property
    def bytes(self) -> int:
        return self._bytes

    def append(self, event: E) -> None:
        """`event.revision` is not below that of the event before."""
        self._events.append(event)
        self._bytes += event.size
        if len(self._events) > self._max_events or self._bytes > self._max_bytes:
            self._shrink()

    def after(self, revision: int, max_events: int, max_bytes: int) -> Sequence[E]:
        """The next events after `revision`, up to the first that reaches a limit and the others of its revision: whole
        revisions. Empty at the end. `revision` is not below the floor."""
        events = self._events
        start = bisect_right(events, revision, key=_REVISION)
        end, size = start, 0
        while end < len(events) and end - start < max_events and size < max_bytes:
            size += events[end].size
            end += 1
        if start < end < len(events):
            end = bisect_right(events, events[end - 1].revision, lo=end, key=_REVISION)
        return events[start:end]

    def clear(self, floor: int) -> None:
        """Forgets everything: the past is only known from `floor` on."""
        self._events.clear()
        self._bytes = 0
        self.floor = floor

    def _shrink(self) -> None:
        events_goal, bytes_goal = self._max_events * 7 // 8, self._max_bytes * 7 // 8
        gone = 0
        while gone < len(self._events) and (len(self._events) - gone > events_goal or self._bytes > bytes_goal):
            self._bytes -= self._events[gone].size
            gone += 1
        self.floor = self._events[gone - 1].revision
        del self._events[:gone]
