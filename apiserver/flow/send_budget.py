"""The send budget of a flow: its share of the memory for responses in gRPC, and for buffered events of watches.

    response or watch chunk --within budget--> in gRPC (untaken) --sent, or client disconnected--> released
                       '--over budget for SEND_TIMEOUT--> the watch ends
             events --> buffered for their watch --read by the watch--> in gRPC
                                '--pool full, and this flow has the most bytes--> its watch with the largest buffer ends

gRPC stores a response until the client reads it, for an unlimited time, and cannot drop it. So the bytes of a flow in gRPC must
not exceed the free bytes (a dynamic threshold, as in apiserver.flow.levels). Above that, responses are refused and watches
wait. Small responses are always sent and not counted. Events of a waiting watch are buffered, and counted once for all watches
of the flow that share them. If the pool is full, the flow with the most buffered bytes loses a watch (Longest Queue Drop).

Both kinds of bytes are counted separately, so buffered events do not block responses. Guarantees:

* A flow with less than MINIMUM bytes in gRPC can send one more response of any size. So a client that reads its responses
  receives all of them, unless other clients of its flow use the budget.
* Buffered events never end a watch of a flow that has at most MINIMUM bytes, or fewer bytes than another flow.
* gRPC stores at most MAX_UNSENT_BYTES, plus one response and MINIMUM per flow. Buffers use MAX_WAITING, plus MINIMUM per flow.
* A watch waits for its budget for at most SEND_TIMEOUT.

Watches also use CPU time: each event is matched against all different selectors. SendBudget counts their requirements.

Source of Longest Queue Drop: B. Suter, T. Lakshman, D. Stiliadis, A. Choudhury, Design Considerations for Supporting TCP with
Per-Flow Queueing, INFOCOM 1998.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Protocol

MAX_UNSENT_BYTES = 128 << 20
"""Maximum bytes in gRPC of all flows. A single flow can use half of it. gRPC uses several times as much memory."""
MAX_WAITING = 64 << 20
"""Maximum bytes of buffered events of all flows. A single flow can use all of it."""
MINIMUM = 8 << 20
"""Bytes of either kind that a flow can always use."""
LARGE = 16 << 10
"""Minimum size in bytes of a response that is counted. Smaller ones use at most 4 MB per connection (MAX_STREAMS in
apiserver.server)."""
SEND_TIMEOUT = 10.0
"""Seconds for which a watch waits for its budget before it ends: twice the detection time of an unreachable client."""


class SendPool:
    """The bytes of all flows. `unsent_bytes` is the number of bytes in gRPC, where each flow counts for at most half of the
    limit. `waiting` is the number of buffered bytes."""

    __slots__ = ("holding", "queued", "unsent_bytes", "waiting")

    def __init__(self) -> None:
        self.unsent_bytes = 0
        self.waiting = 0
        self.holding: dict[SendBudget, None] = {}
        """The budgets with buffered events."""
        self.queued: dict[SendBudget, None] = {}
        """The budgets with waiting watches."""

    def enforce_limit(self) -> None:
        """End watches until the buffered events are within the limit."""
        while self.waiting > MAX_WAITING:
            most = max(self.holding, key=attrgetter("waiting"))
            if most.waiting <= MINIMUM or not most.end_largest_watches():
                return


class WatchPredicate(Protocol):
    """A selector of a watch. Watches with equal selectors share the matching of events."""

    @property
    def requirement_count(self) -> int:
        """The number of requirements to match per event."""
        ...


class BudgetedWatch(Protocol):
    """A watch of a flow. Watches are compared by identity."""

    @property
    def selection(self) -> WatchPredicate:
        """The selector of the watch."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """The size of its buffered events in bytes."""
        ...

    def end_overflowed(self) -> None:
        """End the watch and drop its buffered events."""
        ...


class SendBudget:
    """The budget of one flow. `unsent_bytes` is the number of bytes in gRPC. `waiting` is the number of buffered bytes.
    `watches` contains the watches that are open or have buffered events. `requirement_count` is the number of requirements to
    match per event. `connections` is the number of open connections to kubelets. `streams` is the number of open request
    streams."""

    __slots__ = (
        "_pool",
        "_queue",
        "_selections",
        "connections",
        "requirement_count",
        "streams",
        "unsent_bytes",
        "waiting",
        "watches",
    )

    def __init__(self, pool: SendPool) -> None:
        self.unsent_bytes = 0
        self.waiting = 0
        self.requirement_count = 0
        self.connections = 0
        self.streams = 0
        self.watches: dict[BudgetedWatch, None] = {}
        self._pool = pool
        self._selections: dict[WatchPredicate, int] = {}  # the number of watches by selector
        self._queue: dict[BudgetedWatch, asyncio.Future[None]] = {}  # waiting watches (FIFO)

    @property
    def is_in_use(self) -> bool:
        """True if the budget is in use and must be kept."""
        return bool(self.unsent_bytes or self.waiting or self.watches or self.connections or self.streams)

    @property
    def is_full(self) -> bool:
        """True if only small responses can be sent."""
        return self.exceeds_share_of(MAX_UNSENT_BYTES)

    @property
    def must_wait(self) -> bool:
        """True if a watch with a large response must wait."""
        return bool(self._queue) or self.is_full

    def exceeds_share_of(self, room: int) -> bool:
        """Report whether the flow's bytes in gRPC exceed its share of `room`."""
        return (
            self.unsent_bytes >= MINIMUM
            and 2 * self.unsent_bytes + self._pool.unsent_bytes - self._counted_unsent_bytes >= room
        )

    def add_watch(self, watch: BudgetedWatch) -> None:
        """Add a watch."""
        self.watches[watch] = None
        self.requirement_count += self.added_requirements(watch.selection)
        self._selections[watch.selection] = self._selections.get(watch.selection, 0) + 1

    def remove_watch(self, watch: BudgetedWatch) -> None:
        """Remove a watch without buffered events. Idempotent."""
        if watch not in self.watches:
            return
        del self.watches[watch]
        self._selections[watch.selection] -= 1
        if not self._selections[watch.selection]:
            del self._selections[watch.selection]
            self.requirement_count -= watch.selection.requirement_count
        if turn := self._queue.pop(watch, None):
            _wake_turn(turn)

    def added_requirements(self, selection: WatchPredicate) -> int:
        """Return the number of requirements that a watch with this selector adds."""
        return 0 if selection in self._selections else selection.requirement_count

    def charge(self, size: int) -> None:
        """Add `size` bytes in gRPC. A negative size removes bytes."""
        before = self._counted_unsent_bytes
        self.unsent_bytes += size
        self._pool.unsent_bytes += self._counted_unsent_bytes - before
        if size < 0:
            for budget in self._pool.queued:
                budget.wake_next_watch()

    def add_buffered(self, size: int) -> None:
        """Add `size` bytes of buffered events. A negative size removes bytes."""
        self.waiting += size
        self._pool.waiting += size
        if self.waiting:
            self._pool.holding[self] = None
        else:
            self._pool.holding.pop(self, None)

    async def wait(self, watch: BudgetedWatch) -> None:
        """Return when the watch is first in the queue and the budget is not full, or when the watch is closed. Charge the
        budget before the next await. Raises TimeoutError after SEND_TIMEOUT."""
        async with self.reserve_turn(watch):
            pass

    @asynccontextmanager
    async def reserve_turn(self, watch: BudgetedWatch) -> AsyncIterator[None]:
        """Wait as `wait`. Charge the budget inside the context. Later watches of the flow wait until the context exits."""
        loop = asyncio.get_running_loop()
        turn = self._queue[watch] = loop.create_future()
        self._pool.queued[self] = None
        self.wake_next_watch()
        try:
            async with asyncio.timeout(SEND_TIMEOUT):
                await turn
                while self.is_full and watch in self._queue:  # another response has used the budget
                    turn = self._queue[watch] = loop.create_future()
                    await turn
            yield
        finally:
            self._queue.pop(watch, None)
            if self._queue:
                self.wake_next_watch()
            else:
                self._pool.queued.pop(self, None)

    def wake_next_watch(self) -> None:
        """Wake up the next watch if the budget is not full."""
        if self._queue and not self.is_full:
            _wake_turn(next(iter(self._queue.values())))

    def enforce_limit(self) -> None:
        """End watches of any flow if the buffered events exceed the limit. Call it after `add_buffered`."""
        self._pool.enforce_limit()

    def end_largest_watches(self) -> bool:
        """End the watches with the largest buffers until the flow has fewer bytes. Return False if it has no watch to end."""
        before = self.waiting
        for watch in sorted(self.watches, key=attrgetter("buffered_bytes"), reverse=True):
            watch.end_overflowed()
            if self.waiting < before:
                return True
        return False

    @property
    def _counted_unsent_bytes(self) -> int:
        return min(self.unsent_bytes, MAX_UNSENT_BYTES // 2)


def _wake_turn(reserve_turn: asyncio.Future[None]) -> None:
    if not reserve_turn.done():
        reserve_turn.set_result(None)
