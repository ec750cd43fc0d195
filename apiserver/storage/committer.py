"""Group commit: writes that wait at the same time share one transaction.

    commit_many --> WriteQueue --> group --> pipeline --> Committed: every write has its revision
                        ^                       |-------> CompareFailed: failed compares fail; the other writes are retried
                        |                       |-------> NOT_DONE: all are sent again, before newer writes
                        +-----------------------+-------> errors: for the writes that they concern

A transaction pipeline runs one transaction at a time. Writes that arrive during a transaction share the next one. Another
pipeline starts when FULL_GROUP writes wait, or when the transaction takes longer than MAX_GROUP_DELAY. When CPU time is scarce,
the committer also waits at most MAX_GROUP_DELAY for the next writes of callers whose writes have just finished, as commit_delay
and commit_siblings do in PostgreSQL (https://www.postgresql.org/docs/current/runtime-config-wal.html).

`send` can add writes to a group and settle some of its writes itself. Quotas are charged there (apiserver.quota).

Guarantees: a write happens at most once. WriteConflict, GuardFailed, WriteDenied and every StorageError except
CommitOutcomeUnknown mean that it has not happened and never will. Writes of one key happen in the order of the calls, and at
most one of them is in progress. The writes of a transaction share a revision. A group respects the limits of the store and has
at most one lease. No key that it writes is the key of one of its guards. Otherwise, writes are sent in the order of arrival.

Above MAX_OPEN writes or MAX_OPEN_BYTES, new writes fail with StorageUnavailable, and so do writes that have waited for
WAIT_TIMEOUT seconds. A write whose caller is cancelled before the write is sent is dropped.

**Transaction pipeline.** A pipeline sends one transaction after another, with an exact outcome for each, even if a response is
lost. Each transaction also moves the *commit marker* of the pipeline, a separate key, from the mod_revision of the last
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
       |<-- neither nonce nor tombstone, or no answer until the deadline: CommitOutcomeUnknown --------|
                                                       at r' <--  the marker is the nonce: Committed --|
                                                       at r' <--  it is the tombstone: NOT_DONE -------|
                                                       at r  <--  at r still, and full: OutOfSpace ----'

Guarantees: Committed means that the writes happened at that revision. CompareFailed, NOT_DONE and every StorageError except
CommitOutcomeUnknown mean that they have not happened and never will.

A mod_revision is never used twice. Of all requests that compare the marker with r, at most one succeeds: the writes or the
tombstone. The value of the marker shows which of the two succeeded. The creation of a marker contains no other write, because a
late copy of it can succeed after the marker is deleted. So a marker can be deleted at any time, which causes one refusal and a
new chain.

After CommitOutcomeUnknown, the writes may still happen. If the store has no space for a marker, a transaction of deletes has
none. If its response is lost, its outcome is unknown.

The sweeper deletes markers that did not move for SWEEP_INTERVAL, oldest first: while an unmoved marker exists, no marker that
moved later is deleted (apiserver.cacher.event_history relies on this). Committers move the markers of idle pipelines.
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

from pinnace.api.names import new_uid
from pinnace.api.resources import COMMITS_PREFIX, commit_key
from pinnace.apiserver.storage.interface import (
    MAX_BYTES,
    MAX_OPERATIONS,
    MAX_REQUEST_BYTES,
    CommitOutcomeUnknown,
    Committed,
    CompareFailed,
    Guard,
    GuardFailed,
    LeaseNotFound,
    OutOfSpace,
    Storage,
    StorageError,
    StorageUnavailable,
    TooLarge,
    Write,
    WriteConflict,
    WriteDenied,
    expand_companions,
    failure_of,
    is_at_expected,
)
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.cpu import CpuPressure, no_preemptions

RESOLVE_TIMEOUT = 10.0
"""Seconds after which the outcome of a lost response is unknown."""
MARKER_BYTES = 8
"""Size in bytes of the marker's value in a transaction. The marker is also one operation."""

SWEEP_INTERVAL = 600.0
"""Seconds. Much longer than the outcome of a transaction can be in doubt."""

MAX_GROUP = MAX_OPERATIONS - 1
"""Maximum number of writes and distinct guards in one group."""
MAX_GROUP_BYTES = MAX_BYTES - MARKER_BYTES
"""Maximum size of the values of a group with several writes. A larger write is sent alone."""

