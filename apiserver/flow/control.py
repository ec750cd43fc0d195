"""Flow control: the seats of the API server, executing calls and waiting calls.

    with control.enter(...) as seat:
        if seat.waits:
            await seat.acquire()

    enter --free seats--> executing --leave--> finished
      |                     ^
      '--> waiting ---------'
             |--queue of the flow is full ------------> refused immediately  queue-full
             |--has waited for WAIT_TIMEOUT ----------> refused              time-out
             |--deadline of the call has passed ------> refused              time-out
             '--client cancels -----------------------> finished             cancelled

A level can borrow free seats of other levels. It does not return them early: when the lender needs its seats, it uses them
immediately, and the total is exceeded until calls of the borrower end. Until then the borrower starts no calls. At most twice
the number of seats is in use, plus the excess of calls that cost several seats.

All calls share one thread. gRPC dispatches the calls of a listener (apiserver.server) in order of arrival, and needs five
iterations of the event loop per call (measured with grpcio 1.85). If every call started immediately, a flood of calls would be
queued in gRPC and delay the other clients of its listener. So a flow starts calls immediately only up to EAGER seats. Further
calls wait in the queue of their flow and start in rounds, with a pause after each round. The calls of a round share etcd
transactions. If only one flow is active, its pauses are shorter.

Levels have priorities. A waiting call whose level has free seats of its own is overtaken by at most MAX_OVERTAKEN calls.

Responses that the client has not read count against the send budget of the flow (apiserver.flow.send_budget), even after the
end of the call:

    reads ---> response --within budget--> queued in gRPC --sent, or client disconnected--> finished
                 |
                 '--over budget--> refused                             untaken
    watches ---too many open-----> refused immediately                 watches
    logs, exec --too many open---> refused immediately                 connections
    request streams --the same---> refused immediately                 streams

The response to a write cannot be refused. So at twice the budget, writes are refused before they start. Refused calls receive
different retry delays.

A request stream has a seat from its first request until the first response, or until the service releases the seat. An idle
stream has no seat:

    opened --first request--> waiting --seat--> executing --response, or released--> open
                ^                '--refused--> finished                                |
                '--next request, if each request needs a seat--------------------------'

Without contention, a call creates no queue entry and no task, and does not wait.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from itertools import chain
from typing import Generic, Protocol, Self, TypeVar

from pinnace.api.status import Code, Refusal
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow.levels import SECONDS_PER_BYTE, SHARES, LazyRequest, PriorityLevel, UserFlow
from pinnace.apiserver.flow.send_budget import MAX_UNSENT_BYTES, SendBudget, SendPool, WatchPredicate
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

SEATS = 200
"""Maximum number of concurrent single-object calls. A call needs 1 ms of CPU time, so fewer seats are sufficient if the CPU is
the bottleneck. 200 are needed if an etcd transaction takes 100 ms."""
EAGER = 16
"""The number of seats that a flow uses without waiting for a round."""
ROUND = 16
"""The number of seats of waiting calls that start together. A call with an unparsed request ends the round, because parsing
blocks the event loop."""
SEAT_PAUSE, SEAT_PAUSE_UNCROWDED = 0.00075, 0.0001
"""Seconds of pause per seat of a round. Longer pauses protect other flows better, but limit the rate of a busy flow. The second
value applies if no other flow has made calls for UNCROWDED_AFTER seconds."""
UNCROWDED_AFTER = 1.0
MAX_OVERTAKEN = 5
"""Maximum number of calls of other levels that overtake a waiting call whose level has free seats of its own. Up to three
levels can reach this limit at the same time, so a level starts at least one of eight calls."""
WAIT_TIMEOUT = 5.0
"""Maximum seconds for which a call waits: half of a client's default timeout, so that the client can retry within its
timeout."""
MAX_WAITING = 1000
"""Maximum waiting calls per flow: several times the maximum number of open calls of a connection (pinnace.apiserver.server)."""
MAX_WAITING_BYTES = 16 << 20
"""Maximum bytes of requests of a flow's waiting calls. One call can always wait, whatever its size."""
MAX_WATCHES = 1000
"""Maximum open watches per flow, except for system:masters. A watch uses tens of kilobytes. A component of pinnace has at most
24.
"""
MAX_SELECTOR_REQUIREMENTS = 1000
"""Maximum number of selector requirements of a flow's watches. Equal selectors count once. Each event is matched against all of
them, which takes 0.1 to 0.3 ms. A user can watch 500 names at the same time. A component of pinnace has at most 24."""
MAX_CONNECTIONS = 100
"""Maximum open connections to kubelets per flow, except for system:masters. Each log stream and command has a connection, which
uses 90 KB and a file descriptor. A common limit of file descriptors is 1,024. `pinnace logs -f` follows five containers by
default."""
MAX_STREAMS = 100
"""Maximum open request streams per flow, except for system:masters. A stream uses 25 KB before its first request."""
TOO_MANY_REQUESTS = "TooManyRequests"
"""The reason of all refusals by flow control."""
RETRY_AFTER = 1.0
"""Seconds after which a client can retry a refused call, as in Kubernetes."""
RETRIES_PER_SECOND = 100
"""The rate of retries per second and flow. Retry delays are assigned accordingly."""
MAX_RETRY_AFTER = 10.0
TICK = 0.1
"""Seconds between two checks for calls whose wait has timed out."""


