"""Flow control: the seats of the API server, the calls that hold them, and the calls that wait for them.

    with control.enter(...) as seat:
        if seat.waits:
            await seat.taken()

    enter --room--> executing --leave--> over
      |               ^
      '--> waiting ---'
             |--too many calls of its flow wait ----> refused, at once     queue-full
             |--it has waited for WAIT_LIMIT -------> refused              time-out
             |--its caller's deadline has passed ---> refused              time-out
             '--its caller cancels -----------------> over                 cancelled

A level may borrow the free seats of other levels. A level whose seats are lent takes its own seats back at once: the sum of
all seats is then exceeded until calls of the borrower end, and the borrower begins no calls before. At most twice the number of
seats is in use, plus the overdraft of wide calls.

All calls share one thread. gRPC hands over the calls of a listener (apiserver.lines) in the order of their arrival, and needs
five turns of the event loop for each (measured with grpcio 1.85). If every call began at once, a flood would wait in gRPC, and
delay other callers of its listener. A flow therefore begins calls at once only up to EAGER seats. The rest waits here, where
other flows pass it, and begins in rounds with a pause after each. Calls of one round share transactions of etcd. A flow that is
alone has shorter pauses.

More important levels go first. A waiting call whose level has free seats of its own is passed by at most PASSES calls.

Answers that the caller has not read count against the memory of its flow (apiserver.flow.account), also after the call:

    reads ---> answer --room--> with gRPC --read, or the caller is gone--> over
                 |
                 '--none------> refused                                untaken
    watches ---too many are open--> refused, at once                   watches
    logs, exec --too many are open--> refused, at once                 connections
    streams of requests --likewise--> refused, at once                 streams

The answer to a write cannot be refused, so a write is refused before it begins, at twice that limit. Refused calls get
different retry delays.

A stream of requests has a seat from its first request until the first answer, or until the service releases the seat. A stream
that is only open takes no seat:

    opened --first request--> waiting --seat--> executing --answered, or released--> open
                ^                '--refused--> over                                   |
                '--the next request, where each request has a seat of its own---------'

Without contention there is no queue, no task and no wait.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from itertools import chain
from typing import Generic, Protocol, Self, TypeVar

from apiserver.errors import Rejected
from apiserver.flow.account import MAX_UNTAKEN, Account, Room, Selection
from apiserver.flow.cost import READING, Unread
from apiserver.flow.levels import SHARES, Flow, Level
from pinnace.api.status import Code, Refusal
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock


class Seats(Protocol):
    def left(self, seat: "Seat", flow: "Flow[Seat]") -> None:
        """Said once of each seat."""
        ...

    def answered(self, flow: "Flow[Seat]", size: int, refusable: bool) -> Callable[[], None]:
        """The other side of Seat.answer."""
        ...

    def watching(self, flow: "Flow[Seat]", selection: Selection, *, bounded: bool, initial: bool) -> Account:
        """The other side of Seat.watching."""
        ...

    def connection(self, flow: "Flow[Seat]", *, bounded: bool) -> AbstractContextManager[None]:
        """The other side of Seat.connection."""
        ...


class Seat:
    """Of one call. `width`: how many seats it is. `unread`: bytes of a request that is still to be read, in a turn that is as
    long as that takes."""

    __slots__ = ("_flow", "_over", "_seats", "future", "since", "size", "unread", "until", "waits", "width")

    def __init__(self, seats: Seats, flow: "Flow[Seat]", width: int, unread: int = 0) -> None:
        self._seats = seats
        self.unread = unread
        self._flow = flow
        self._over = False
        self.width = width
        self.waits = False

    def wait(self, since: float, until: float, size: int) -> None:
        """From now on it does: monotonic seconds, and bytes of the request. The `future` says how that ends."""
        self.waits = True
        self.since, self.until, self.size = since, until, size
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def taken(self) -> None:
        """Returns when the call may begin. Raises Rejected."""
        await self.future

    def refuse(self, error: Exception) -> None:
        """It waits no more, and never begins."""
        self._over = True
        if not self.future.done():
            self.future.set_exception(error)

    def leave(self) -> None:
        """The call is over, or its caller does not wait any more. May be said again."""
        if not self._over:
            self._over = True
            self._seats.left(self, self._flow)

    def answer(self, size: int, *, refusable: bool) -> Callable[[], None]:
        """The call has an answer of so many bytes. Returns what is to be called once, when the caller has taken it or is gone:
        it may last much longer than the seat. Raises Rejected when too much waits for him, if the answer is `refusable`."""
        return self._seats.answered(self._flow, size, refusable)

    def watching(self, selection: Selection, *, bounded: bool, initial: bool) -> Account:
        """The call opens a watch, for which the account is charged. `bounded`: there may only be so many. `initial`: the
        present state comes first. Raises Rejected."""
        return self._seats.watching(self._flow, selection, bounded=bounded, initial=initial)

    def connection(self, *, bounded: bool) -> AbstractContextManager[None]:
        """Entered while the call has a connection to a kubelet. `bounded`: there may only be so many, and to enter raises
        Rejected."""
        return self._seats.connection(self._flow, bounded=bounded)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class Exempt:
    """Of a call that needs no seat."""

    waits = False

    async def taken(self) -> None:
        return

    def leave(self) -> None:
        return

    def answer(self, size: int, *, refusable: bool) -> Callable[[], None]:
        return self.leave

    def watching(self, selection: Selection, *, bounded: bool, initial: bool) -> Account:
        return Account(Room())

    def connection(self, *, bounded: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


EXEMPT = Exempt()
_OWN: ContextVar[Seat | Exempt] = ContextVar("seat", default=EXEMPT)


def sit(seat: Seat | Exempt) -> None:
    """What the task, and those that it starts, do from now on is done in this seat."""
    _OWN.set(seat)


def own() -> Seat | Exempt:
    """The seat in which the task is."""
    return _OWN.get()


def stand_up() -> None:
    """The call waits for somebody outside the server from now on, for as long as that takes: its seat is for others."""
    own().leave()


SEATS = 200
"""How many single-object calls run at once. A server whose CPU is busy has fewer, at 1 ms each; so many are needed when a
transaction of etcd takes a tenth of a second."""
EAGER = 16
"""Seats that a flow takes without waiting for its turn."""
ROUND = 16
"""Seats of calls that have waited and begin together. One that is still to be read is the last: nobody has a turn meanwhile."""
PACE, PACE_ALONE = 0.00075, 0.0001
"""Seconds of pause for each of these: more of them protect others better, and cost the flood some of its rate.
The second is for a flow that has been alone for COMPANY seconds."""
COMPANY = 1.0
PASSES = 5
"""Calls that go before one of a level that has seats of its own free. As three may be due at once, it is one of every eight."""
WAIT_LIMIT = 5.0
"""Seconds that a call may wait: half of a client's usual patience, so that it can still be carried out then, or elsewhere."""
MAX_WAITING = 1000
"""Calls of one flow that may wait: some times as many as one connection may have open (apiserver.server)."""
MAX_WAITING_BYTES = 16 << 20
"""Of their requests. One call may always wait."""
MAX_WATCHES = 1000
"""That a flow may have open, but for the masters': each takes tens of kilobytes. A process of ours has two dozen at most."""
MAX_QUESTIONS = 1000
"""That each event is asked for them, which takes 0.1 to 0.3 ms; once for watches that select the same. So a user can wait for
500 names at a time. Of our own processes none asks more than two dozen, and all of one kind ask the same."""
MAX_CONNECTIONS = 100
"""To kubelets that a flow may have open, but for the masters': each log and each command has one while it lasts, which is 90 KB
and a descriptor. Of descriptors a process often has 1,024, for everybody. `pinnace logs -f` follows five containers, unless
more are asked for."""
MAX_STREAMS = 100
"""Streams of requests that a flow may have open, but for the masters': each takes 25 KB before it has said anything."""
TOO_MANY_REQUESTS = "TooManyRequests"
"""The reason of all refusals for lack of room."""
RETRY_AFTER = 1.0
"""Seconds after which a call that is refused may come back, as in Kubernetes."""
RETURNS = 100
"""Of the refused calls of one flow so many come back per second."""
LATEST_RETURN = 10.0
TICK = 0.1
"""Seconds between two looks at who waits for too long."""


