"""Group commit: writes that wait at the same moment share one transaction.

    commit_many --> WriteQueue --> group --> Lane --> Committed: every write has its revision
                        ^                      |----> Refused: the losers fail; the others go again, without newer writes
                        |                      |----> NOT_DONE: all go again, before newer writes
                        +----------------------+----> errors: for the writes that they concern

A lane (apiserver.storage.transaction) has one transaction under way. Writes that come meanwhile share the next one. Another
lane starts when ENOUGH writes wait, or when the transaction takes longer than PATIENCE. While CPU is short, callers that have
just been answered are awaited, too, for at most PATIENCE, as commit_delay and commit_siblings do in PostgreSQL
(https://www.postgresql.org/docs/current/runtime-config-wal.html).

`send` can add writes to a group and settle some of its writes itself. Quotas are charged there (apiserver.quota).

Guarantees: a write happens at most once. Conflict, GuardFailed, Denied and every StorageError but OutcomeUnknown mean that it
did not and will not happen. Writes of one key happen in the order of the calls; a key has at most one write under way. The
writes of a transaction share a revision. A group keeps the limits of the store and has at most one lease; no key that it
writes is a guard of it. Otherwise writes leave in the order of arrival.

Above MAX_OPEN writes or MAX_OPEN_BYTES, new writes are refused with Unavailable; so are writes that have waited for
WAIT_LIMIT seconds. A write whose caller was cancelled before it leaves is dropped.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from apiserver.storage.interface import (
    MAX_BYTES,
    MAX_OPERATIONS,
    Committed,
    Conflict,
    Denied,
    Guard,
    GuardFailed,
    LeaseNotFound,
    OutcomeUnknown,
    OutOfSpace,
    Refused,
    Storage,
    StorageError,
    TooLarge,
    Unavailable,
    Write,
    failure_of,
)
from apiserver.storage.transaction import INTERVAL, MARKER_BYTES, NOT_DONE, Answer, Lane, marker_keys
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.cpu import Pressure, never

MAX_GROUP = MAX_OPERATIONS - 1
"""Most writes and distinct guards, together, in one group."""
MAX_GROUP_BYTES = MAX_BYTES - MARKER_BYTES


class Item(Protocol):
    @property
    def write(self) -> Write: ...


ItemT = TypeVar("ItemT", bound=Item)


class WriteQueue(Generic[ItemT]):
    """An item is in one of three places: ready, behind another item of its key, or handed out by `next_group`. What was handed
    out must come back through `put_back` or `release`."""

    def __init__(self) -> None:
        self._ready: deque[ItemT] = deque()
        self._again = 0  # the first so many of these go without the others
        self._behind: dict[str, deque[ItemT] | None] = {}  # its keys: every key that is ready or handed out

    @property
    def ready(self) -> Collection[ItemT]:
        """Items that could be handed out now."""
        return self._ready

    def add(self, item: ItemT) -> None:
        key = item.write.key
        if key not in self._behind:
            self._behind[key] = None
            self._ready.append(item)
        elif (behind := self._behind[key]) is not None:
            behind.append(item)
        else:
            self._behind[key] = deque((item,))

    def next_group(self) -> list[ItemT]:
        """Distinct keys, within the limits of one transaction; empty when nothing is ready."""
        group: list[ItemT] = []
        limits = _Limits()
        most = self._again or len(self._ready)
        while len(group) < most and limits.take(self._ready[0].write):
            group.append(self._ready.popleft())
        self._again = max(0, self._again - len(group))
        return group

    def put_back(self, items: list[ItemT], *, alone: bool = False) -> None:
        """They go again, before everything that is ready, or (`alone`) also without that."""
        self._ready.extendleft(reversed(items))
        if alone or self._again:
            self._again += len(items)

    def release(self, item: ItemT) -> None:
        """It is done: the next one of its key becomes ready."""
        key = item.write.key
        if behind := self._behind[key]:
            self._ready.append(behind.popleft())
        else:
            del self._behind[key]

    def drain(self) -> list[ItemT]:
        """Takes out all that are not handed out."""
        items = [*self._ready, *(item for behind in self._behind.values() if behind for item in behind)]
        self._ready.clear()
        self._again = 0
        self._behind.clear()
        return items


class _Limits:
    """What the transaction that is being put together holds so far."""

    def __init__(self) -> None:
        self._writes = 0
        self._bytes = 0
        self._lease = 0
        self._keys: set[str] = set()
        self._guards: set[Guard] = set()
        self._guard_keys: set[str] = set()

    def take(self, write: Write) -> bool:
        """Counts `write` in, if there is room. A write always fits into an empty transaction."""
        size = self._bytes + len(write.value or b"")
        new_guards = [guard for guard in write.guards if guard not in self._guards] if write.guards else ()
        if self._writes and (
            self._writes + 1 + len(self._guards) + len(new_guards) > MAX_GROUP
            or size > MAX_GROUP_BYTES
            or (write.lease and self._lease and write.lease != self._lease)
            or write.key in self._guard_keys
            or (new_guards and any(guard.key in self._keys for guard in new_guards))
        ):
            return False
        self._writes += 1
        self._bytes = size
        self._lease = self._lease or write.lease
        self._keys.add(write.key)
        if new_guards:
            self._guards.update(new_guards)
            self._guard_keys.update(guard.key for guard in new_guards)
        return True


__all__ = ["Committer", "Conflict", "Denied", "GuardFailed", "Outcome", "Send", "Settled", "straight"]

Outcome: TypeAlias = int | Conflict | GuardFailed | Denied | StorageError
"""The revision at which a write happened, or why it did not."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of some writes of a group, by key, at least of one. The others did not happen and may go again."""

    outcomes: Mapping[str, Outcome]


