"""One watch: an async iterator of encoded WatchResponses, and its send buffer.

    catching up --history is sent--> live --overflow------> SlowWatcher
         |                             |  --drain----------> ShuttingDown
         '--- history moved on --------'--- cache reloaded -> Expired

During catch-up (initial state, or events from the history), the reader sets the pace, a chunk at a time, and the watch keeps
a position only. When the watch is live, the cache puts responses into a bounded buffer. The switch happens between two
changes: no event is lost or sent twice. The watches of one flow share a limit of bytes (apiserver.flow.account). A watch that
waits too long for room ends as slow.

Watches with the same selection share responses. A flow is charged for a response once, until its last watch has sent it.
Responses that wait are concatenated: the result is one WatchResponse (pinnace.api.wire).

Watches that catch up take turns: together they keep the event loop for a bounded time, and flows alternate, so a flow with a
thousand watches delays a watch of another flow by one step.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol, Self

from apiserver.cacher.errors import CacheError, SlowWatcher
from apiserver.cacher.store import Selection
from apiserver.flow.account import LARGE, Account, Room
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.tasks import SLICE, YIELDS

MAX_BYTES = 32 << 20
"""Bytes that may wait for a reader: about a second of the highest rate that a server can sustain."""
MAX_RESPONSES = 10_000
MERGE_BYTES = 1 << 20
"""Responses are merged up to this size: no peer refuses it, and larger ones gain nothing."""


class Told(NamedTuple):
    """One encoded WatchResponse, the revision that it says (0: none, it is a part of the initial state), and how many events it
    has."""

    response: bytes
    revision: int
    events: int = 0


class Parcel:
    """A response that several watchers of one flow share. Each of them releases it once."""

    __slots__ = ("_account", "_holders", "size", "told")

    def __init__(self, told: Told, account: Account, holders: int) -> None:
        self.told = told
        self.size = len(told.response)
        self._account = account
        self._holders = holders
        account.hold(self.size)

    def let_go(self) -> None:
        self._holders -= 1
        if not self._holders:
            self._account.hold(-self.size)


def single(told: Told) -> Parcel:
    """A response that no flow is charged for."""
    return Parcel(told, Account(Room()), 0)


class Outbox:
    """First in, first out. `bytes`: of all that waits."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_responses: int = MAX_RESPONSES) -> None:
        self._max_bytes = max_bytes
        self._max_responses = max_responses
        self._waiting: deque[Parcel] = deque()
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def next(self) -> int:
        """Bytes of the first that waits. Not to be asked when nothing does."""
        return self._waiting[0].size

    def put(self, parcel: Parcel) -> bool:
        """False: there is no room, and what waited is dropped too, for the reader will resume."""
        size = self.bytes + parcel.size
        if size > self._max_bytes or len(self._waiting) >= self._max_responses:
            parcel.let_go()
            self.clear()
            return False
        self._waiting.append(parcel)
        self.bytes = size
        return True

    def take(self, most: int = MERGE_BYTES) -> Told:
        """Everything that waits, as far as it goes into one response of `most` bytes. Not to be called when nothing does."""
        waiting = self._waiting
        first = waiting.popleft()
        first.let_go()
        parts, size, (response, revision, events) = [first.told.response], first.size, first.told
        while waiting and size + waiting[0].size <= most:
            parcel = waiting.popleft()
            parcel.let_go()
            response, revision, more = parcel.told
            events += more
            parts.append(response)
            size += parcel.size
        self.bytes -= size
        return Told(response if len(parts) == 1 else b"".join(parts), revision, events)

    def clear(self) -> None:
        """Discards the responses that wait."""
        for parcel in self._waiting:
            parcel.let_go()
        self._waiting.clear()
        self.bytes = 0


class CatchingUp:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: dict[Account, deque[tuple[Callable[[], None], asyncio.Future[None]]]] = {}  # next is the first
        self._running = False
        self._spent = 0.0  # seconds of the portion that other turns of the loop had
        self._until = 0.0
        self._rest = 0  # turns until the next portion

    def is_over(self) -> bool:
        """Is the portion over? To be asked in a step, which is then to end."""
        return self._clock.monotonic() >= self._until

    async def step(self, account: Account, work: Callable[[], None]) -> None:
        """Does the work when it is this flow's turn, and raises its errors. After a cancellation the work may be done."""
        done = asyncio.get_running_loop().create_future()
        self._queue.setdefault(account, deque()).append((work, done))
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._turn)
        await done

    def _turn(self) -> None:
        if self._rest:
            self._rest -= 1
        else:
            self._portion()
        self._running = bool(self._queue or self._rest)
        if self._running:
            asyncio.get_running_loop().call_soon(self._turn)

    def _portion(self) -> None:
        began = self._clock.monotonic()
        self._until = began + SLICE - self._spent
        while self._queue:
            work, done = self._next()
            if not done.done():
                try:
                    work()
                except Exception as error:  # is the one's who wanted it: an object that cannot be read, for example
                    done.set_exception(error)
                else:
                    done.set_result(None)
            if self.is_over():
                self._spent, self._rest = 0.0, YIELDS
                return
        self._spent += self._clock.monotonic() - began

    def _next(self) -> tuple[Callable[[], None], asyncio.Future[None]]:
        account = next(iter(self._queue))
        steps = self._queue.pop(account)
        first = steps.popleft()
        if steps:
            self._queue[account] = steps
        return first


