"""The send budget of a flow: its share of the memory for responses that are with gRPC, and for events that wait for watches.

    answer, part of a watch --room--> with gRPC (untaken) --sent, or its caller is gone--> over
                       '--no room for SEND_TIMEOUT--> the watch ends
             events --> wait for their watch --its turn--> with gRPC
                                '--too much waits, most of it for this flow--> its watch with most events ends

gRPC keeps a response until the client reads it, for any time, and cannot drop it. So a flow may have as many bytes with gRPC as
it leaves free (a dynamic threshold, as in apiserver.flow.levels). Above that, an answer is refused and a watch waits. Small
responses are always sent and do not count. The events of a waiting watch are buffered, and counted once for all watches of the
flow that share them. Above the limit, the flow with the most buffered bytes loses a watch (Longest Queue Drop).

The two amounts are counted separately: buffered events never keep a response from being sent. Guarantees:

* A flow with less than MINIMUM bytes with gRPC may send one more response of any size. So a client that reads its responses
  receives everything, unless other readers of its flow use up the budget.
* No watch ends because of buffered events of a flow that has MINIMUM or less, or less than another flow.
* gRPC holds at most MAX_UNTAKEN, plus one response and MINIMUM per flow. MAX_WAITING is buffered, plus MINIMUM per flow.
* A watch waits for room for at most SEND_TIMEOUT.

A watch costs time, too: each event is matched against its selector, once for all watches with equal selectors.

Source of Longest Queue Drop: B. Suter, T. Lakshman, D. Stiliadis, A. Choudhury, Design Considerations for Supporting TCP with
Per-Flow Queueing, INFOCOM 1998.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Protocol

MAX_UNTAKEN = 128 << 20
"""Bytes with gRPC, of all flows together. A flow alone may have half of it. In memory they take several times as much."""
MAX_WAITING = 64 << 20
"""Bytes of buffered events, of all flows together. A flow alone may have all of it."""
MINIMUM = 8 << 20
"""Bytes of either kind that a flow may always have."""
LARGE = 16 << 10
"""Bytes from which a response is counted until it is sent. Smaller ones take at most 4 MB per connection (MAX_STREAMS in
apiserver.server)."""
SEND_TIMEOUT = 10.0
"""Seconds that a watch waits for room before it ends: twice the time in which a dead client is detected."""


class SendPool:
    """The bytes of all flows. `untaken`: with gRPC, where each flow counts for at most half of the limit. `waiting`:
    buffered."""

    __slots__ = ("holding", "queued", "untaken", "waiting")

    def __init__(self) -> None:
        self.untaken = 0
        self.waiting = 0
        self.holding: dict[SendBudget, None] = {}
        """The budgets with buffered events."""
        self.queued: dict[SendBudget, None] = {}
        """The budgets whose watches wait for room."""

    def relieve(self) -> None:
        """Ends watches until the buffered events are within the limit."""
        while self.waiting > MAX_WAITING:
            most = max(self.holding, key=attrgetter("waiting"))
            if most.waiting <= MINIMUM or not most.shed():
                return


class Predicate(Protocol):
    """A selector; equal ones select the same."""

    @property
    def questions(self) -> int:
        """The number of requirements to test per event."""
        ...


class BudgetedWatch(Protocol):
    """Compared by identity."""

    @property
    def selection(self) -> Predicate:
        """The selector of the watch."""
        ...

    @property
    def waiting(self) -> int:
        """Bytes of its buffered events."""
        ...

    def overflow(self) -> None:
        """Ends the watch and drops its buffered events."""
        ...


class SendBudget:
    """The budget of one flow. `untaken`: bytes with gRPC. `waiting`: bytes of buffered events. `watches`: those that are open
    or have buffered events. `questions`: requirements to test per event. `connections`: open connections to kubelets.
    `streams`: open streams of requests."""

    __slots__ = ("_pool", "_queue", "_selections", "connections", "questions", "streams", "untaken", "waiting", "watches")

    def __init__(self, pool: SendPool) -> None:
        self.untaken = 0
        self.waiting = 0
        self.questions = 0
        self.connections = 0
        self.streams = 0
        self.watches: dict[BudgetedWatch, None] = {}
        self._pool = pool
        self._selections: dict[Predicate, int] = {}  # of how many watches
        self._queue: dict[BudgetedWatch, asyncio.Future[None]] = {}  # who waits for room, first come first

    @property
    def busy(self) -> bool:
        """Whether the budget is in use, so that it must not be dropped."""
        return bool(self.untaken or self.waiting or self.watches or self.connections or self.streams)

    @property
    def full(self) -> bool:
        """Whether only small responses may be sent."""
        return self.exceeds(MAX_UNTAKEN)

    @property
    def crowded(self) -> bool:
        """Whether a watch with a large response must wait."""
        return bool(self._queue) or self.full

    def exceeds(self, room: int) -> bool:
        """Whether the flow's bytes with gRPC exceed its share of `room`."""
        return self.untaken >= MINIMUM and 2 * self.untaken + self._pool.untaken - self._counted >= room

    def open(self, watch: BudgetedWatch) -> None:
        self.watches[watch] = None
        self.questions += self.more(watch.selection)
        self._selections[watch.selection] = self._selections.get(watch.selection, 0) + 1

    def close(self, watch: BudgetedWatch) -> None:
        """Removes a watch without buffered events. May be called again."""
        if watch not in self.watches:
            return
        del self.watches[watch]
        self._selections[watch.selection] -= 1
        if not self._selections[watch.selection]:
            del self._selections[watch.selection]
            self.questions -= watch.selection.questions
        if turn := self._queue.pop(watch, None):
            _go_on(turn)

    def more(self, selection: Predicate) -> int:
        """Requirements that a watch with this selector would add."""
        return 0 if selection in self._selections else selection.questions

    def charge(self, size: int) -> None:
        """Adds `size` bytes with gRPC; negative: removes them."""
        before = self._counted
        self.untaken += size
        self._pool.untaken += self._counted - before
        if size < 0:
            for budget in self._pool.queued:
                budget.call_next()

    def hold(self, size: int) -> None:
        """Adds `size` bytes of buffered events; negative: removes them."""
        self.waiting += size
        self._pool.waiting += size
        if self.waiting:
            self._pool.holding[self] = None
        else:
            self._pool.holding.pop(self, None)

    async def wait(self, watch: BudgetedWatch) -> None:
        """Returns when it is the watch's turn and there is room, or when the watch is closed. Use the room before the next
        await. Raises TimeoutError after SEND_TIMEOUT."""
        async with self.turn(watch):
            pass

    @asynccontextmanager
    async def turn(self, watch: BudgetedWatch) -> AsyncIterator[None]:
        """As `wait`. Later watches of the flow wait until the context is left; use the room inside."""
        loop = asyncio.get_running_loop()
        turn = self._queue[watch] = loop.create_future()
        self._pool.queued[self] = None
        self.call_next()
        try:
            async with asyncio.timeout(SEND_TIMEOUT):
                await turn
                while self.full and watch in self._queue:  # another response took the room
                    turn = self._queue[watch] = loop.create_future()
                    await turn
            yield
        finally:
            self._queue.pop(watch, None)
            if self._queue:
                self.call_next()
            else:
                self._pool.queued.pop(self, None)

    def call_next(self) -> None:
        """Wakes up the next watch, if there is room."""
        if self._queue and not self.full:
            _go_on(next(iter(self._queue.values())))

    def relieve(self) -> None:
        """Ends watches of any flow if the buffered events exceed the limit. Call it after `hold`."""
        self._pool.relieve()

    def shed(self) -> bool:
        """Ends the watch with most buffered events, and further ones until the flow has fewer bytes. False if there is none."""
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