Send: TypeAlias = Callable[[Lane, Sequence[Write]], Awaitable[Answer | Settled]]
"""Sends a group on a lane, as Lane.send does. Raises StorageError, which is then about all of the group."""


def straight(lane: Lane, writes: Sequence[Write]) -> Awaitable[Answer]:
    """The Send of who adds nothing."""
    return lane.send(writes)


MAX_OPEN = 50_000
"""Writes that wait or are in flight."""
MAX_OPEN_BYTES = 256 << 20
WAIT_LIMIT = 5.0
"""Seconds that a write may wait before it leaves."""
ENOUGH = 32
"""Writes that wait, so many that it saves little to wait for more."""
PATIENCE = 0.01
"""Seconds for which writes that are not enough wait: for the transaction under way, which mostly takes 2 to 5 ms, and for those
whom the last one answered, who need about as long to come again."""
SIBLINGS = 4
"""Callers at the same time, so many that they are waited for."""
IDLE = INTERVAL / 3
"""Seconds after which the marker of an idle lane is moved."""


class _Call:
    """One commit_many: its outcomes so far, and the future that waits for all of them."""

    __slots__ = ("deadline", "future", "missing", "outcomes")

    def __init__(self, size: int, deadline: float) -> None:
        self.outcomes: list[Outcome] = [0] * size
        self.missing = size
        self.deadline = deadline
        self.future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()


class _Item:
    __slots__ = ("call", "index", "size", "write")

    def __init__(self, write: Write, call: _Call, index: int) -> None:
        self.write = write
        self.call = call
        self.index = index
        self.size = len(write.value) if write.value else 0

    def settle(self, outcome: Outcome) -> None:
        call = self.call
        call.outcomes[self.index] = outcome
        call.missing -= 1
        if not call.missing and not call.future.done():
            call.future.set_result(call.outcomes)


class _Sent:
    """A group whose transaction is under way."""

    __slots__ = ("group", "long_after")

    def __init__(self, group: list[_Item]) -> None:
        self.group = group
        self.long_after = _now() + PATIENCE