CommitOutcome: TypeAlias = int | WriteConflict | GuardFailed | WriteDenied | StorageError
"""The revision at which a write happened, or the reason why it did not happen."""

MAX_OPEN = 50_000
"""Maximum number of writes that wait or are in progress."""
MAX_OPEN_BYTES = 256 << 20
WAIT_TIMEOUT = 5.0
"""Maximum seconds between the arrival of a write and its transaction."""
FULL_GROUP = 32
"""Number of writes that are sent without waiting for more, because a larger group saves little."""
MAX_GROUP_DELAY = 0.01
"""Maximum delay of a smaller group in seconds. It covers a transaction in progress, which usually takes 2 to 5 ms, and the time
that the callers of the last transaction need for their next write, which is similar."""
COMMIT_SIBLINGS = 4
"""Minimum number of concurrent callers for whose next writes the committer waits."""
TOUCH_INTERVAL = SWEEP_INTERVAL / 3
"""Seconds after which the marker of an idle pipeline is moved."""
__all__ = [
    "CommitOutcome",
    "Committer",
    "DecidedOutcomes",
    "GuardFailed",
    "SendGroup",
    "WriteConflict",
    "WriteDenied",
    "send_directly",
]


class _UnresolvedOutcome(Enum):
    NOT_DONE = auto()


NOT_DONE: Final = _UnresolvedOutcome.NOT_DONE
"""The writes did not happen and never will, because the marker had moved. They may be sent again."""

Answer: TypeAlias = Committed | CompareFailed | Literal[_UnresolvedOutcome.NOT_DONE]


def marker_keys(rng: random.Random) -> Iterator[str]:
    """Yield unique keys for the chains of one server."""
    server = new_uid(rng)
    return (commit_key(server, chain) for chain in count(1))


class TransactionPipeline:
    """Sends transactions with exact outcomes. `keys`: keys for new chains, which the pipelines of a server share."""

    def __init__(self, storage: Storage, keys: Iterator[str], clock: Clock, rng: random.Random) -> None:
        self._storage = storage
        self._keys = keys
        self._clock = clock
        self._rng = rng
        self._nonces = count(1)
        self._key = ""
        self._at = 0  # mod_revision of the marker; 0: there is no chain

    async def send(self, writes: Sequence[Write]) -> Answer:
        """Send one transaction. Calls must not overlap. Raises StorageError. A cancelled call makes the pipeline unusable."""
        writes = expand_companions(writes)
        try:
            return await self._send(writes)
        except OutOfSpace:
            if any(write.value is not None for write in writes):
                raise
            return await self._storage.transact(writes)  # etcd still accepts deletes, but no puts such as a marker

    async def _send(self, writes: Sequence[Write]) -> Answer:
        await self.open()
        marker = self._next_marker()
        try:
            answer = await self._storage.transact([*writes, marker])
        except (CommitOutcomeUnknown, OutOfSpace) as error:
            return await self._resolve_outcome(marker, error)
        if isinstance(answer, Committed):
            self._at = answer.revision
        elif not is_at_expected(marker, answer.current[marker.key]):
            self._at = 0
            return NOT_DONE
        return answer

    async def open(self) -> None:
        """Start a chain if there is none. Otherwise, the first `send` starts it. Raises StorageError."""
        if self._at:
            return
        self._key = next(self._keys)
        try:
            answer = await self._storage.transact([self._next_marker()])
        except CommitOutcomeUnknown as error:  # only the outcome of the marker
            raise StorageUnavailable(str(error)) from None
        if isinstance(answer, CompareFailed):
            raise StorageError(f"{self._key} is in use")
        self._at = answer.revision

    async def move_marker(self) -> None:
        """Move the marker, so that sweepers keep it. Must not overlap with `send`. Raises StorageError."""
        if not self._at:
            return
        marker, self._at = self._next_marker(), 0  # if the outcome is in doubt, the next write starts a chain
        answer = await self._storage.transact([marker])
        if isinstance(answer, Committed):
            self._at = answer.revision

    def _next_marker(self) -> Write:
        return Write(self._key, next(self._nonces).to_bytes(MARKER_BYTES), expected=self._at)

    async def _resolve_outcome(self, marker: Write, error: CommitOutcomeUnknown | OutOfSpace) -> Answer:
        """Return the outcome of the transaction with this marker, which ended with `error`. Raises `error` or
        CommitOutcomeUnknown."""
        tombstone = self._next_marker()
        backoff = Backoff(rng=self._rng)
        deadline = self._clock.monotonic() + RESOLVE_TIMEOUT
        while self._clock.monotonic() < deadline:
            try:
                value, revision = await self._place_tombstone(tombstone)
            except StorageError:
                await self._clock.sleep(backoff.next_delay())
                continue
            if revision != tombstone.expected:
                self._at = revision if value in (marker.value, tombstone.value) else 0
                match value:
                    case marker.value:
                        return Committed(revision)
                    case tombstone.value:
                        return NOT_DONE
                raise CommitOutcomeUnknown(str(error)) from None
            if isinstance(error, OutOfSpace):  # etcd has responded: no copy of the request is in transit
                raise error
            await self._clock.sleep(backoff.next_delay())
        self._at = 0
        raise CommitOutcomeUnknown(str(error)) from None

    async def _place_tombstone(self, tombstone: Write) -> tuple[bytes | None, int]:
        """Try to write the tombstone, and return the value and mod_revision of the marker (None and 0 if it is deleted).

        If etcd is out of space, only read: etcd returns "out of space" for applied transactions, too (quotaApplierV3).
        """
        try:
            answer = await self._storage.transact([tombstone])
        except OutOfSpace:
            state = await self._storage.get(tombstone.key)
        else:
            if isinstance(answer, Committed):
                return tombstone.value, answer.revision
            state = answer.current[tombstone.key]
        return (state.value, state.mod_revision) if state else (None, 0)