class Meter(Protocol):
    """Counts. `level`: its name; `reason`: one of those above; `execute`: did the call begin in the end?"""

    def rejected(self, level: str, reason: str) -> None: ...

    def waited(self, level: str, seconds: float, execute: bool) -> None: ...


class Unmetered:
    def rejected(self, level: str, reason: str) -> None:
        return

    def waited(self, level: str, seconds: float, execute: bool) -> None:
        return


class Request(Protocol):
    """A protobuf message."""

    def ByteSize(self) -> int: ...  # noqa: N802


class FlowControl:
    """`run` refuses those who wait for too long, until it is cancelled; all else happens in the calls."""

    def __init__(self, seats: int = SEATS, *, clock: Clock = SYSTEM_CLOCK, meter: Meter | None = None) -> None:
        """`seats`: of all levels together."""
        shares = sum(SHARES.values())
        room = Room()
        self.levels = {name: Level[Seat](name, math.ceil(seats * share / shares), room) for name, share in SHARES.items()}
        self._seats = seats
        self._clock = clock
        self._meter = meter or Unmetered()
        self._held = 0
        self._waiting = 0
        self._crowded = asyncio.Event()
        self._pacing: asyncio.Task[None] | None = None
        self._due = 0.0  # when the next round may begin
        self._latest: Flow[Seat] | None = None  # of the last call
        self._alone_from = 0.0  # when nobody else will have called for COMPANY seconds

    def enter(
        self,
        level: str | None,
        user: str,
        width: int = 1,
        request: Request | None = None,
        remaining: float | None = None,
        *,
        writes: bool = False,
    ) -> Seat | Exempt:
        """For a call of this level; None: it needs no seat. `remaining`: seconds that the caller still waits. `writes`: it has
        an answer that cannot be refused. Raises Rejected."""
        if level is None:
            return EXEMPT
        flow = self.levels[level].flow(user)
        if flow is not self._latest:
            self._latest, self._alone_from = flow, self._clock.monotonic() + COMPANY
        if remaining is not None and remaining <= 0:
            raise self._rejected(flow, "time-out", _late())
        if writes:
            self._refuse_untaken(flow, 2 * MAX_UNTAKEN)
        width = max(1, width)  # what is taken from a request may be anything, and less than nothing would be room for everybody
        seat = Seat(self, flow, width, request.ByteSize() if isinstance(request, Unread) else 0)
        if flow.held < EAGER and not flow.waiting and flow.fits(width, self._free(flow.level)):
            self._begin(seat, flow)
        else:
            self._queue(seat, flow, request, remaining)
        return seat

    def left(self, seat: Seat, flow: Flow[Seat]) -> None:
        """The other side of Seat.leave."""
        if seat.waits:
            self._stop_waiting(seat, flow, execute=False)
            self._meter.rejected(flow.level.name, "cancelled")
            return
        flow.end(seat.width)
        self._held -= seat.width
        if self._waiting:
            self._pace()

    def answered(self, flow: Flow[Seat], size: int, refusable: bool) -> Callable[[], None]:
        """The other side of Seat.answer."""
        if refusable:
            self._refuse_untaken(flow, MAX_UNTAKEN)
        flow.account.charge(size)
        return partial(flow.account.charge, -size)

    def watching(self, flow: Flow[Seat], selection: Selection, *, bounded: bool, initial: bool) -> Account:
        """The other side of Seat.watching."""
        count, questions = len(flow.account.watches), flow.account.questions
        if bounded and count >= MAX_WATCHES:
            raise self._rejected(flow, "watches", self._too_many(flow, f"{count:,} watches are open: end some of them"))
        if bounded and questions + (more := flow.account.more(selection)) > MAX_QUESTIONS:
            why = f"selectors of {count:,} open watches have {questions:,} parts, and this one has {more:,}: end some of them"
            raise self._rejected(flow, "watches", self._too_many(flow, why))
        if initial:
            self._refuse_untaken(flow, MAX_UNTAKEN)
        return flow.account

    @contextmanager
    def connection(self, flow: Flow[Seat], *, bounded: bool) -> Iterator[None]:
        """The other side of Seat.connection."""
        count = flow.account.connections
        if bounded and count >= MAX_CONNECTIONS:
            why = f"{count:,} logs and commands are open: end some of them"
            raise self._rejected(flow, "connections", self._too_many(flow, why))
        flow.account.connections += 1
        try:
            yield
        finally:
            flow.account.connections -= 1

    @contextmanager
    def stream(self, level: str | None, user: str, most: int = MAX_STREAMS) -> Iterator[None]:
        """While a stream of requests is open. `level`: as for `enter`. Raises Rejected when the flow has `most` of them."""
        if level is None:
            yield
            return
        flow = self.levels[level].flow(user)
        if (count := flow.account.streams) >= most:
            raise self._rejected(flow, "streams", self._too_many(flow, f"{count:,} streams are open: end some of them"))
        flow.account.streams += 1
        try:
            yield
        finally:
            flow.account.streams -= 1

    async def run(self) -> None:
        while True:
            await self._crowded.wait()
            await self._clock.sleep(TICK)
            self._expire()

    def _free(self, level: Level[Seat]) -> int:
        return max(level.seats - level.held, self._seats - self._held)

    def _begin(self, seat: Seat, flow: Flow[Seat]) -> None:
        flow.begin(seat.width)
        self._held += seat.width

    def _pace(self) -> None:
        """Begins those who wait, by and by, until there is no room or nobody waits."""
        if self._pacing is None:
            self._pacing = asyncio.ensure_future(self._begin_in_rounds())

    async def _begin_in_rounds(self) -> None:
        try:
            while True:
                if (pause := self._due - self._clock.monotonic()) > 0:
                    await self._clock.sleep(pause)
                if not self._begin_round():
                    return
        finally:
            self._pacing = None

    def _begin_round(self) -> bool:
        """Has anybody begun?"""
        begun, reading = 0, 0.0
        while begun < ROUND and not reading and (seat := self._begin_one()) is not None:
            begun += seat.width
            reading = seat.unread * READING
        now = self._clock.monotonic()
        self._due = now + min(begun, ROUND) * (PACE if now < self._alone_from else PACE_ALONE) + reading
        return begun > 0

    def _begin_one(self) -> Seat | None:
        """The seat that the next call has now; None: none may begin."""
        owed = [level for level in self.levels.values() if level.waiting and level.held < level.seats]
        for level in chain((level for level in owed if level.passed >= PASSES), self.levels.values()):
            if (seat := self._begin_next(level)) is not None:
                for other in owed:
                    other.passed += 1
                level.passed = 0
                return seat
        return None

    def _begin_next(self, level: Level[Seat]) -> Seat | None:
        """As `_begin_one`, of one level."""
        now = self._clock.monotonic()
        while flow := level.next(self._free(level)):
            seat = flow.first()
            if seat.future.done():  # cancelled: its task will only hear of it
                seat.leave()
            elif seat.until <= now:
                self._refuse(seat, flow)
            else:
                self._stop_waiting(seat, flow, execute=True)
                self._begin(seat, flow)
                seat.future.set_result(None)
                return seat
        return None

    def _queue(self, seat: Seat, flow: Flow[Seat], request: Request | None, remaining: float | None) -> None:
        size = request.ByteSize() if request is not None else 0
        if len(flow.waiting) >= MAX_WAITING or (flow.waiting and flow.bytes + size > MAX_WAITING_BYTES):
            raise self._rejected(flow, "queue-full", self._too_many(flow, f"{len(flow.waiting)} calls wait already"))
        now = self._clock.monotonic()
        seat.wait(now, now + (WAIT_LIMIT if remaining is None else min(WAIT_LIMIT, remaining)), size)
        flow.push(seat)
        self._waiting += 1
        self._crowded.set()
        self._pace()

    def _stop_waiting(self, seat: Seat, flow: Flow[Seat], *, execute: bool) -> None:
        seat.waits = False
        flow.drop(seat)
        self._waiting -= 1
        if not self._waiting:
            self._crowded.clear()
        self._meter.waited(flow.level.name, self._clock.monotonic() - seat.since, execute)

    def _expire(self) -> None:
        """Refuses those whose time is over."""
        now = self._clock.monotonic()
        for level in self.levels.values():
            for flow in list(level.queued):
                for seat in [seat for seat in flow.waiting if seat.until <= now]:
                    self._refuse(seat, flow)

    def _refuse(self, seat: Seat, flow: Flow[Seat]) -> None:
        self._stop_waiting(seat, flow, execute=False)
        in_time = seat.until >= seat.since + WAIT_LIMIT
        refusal = self._too_many(flow, f"waited for {WAIT_LIMIT:g} s") if in_time else _late()
        seat.refuse(self._rejected(flow, "time-out", refusal))

    def _refuse_untaken(self, flow: Flow[Seat], room: int) -> None:
        """Raises Rejected when the flow has more answers that were not taken than it leaves free of the room for them."""
        if flow.account.exceeds(room):
            why = f"{flow.account.untaken / (1 << 20):.1f} MiB of answers have not been read yet: read them, or end their calls"
            raise self._rejected(flow, "untaken", self._too_many(flow, why))

    def _rejected(self, flow: Flow[Seat], reason: str, refusal: Refusal) -> Rejected:
        self._meter.rejected(flow.level.name, reason)
        return Rejected(refusal)

    def _too_many(self, flow: Flow[Seat], why: str) -> Refusal:
        now = self._clock.monotonic()
        flow.returns = max(now + RETRY_AFTER, flow.returns + 1 / RETURNS)
        message = f'too many requests, please try again later: {why} (priority level "{flow.level.name}", flow "{flow.user}")'
        return Refusal(Code.UNAVAILABLE, TOO_MANY_REQUESTS, message, retry_after=min(flow.returns - now, LATEST_RETURN))


