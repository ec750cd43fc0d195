"""Watches: the iterator of a watch with its send buffer, and the dispatcher of events to the watches of a resource.

    replay --history is sent--> live --buffer overflow--> SlowWatcher
      |                           |  --drain-----------> ShuttingDown
      '---- history dropped ------'--- cache reloaded --> RevisionExpired

During the replay (initial state, or events of the log), the reader requests one chunk at a time, and the watch stores only its
position. When the watch is live, the cache adds responses to a bounded buffer. The switch happens between two changes, so no
event is lost or sent twice. The watches of one flow share a byte limit (apiserver.flow.send_budget). A watch that waits too
long for space in the budget ends with SlowWatcher.

`ResourceCache.watch` (cacher.py) decides whether a watch can start at a revision, and apiserver.services.resource whether the
client has seen the same history.

Watches with equal selections share responses. A flow is charged once for a response, until its last watch has sent it. Pending
responses are concatenated; the result is one WatchResponse (pinnace.api.wire).

Replays are scheduled: together they use the event loop for bounded time slices, and flows alternate. A flow with a thousand
watches delays a watch of another flow by one step.

The dispatcher:

* Watchers with equal selections form a group. An event is matched once per group. All watchers of a group share one response
  per batch, and each flow is charged for it once.
* Groups that select pods by node are found in an index by the node before and after the change. All other groups are matched.
* An event is encoded at most once for each of ADDED, MODIFIED and DELETED, and only if a group selects it.
* Above BURST events per BATCH_DELAY seconds, the events of a group are coalesced. They are sent after BATCH_DELAY, or when they
  reach MERGE_BYTES. One message needs as much CPU time in the server and client as several events.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol, Self

from pinnace.api import wire
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.apiserver.cacher.event_history import EncodedResponse, HistoryFingerprints
from pinnace.apiserver.cacher.store import CacheError, CacheEvent, SelectionPredicate, SlowWatcher
from pinnace.apiserver.flow.send_budget import LARGE, SendBudget, SendPool
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.tasks import SLICE, YIELDS

MAX_BYTES = 32 << 20
"""Maximum size of the buffer of a watch in bytes: about one second at the maximum throughput of a server."""
MAX_RESPONSES = 10_000
MERGE_BYTES = 1 << 20
"""Maximum size of concatenated responses in bytes. All clients accept it, and larger responses are not faster."""

BURST = 100
"""The number of events per BATCH_DELAY that a group receives without delay."""
BATCH_DELAY = 0.1
"""Seconds for which further events of a burst are coalesced."""


class SharedResponse:
    """A response that several watchers of one flow share. Each watcher releases it once."""

    __slots__ = ("_budget", "_holders", "encoded_response", "size")

    def __init__(self, encoded_response: EncodedResponse, budget: SendBudget, holders: int) -> None:
        self.encoded_response = encoded_response
        self.size = len(encoded_response.response)
        self._budget = budget
        self._holders = holders
        budget.add_buffered(self.size)

    def release_holder(self) -> None:
        self._holders -= 1
        if not self._holders:
            self._budget.add_buffered(-self.size)


def uncharged_response(encoded_response: EncodedResponse) -> SharedResponse:
    """Return a response for which no flow is charged."""
    return SharedResponse(encoded_response, SendBudget(SendPool()), 0)


class SendBuffer:
    """A bounded FIFO queue of responses. `bytes` is the size of all pending responses."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_responses: int = MAX_RESPONSES) -> None:
        self._max_bytes = max_bytes
        self._max_responses = max_responses
        self._waiting: deque[SharedResponse] = deque()
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def next_size(self) -> int:
        """The size of the first response in bytes. The buffer must not be empty."""
        return self._waiting[0].size

    def put_response(self, shared: SharedResponse) -> bool:
        """Add a response. On overflow, clear the buffer and return False. The client then resumes the watch."""
        size = self.bytes + shared.size
        if size > self._max_bytes or len(self._waiting) >= self._max_responses:
            shared.release_holder()
            self.clear()
            return False
        self._waiting.append(shared)
        self.bytes = size
        return True

    def take_response(self, most: int = MERGE_BYTES) -> EncodedResponse:
        """Remove and concatenate the first responses, up to `most` bytes but at least one. The buffer must not be empty."""
        waiting = self._waiting
        first = waiting.popleft()
        first.release_holder()
        parts, size, (response, revision, events) = [first.encoded_response.response], first.size, first.encoded_response
        while waiting and size + waiting[0].size <= most:
            shared = waiting.popleft()
            shared.release_holder()
            response, revision, more = shared.encoded_response
            events += more
            parts.append(response)
            size += shared.size
        self.bytes -= size
        return EncodedResponse(response if len(parts) == 1 else b"".join(parts), revision, events)

    def clear(self) -> None:
        """Discard all pending responses."""
        for shared in self._waiting:
            shared.release_holder()
        self._waiting.clear()
        self.bytes = 0