class MarkerSweeper:
    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    async def run(self) -> None:
        """Sweep every SWEEP_INTERVAL until cancelled. Errors of the store are ignored until the next sweep."""
        seen: Mapping[str, int] = {}
        while True:
            with suppress(StorageError):
                seen = await self._sweep(seen)
            await self._clock.sleep(SWEEP_INTERVAL)

    async def _sweep(self, seen: Mapping[str, int]) -> Mapping[str, int]:
        """Delete the markers that have not moved since they were `seen`. Return all markers with their mod_revisions."""
        marker_revisions: dict[str, int] = {}
        last, more = "", True
        while more:
            page = await self._storage.page(COMMITS_PREFIX, after=last)
            marker_revisions |= {marker.key: marker.mod_revision for marker in page.items}
            last, more = next(reversed(marker_revisions), ""), page.more
        for key, revision in sorted(marker_revisions.items(), key=lambda marker: marker[1]):
            if seen.get(key) == revision:
                await self._storage.transact([Write(key, None, expected=revision)])
        return marker_revisions


class QueuedWrite(Protocol):
    @property
    def write(self) -> Write: ...


ItemT = TypeVar("ItemT", bound=QueuedWrite)


class WriteQueue(Generic[ItemT]):
    """Writes in order, at most one per key at a time.

    An item is ready, waits for another item of its key, or was returned by `next_group`. Each returned item must be passed to
    `put_back` or `release_key`.
    """

    def __init__(self) -> None:
        self._ready: deque[ItemT] = deque()
        self._again = 0  # the first so many ready items form a group of their own
        self._behind: dict[str, deque[ItemT] | None] = {}  # waiting items by key; has each key that is ready or in a group

    @property
    def ready_items(self) -> Collection[ItemT]:
        """Items that `next_group` could return now."""
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
        """Return items with distinct keys, within the limits of one transaction; [] if none is ready."""
        group: list[ItemT] = []
        limits = _TransactionSize()
        most = self._again or len(self._ready)
        while len(group) < most and limits.add_if_fits(self._ready[0].write):
            group.append(self._ready.popleft())
        self._again = max(0, self._again - len(group))
        return group

    def put_back(self, items: list[ItemT], *, alone: bool = False) -> None:
        """Put items before all ready items. `alone`: the next group has only these items."""
        self._ready.extendleft(reversed(items))
        if alone or self._again:
            self._again += len(items)

    def release_key(self, item: ItemT) -> None:
        """Remove a completed item. The next item of its key becomes ready."""
        key = item.write.key
        if behind := self._behind[key]:
            self._ready.append(behind.popleft())
        else:
            del self._behind[key]

    def drain(self) -> list[ItemT]:
        """Remove and return the items that `next_group` has not returned."""
        items = [*self._ready, *(item for behind in self._behind.values() if behind for item in behind)]
        self._ready.clear()
        self._again = 0
        self._behind.clear()
        return items