class _Gathering(NamedTuple):
    """After a transaction: how many callers it had, or waited for its end, and until when how many are waited for."""

    callers: int
    expected: int
    until: float


NOBODY = _Gathering(0, 0, 0.0)


class Committer:
    def __init__(
        self,
        storage: Storage,
        *,
        max_in_flight: int = 2,
        send: Send = straight,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        preempted: Callable[[], int] = never,
    ) -> None:
        """`preempted`: as in pinnace.runtime.cpu."""
        self._send = send
        self._clock = clock
        self._pressure = Pressure(preempted, clock)
        rng = rng or random.Random()
        keys = marker_keys(rng)
        self._idle = [Lane(storage, keys, clock, rng) for _ in range(max_in_flight)]
        self._queue: WriteQueue[_Item] = WriteQueue()
        self._wake = asyncio.Event()
        self._in_flight: list[_Sent] = []  # the oldest first
        self._gathering = NOBODY
        self._timed = False  # will wake up by itself when it is time for what waits
        self._open = 0
        self._open_bytes = 0
        self._stopped = False

    async def run(self) -> None:
        """Commits until it is cancelled; then what is in flight is answered with OutcomeUnknown, and what waits or comes later
        with Unavailable. Calls made before it runs wait for it."""
        try:
            async with asyncio.TaskGroup() as transactions:
                while True:
                    await self._woken()
                    while self._idle and self._leaving_at() <= _now() and (group := self._next_group()):
                        sent = _Sent(group)
                        self._in_flight.append(sent)
                        transactions.create_task(self._commit_group(sent, self._idle.pop()))
        finally:
            self._stopped = True
            for sent in self._in_flight:
                self._settle(sent.group, OutcomeUnknown("the server stopped before the store answered"))
            for item in self._queue.drain():
                item.settle(_stopping())

    async def open_lanes(self) -> None:
        """Spares the first writes a transaction. Until it is done writes wait for it; what fails is tried again with them."""
        lanes, self._idle = self._idle, []
        for lane in lanes:
            with suppress(StorageError):
                await lane.open()
            self._idle.append(lane)
            self._wake.set()

    async def keep_lanes(self) -> None:
        """Opens the lanes, and moves the markers of idle ones before they are swept away, until cancelled."""
        await self.open_lanes()
        while True:
            await self._clock.sleep(IDLE)
            for lane in list(self._idle):
                if lane in self._idle:
                    self._idle.remove(lane)
                    with suppress(StorageError):
                        await lane.touch()
                    self._idle.append(lane)
                    self._wake.set()
            await self.open_lanes()

    async def commit(self, write: Write) -> int:
        """The revision at which the write happened. Raises Conflict, GuardFailed, StorageError."""
        (outcome,) = await self.commit_many((write,))
        if isinstance(outcome, int):
            return outcome
        raise outcome

    async def commit_many(self, writes: Sequence[Write]) -> list[Outcome]:
        """The outcome of each write, in order. They are independent: some may happen and others not."""
        if not writes:
            return []
        call = _Call(len(writes), self._clock.monotonic() + WAIT_LIMIT)
        for index, write in enumerate(writes):
            self._enqueue(_Item(write, call, index))
        if not self._timed or self._leaving_at() <= _now():
            self._wake.set()
        return await call.future

    def _enqueue(self, item: _Item) -> None:
        size = item.size
        if self._stopped:
            item.settle(_stopping())
        elif size > MAX_GROUP_BYTES:
            item.settle(TooLarge(f"{item.write.key} has {size} bytes, at most {MAX_GROUP_BYTES}"))
        elif self._open >= MAX_OPEN or self._open_bytes + size > MAX_OPEN_BYTES:
            item.settle(Unavailable(f"{self._open} writes wait for the store already; try again later"))
        else:
            self._open += 1
            self._open_bytes += size
            self._queue.add(item)

    async def _woken(self) -> None:
        """Returns when something has come, a lane is idle again, or it is time for what waits to leave."""
        self._timed = bool(self._idle and self._queue.ready)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._leaving_at() if self._timed else None):
                await self._wake.wait()
        self._timed = False
        self._wake.clear()

    def _leaving_at(self) -> float:
        """When what is ready goes if nobody else comes. Until then it waits for others, to share their transaction."""
        if len(self._queue.ready) >= ENOUGH:
            return 0.0
        if self._in_flight:
            return self._in_flight[0].long_after
        return self._gathering.until if _callers(self._queue.ready) < self._gathering.expected else 0.0

    def _after(self, answered: Sequence[_Item]) -> _Gathering:
        """Who is waited for now: as many as there were with this group, whose answer is here, and with the last one. So one who
        comes now and then is not."""
        if not self._pressure.is_high() or len(self._queue.ready) >= ENOUGH:
            return NOBODY
        callers = _callers([*answered, *self._queue.ready])
        expected = min(callers, self._gathering.callers)
        return _Gathering(callers, expected if expected >= SIBLINGS else 0, _now() + PATIENCE)

    def _next_group(self) -> list[_Item]:
        """The next writes that somebody still waits for; [] when there are none."""
        while group := self._queue.next_group():
            now = self._clock.monotonic()
            wanted = [item for item in group if not item.call.future.done() and now < item.call.deadline]
            if len(wanted) < len(group):
                late = Unavailable(f"waited for the store for {WAIT_LIMIT:g} s; try again later")
                for item in [item for item in group if item not in wanted]:
                    self._finish(item, late)
            if wanted:
                return wanted
        return []

    async def _commit_group(self, sent: _Sent, lane: Lane) -> None:
        try:
            answer: Answer | Settled | StorageError = await self._send(lane, [item.write for item in sent.group])
        except StorageError as error:
            answer = error
        self._idle.append(lane)
        self._in_flight.remove(sent)
        self._gathering = self._after(sent.group) if isinstance(answer, Committed | Settled) else NOBODY
        self._wake.set()
        self._settle(sent.group, answer)

    def _settle(self, group: list[_Item], answer: Answer | Settled | StorageError) -> None:
        """Answers those writes whose outcome this is, and sends the others again; all are answered when it is nobody's."""
        if answer is NOT_DONE:
            self._queue.put_back(group)
            return
        if isinstance(answer, Committed):
            for item in group:
                self._finish(item, answer.revision)
            return
        outcomes = [outcome_of(item.write, answer) for item in group]
        if all(outcome is None for outcome in outcomes):
            error = answer if isinstance(answer, StorageError) else StorageError(f"refused for no reason: {answer}")
            outcomes = [error] * len(group)
        self._queue.put_back([item for item, outcome in zip(group, outcomes, strict=True) if outcome is None], alone=True)
        for item, outcome in zip(group, outcomes, strict=True):
            if outcome is not None:
                self._finish(item, outcome)

    def _finish(self, item: _Item, outcome: Outcome) -> None:
        self._open -= 1
        self._open_bytes -= item.size
        self._queue.release(item)
        item.settle(outcome)


def _callers(items: Iterable[_Item]) -> int:
    return len({item.call for item in items})


def _now() -> float:
    """The time of the event loop, by which timers go."""
    return asyncio.get_running_loop().time()


def _stopping() -> Unavailable:
    return Unavailable("the server is stopping; try another one")


def outcome_of(write: Write, answer: Refused | Settled | StorageError) -> Outcome | None:
    """What became of one write of a group. None: the answer is not about this one, so it goes again."""
    match answer:
        case Settled():
            return answer.outcomes.get(write.key)
        case Refused():
            return failure_of(write, answer.current)
        case OutOfSpace() if write.value is None:
            return None
        case LeaseNotFound() if not write.lease:
            return None
        case _:
            return answer