class ReplayScheduler:
    """Runs the replay steps of all watches in time slices of SLICE seconds. Flows alternate (round robin)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: dict[SendBudget, deque[tuple[Callable[[], None], asyncio.Future[None]]]] = {}  # in order of execution
        self._running = False
        self._used_seconds = 0.0  # seconds of the time slice that earlier iterations of the event loop used
        self._until = 0.0
        self._yields_left = 0  # iterations of the event loop until the next time slice

    def is_slice_over(self) -> bool:
        """Report whether the time slice is over. A running step must then end."""
        return self._clock.monotonic() >= self._until

    async def run_step(self, budget: SendBudget, work: Callable[[], None]) -> None:
        """Run `work` in a time slice, and raise its errors. If this call is cancelled, the work can still run."""
        done = asyncio.get_running_loop().create_future()
        self._queue.setdefault(budget, deque()).append((work, done))
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._run_slice)
        try:
            await done
        finally:
            del done  # its error refers to this frame: the events would live until the garbage collection

    def _run_slice(self) -> None:
        if self._yields_left:
            self._yields_left -= 1
        else:
            self._run_steps()
        self._running = bool(self._queue or self._yields_left)
        if self._running:
            asyncio.get_running_loop().call_soon(self._run_slice)

    def _run_steps(self) -> None:
        began = self._clock.monotonic()
        self._until = began + SLICE - self._used_seconds
        while self._queue:
            work, done = self._next_waiting()
            if not done.done():
                try:
                    work()
                except Exception as error:  # raised by `run_step`, for example if an object cannot be parsed
                    done.set_exception(error)
                else:
                    done.set_result(None)
            if self.is_slice_over():
                self._used_seconds, self._yields_left = 0.0, YIELDS
                return
        self._used_seconds += self._clock.monotonic() - began

    def _next_waiting(self) -> tuple[Callable[[], None], asyncio.Future[None]]:
        budget = next(iter(self._queue))
        steps = self._queue.pop(budget)
        first = steps.popleft()
        if steps:
            self._queue[budget] = steps
        return first


class WatchHub(Protocol):
    """Sends events to watchers. `delivered_events` is the number of events that they have read."""

    delivered_events: int

    def start_watcher(self, watcher: "CacheWatcher") -> None:
        """Start to send the selected events to a watcher."""
        ...

    def remove_watcher(self, watcher: "CacheWatcher") -> None: ...


class CacheWatcher:
    """An async iterator of encoded WatchResponses. One task reads and closes it. Raises SlowWatcher, ShuttingDown or
    RevisionExpired once, then ends."""

    def __init__(
        self,
        hub: WatchHub,
        selection: SelectionPredicate,
        since: int,
        replayed: Iterator[EncodedResponse],
        turns: ReplayScheduler | None = None,
        *,
        announced: bool = False,
        budget: SendBudget | None = None,
        buffer: SendBuffer | None = None,
    ) -> None:
        """`replayed` yields the responses before the watcher is live; an empty response ends a step. `turns` schedules the
        replay. `budget` is the send budget of the flow; if None, the watcher has its own."""
        self.selection = selection
        self.announced = announced
        """True if a bookmark is sent immediately after each election."""
        self.delivered = since
        """The last revision that was returned to the reader."""
        self.idle = False
        """True if no response was added since the last call of `WatchDispatcher.send_bookmarks`."""
        self.budget = budget if budget is not None else SendBudget(SendPool())
        self._hub = hub
        self._replay: Iterator[EncodedResponse] | None = replayed
        self._turns = turns if turns is not None else ReplayScheduler(SYSTEM_CLOCK)
        self._next_replayed: EncodedResponse | None = None  # the next replayed response, which is already charged
        self._buffer = buffer if buffer is not None else SendBuffer()
        self._end: CacheError | None = None
        self._closed = False
        self._charged = 0  # bytes of the last returned response, until the reader requests the next one
        self._reader: asyncio.Future[None] | None = None
        self.budget.add_watch(self)

    def __aiter__(self) -> Self:
        return self

    @property
    def ended(self) -> bool:
        """True if no more responses are added."""
        return self._closed or self._end is not None

    @property
    def buffered_bytes(self) -> int:
        """The size of the buffer in bytes."""
        return self._buffer.bytes

    async def __anext__(self) -> bytes:
        if self._next_replayed is None:
            self._release_charge()
        while not self._closed:
            if self._next_replayed is not None:
                encoded_response, self._next_replayed = self._next_replayed, None
                return self._deliver_response(encoded_response)
            if self._replay is not None:
                await self._run_replay_step()
            elif self._buffer:
                if self.budget.must_wait and self._buffer.next_size < LARGE:
                    return self._charge_and_deliver(self._buffer.take_response(LARGE - 1))
                if self.budget.must_wait:
                    await self._wait_for_room()
                if self._buffer:
                    return self._charge_and_deliver(self._buffer.take_response(MERGE_BYTES))
            elif self._end is not None:
                self.close()
                raise self._end
            else:
                await self._wait_for_response()
        raise StopAsyncIteration

    def enqueue_response(self, shared: SharedResponse) -> None:
        """Add a response. The dispatcher calls this method. On overflow the watcher ends with SlowWatcher."""
        self.idle = False
        if self._end is not None:
            shared.release_holder()
        elif not self._buffer.put_response(shared):
            self.end(SlowWatcher(self.delivered))
        self._wake_reader()

    def end_overflowed(self) -> None:
        """Clear the buffer, and end the watcher with SlowWatcher."""
        self._buffer.clear()
        self.end(SlowWatcher(self.delivered))

    def end(self, error: CacheError) -> None:
        """End the watcher with an error. The reader receives the buffered responses first, but not the rest of a replay."""
        if self._end is None:
            self._end = error
            self._replay = None
            self._hub.remove_watcher(self)
        if not self._buffer:
            self.budget.remove_watch(self)
            self._wake_reader()

    def close(self) -> None:
        """End the watcher without an error. A waiting reader receives StopAsyncIteration."""
        if not self._closed:
            self._closed = True
            self._replay = self._next_replayed = None
            self._release_charge()
            self._buffer.clear()
            self._hub.remove_watcher(self)
            self.budget.remove_watch(self)
            self._wake_reader()

    async def _run_replay_step(self) -> None:
        """Run one step of the replay, after the flow has space in its budget and the scheduler has a time slice."""
        if not self.budget.must_wait:
            await self._turns.run_step(self.budget, self._catch_up)
            return
        try:
            async with self.budget.reserve_turn(self):
                await self._turns.run_step(self.budget, partial(self._catch_up, entitled=True))
        except TimeoutError:
            self.end_overflowed()

    def _catch_up(self, *, entitled: bool = False) -> None:
        """Read the next response of the replay, or switch to live. `entitled`: the watcher has reserved space in the budget."""
        if self._replay is None or (self.budget.is_full and not entitled):
            return
        try:
            encoded_response = next(self._replay, None)
        except CacheError as error:
            self.end(error)
            return
        if encoded_response is None:
            self._replay = None
            self._hub.start_watcher(self)
        elif encoded_response.response:
            self._next_replayed = encoded_response
            self._charge_budget(encoded_response)

    def _charge_and_deliver(self, encoded_response: EncodedResponse) -> bytes:
        self._charge_budget(encoded_response)
        return self._deliver_response(encoded_response)

    def _deliver_response(self, encoded_response: EncodedResponse) -> bytes:
        if encoded_response.revision:
            self.delivered = encoded_response.revision
        self._hub.delivered_events += encoded_response.events
        return encoded_response.response

    def _charge_budget(self, encoded_response: EncodedResponse) -> None:
        if (size := len(encoded_response.response)) >= LARGE:
            self._charged = size
            self.budget.charge(size)

    def _release_charge(self) -> None:
        """Release the charge of the last response, after the reader has sent it or has closed the watch."""
        if self._charged:
            self.budget.charge(-self._charged)
            self._charged = 0

    async def _wait_for_room(self) -> None:
        """Wait for space in the budget for a large response. On timeout the watcher ends with SlowWatcher."""
        try:
            await self.budget.wait(self)
        except TimeoutError:
            self.end_overflowed()

    async def _wait_for_response(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class _WatcherGroup:
    """The live watchers of one selection, by send budget. `pending` contains the encoded events of the next response, and
    `size` is their size in bytes."""

    __slots__ = ("_recent", "_since", "pending", "selection", "size", "watchers")

    def __init__(self, selection: SelectionPredicate) -> None:
        self.selection = selection
        self.watchers: dict[SendBudget, dict[CacheWatcher, None]] = {}
        self.pending: list[bytes] = []
        self.size = 0
        self._since = 0.0
        self._recent = 0  # events sent since then

    def begin_batch_interval(self, now: float) -> None:
        self._since, self._recent = now, 0

    def is_flush_due(self, now: float) -> bool:
        if now - self._since >= BATCH_DELAY:
            self.begin_batch_interval(now)
        return self._recent < BURST or self.size >= MERGE_BYTES

    def send_pending(self, revision: int, fingerprint: bytes) -> None:
        """Send the pending events, which include all events up to `revision`. `fingerprint` is the fingerprint of
        `revision`."""
        encoded_response = EncodedResponse(
            wire.watch_response(self.pending, revision, fingerprint), revision, len(self.pending)
        )
        self._recent += encoded_response.events
        self.pending, self.size = [], 0
        sharing = list(self.watchers.items())
        for budget, watchers in sharing:
            shared = SharedResponse(encoded_response, budget, len(watchers))
            for watcher in list(watchers):
                watcher.enqueue_response(shared)
        for budget, _ in sharing:  # after all watchers have the response, because this call can end other watches
            budget.enforce_limit()


class WatchDispatcher:
    """The WatchHub of one resource. A watcher is added when it is created, and joins when it is live."""

    def __init__(self, fingerprints: HistoryFingerprints, clock: Clock) -> None:
        self._fingerprints = fingerprints
        self.delivered_events = 0
        """The number of events that watchers have read, counted once per watcher."""
        self._clock = clock
        self._watchers: dict[CacheWatcher, None] = {}
        self._announced: dict[CacheWatcher, None] = {}  # live watchers with `announced`
        self._groups: dict[SelectionPredicate, _WatcherGroup] = {}
        self._unindexed_groups: list[_WatcherGroup] = []
        self._by_node: dict[str, list[_WatcherGroup]] = {}
        self._pending_groups: list[_WatcherGroup] = []  # groups with pending events
        self._revision = 0  # the revision of the last flush
        self._parsing_groups = 0  # the number of groups that need parsed objects

    @property
    def has_pending_events(self) -> bool:
        """True if events are pending until the next `flush_all`."""
        return bool(self._pending_groups)

    def add_watcher(self, watcher: CacheWatcher) -> None:
        self._watchers[watcher] = None

    def start_watcher(self, watcher: CacheWatcher) -> None:
        selection = watcher.selection
        if (group := self._groups.get(selection)) is not None and group.pending:
            self.flush_all()  # the replay has already sent these events; watchers whose buffer is full end
            if watcher.ended:
                return
        if (group := self._groups.get(selection)) is None:
            group = self._groups[selection] = _WatcherGroup(selection)
            self._parsing_groups += selection.needs_object
            for groups in self._group_lists(selection):
                groups.append(group)
        group.watchers.setdefault(watcher.budget, {})[watcher] = None
        if watcher.announced:
            self._announced[watcher] = None

    def remove_watcher(self, watcher: CacheWatcher) -> None:
        self._watchers.pop(watcher, None)
        self._announced.pop(watcher, None)
        group = self._groups.get(watcher.selection)
        if group is None:
            return
        sharing = group.watchers.get(watcher.budget, {})
        sharing.pop(watcher, None)
        if not sharing:
            group.watchers.pop(watcher.budget, None)
        if not group.watchers:
            del self._groups[watcher.selection]
            self._parsing_groups -= watcher.selection.needs_object
            for groups in self._group_lists(watcher.selection):
                groups.remove(group)
            for node in watcher.selection.nodes or ():
                if not self._by_node[node]:
                    del self._by_node[node]

    def add_event(self, event: CacheEvent[Any]) -> None:
        """Add the event to the groups that select it. It is sent by a later `flush` or `flush_all`."""
        groups = self._unindexed_groups
        if self._by_node:
            groups = groups + self._matching_groups(event)
        if self._parsing_groups > 1 and event.new is not None:
            event.new.cache_object()
        encoded: dict[tuple[WatchEventType, bool], bytes] = {}
        for group in groups:
            kind = event.kind(group.selection)
            if kind is None:
                continue
            form = (kind, group.selection.shows_owners)
            payload = encoded.get(form)
            if payload is None:
                payload = encoded[form] = event.encode(*form)
            if not group.pending:
                self._pending_groups.append(group)
            group.pending.append(payload)
            group.size += len(payload)

    def flush(self, revision: int) -> None:
        """Send pending events to the groups that are due. All events up to `revision` must have been routed."""
        self._revision = revision
        if not self._pending_groups:
            return
        now, fingerprint, waiting = self._clock.monotonic(), self._fingerprint_at(revision), []
        for group in self._pending_groups:
            if group.is_flush_due(now):
                group.send_pending(revision, fingerprint)
            else:
                waiting.append(group)
        self._pending_groups = waiting

    def flush_all(self) -> None:
        """Send all pending events."""
        now, fingerprint = self._clock.monotonic(), self._fingerprint_at(self._revision)
        pending_groups, self._pending_groups = self._pending_groups, []
        for group in pending_groups:
            group.begin_batch_interval(now)
            group.send_pending(self._revision, fingerprint)

    def send_bookmarks(self, revision: int) -> None:
        """Send a bookmark at `revision` to the live watchers that received nothing since the last call."""
        self.flush_all()
        bookmark = self._encode_bookmark(revision)
        sharing = [watchers for group in self._groups.values() for watchers in group.watchers.values()]
        for watcher in [watcher for watchers in sharing for watcher in watchers]:
            if watcher.idle:
                watcher.enqueue_response(bookmark)
            else:
                watcher.idle = True

    def send_election_bookmarks(self, revision: int) -> None:
        """Send a bookmark at `revision` to the live watchers that request one after each election."""
        self.flush_all()
        bookmark = self._encode_bookmark(revision)
        for watcher in list(self._announced):
            watcher.enqueue_response(bookmark)

    def end_watches(self, error: Callable[[], CacheError]) -> None:
        """End all watchers, live or not, after their pending events. `error` creates the error of a watcher."""
        self.flush_all()
        for watcher in list(self._watchers):
            watcher.end(error())

    def _group_lists(self, selection: SelectionPredicate) -> list[list[_WatcherGroup]]:
        """Return the lists that contain the group of this selection."""
        if selection.nodes is None:
            return [self._unindexed_groups]
        return [self._by_node.setdefault(node, []) for node in selection.nodes]

    def _matching_groups(self, event: CacheEvent[Any]) -> list[_WatcherGroup]:
        """Return the groups that select the node of the object before or after the change, without duplicates."""
        before = self._by_node.get(event.old.node, []) if event.old is not None else []
        if event.new is None or (event.old is not None and event.old.node == event.new.node):
            return before
        after = self._by_node.get(event.new.node, [])
        return before + [group for group in after if group not in before]

    def _encode_bookmark(self, revision: int) -> SharedResponse:
        return uncharged_response(EncodedResponse(wire.watch_response((), revision, self._fingerprint_at(revision)), revision))

    def _fingerprint_at(self, revision: int) -> bytes:
        return self._fingerprints.fingerprint_at(revision) or b""