def write_bytes(write: Write) -> int:
    """Return the size of the values of a write and its companions."""
    size = len(write.value) if write.value else 0
    if write.companions:  # few writes have any
        size += sum(len(companion.value or b"") for companion in write.companions)
    return size


class _TransactionSize:
    """The present size of the next transaction."""

    def __init__(self) -> None:
        self._writes = 0
        self._bytes = 0
        self._lease = 0
        self._keys: set[str] = set()
        self._guards: set[Guard] = set()
        self._guard_keys: set[str] = set()
        self._companions: set[str] = set()

    def add_if_fits(self, write: Write) -> bool:
        """Add `write` if there is room, and return whether there was. An empty transaction has room for any write."""
        size = self._bytes + write_bytes(write)
        new_guards = [guard for guard in write.guards if guard not in self._guards] if write.guards else ()
        companions = [companion.key for companion in write.companions] if write.companions else ()
        if self._writes and (
            self._writes + 1 + len(companions) + len(self._guards) + len(new_guards) > MAX_GROUP
            or size > MAX_GROUP_BYTES
            or (write.lease and self._lease and write.lease != self._lease)
            or write.key in self._guard_keys
            or write.key in self._companions
            or (companions and any(key in self._companions or key in self._keys for key in companions))
            or (new_guards and any(guard.key in self._keys for guard in new_guards))
        ):
            return False
        self._writes += 1 + len(companions)
        self._companions.update(companions)
        self._bytes = size
        self._lease = self._lease or write.lease
        self._keys.add(write.key)
        if new_guards:
            self._guards.update(new_guards)
            self._guard_keys.update(guard.key for guard in new_guards)
        return True


@dataclass(frozen=True, slots=True)
class DecidedOutcomes:
    """The outcomes of at least one write of a group, by key. The other writes did not happen and may be sent again."""

    outcomes: Mapping[str, CommitOutcome]


SendGroup: TypeAlias = Callable[[TransactionPipeline, Sequence[Write]], Awaitable[Answer | DecidedOutcomes]]
"""Sends a group on a pipeline, as TransactionPipeline.send does. Raises a StorageError that concerns the whole group."""


def send_directly(pipeline: TransactionPipeline, writes: Sequence[Write]) -> Awaitable[Answer]:
    """Send a group without changes."""
    return pipeline.send(writes)


class _CommitCall:
    """A call of commit_many: the known outcomes, and the future that waits for all of them."""

    __slots__ = ("deadline", "future", "missing", "outcomes")

    def __init__(self, size: int, deadline: float) -> None:
        self.outcomes: list[CommitOutcome] = [0] * size
        self.missing = size
        self.deadline = deadline
        self.future: asyncio.Future[list[CommitOutcome]] = asyncio.get_running_loop().create_future()


class _CommitItem:
    __slots__ = ("call", "index", "size", "write")

    def __init__(self, write: Write, call: _CommitCall, index: int) -> None:
        self.write = write
        self.call = call
        self.index = index
        self.size = write_bytes(write)

    def set_outcome(self, outcome: CommitOutcome) -> None:
        call = self.call
        call.outcomes[self.index] = outcome
        call.missing -= 1
        if not call.missing and not call.future.done():
            call.future.set_result(call.outcomes)


class _InFlightGroup:
    """A group whose transaction is in progress."""

    __slots__ = ("group", "long_after")

    def __init__(self, group: list[_CommitItem]) -> None:
        self.group = group
        self.long_after = _loop_time() + MAX_GROUP_DELAY


class _GatherState(NamedTuple):
    """The state after a transaction: its callers and those that waited, the callers to wait for, and the end of the wait."""

    callers: int
    expected: int
    until: float


