"""Flow control: the seats of the API server, the calls that hold them, and the calls that wait for them.

    with control.enter(...) as seat:
        if seat.waits:
            await seat.acquire()

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

All calls share one thread. gRPC hands over the calls of a listener (apiserver.server) in the order of their arrival, and needs
five turns of the event loop for each (measured with grpcio 1.85). If every call began at once, a flood would wait in gRPC, and
delay other callers of its listener. A flow therefore begins calls at once only up to EAGER seats. The rest waits here, where
other flows pass it, and begins in rounds with a pause after each. Calls of one round share transactions of etcd. A flow that is
alone has shorter pauses.

More important levels go first. A waiting call whose level has free seats of its own is passed by at most PASSES calls.

Answers that the caller has not read count against the memory of its flow (apiserver.flow.send_budget), also after the call:

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
from apiserver.flow.levels import SECONDS_PER_BYTE, SHARES, Flow, LazyRequest, PriorityLevel
from apiserver.flow.send_budget import MAX_UNTAKEN, Predicate, SendBudget, SendPool
from pinnace.api.status import Code, Refusal
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock


class Seats(Protocol):
    def released(self, seat: "Seat", flow: "Flow[Seat]") -> None:
        """Called once per seat."""
        ...

    def answered(self, flow: "Flow[Seat]", size: int, refusable: bool) -> Callable[[], None]:
        """The other side of Seat.answer."""
        ...

    def watching(self, flow: "Flow[Seat]", selection: Predicate, *, bounded: bool, initial: bool) -> SendBudget:
        """The other side of Seat.watching."""
        ...

    def connection(self, flow: "Flow[Seat]", *, bounded: bool) -> AbstractContextManager[None]:
        """The other side of Seat.connection."""
        ...


class Seat:
    """The seat of one call. `cost`: the number of seats that it takes. `unread`: bytes of the request that are parsed later,
    which blocks the event loop."""

    __slots__ = ("_flow", "_over", "_seats", "cost", "future", "since", "size", "unread", "until", "waits")

    def __init__(self, seats: Seats, flow: "Flow[Seat]", cost: int, unread: int = 0) -> None:
        self._seats = seats
        self.unread = unread
        self._flow = flow
        self._over = False
        self.cost = cost
        self.waits = False

    def wait(self, since: float, until: float, size: int) -> None:
        """Starts to wait. `since` and `until`: monotonic seconds. `size`: bytes of the request. `future` is set when the wait
        ends."""
        self.waits = True
        self.since, self.until, self.size = since, until, size
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def acquire(self) -> None:
        """Returns when the call may begin. Raises Rejected."""
        await self.future

    def refuse(self, error: Exception) -> None:
        """Ends the wait with an error: the call never begins."""
        self._over = True
        if not self.future.done():
            self.future.set_exception(error)

    def release(self) -> None:
        """Releases the seat, or stops waiting for it. May be called again."""
        if not self._over:
            self._over = True
            self._seats.released(self, self._flow)

    def answer(self, size: int, *, refusable: bool) -> Callable[[], None]:
        """Charges an answer of `size` bytes to the flow. Call the returned function once, when the caller has received the
        answer or is gone, which may be long after the seat was released. Raises Rejected if a `refusable` answer exceeds the
        send budget."""
        return self._seats.answered(self._flow, size, refusable)

    def watching(self, selection: Predicate, *, bounded: bool, initial: bool) -> SendBudget:
        """The send budget to which a new watch is charged. `bounded`: the number of watches is limited. `initial`: the watch
        starts with the present state. Raises Rejected."""
        return self._seats.watching(self._flow, selection, bounded=bounded, initial=initial)

    def connection(self, *, bounded: bool) -> AbstractContextManager[None]:
        """Counts a connection to a kubelet while it is open. `bounded`: the number of connections is limited, and entering
        raises Rejected above the limit."""
        return self._seats.connection(self._flow, bounded=bounded)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Exempt:
    """The seat of a call that is exempt from flow control."""

    waits = False

    async def acquire(self) -> None:
        return

    def release(self) -> None:
        return

    def answer(self, size: int, *, refusable: bool) -> Callable[[], None]:
        return self.release

    def watching(self, selection: Predicate, *, bounded: bool, initial: bool) -> SendBudget:
        return SendBudget(SendPool())

    def connection(self, *, bounded: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


EXEMPT = Exempt()
_OWN: ContextVar[Seat | Exempt] = ContextVar("seat", default=EXEMPT)


def set_current_seat(seat: Seat | Exempt) -> None:
    """Sets the seat of the task and of the tasks that it starts."""
    _OWN.set(seat)


def current_seat() -> Seat | Exempt:
    """The seat of the present task."""
    return _OWN.get()


def release_current_seat() -> None:
    """Releases the seat of the present task before it waits for something outside the server."""
    current_seat().release()


SEATS = 200
"""Concurrent single-object calls. As a call takes 1 ms of CPU, fewer would do while CPU is the limit; this many are needed when
a transaction of etcd takes a tenth of a second."""
EAGER = 16
"""Seats that a flow takes without waiting for a round."""
ROUND = 16
"""Seats of waiting calls that begin together. A call whose request is still to be parsed ends the round, because parsing blocks
the event loop."""
SEAT_PAUSE, SEAT_PAUSE_ALONE = 0.00075, 0.0001
"""Seconds of pause per seat of a round. Longer pauses protect other flows better, and slow down a flood. The second value is
for a flow that has been alone for ALONE_AFTER seconds."""
ALONE_AFTER = 1.0
MAX_PASSED = 5
"""Calls of other levels that may pass a waiting call whose level has free seats of its own. As three levels may be due at once,
a level gets at least one of every eight calls."""
WAIT_TIMEOUT = 5.0
"""Seconds that a call may wait: half of a client's usual timeout, so that the call can still succeed, here or elsewhere."""
MAX_WAITING = 1000
"""Waiting calls per flow: several times the number of calls that one connection may have open (apiserver.server)."""
MAX_WAITING_BYTES = 16 << 20
"""Bytes of their requests. One call may always wait."""
MAX_WATCHES = 1000
"""Open watches per flow, except for system:masters. A watch takes tens of kilobytes. A pinnace component has at most two
dozen."""
MAX_QUESTIONS = 1000
"""Requirements of the selectors of a flow's watches. Each event is tested against all of them, which takes 0.1 to 0.3 ms; equal
selectors count once. So a user can wait for 500 names at a time. A pinnace component has at most two dozen."""
MAX_CONNECTIONS = 100
"""Open connections to kubelets per flow, except for system:masters. Each log stream and each command has one, which takes 90 KB
and a file descriptor, of which a process often has 1,024. `pinnace logs -f` follows five containers by default."""
MAX_STREAMS = 100
"""Open streams of requests per flow, except for system:masters. Each takes 25 KB before its first request."""
TOO_MANY_REQUESTS = "TooManyRequests"
"""The reason of all refusals by flow control."""
RETRY_AFTER = 1.0
"""Seconds after which a refused call may be retried, as in Kubernetes."""
RETRIES_PER_SECOND = 100
"""Retries per second to which the retry delays spread the refused calls of one flow."""
MAX_RETRY_AFTER = 10.0
TICK = 0.1
"""Seconds between two checks for calls that have waited too long."""


