"""What one flow has of the memory for what is told and not taken yet: answers, parts of streams, and what waits for watches.

    answer, part of a watch --room--> with gRPC (untaken) --taken, or its caller has gone--> over
                       '--none, for PATIENCE--> the watch ends
             events --> wait for their watch --its turn--> with gRPC
                                '--too much waits for all, and most of it for this flow--> the watch ends for which most waits

gRPC keeps what it was given to send until the caller takes it, for as long as he likes, and cannot be made to give it back. So
a flow may have as much of it as it leaves free (a dynamic threshold, as in apiserver.flow.levels), and no more is handed over
beyond that: an answer is refused, a watch waits. Small parts are sent, and do not count. Meanwhile its events wait, which
nobody can refuse; they are counted once for all watches of the flow that share them. When that is too much, the flow loses for
which most waits, whoever is told just then (Longest Queue Drop).

What waits never keeps anything from being handed over: the two are counted apart. Guarantees:

* A flow that has less than MINIMUM with gRPC may have one response more, as large as it is, whatever others have. So a reader
  that takes what it is given is told everything, unless other readers of its own flow have the flow's room.
* No watch ends for what waits of a flow that has MINIMUM or less, or less than another flow.
* With gRPC are MAX_UNTAKEN, beside one response and MINIMUM of each flow; MAX_WAITING waits, beside MINIMUM of each flow.
* Nobody waits for room for longer than PATIENCE.

A watch costs time as well: each event is asked whether it concerns it, once for all watches that select the same.

Source of Longest Queue Drop: B. Suter, T. Lakshman, D. Stiliadis, A. Choudhury, Design Considerations for Supporting TCP with
Per-Flow Queueing, INFOCOM 1998.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Protocol

MAX_UNTAKEN = 128 << 20
"""Bytes that are with gRPC, of all flows together; one that is alone has half of it. In memory they are several times as
much."""
MAX_WAITING = 64 << 20
"""Bytes that wait for watches, of all flows together: one that is alone has all of it."""
MINIMUM = 8 << 20
"""Bytes of either that a flow may have, whatever others have."""
LARGE = 16 << 10
"""Bytes of an answer from which it is counted until it is taken. Of smaller ones a connection has 4 MB at most (MAX_STREAMS in
apiserver.server)."""
PATIENCE = 10.0
"""Seconds that a watch waits for room: twice what it takes to find a client dead. Then its reader is to know that he is told
nothing."""


class Room:
    """Of all flows, in bytes. `untaken`: with gRPC, where no flow counts for more than half of the room. `waiting`: for
    watches."""

    __slots__ = ("holding", "queued", "untaken", "waiting")

    def __init__(self) -> None:
        self.untaken = 0
        self.waiting = 0
        self.holding: dict[Account, None] = {}
        """Those for whose watches something waits."""
        self.queued: dict[Account, None] = {}
        """Those whose watches wait for room."""

    def relieve(self) -> None:
        """Ends watches until no more waits than may."""
        while self.waiting > MAX_WAITING:
            most = max(self.holding, key=attrgetter("waiting"))
            if most.waiting <= MINIMUM or not most.shed():
                return


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
    """Of one flow. `untaken`: bytes that are with gRPC. `waiting`: bytes that wait for its watches. `watches`: those that are
    open, or have something waiting. `questions`: that each event is asked for them. `connections`: that its calls have to
    kubelets. `streams`: of requests, that are open."""

    __slots__ = ("_queue", "_room", "_selections", "connections", "questions", "streams", "untaken", "waiting", "watches")

    def __init__(self, room: Room) -> None:
        self.untaken = 0
        self.waiting = 0
        self.questions = 0
        self.connections = 0
        self.streams = 0
        self.watches: dict[Watch, None] = {}
        self._room = room
        self._selections: dict[Selection, int] = {}  # of how many watches
        self._queue: dict[Watch, asyncio.Future[None]] = {}  # who waits for room, first come first

    @property
    def busy(self) -> bool:
        """Would it be another one if it were forgotten?"""
        return bool(self.untaken or self.waiting or self.watches or self.connections or self.streams)

    @property
    def full(self) -> bool:
        """May nothing be handed over that is not small?"""
        return self.exceeds(MAX_UNTAKEN)

    @property
    def crowded(self) -> bool:
        """Must a watch that has something large wait for its turn?"""
        return bool(self._queue) or self.full

    def exceeds(self, room: int) -> bool:
        """Has it as much with gRPC as it leaves free of this room?"""
        return self.untaken >= MINIMUM and 2 * self.untaken + self._room.untaken - self._counted >= room

    def open(self, watch: Watch) -> None:
        self.watches[watch] = None
        self.questions += self.more(watch.selection)
        self._selections[watch.selection] = self._selections.get(watch.selection, 0) + 1

    def close(self, watch: Watch) -> None:
        """Nothing waits for it, and it waits for nothing. May be said again."""
        if watch not in self.watches:
            return
        del self.watches[watch]
        self._selections[watch.selection] -= 1
        if not self._selections[watch.selection]:
            del self._selections[watch.selection]
            self.questions -= watch.selection.questions
        if turn := self._queue.pop(watch, None):
            _go_on(turn)

    def more(self, selection: Selection) -> int:
        """Questions that would be added by a watch of it."""
        return 0 if selection in self._selections else selection.questions

    def charge(self, size: int) -> None:
        """gRPC has so many bytes more, or fewer."""
        before = self._counted
        self.untaken += size
        self._room.untaken += self._counted - before
        if size < 0:
            for account in self._room.queued:
                account.call_next()

    def hold(self, size: int) -> None:
        """So many bytes more, or fewer, wait for its watches."""
        self.waiting += size
        self._room.waiting += size
        if self.waiting:
            self._room.holding[self] = None
        else:
            self._room.holding.pop(self, None)

    async def wait(self, watch: Watch) -> None:
        """Returns when it is the watch's turn and there is room, to be used before anything else is awaited; or when it is
        closed. Raises TimeoutError after PATIENCE."""
        async with self.turn(watch):
            pass

    @asynccontextmanager
    async def turn(self, watch: Watch) -> AsyncIterator[None]:
        """The same, and until it is left nobody has one who came later. The room is to be used inside."""
        loop = asyncio.get_running_loop()
        turn = self._queue[watch] = loop.create_future()
        self._room.queued[self] = None
        self.call_next()
        try:
            async with asyncio.timeout(PATIENCE):
                await turn
                while self.full and watch in self._queue:  # somebody else was faster
                    turn = self._queue[watch] = loop.create_future()
                    await turn
            yield
        finally:
            self._queue.pop(watch, None)
            if self._queue:
                self.call_next()
            else:
                self._room.queued.pop(self, None)

    def call_next(self) -> None:
        """Whose turn it is may go on, if there is room."""
        if self._queue and not self.full:
            _go_on(next(iter(self._queue.values())))

    def relieve(self) -> None:
        """More waits for its watches now: ends some, of whatever flow, if that is too much."""
        self._room.relieve()

    def shed(self) -> bool:
        """Ends the watch for which most waits, and others until less is left. False: none is left to be ended."""
        before = self.waiting
        for watch in sorted(self.watches, key=attrgetter("waiting"), reverse=True):
            watch.overflow()
            if self.waiting < before:
                return True
        return False

    @property
    def _counted(self) -> int:
        return min(self.untaken, MAX_UNTAKEN // 2)


def _go_on(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
