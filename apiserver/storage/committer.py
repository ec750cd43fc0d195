"""Group commit: writes that wait at the same moment share one transaction.

    commit_many --> WriteQueue --> group --> pipeline --> Committed: every write has its revision
                        ^                       |-------> CompareFailed: the losers fail; the others are sent again alone
                        |                       |-------> NOT_DONE: all are sent again, before newer writes
                        +-----------------------+-------> errors: for the writes that they concern

A transaction pipeline has one transaction under way. Writes that come meanwhile share the next one. Another pipeline starts
when FULL_GROUP writes wait, or when the transaction takes longer than MAX_GROUP_DELAY. While CPU is short, callers whose writes
just finished are awaited, too, for at most MAX_GROUP_DELAY, as commit_delay and commit_siblings do in PostgreSQL
(https://www.postgresql.org/docs/current/runtime-config-wal.html).

`send` can add writes to a group and settle some of its writes itself. Quotas are charged there (apiserver.quota).

Guarantees: a write happens at most once. Conflict, GuardFailed, Denied and every StorageError but OutcomeUnknown mean that it
did not and will not happen. Writes of one key happen in the order of the calls; a key has at most one write under way. The
writes of a transaction share a revision. A group keeps the limits of the store and has at most one lease; no key that it
writes is a guard of it. Otherwise writes leave in the order of arrival.

Above MAX_OPEN writes or MAX_OPEN_BYTES, new writes are refused with Unavailable; so are writes that have waited for
WAIT_TIMEOUT seconds. A write whose caller is cancelled before it is sent is dropped.

**Transaction pipeline.** A pipeline sends one transaction after another, with an exact outcome for each, even if an answer is
lost. Each transaction also moves the *commit marker* of the pipeline, a key of its own, from the mod_revision of the last
transaction (r) to a unique nonce:

    no chain --open: create a marker under a new key, alone--> at r
       ^                                                        |
       |<----------- refused: the marker is not at r -----------|  send the writes, and the marker at r := nonce
       |             (it was swept): NOT_DONE                   |
       |                                                        |--> Committed at r' --> at r'
       |                                                        |--> refused, or an error that means "not done" --> at r
       |                                                        '--> no answer, or out of space --> in doubt
       |                                                                                               |
       |                              write a tombstone: the marker at r := tombstone, and read it     |
       |                                                                                               |
       |<-- neither nonce nor tombstone, or no answer until the deadline: OutcomeUnknown --------------|
                                                       at r' <--  the marker is the nonce: Committed --|
                                                       at r' <--  it is the tombstone: NOT_DONE -------|
                                                       at r  <--  at r still, and full: OutOfSpace ----'

Guarantees: Committed means that the writes happened, at that revision. CompareFailed, NOT_DONE and every StorageError but
OutcomeUnknown mean that they did not and never will.

A mod_revision never returns. Of all requests that compare the marker with r, at most one succeeds: the writes or the
tombstone. The value of the marker then tells which. The creation of a marker carries no other write, because a late copy of
it can succeed after the marker is gone. So a marker can be deleted at any time: that costs one refusal and a new chain.

After OutcomeUnknown the writes may still happen. Where the store has no space for a marker, a transaction of deletes goes
without one; if its answer is lost, its outcome is unknown.

The sweeper deletes markers that did not move for SWEEP_INTERVAL, oldest first: while an unmoved marker exists, no marker that
moved later is deleted (apiserver.cacher.history relies on that). Committers move the markers of idle pipelines.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from typing import Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from apiserver.storage.interface import (
    MAX_BYTES,
    MAX_OPERATIONS,
    Committed,
    CompareFailed,
    Conflict,
    Denied,
    Guard,
    GuardFailed,
    LeaseNotFound,
    OutcomeUnknown,
    OutOfSpace,
    Storage,
    StorageError,
    TooLarge,
    Unavailable,
    Write,
    failure_of,
    is_at_expected,
)
from pinnace.api.names import new_uid
from pinnace.api.resources import COMMITS_PREFIX, commit_key
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.cpu import Pressure, never

RESOLVE_TIMEOUT = 10.0
"""Seconds after which a lost answer stays unknown."""
MARKER_BYTES = 8
"""What the marker adds to the values of a transaction; it also adds one operation."""


class _NotDone(Enum):
    NOT_DONE = auto()


NOT_DONE: Final = _NotDone.NOT_DONE
"""The writes did not happen and never will, because the marker had moved: they may be sent again."""

Answer: TypeAlias = Committed | CompareFailed | Literal[_NotDone.NOT_DONE]


def marker_keys(rng: random.Random) -> Iterator[str]:
    """Unique keys for the chains of one server."""
    server = new_uid(rng)
    return (commit_key(server, chain) for chain in count(1))


class TransactionPipeline:
    """`keys`: for new chains; pipelines of one server share them."""

    def __init__(self, storage: Storage, keys: Iterator[str], clock: Clock, rng: random.Random) -> None:
        self._storage = storage
        self._keys = keys
        self._clock = clock
        self._rng = rng
        self._nonces = count(1)
        self._key = ""
        self._at = 0  # the marker's mod_revision; 0: there is no chain

    async def send(self, writes: Sequence[Write]) -> Answer:
        """One at a time. Raises StorageError. A cancelled call leaves the pipeline unusable."""
        try:
            return await self._send(writes)
        except OutOfSpace:
            if any(write.value is not None for write in writes):
                raise
            return await self._storage.transact(writes)  # deletes pass when puts do not, and a marker is a put

    async def _send(self, writes: Sequence[Write]) -> Answer:
        await self.open()
        marker = self._next_marker()
        try:
            answer = await self._storage.transact([*writes, marker])
        except (OutcomeUnknown, OutOfSpace) as error:
            return await self._resolve(marker, error)
        if isinstance(answer, Committed):
            self._at = answer.revision
        elif not is_at_expected(marker, answer.current[marker.key]):
            self._at = 0
            return NOT_DONE
        return answer

    async def open(self) -> None:
        """Starts a chain if there is none. Otherwise the first `send` does so. Raises StorageError."""
        if self._at:
            return
        self._key = next(self._keys)
        try:
            answer = await self._storage.transact([self._next_marker()])
        except OutcomeUnknown as error:  # about the marker only
            raise Unavailable(str(error)) from None
        if isinstance(answer, CompareFailed):
            raise StorageError(f"{self._key} is in use")
        self._at = answer.revision

    async def touch(self) -> None:
        """Moves the marker, so that sweepers keep it. Do not call it during `send`. Raises StorageError."""
        if not self._at:
            return
        marker, self._at = self._next_marker(), 0  # in doubt there is no chain: the next write begins one
        answer = await self._storage.transact([marker])
        if isinstance(answer, Committed):
            self._at = answer.revision

    def _next_marker(self) -> Write:
        return Write(self._key, next(self._nonces).to_bytes(MARKER_BYTES), expected=self._at)

    async def _resolve(self, marker: Write, error: OutcomeUnknown | OutOfSpace) -> Answer:
        """The outcome of the transaction with this marker, which ended with `error`. Raises `error` or OutcomeUnknown."""
        tombstone = self._next_marker()
        backoff = Backoff(rng=self._rng)
        deadline = self._clock.monotonic() + RESOLVE_TIMEOUT
        while self._clock.monotonic() < deadline:
            try:
                value, revision = await self._place_tombstone(tombstone)
            except StorageError:
                await self._clock.sleep(backoff.next())
                continue
            if revision != tombstone.expected:
                self._at = revision if value in (marker.value, tombstone.value) else 0
                match value:
                    case marker.value:
                        return Committed(revision)
                    case tombstone.value:
                        return NOT_DONE
                raise OutcomeUnknown(str(error)) from None
            if isinstance(error, OutOfSpace):  # which is an answer: no copy is still on its way
                raise error
            await self._clock.sleep(backoff.next())
        self._at = 0
        raise OutcomeUnknown(str(error)) from None

    async def _place_tombstone(self, tombstone: Write) -> tuple[bytes | None, int]:
        """Tries to write the tombstone, and returns the value and mod_revision of the marker (None and 0 if it is gone). If
        etcd is out of space, only reads: etcd returns "out of space" for applied transactions, too (quotaApplierV3)."""
        try:
            answer = await self._storage.transact([tombstone])
        except OutOfSpace:
            state = await self._storage.get(tombstone.key)
        else:
            if isinstance(answer, Committed):
                return tombstone.value, answer.revision
            state = answer.current[tombstone.key]
        return (state.value, state.mod_revision) if state else (None, 0)


SWEEP_INTERVAL = 600.0
"""Seconds; far longer than a transaction can be in doubt."""


class MarkerSweeper:
    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    async def run(self) -> None:
        """Sweeps every SWEEP_INTERVAL until cancelled. Errors of the store are ignored until the next sweep."""
        seen: Mapping[str, int] = {}
        while True:
            with suppress(StorageError):
                seen = await self._sweep(seen)
            await self._clock.sleep(SWEEP_INTERVAL)

    async def _sweep(self, seen: Mapping[str, int]) -> Mapping[str, int]:
        """Deletes the markers that have not moved since they were `seen`. Returns all markers with their mod_revisions."""
        found: dict[str, int] = {}
        last, more = "", True
        while more:
            page = await self._storage.page(COMMITS_PREFIX, after=last)
            found |= {marker.key: marker.mod_revision for marker in page.items}
            last, more = next(reversed(found), ""), page.more
        for key, revision in sorted(found.items(), key=lambda marker: marker[1]):
            if seen.get(key) == revision:
                await self._storage.transact([Write(key, None, expected=revision)])
        return found


MAX_GROUP = MAX_OPERATIONS - 1
"""Most writes and distinct guards, together, in one group."""
MAX_GROUP_BYTES = MAX_BYTES - MARKER_BYTES


class QueuedWrite(Protocol):
    @property
    def write(self) -> Write: ...


ItemT = TypeVar("ItemT", bound=QueuedWrite)


class WriteQueue(Generic[ItemT]):
    """An item is ready, or waits behind another item of its key, or was returned by `next_group`. Items that `next_group`
    returned must be returned through `put_back` or `release`."""

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
        """Puts items before everything that is ready. `alone`: the next group has only these items."""
        self._ready.extendleft(reversed(items))
        if alone or self._again:
            self._again += len(items)

    def release(self, item: ItemT) -> None:
        """Removes an item that is done; the next one of its key becomes ready."""
        key = item.write.key
        if behind := self._behind[key]:
            self._ready.append(behind.popleft())
        else:
            del self._behind[key]

    def drain(self) -> list[ItemT]:
        """Removes and returns the items that `next_group` has not returned."""
        items = [*self._ready, *(item for behind in self._behind.values() if behind for item in behind)]
        self._ready.clear()
        self._again = 0
        self._behind.clear()
        return items


class _Limits:
    """The size of the next transaction so far."""

    def __init__(self) -> None:
        self._writes = 0
        self._bytes = 0
        self._lease = 0
        self._keys: set[str] = set()
        self._guards: set[Guard] = set()
        self._guard_keys: set[str] = set()

    def take(self, write: Write) -> bool:
        """Adds `write` if there is room, and returns whether there is. A write always fits into an empty transaction."""
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


__all__ = ["CommitOutcome", "Committer", "Conflict", "Denied", "GuardFailed", "PartialOutcome", "SendGroup", "send_directly"]

CommitOutcome: TypeAlias = int | Conflict | GuardFailed | Denied | StorageError
"""The revision at which a write happened, or why it did not."""


@dataclass(frozen=True, slots=True)
class PartialOutcome:
    """Outcomes of some writes of a group, by key, at least of one. The other writes did not happen and may be sent again."""

    outcomes: Mapping[str, CommitOutcome]


SendGroup: TypeAlias = Callable[[TransactionPipeline, Sequence[Write]], Awaitable[Answer | PartialOutcome]]
"""Sends a group on a pipeline, as TransactionPipeline.send does. Raises StorageError, which is then about all of the group."""


def send_directly(pipeline: TransactionPipeline, writes: Sequence[Write]) -> Awaitable[Answer]:
    """Sends a group as it is."""
    return pipeline.send(writes)


MAX_OPEN = 50_000
"""Writes that wait or are in flight."""
MAX_OPEN_BYTES = 256 << 20
WAIT_TIMEOUT = 5.0
"""Seconds that a write may wait before it leaves."""
FULL_GROUP = 32
"""Writes that fill a group well enough: waiting for more saves little."""
MAX_GROUP_DELAY = 0.01
"""Seconds for which a smaller group waits: for the transaction under way, which usually takes 2 to 5 ms, and for the callers of
the last transaction, which need about as long for their next write."""
COMMIT_SIBLINGS = 4
"""Concurrent callers from which the committer waits for their next writes."""
TOUCH_INTERVAL = SWEEP_INTERVAL / 3
"""Seconds after which the marker of an idle pipeline is moved."""


class _Call:
    """One commit_many: its outcomes so far, and the future that waits for all of them."""

    __slots__ = ("deadline", "future", "missing", "outcomes")

    def __init__(self, size: int, deadline: float) -> None:
        self.outcomes: list[CommitOutcome] = [0] * size
        self.missing = size
        self.deadline = deadline
        self.future: asyncio.Future[list[CommitOutcome]] = asyncio.get_running_loop().create_future()


class _Item:
    __slots__ = ("call", "index", "size", "write")

    def __init__(self, write: Write, call: _Call, index: int) -> None:
        self.write = write
        self.call = call
        self.index = index
        self.size = len(write.value) if write.value else 0

    def settle(self, outcome: CommitOutcome) -> None:
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
        self.long_after = _now() + MAX_GROUP_DELAY


class _Gathering(NamedTuple):
    """After a transaction: how many callers it had, or waited for its end, and until when how many are waited for."""

    callers: int
    expected: int
    until: float


NO_GATHERING = _Gathering(0, 0, 0.0)


class Committer:
    def __init__(
        self,
        storage: Storage,
        *,
        max_in_flight: int = 2,
        send: SendGroup = send_directly,
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
        self._idle = [TransactionPipeline(storage, keys, clock, rng) for _ in range(max_in_flight)]
        self._queue: WriteQueue[_Item] = WriteQueue()
        self._wake = asyncio.Event()
        self._in_flight: list[_Sent] = []  # the oldest first
        self._gathering = NO_GATHERING
        self._timed = False  # will wake up by itself when it is time for what waits
        self._open = 0
        self._open_bytes = 0
        self._stopped = False

    async def run(self) -> None:
        """Commits until cancelled. Then writes in flight end with OutcomeUnknown, and waiting or later ones with Unavailable.
        Calls made before `run` starts wait for it."""
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

    async def open_pipelines(self) -> None:
        """Starts the chains ahead of the first writes, which wait for it. A chain that fails to start is started by the first
        write."""
        pipelines, self._idle = self._idle, []
        for pipeline in pipelines:
            with suppress(StorageError):
                await pipeline.open()
            self._idle.append(pipeline)
            self._wake.set()

    async def keep_pipelines(self) -> None:
        """Opens the pipelines, and moves the markers of idle ones before they are swept away, until cancelled."""
        await self.open_pipelines()
        while True:
            await self._clock.sleep(TOUCH_INTERVAL)
            for pipeline in list(self._idle):
                if pipeline in self._idle:
                    self._idle.remove(pipeline)
                    with suppress(StorageError):
                        await pipeline.touch()
                    self._idle.append(pipeline)
                    self._wake.set()
            await self.open_pipelines()

    async def commit(self, write: Write) -> int:
        """The revision at which the write happened. Raises Conflict, GuardFailed, StorageError."""
        (outcome,) = await self.commit_many((write,))
        if isinstance(outcome, int):
            return outcome
        raise outcome

    async def commit_many(self, writes: Sequence[Write]) -> list[CommitOutcome]:
        """The outcome of each write, in order. They are independent: some may happen and others not."""
        if not writes:
            return []
        call = _Call(len(writes), self._clock.monotonic() + WAIT_TIMEOUT)
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
        """Returns when a write has come, a pipeline is idle again, or a waiting group is due."""
        self._timed = bool(self._idle and self._queue.ready)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._leaving_at() if self._timed else None):
                await self._wake.wait()
        self._timed = False
        self._wake.clear()

    def _leaving_at(self) -> float:
        """The time at which the ready writes are sent if no others come."""
        if len(self._queue.ready) >= FULL_GROUP:
            return 0.0
        if self._in_flight:
            return self._in_flight[0].long_after
        return self._gathering.until if _callers(self._queue.ready) < self._gathering.expected else 0.0

    def _after(self, answered: Sequence[_Item]) -> _Gathering:
        """The callers to wait for: as many as this group and the one before both had, so occasional callers do not count."""
        if not self._pressure.is_high() or len(self._queue.ready) >= FULL_GROUP:
            return NO_GATHERING
        callers = _callers([*answered, *self._queue.ready])
        expected = min(callers, self._gathering.callers)
        return _Gathering(callers, expected if expected >= COMMIT_SIBLINGS else 0, _now() + MAX_GROUP_DELAY)

    def _next_group(self) -> list[_Item]:
        """The next writes whose callers still wait; [] if there are none."""
        while group := self._queue.next_group():
            now = self._clock.monotonic()
            wanted = [item for item in group if not item.call.future.done() and now < item.call.deadline]
            if len(wanted) < len(group):
                late = Unavailable(f"the write waited {WAIT_TIMEOUT:g} s for the store; try again later")
                for item in [item for item in group if item not in wanted]:
                    self._finish(item, late)
            if wanted:
                return wanted
        return []

    async def _commit_group(self, sent: _Sent, pipeline: TransactionPipeline) -> None:
        try:
            answer: Answer | PartialOutcome | StorageError = await self._send(pipeline, [item.write for item in sent.group])
        except StorageError as error:
            answer = error
        self._idle.append(pipeline)
        self._in_flight.remove(sent)
        self._gathering = self._after(sent.group) if isinstance(answer, Committed | PartialOutcome) else NO_GATHERING
        self._wake.set()
        self._settle(sent.group, answer)

    def _settle(self, group: list[_Item], answer: Answer | PartialOutcome | StorageError) -> None:
        """Finishes the writes whose outcome is known, and queues the others again. If the answer concerns none of them, all
        fail with it."""
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

    def _finish(self, item: _Item, outcome: CommitOutcome) -> None:
        self._open -= 1
        self._open_bytes -= item.size
        self._queue.release(item)
        item.settle(outcome)


def _callers(items: Iterable[_Item]) -> int:
    return len({item.call for item in items})


def _now() -> float:
    """The time of the event loop."""
    return asyncio.get_running_loop().time()


def _stopping() -> Unavailable:
    return Unavailable("the server is stopping; try another one")


def outcome_of(write: Write, answer: CompareFailed | PartialOutcome | StorageError) -> CommitOutcome | None:
    """The outcome of one write of a group; None if the answer does not concern it, so it is sent again."""
    match answer:
        case PartialOutcome():
            return answer.outcomes.get(write.key)
        case CompareFailed():
            return failure_of(write, answer.current)
        case OutOfSpace() if write.value is None:
            return None
        case LeaseNotFound() if not write.lease:
            return None
        case _:
            return answer