class Hub(Protocol):
    """Who tells watchers what happens. `told`: events that they have read."""

    told: int

    def join(self, watcher: "Watcher") -> None:
        """From now on the watcher is offered what it selects."""
        ...

    def leave(self, watcher: "Watcher") -> None: ...


class Watcher:
    """To be read by one task, and closed by it. Raises SlowWatcher, ShuttingDown or Expired, once, then is at its end."""

    def __init__(
        self,
        hub: Hub,
        selection: Selection,
        since: int,
        past: Iterator[Told],
        turns: CatchingUp | None = None,
        *,
        announced: bool = False,
        account: Account | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        """`past`: what is to be told before the watcher is live. A response b"" in it only lets others run. `turns`: with whom
        it catches up, `account`: whom it shares its room with; None: nobody."""
        self.selection = selection
        self.announced = announced
        """Is it told of elections at once?"""
        self.delivered = since
        """Everything up to this revision has been handed to the reader."""
        self.idle = False
        """Has nothing been offered since the last beat of the bookmark timer?"""
        self.account = account if account is not None else Account(Room())
        self._hub = hub
        self._past: Iterator[Told] | None = past
        self._turns = turns if turns is not None else CatchingUp(SYSTEM_CLOCK)
        self._found: Told | None = None  # the next of the past, which is charged already
        self._outbox = outbox if outbox is not None else Outbox()
        self._end: CacheError | None = None
        self._closed = False
        self._charged = 0  # bytes that the reader has and may not have sent yet
        self._reader: asyncio.Future[None] | None = None
        self.account.open(self)

    def __aiter__(self) -> Self:
        return self

    @property
    def ended(self) -> bool:
        """Is there nothing more to come than what waits?"""
        return self._closed or self._end is not None

    @property
    def waiting(self) -> int:
        """Bytes in the outbox."""
        return self._outbox.bytes

    async def __anext__(self) -> bytes:
        if self._found is None:
            self._taken()
        while not self._closed:
            if self._found is not None:
                told, self._found = self._found, None
                return self._deliver(told)
            if self._past is not None:
                await self._step()
            elif self._outbox:
                if self.account.crowded and self._outbox.next < LARGE:
                    return self._hand_over(self._outbox.take(LARGE - 1))
                if self.account.crowded:
                    await self._room()
                if self._outbox:
                    return self._hand_over(self._outbox.take(MERGE_BYTES))
            elif self._end is not None:
                self.close()
                raise self._end
            else:
                await self._wait()
        raise StopAsyncIteration

    def offer(self, parcel: Parcel) -> None:
        """The cache's side. On overflow the watcher is at its end, and leaves."""
        self.idle = False
        if self._end is not None:
            parcel.let_go()
        elif not self._outbox.put(parcel):
            self.end(SlowWatcher(self.delivered))
        self._wake()

    def overflow(self) -> None:
        """There is no room for what waits, or has not been for too long."""
        self._outbox.clear()
        self.end(SlowWatcher(self.delivered))

    def end(self, error: CacheError) -> None:
        """The reader gets what waits for it (not the rest of the past), then the error."""
        if self._end is None:
            self._end = error
            self._past = None
            self._hub.leave(self)
        if not self._outbox:
            self.account.close(self)
            self._wake()

    def close(self) -> None:
        """Ends it without an error; a reader that waits sees the end of the iteration."""
        if not self._closed:
            self._closed = True
            self._past = self._found = None
            self._taken()
            self._outbox.clear()
            self._hub.leave(self)
            self.account.close(self)
            self._wake()

    async def _step(self) -> None:
        """Catches up by a step, when the flow has room for it and it is this watch's turn."""
        if not self.account.crowded:
            await self._turns.step(self.account, self._catch_up)
            return
        try:
            async with self.account.turn(self):
                await self._turns.step(self.account, partial(self._catch_up, entitled=True))
        except TimeoutError:
            self.overflow()

    def _catch_up(self, *, entitled: bool = False) -> None:
        """One step of the past, or the step from there to live. `entitled`: there was room when its turn came."""
        if self._past is None or (self.account.full and not entitled):
            return
        try:
            told = next(self._past, None)
        except CacheError as error:
            self.end(error)
            return
        if told is None:
            self._past = None
            self._hub.join(self)
        elif told.response:
            self._found = told
            self._charge(told)

    def _hand_over(self, told: Told) -> bytes:
        self._charge(told)
        return self._deliver(told)

    def _deliver(self, told: Told) -> bytes:
        if told.revision:
            self.delivered = told.revision
        self._hub.told += told.events
        return told.response

    def _charge(self, told: Told) -> None:
        if (size := len(told.response)) >= LARGE:
            self._charged = size
            self.account.charge(size)

    def _taken(self) -> None:
        """The reader has sent what it was handed last, or has gone."""
        if self._charged:
            self.account.charge(-self._charged)
            self._charged = 0

    async def _room(self) -> None:
        """Waits until something large may be handed over. Without success there is nothing to hand over any more."""
        try:
            await self.account.wait(self)
        except TimeoutError:
            self.overflow()

    async def _wait(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