class SeatOwner(Protocol):
    """The owner of seats."""

    def release_seat(self, seat: "Seat", flow: "UserFlow[Seat]") -> None:
        """Implement Seat.release. It is called once per seat."""
        ...

    def charge_response(self, flow: "UserFlow[Seat]", size: int, refusable: bool) -> Callable[[], None]:
        """Implement Seat.charge_response."""
        ...

    def open_watch_budget(
        self, flow: "UserFlow[Seat]", selection: WatchPredicate, *, bounded: bool, initial: bool
    ) -> SendBudget:
        """Implement Seat.open_watch_budget."""
        ...

    def count_connection(self, flow: "UserFlow[Seat]", *, bounded: bool) -> AbstractContextManager[None]:
        """Implement Seat.count_connection."""
        ...


class Seat:
    """The seats of one call. `cost` is the number of seats. `unread` is the size of an unparsed request in bytes. Parsing it
    blocks the event loop."""

    __slots__ = ("_flow", "_released", "_seats", "cost", "future", "since", "size", "unread", "until", "waits")

    def __init__(self, seats: SeatOwner, flow: "UserFlow[Seat]", cost: int, unread: int = 0) -> None:
        self._seats = seats
        self.unread = unread
        self._flow = flow
        self._released = False
        self.cost = cost
        self.waits = False

    def wait(self, since: float, until: float, size: int) -> None:
        """Start to wait. `since` and `until` are monotonic times in seconds. `size` is the size of the request in bytes.
        `future` is completed at the end of the wait."""
        self.waits = True
        self.since, self.until, self.size = since, until, size
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def acquire(self) -> None:
        """Return when the call may start. Raises Rejected."""
        await self.future

    def refuse(self, error: Exception) -> None:
        """End the wait with an error. The call does not start."""
        self._released = True
        if not self.future.done():
            self.future.set_exception(error)

    def release(self) -> None:
        """Release the seats, or stop waiting for them. Idempotent."""
        if not self._released:
            self._released = True
            self._seats.release_seat(self, self._flow)

    def charge_response(self, size: int, *, refusable: bool) -> Callable[[], None]:
        """Charge a response of `size` bytes to the flow. Call the returned function once, when the client has received the
        response or has disconnected. This can be long after `release`. Raises Rejected if the response is `refusable` and
        exceeds the send budget."""
        return self._seats.charge_response(self._flow, size, refusable)

    def open_watch_budget(self, selection: WatchPredicate, *, bounded: bool, initial: bool) -> SendBudget:
        """Return the send budget of a new watch. `bounded`: the number of watches is limited. `initial`: the watch starts with
        the current state. Raises Rejected."""
        return self._seats.open_watch_budget(self._flow, selection, bounded=bounded, initial=initial)

    def count_connection(self, *, bounded: bool) -> AbstractContextManager[None]:
        """Count a connection to a kubelet while it is open. If `bounded`, the number of connections is limited, and entering
        the context raises Rejected above the limit."""
        return self._seats.count_connection(self._flow, bounded=bounded)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class ExemptSeat:
    """The seats of a call that is exempt from flow control."""

    waits = False

    async def acquire(self) -> None:
        return

    def release(self) -> None:
        return

    def charge_response(self, size: int, *, refusable: bool) -> Callable[[], None]:
        return self.release

    def open_watch_budget(self, selection: WatchPredicate, *, bounded: bool, initial: bool) -> SendBudget:
        return SendBudget(SendPool())

    def count_connection(self, *, bounded: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


EXEMPT = ExemptSeat()
_OWN: ContextVar[Seat | ExemptSeat] = ContextVar("seat", default=EXEMPT)


def set_current_seat(seat: Seat | ExemptSeat) -> None:
    """Set the seats of the current task and of tasks that it creates later."""
    _OWN.set(seat)


def current_seat() -> Seat | ExemptSeat:
    """Return the seats of the current task."""
    return _OWN.get()


def release_current_seat() -> None:
    """Release the seats of the current task. Call it before waiting for another server."""
    current_seat().release()


class FlowMetrics(Protocol):
    """Metrics of flow control. `level` is the name of a priority level; `reason` is a reason of the diagrams above; `execute`
    is true if a waiting call started."""

    def record_rejection(self, level: str, reason: str) -> None: ...

    def record_wait(self, level: str, seconds: float, execute: bool) -> None: ...


class NoFlowMetrics:
    def record_rejection(self, level: str, reason: str) -> None:
        return

    def record_wait(self, level: str, seconds: float, execute: bool) -> None:
        return


class SizedMessage(Protocol):
    """A protobuf message."""

    def ByteSize(self) -> int: ...  # noqa: N802


class PriorityAndFairness:
    """Assigns seats to calls. `run` must run until shutdown: it refuses calls whose wait has timed out."""

    def __init__(self, seats: int = SEATS, *, clock: Clock = SYSTEM_CLOCK, meter: FlowMetrics | None = None) -> None:
        """`seats` is the total of all levels."""
        shares = sum(SHARES.values())
        pool = SendPool()
        self.levels = {
            name: PriorityLevel[Seat](name, math.ceil(seats * share / shares), pool) for name, share in SHARES.items()
        }
        self._seats = seats
        self._clock = clock
        self._meter = meter or NoFlowMetrics()
        self._seats_in_use = 0
        self._waiting = 0
        self._crowded = asyncio.Event()
        self._pacing: asyncio.Task[None] | None = None
        self._next_round = 0.0  # the time of the next round
        self._latest: UserFlow[Seat] | None = None  # the flow of the last call
        self._uncrowded_from = 0.0  # the time from which this flow counts as alone

    def request_seat(
        self,
        level: str | None,
        user: str,
        cost: int = 1,
        request: SizedMessage | None = None,
        remaining: float | None = None,
        *,
        writes: bool = False,
    ) -> Seat | ExemptSeat:
        """Return the seats of a call of this level. If `level` is None, the call is exempt. `remaining` is the number of
        seconds until the deadline of the call. `writes`: the response cannot be refused. Raises Rejected."""
        if level is None:
            return EXEMPT
        flow = self.levels[level].flow(user)
        if flow is not self._latest:
            self._latest, self._uncrowded_from = flow, self._clock.monotonic() + UNCROWDED_AFTER
        if remaining is not None and remaining <= 0:
            raise self._count_rejection(flow, "time-out", _deadline_refusal())
        if writes:
            self._require_unread_room(flow, 2 * MAX_UNSENT_BYTES)
        cost = max(1, cost)  # a cost from an invalid request could be negative
        seat = Seat(self, flow, cost, request.ByteSize() if isinstance(request, LazyRequest) else 0)
        if flow.seats_in_use < EAGER and not flow.waiting and flow.can_dispatch(cost, self._free_seats(flow.level)):
            self._start_call(seat, flow)
        else:
            self._queue_request(seat, flow, request, remaining)
        return seat

    def release_seat(self, seat: Seat, flow: UserFlow[Seat]) -> None:
        """Implement SeatOwner."""
        if seat.waits:
            self._stop_waiting(seat, flow, execute=False)
            self._meter.record_rejection(flow.level.name, "cancelled")
            return
        flow.finish_call(seat.cost)
        self._seats_in_use -= seat.cost
        if self._waiting:
            self._start_waiting_calls()

    def charge_response(self, flow: UserFlow[Seat], size: int, refusable: bool) -> Callable[[], None]:
        """Implement SeatOwner."""
        if refusable:
            self._require_unread_room(flow, MAX_UNSENT_BYTES)
        flow.budget.charge(size)
        return partial(flow.budget.charge, -size)

    def open_watch_budget(self, flow: UserFlow[Seat], selection: WatchPredicate, *, bounded: bool, initial: bool) -> SendBudget:
        """Implement SeatOwner."""
        count, requirement_count = len(flow.budget.watches), flow.budget.requirement_count
        if bounded and count >= MAX_WATCHES:
            raise self._count_rejection(
                flow, "watches", self._too_many_requests(flow, f"{count:,} watches are open: close some of them")
            )
        if bounded and requirement_count + (more := flow.budget.added_requirements(selection)) > MAX_SELECTOR_REQUIREMENTS:
            why = (
                f"{count:,} open watches have {requirement_count:,} selector requirements, this one has {more:,}: "
                "close some of them"
            )
            raise self._count_rejection(flow, "watches", self._too_many_requests(flow, why))
        if initial:
            self._require_unread_room(flow, MAX_UNSENT_BYTES)
        return flow.budget

    @contextmanager
    def count_connection(self, flow: UserFlow[Seat], *, bounded: bool) -> Iterator[None]:
        """Implement SeatOwner."""
        count = flow.budget.connections
        if bounded and count >= MAX_CONNECTIONS:
            why = f"{count:,} logs and commands are open: close some of them"
            raise self._count_rejection(flow, "connections", self._too_many_requests(flow, why))
        flow.budget.connections += 1
        try:
            yield
        finally:
            flow.budget.connections -= 1

    @contextmanager
    def count_stream(self, level: str | None, user: str, most: int = MAX_STREAMS) -> Iterator[None]:
        """Count a request stream while it is open. `level` is as in `request_seat`. Raises Rejected if the flow has `most` open
        streams.
        """
        if level is None:
            yield
            return
        flow = self.levels[level].flow(user)
        if (count := flow.budget.streams) >= most:
            raise self._count_rejection(
                flow, "streams", self._too_many_requests(flow, f"{count:,} streams are open: close some of them")
            )
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

    def _free_seats(self, level: PriorityLevel[Seat]) -> int:
        return max(level.seats - level.seats_in_use, self._seats - self._seats_in_use)

    def _start_call(self, seat: Seat, flow: UserFlow[Seat]) -> None:
        flow.start_call(seat.cost)
        self._seats_in_use += seat.cost

    def _start_waiting_calls(self) -> None:
        """Start waiting calls in rounds, until no seats are free or no calls wait."""
        if self._pacing is None:
            self._pacing = asyncio.ensure_future(self._run_dispatch_rounds())

    async def _run_dispatch_rounds(self) -> None:
        try:
            while True:
                if (pause := self._next_round - self._clock.monotonic()) > 0:
                    await self._clock.sleep(pause)
                if not self._dispatch_round():
                    return
        finally:
            self._pacing = None

    def _dispatch_round(self) -> bool:
        """Start the calls of a round. Return False if no call can start."""
        begun, reading = 0, 0.0
        while begun < ROUND and not reading and (seat := self._start_next_call()) is not None:
            begun += seat.cost
            reading = seat.unread * SECONDS_PER_BYTE
        now = self._clock.monotonic()
        self._next_round = (
            now + min(begun, ROUND) * (SEAT_PAUSE if now < self._uncrowded_from else SEAT_PAUSE_UNCROWDED) + reading
        )
        return begun > 0

    def _start_next_call(self) -> Seat | None:
        """Start the next call and return its seats; None if no call can start."""
        owed = [level for level in self.levels.values() if level.waiting and level.seats_in_use < level.seats]
        for level in chain((level for level in owed if level.overtaken >= MAX_OVERTAKEN), self.levels.values()):
            if (seat := self._dispatch_next_of_level(level)) is not None:
                for other in owed:
                    other.overtaken += 1
                level.overtaken = 0
                return seat
        return None

    def _dispatch_next_of_level(self, level: PriorityLevel[Seat]) -> Seat | None:
        """Start the next call of one level and return its seats; None if no call can start."""
        now = self._clock.monotonic()
        while flow := level.next_flow(self._free_seats(level)):
            seat = flow.first_call()
            if seat.future.done():  # cancelled, but the task has not released the seat yet
                seat.release()
            elif seat.until <= now:
                self._refuse(seat, flow)
            else:
                self._stop_waiting(seat, flow, execute=True)
                self._start_call(seat, flow)
                seat.future.set_result(None)
                return seat
        return None

    def _queue_request(self, seat: Seat, flow: UserFlow[Seat], request: SizedMessage | None, remaining: float | None) -> None:
        size = request.ByteSize() if request is not None else 0
        if len(flow.waiting) >= MAX_WAITING or (flow.waiting and flow.bytes + size > MAX_WAITING_BYTES):
            raise self._count_rejection(
                flow, "queue-full", self._too_many_requests(flow, f"{len(flow.waiting)} calls are already waiting")
            )
        now = self._clock.monotonic()
        seat.wait(now, now + (WAIT_TIMEOUT if remaining is None else min(WAIT_TIMEOUT, remaining)), size)
        flow.enqueue_call(seat)
        self._waiting += 1
        self._crowded.set()
        self._start_waiting_calls()

    def _stop_waiting(self, seat: Seat, flow: UserFlow[Seat], *, execute: bool) -> None:
        seat.waits = False
        flow.remove_call(seat)
        self._waiting -= 1
        if not self._waiting:
            self._crowded.clear()
        self._meter.record_wait(flow.level.name, self._clock.monotonic() - seat.since, execute)

    def _expire(self) -> None:
        """Refuse the calls whose wait has timed out."""
        now = self._clock.monotonic()
        for level in self.levels.values():
            for flow in list(level.queued):
                for seat in [seat for seat in flow.waiting if seat.until <= now]:
                    self._refuse(seat, flow)

    def _refuse(self, seat: Seat, flow: UserFlow[Seat]) -> None:
        self._stop_waiting(seat, flow, execute=False)
        in_time = seat.until >= seat.since + WAIT_TIMEOUT
        refusal = self._too_many_requests(flow, f"waited for {WAIT_TIMEOUT:g} s") if in_time else _deadline_refusal()
        seat.refuse(self._count_rejection(flow, "time-out", refusal))

    def _require_unread_room(self, flow: UserFlow[Seat], room: int) -> None:
        """Raise Rejected if the unread responses of the flow exceed its share of `room`."""
        if flow.budget.exceeds_share_of(room):
            why = f"{flow.budget.unsent_bytes / (1 << 20):.1f} MiB of responses are unread: read them, or cancel their calls"
            raise self._count_rejection(flow, "untaken", self._too_many_requests(flow, why))

    def _count_rejection(self, flow: UserFlow[Seat], reason: str, refusal: Refusal) -> Rejected:
        self._meter.record_rejection(flow.level.name, reason)
        return Rejected(refusal)

    def _too_many_requests(self, flow: UserFlow[Seat], why: str) -> Refusal:
        now = self._clock.monotonic()
        flow.next_retry = max(now + RETRY_AFTER, flow.next_retry + 1 / RETRIES_PER_SECOND)
        message = f'too many requests, please try again later: {why} (priority level "{flow.level.name}", flow "{flow.user}")'
        return Refusal(Code.UNAVAILABLE, TOO_MANY_REQUESTS, message, retry_after=min(flow.next_retry - now, MAX_RETRY_AFTER))


def _deadline_refusal() -> Refusal:
    return Refusal(Code.DEADLINE_EXCEEDED, "Timeout", "the deadline passed before the call started: nothing was executed")


Q = TypeVar("Q", bound=SizedMessage)


class StreamAdmission(ExemptSeat, Generic[Q]):
    """The requests of a stream, for the service. Reading the first request (with `each`, every request) acquires seats. The
    object also replaces the seats of the call."""

    def __init__(
        self,
        requests: AsyncIterator[Q | LazyRequest],
        enter: Callable[[Q | LazyRequest], Seat | ExemptSeat],
        read: Callable[[bytes], Q],
        *,
        each: bool = False,
    ) -> None:
        """`request_seat` returns the seats of a request or raises Rejected. `each`: every request acquires seats, not only the
        first."""
        self._requests: AsyncIterator[Q | LazyRequest] | None = requests
        self._enter = enter
        self._read = read
        self._seat: Seat | ExemptSeat | None = None
        self._per_request = each
        self._released = False
        self.refused: Rejected | None = None
        """The refusal of a request, for services that treat a refusal as the end of the stream."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Q:
        """Return the next request. Raises Rejected."""
        if self._requests is None:
            raise StopAsyncIteration
        request = await anext(self._requests)
        if self._seat is None and not self._released:
            try:
                self._seat = seat = self._enter(request)
                if seat.waits:
                    await seat.acquire()
            except Rejected as rejected:
                self.refused = rejected
                raise
        return self._read(request.data) if isinstance(request, LazyRequest) else request

    def count_connection(self, *, bounded: bool) -> AbstractContextManager[None]:
        return (self._seat or EXEMPT).count_connection(bounded=bounded)

    def release(self) -> None:
        self._released = not self._per_request
        if self._seat is not None:
            self._seat.release()
            if self._per_request:
                self._seat = None

    def __exit__(self, *_: object) -> None:
        """End the call, and drop all references. Cancelled timers keep this object in memory until they are due."""
        self.release()
        self._requests = self.refused = self._seat = None