class FlowMetrics(Protocol):
    """Counts. `level`: its name; `reason`: one of those above; `execute`: did the call begin in the end?"""

    def rejected(self, level: str, reason: str) -> None: ...

    def waited(self, level: str, seconds: float, execute: bool) -> None: ...


class NoFlowMetrics:
    def rejected(self, level: str, reason: str) -> None:
        return

    def waited(self, level: str, seconds: float, execute: bool) -> None:
        return


class SizedMessage(Protocol):
    """A protobuf message."""

    def ByteSize(self) -> int: ...  # noqa: N802


class FlowControl:
    """Assigns seats to calls. `run` refuses calls that have waited too long, until cancelled."""

    def __init__(self, seats: int = SEATS, *, clock: Clock = SYSTEM_CLOCK, meter: FlowMetrics | None = None) -> None:
        """`seats`: of all levels together."""
        shares = sum(SHARES.values())
        pool = SendPool()
        self.levels = {
            name: PriorityLevel[Seat](name, math.ceil(seats * share / shares), pool) for name, share in SHARES.items()
        }
        self._seats = seats
        self._clock = clock
        self._meter = meter or NoFlowMetrics()
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
        cost: int = 1,
        request: SizedMessage | None = None,
        remaining: float | None = None,
        *,
        writes: bool = False,
    ) -> Seat | Exempt:
        """A seat for a call of this level; None: the call is exempt. `remaining`: seconds until the call's deadline. `writes`:
        the answer cannot be refused. Raises Rejected."""
        if level is None:
            return EXEMPT
        flow = self.levels[level].flow(user)
        if flow is not self._latest:
            self._latest, self._alone_from = flow, self._clock.monotonic() + ALONE_AFTER
        if remaining is not None and remaining <= 0:
            raise self._rejected(flow, "time-out", _late())
        if writes:
            self._refuse_untaken(flow, 2 * MAX_UNTAKEN)
        cost = max(1, cost)  # what is taken from a request may be anything, and less than nothing would be room for everybody
        seat = Seat(self, flow, cost, request.ByteSize() if isinstance(request, LazyRequest) else 0)
        if flow.held < EAGER and not flow.waiting and flow.fits(cost, self._free(flow.level)):
            self._begin(seat, flow)
        else:
            self._queue(seat, flow, request, remaining)
        return seat

    def released(self, seat: Seat, flow: Flow[Seat]) -> None:
        """The other side of Seat.release."""
        if seat.waits:
            self._stop_waiting(seat, flow, execute=False)
            self._meter.rejected(flow.level.name, "cancelled")
            return
        flow.end(seat.cost)
        self._held -= seat.cost
        if self._waiting:
            self._pace()

    def answered(self, flow: Flow[Seat], size: int, refusable: bool) -> Callable[[], None]:
        """The other side of Seat.answer."""
        if refusable:
            self._refuse_untaken(flow, MAX_UNTAKEN)
        flow.budget.charge(size)
        return partial(flow.budget.charge, -size)

    def watching(self, flow: Flow[Seat], selection: Predicate, *, bounded: bool, initial: bool) -> SendBudget:
        """The other side of Seat.watching."""
        count, questions = len(flow.budget.watches), flow.budget.questions
        if bounded and count >= MAX_WATCHES:
            raise self._rejected(flow, "watches", self._too_many(flow, f"{count:,} watches are open: end some of them"))
        if bounded and questions + (more := flow.budget.more(selection)) > MAX_QUESTIONS:
            why = f"selectors of {count:,} open watches have {questions:,} parts, and this one has {more:,}: end some of them"
            raise self._rejected(flow, "watches", self._too_many(flow, why))
        if initial:
            self._refuse_untaken(flow, MAX_UNTAKEN)
        return flow.budget

    @contextmanager
    def connection(self, flow: Flow[Seat], *, bounded: bool) -> Iterator[None]:
        """The other side of Seat.connection."""
        count = flow.budget.connections
        if bounded and count >= MAX_CONNECTIONS:
            why = f"{count:,} logs and commands are open: end some of them"
            raise self._rejected(flow, "connections", self._too_many(flow, why))
        flow.budget.connections += 1
        try:
            yield
        finally:
            flow.budget.connections -= 1

    @contextmanager
    def stream(self, level: str | None, user: str, most: int = MAX_STREAMS) -> Iterator[None]:
        """Counts a stream of requests while it is open. `level`: as for `enter`. Raises Rejected if the flow has `most`
        open."""
        if level is None:
            yield
            return
        flow = self.levels[level].flow(user)
        if (count := flow.budget.streams) >= most:
            raise self._rejected(flow, "streams", self._too_many(flow, f"{count:,} streams are open: end some of them"))
        flow.budget.streams += 1
        try:
            yield
        finally:
            flow.budget.streams -= 1

    async def run(self) -> None:
        while True:
            await self._crowded.wait()
            await self._clock.sleep(TICK)
            self._expire()

    def _free(self, level: PriorityLevel[Seat]) -> int:
        return max(level.seats - level.held, self._seats - self._held)

    def _begin(self, seat: Seat, flow: Flow[Seat]) -> None:
        flow.begin(seat.cost)
        self._held += seat.cost

    def _pace(self) -> None:
        """Begins waiting calls in rounds, until no seats are free or no calls wait."""
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
        """Begins the calls of a round; False if none can begin."""
        begun, reading = 0, 0.0
        while begun < ROUND and not reading and (seat := self._begin_one()) is not None:
            begun += seat.cost
            reading = seat.unread * SECONDS_PER_BYTE
        now = self._clock.monotonic()
        self._due = now + min(begun, ROUND) * (SEAT_PAUSE if now < self._alone_from else SEAT_PAUSE_ALONE) + reading
        return begun > 0

    def _begin_one(self) -> Seat | None:
        """Begins the next call and returns its seat; None if no call can begin."""
        owed = [level for level in self.levels.values() if level.waiting and level.held < level.seats]
        for level in chain((level for level in owed if level.passed >= MAX_PASSED), self.levels.values()):
            if (seat := self._begin_next(level)) is not None:
                for other in owed:
                    other.passed += 1
                level.passed = 0
                return seat
        return None

    def _begin_next(self, level: PriorityLevel[Seat]) -> Seat | None:
        """As `_begin_one`, of one level."""
        now = self._clock.monotonic()
        while flow := level.next(self._free(level)):
            seat = flow.first()
            if seat.future.done():  # cancelled, but its task has not run since
                seat.release()
            elif seat.until <= now:
                self._refuse(seat, flow)
            else:
                self._stop_waiting(seat, flow, execute=True)
                self._begin(seat, flow)
                seat.future.set_result(None)
                return seat
        return None

    def _queue(self, seat: Seat, flow: Flow[Seat], request: SizedMessage | None, remaining: float | None) -> None:
        size = request.ByteSize() if request is not None else 0
        if len(flow.waiting) >= MAX_WAITING or (flow.waiting and flow.bytes + size > MAX_WAITING_BYTES):
            raise self._rejected(flow, "queue-full", self._too_many(flow, f"{len(flow.waiting)} calls wait already"))
        now = self._clock.monotonic()
        seat.wait(now, now + (WAIT_TIMEOUT if remaining is None else min(WAIT_TIMEOUT, remaining)), size)
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
        """Refuses the calls whose wait has timed out."""
        now = self._clock.monotonic()
        for level in self.levels.values():
            for flow in list(level.queued):
                for seat in [seat for seat in flow.waiting if seat.until <= now]:
                    self._refuse(seat, flow)

    def _refuse(self, seat: Seat, flow: Flow[Seat]) -> None:
        self._stop_waiting(seat, flow, execute=False)
        in_time = seat.until >= seat.since + WAIT_TIMEOUT
        refusal = self._too_many(flow, f"waited for {WAIT_TIMEOUT:g} s") if in_time else _late()
        seat.refuse(self._rejected(flow, "time-out", refusal))

    def _refuse_untaken(self, flow: Flow[Seat], room: int) -> None:
        """Raises Rejected if the flow's unread answers exceed its share of the room."""
        if flow.budget.exceeds(room):
            why = f"{flow.budget.untaken / (1 << 20):.1f} MiB of answers have not been read yet: read them, or end their calls"
            raise self._rejected(flow, "untaken", self._too_many(flow, why))

    def _rejected(self, flow: Flow[Seat], reason: str, refusal: Refusal) -> Rejected:
        self._meter.rejected(flow.level.name, reason)
        return Rejected(refusal)

    def _too_many(self, flow: Flow[Seat], why: str) -> Refusal:
        now = self._clock.monotonic()
        flow.returns = max(now + RETRY_AFTER, flow.returns + 1 / RETRIES_PER_SECOND)
        message = f'too many requests, please try again later: {why} (priority level "{flow.level.name}", flow "{flow.user}")'
        return Refusal(Code.UNAVAILABLE, TOO_MANY_REQUESTS, message, retry_after=min(flow.returns - now, MAX_RETRY_AFTER))