NO_GATHERING = _GatherState(0, 0, 0.0)


class Committer:
    def __init__(
        self,
        storage: Storage,
        *,
        max_in_flight: int = 2,
        send: SendGroup = send_directly,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        preempted: Callable[[], int] = no_preemptions,
    ) -> None:
        """`preempted`: see pinnace.runtime.cpu."""
        self._send = send
        self._clock = clock
        self._pressure = CpuPressure(preempted, clock)
        rng = rng or random.Random()
        keys = marker_keys(rng)
        self._idle = [TransactionPipeline(storage, keys, clock, rng) for _ in range(max_in_flight)]
        self._queue: WriteQueue[_CommitItem] = WriteQueue()
        self._wake = asyncio.Event()
        self._in_flight: list[_InFlightGroup] = []  # oldest first
        self._gathering = NO_GATHERING
        self._timed = False  # whether a timer wakes up `run` for the waiting writes
        self._open = 0
        self._open_bytes = 0
        self._stopped = False

    async def run(self) -> None:
        """Commit until cancelled. Calls before `run` wait for it.

        After cancellation, writes in progress end with CommitOutcomeUnknown, and waiting or later writes end with
        StorageUnavailable.
        """
        try:
            async with asyncio.TaskGroup() as transactions:
                while True:
                    await self._wait_for_work()
                    while self._idle and self._next_send_time() <= _loop_time() and (group := self._next_group()):
                        sent = _InFlightGroup(group)
                        self._in_flight.append(sent)
                        transactions.create_task(self._commit_group(sent, self._idle.pop()))
        finally:
            self._stopped = True
            for sent in self._in_flight:
                self._settle_group(sent.group, CommitOutcomeUnknown("the server stopped before etcd responded"))
            for item in self._queue.drain():
                item.set_outcome(_stopping_error())

    async def open_pipelines(self) -> None:
        """Start the chains before the first writes, which wait for it. If a chain fails to start, the first write starts it."""
        pipelines, self._idle = self._idle, []
        for pipeline in pipelines:
            with suppress(StorageError):
                await pipeline.open()
            self._idle.append(pipeline)
            self._wake.set()

    async def keep_pipelines_open(self) -> None:
        """Open the pipelines, and move the markers of idle ones before a sweep, until cancelled."""
        await self.open_pipelines()
        while True:
            await self._clock.sleep(TOUCH_INTERVAL)
            for pipeline in list(self._idle):
                if pipeline in self._idle:
                    self._idle.remove(pipeline)
                    with suppress(StorageError):
                        await pipeline.move_marker()
                    self._idle.append(pipeline)
                    self._wake.set()
            await self.open_pipelines()

    async def commit(self, write: Write) -> int:
        """Return the revision at which the write happened. Raises WriteConflict, GuardFailed, StorageError."""
        (outcome,) = await self.commit_many((write,))
        if isinstance(outcome, int):
            return outcome
        try:
            raise outcome
        finally:
            del outcome  # its traceback refers to this frame: the record would live until the garbage collection

    async def commit_many(self, writes: Sequence[Write]) -> list[CommitOutcome]:
        """Return the outcome of each write, in order. The writes are independent: each succeeds or fails alone."""
        if not writes:
            return []
        call = _CommitCall(len(writes), self._clock.monotonic() + WAIT_TIMEOUT)
        for index, write in enumerate(writes):
            self._enqueue(_CommitItem(write, call, index))
        if not self._timed or self._next_send_time() <= _loop_time():
            self._wake.set()
        return await call.future

    def _enqueue(self, item: _CommitItem) -> None:
        size = item.size
        if self._stopped:
            item.set_outcome(_stopping_error())
        elif size > MAX_REQUEST_BYTES:
            item.set_outcome(TooLarge(f"{item.write.key}: {size} bytes"))
        elif self._open >= MAX_OPEN or self._open_bytes + size > MAX_OPEN_BYTES:
            item.set_outcome(StorageUnavailable(f"too many writes are waiting for etcd: {self._open}; try again later"))
        else:
            self._open += 1
            self._open_bytes += size
            self._queue.add(item)

    async def _wait_for_work(self) -> None:
        """Wait until a write arrives, a pipeline becomes idle, or a waiting group is due."""
        self._timed = bool(self._idle and self._queue.ready_items)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._next_send_time() if self._timed else None):
                await self._wake.wait()
        self._timed = False
        self._wake.clear()

    def _next_send_time(self) -> float:
        """Return the time at which the ready writes are sent if no others arrive."""
        if len(self._queue.ready_items) >= FULL_GROUP:
            return 0.0
        if self._in_flight:
            return self._in_flight[0].long_after
        return self._gathering.until if _count_callers(self._queue.ready_items) < self._gathering.expected else 0.0

    def _gather_callers_after(self, answered: Sequence[_CommitItem]) -> _GatherState:
        """Return the callers to wait for: the minimum of this group's and the last group's, so that occasional callers do not
        count."""
        if not self._pressure.is_high() or len(self._queue.ready_items) >= FULL_GROUP:
            return NO_GATHERING
        callers = _count_callers([*answered, *self._queue.ready_items])
        expected = min(callers, self._gathering.callers)
        return _GatherState(callers, expected if expected >= COMMIT_SIBLINGS else 0, _loop_time() + MAX_GROUP_DELAY)

    def _next_group(self) -> list[_CommitItem]:
        """Return the next writes whose callers still wait; [] if there are none."""
        while group := self._queue.next_group():
            now = self._clock.monotonic()
            wanted = [item for item in group if not item.call.future.done() and now < item.call.deadline]
            if len(wanted) < len(group):
                late = StorageUnavailable(f"the write waited {WAIT_TIMEOUT:g} s for etcd; try again later")
                for item in [item for item in group if item not in wanted]:
                    self._finish_item(item, late)
            if wanted:
                return wanted
        return []

    async def _commit_group(self, sent: _InFlightGroup, pipeline: TransactionPipeline) -> None:
        try:
            answer: Answer | DecidedOutcomes | StorageError = await self._send(pipeline, [item.write for item in sent.group])
        except StorageError as error:
            answer = error
        self._idle.append(pipeline)
        self._in_flight.remove(sent)
        self._gathering = (
            self._gather_callers_after(sent.group) if isinstance(answer, Committed | DecidedOutcomes) else NO_GATHERING
        )
        self._wake.set()
        self._settle_group(sent.group, answer)

    def _settle_group(self, group: list[_CommitItem], answer: Answer | DecidedOutcomes | StorageError) -> None:
        """Finish the writes with a known outcome, and queue the others again. If the answer concerns none of them, all fail
        with it."""
        if answer is NOT_DONE:
            self._queue.put_back(group)
            return
        if isinstance(answer, Committed):
            for item in group:
                self._finish_item(item, answer.revision)
            return
        outcomes = [outcome_of(item.write, answer) for item in group]
        if all(outcome is None for outcome in outcomes):
            error = answer if isinstance(answer, StorageError) else StorageError(f"etcd refused the writes: {answer}")
            outcomes = [error] * len(group)
        self._queue.put_back([item for item, outcome in zip(group, outcomes, strict=True) if outcome is None], alone=True)
        for item, outcome in zip(group, outcomes, strict=True):
            if outcome is not None:
                self._finish_item(item, outcome)

    def _finish_item(self, item: _CommitItem, outcome: CommitOutcome) -> None:
        self._open -= 1
        self._open_bytes -= item.size
        self._queue.release_key(item)
        item.set_outcome(outcome)


def _count_callers(items: Iterable[_CommitItem]) -> int:
    return len({item.call for item in items})


def _loop_time() -> float:
    """Return the time of the event loop."""
    return asyncio.get_running_loop().time()


def _stopping_error() -> StorageUnavailable:
    return StorageUnavailable("the server is stopping; try another server")


def outcome_of(write: Write, answer: CompareFailed | DecidedOutcomes | StorageError) -> CommitOutcome | None:
    """Return the outcome of one write of a group; None if the answer does not concern it, so that it is sent again."""
    match answer:
        case DecidedOutcomes():
            return answer.outcomes.get(write.key)
        case CompareFailed():
            return failure_of(write, answer.current)
        case OutOfSpace() if write.value is None:
            return None
        case LeaseNotFound() if not write.lease:
            return None
        case _:
            return answer
