"""What one flow has of the memory for what is told and not taken yet: answers, parts of streams, and what waits for watches.

    answer, part of a watch --room--> with gRPC --taken, or its caller has gone--> over
             events --room--> wait for their watch --'

gRPC keeps what it was given to send until the caller takes it, for as long as he likes, and cannot be made to give it back. So
a flow may have as much of it as it leaves free (a dynamic threshold, as in apiserver.flow.queue), and no more is handed over
beyond that: an answer is refused, a watch waits. Small parts are sent, and do not count. Meanwhile its events wait; they count
as well, once for all watches that share them, and have twice the room, because nobody can refuse what happens. Beyond that the
watch ends for which most waits.

A watch costs time as well: each event is asked whether it concerns it, once for all watches that select the same.
"""

import asyncio
from operator import attrgetter
from typing import Protocol

MAX_UNTAKEN = 128 << 20
"""Bytes that are told and not taken yet, of all flows together; one that is alone has half of it. A flow that has none may
always have one, as large as it is. In memory they are several times as much."""
LARGE = 16 << 10
"""Bytes of an answer from which it is counted until it is taken. Of smaller ones a connection has 4 MB at most (MAX_STREAMS in
apiserver.server)."""
RECHECK = 1.0
"""Seconds after which one who waits for room looks again: others may have made some."""


class Room:
    """Of all flows. `taken`: bytes."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = 0


class Selection(Protocol):
    """Compared by what it selects."""

    @property
    def questions(self) -> int:
        """That each event is asked for it."""
        ...


class Watch(Protocol):
    """Compared by identity."""

    @property
    def selection(self) -> Selection:
        """What it is about."""
        ...

    @property
    def waiting(self) -> int:
        """Bytes that it has not been told yet."""
        ...

    def overflow(self) -> None:
        """Ends it: nothing waits for it any more."""
        ...


class Account:
    """Of one flow. `untaken`: its bytes. `watches`: those that are open. `questions`: that each event is asked for them."""

    __slots__ = ("_queue", "_room", "_selections", "questions", "untaken", "watches")

    def __init__(self, room: Room) -> None:
        self.untaken = 0
        self.questions = 0
        self.watches: dict[Watch, None] = {}
        self._room = room
        self._selections: dict[Selection, int] = {}  # of how many watches
        self._queue: dict[asyncio.Future[None], None] = {}

    @property
    def busy(self) -> bool:
        """Would it be another one if it were forgotten?"""
        return bool(self.untaken or self.watches)

    @property
    def full(self) -> bool:
        """May nothing be handed over that is not small?"""
        return self.exceeds(MAX_UNTAKEN)

    def exceeds(self, room: int) -> bool:
        """Has it as much as it leaves free of this room?"""
        return self.untaken > 0 and self.untaken >= room - self._room.taken

    def open(self, watch: Watch) -> None:
        self.watches[watch] = None
        self.questions += self.more(watch.selection)
        self._selections[watch.selection] = self._selections.get(watch.selection, 0) + 1

    def close(self, watch: Watch) -> None:
        """May be said again."""
        if watch not in self.watches:
            return
        del self.watches[watch]
        self._selections[watch.selection] -= 1
        if not self._selections[watch.selection]:
            del self._selections[watch.selection]
            self.questions -= watch.selection.questions

    def more(self, selection: Selection) -> int:
        """Questions that would be added by a watch of it."""
        return 0 if selection in self._selections else selection.questions

    def charge(self, size: int) -> None:
        """`size`: bytes more, or fewer."""
        self.untaken += size
        self._room.taken += size
        if self._queue and not self.full:
            waiter = next(iter(self._queue))
            del self._queue[waiter]
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Returns when there may be room again, to one after the other."""
        waiter = asyncio.get_running_loop().create_future()
        self._queue[waiter] = None
        try:
            await asyncio.wait((waiter,), timeout=RECHECK)
        finally:
            self._queue.pop(waiter, None)

    def relieve(self) -> None:
        """Ends the watches for which most waits, until the others have room."""
        if not self.exceeds(2 * MAX_UNTAKEN):
            return
        for watch in sorted(self.watches, key=attrgetter("waiting"), reverse=True):
            if not watch.waiting or not self.exceeds(2 * MAX_UNTAKEN):
                return
            watch.overflow()