def _late() -> Refusal:
    return Refusal(Code.DEADLINE_EXCEEDED, "Timeout", "the deadline had passed before the call began: nothing has happened")


Q = TypeVar("Q", bound=Request)


class Threshold(Exempt, Generic[Q]):
    """The requests, as the service is to hear them; and in what the call sits, which needs no seat as yet."""

    def __init__(
        self,
        requests: AsyncIterator[Q | Unread],
        enter: Callable[[Q | Unread], Seat | Exempt],
        read: Callable[[bytes], Q],
        *,
        each: bool = False,
    ) -> None:
        """`enter`: raises Rejected. `each`: each request has a seat of its own, and not the first one alone."""
        self._requests: AsyncIterator[Q | Unread] | None = requests
        self._enter = enter
        self._read = read
        self._seat: Seat | Exempt | None = None
        self._each = each
        self._over = False
        self.refused: Rejected | None = None
        """Why nothing was heard: of a service that takes it for the end of the stream."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Q:
        """Raises Rejected."""
        if self._requests is None:
            raise StopAsyncIteration
        request = await anext(self._requests)
        if self._seat is None and not self._over:
            try:
                self._seat = seat = self._enter(request)
                if seat.waits:
                    await seat.taken()
            except Rejected as rejected:
                self.refused = rejected
                raise
        return self._read(request.data) if isinstance(request, Unread) else request

    def connection(self, *, bounded: bool) -> AbstractContextManager[None]:
        return (self._seat or EXEMPT).connection(bounded=bounded)

    def leave(self) -> None:
        self._over = not self._each
        if self._seat is not None:
            self._seat.leave()
            if self._each:
                self._seat = None

    def __exit__(self, *_: object) -> None:
        """The call has ended. Timers that it has cancelled keep what it sat in until their time, and with it what was said."""
        self.leave()
        self._requests = self.refused = self._seat = None