def _late() -> Refusal:
    return Refusal(Code.DEADLINE_EXCEEDED, "Timeout", "the deadline had passed before the call began: nothing has happened")


Q = TypeVar("Q", bound=SizedMessage)


class StreamAdmission(Exempt, Generic[Q]):
    """The requests of a stream for the service. Reading the first request (or each, see `each`) acquires a seat. Also takes the
    place of the call's seat."""

    def __init__(
        self,
        requests: AsyncIterator[Q | LazyRequest],
        enter: Callable[[Q | LazyRequest], Seat | Exempt],
        read: Callable[[bytes], Q],
        *,
        each: bool = False,
    ) -> None:
        """`enter`: returns a seat, raises Rejected. `each`: every request acquires a seat, not only the first."""
        self._requests: AsyncIterator[Q | LazyRequest] | None = requests
        self._enter = enter
        self._read = read
        self._seat: Seat | Exempt | None = None
        self._each = each
        self._over = False
        self.refused: Rejected | None = None
        """The refusal of a request, for services that treat it as the end of the stream."""

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
                    await seat.acquire()
            except Rejected as rejected:
                self.refused = rejected
                raise
        return self._read(request.data) if isinstance(request, LazyRequest) else request

    def connection(self, *, bounded: bool) -> AbstractContextManager[None]:
        return (self._seat or EXEMPT).connection(bounded=bounded)

    def release(self) -> None:
        self._over = not self._each
        if self._seat is not None:
            self._seat.release()
            if self._each:
                self._seat = None

    def __exit__(self, *_: object) -> None:
        """Ends the call, and drops references: cancelled timers keep this object alive until they are due."""
        self.release()
        self._requests = self.refused = self._seat = None
