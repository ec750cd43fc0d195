"""Streams from the API servers that several watches share.

Watches of one user with the same resource, namespace and selectors share a stream. Users do not share streams, so the API
server authorizes each user, and ends the stream of a user whose permission is revoked.

    watch at a revision --in the window of an open stream--> joins it
              '--otherwise--> opens a stream --its revision is in the window of another one--> its watches move there

The responses of a stream form a linked list, and each watch has a position in it. A stream is read when a watch waits.

    floor --> response --> response --> response (last)
      ^                       ^            ^
      slow watch              a watch      watches that wait

The window between floor and last response has about KEEP bytes, and up to LIMIT bytes if a watch has not sent them. A watch
that is further behind ends, and its client resumes at its resourceVersion. The other watches are not affected.

Frequent responses are passed on at intervals of PAUSE seconds for each watch, because each chunk needs CPU time for each watch.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pinnace.api.verbs_pb2 import WatchRequest
from pinnace.client.errors import ApiError, unavailable_error
from pinnace.gateway.backend import Backend, await_first_response
from pinnace.gateway.http import Request, User
from pinnace.gateway.metrics import UPSTREAM_WATCHES
from pinnace.gateway.watch_events import skip_through_revision
from pinnace.gateway.wire import last_bytes_field

OPENING = 0.1
"""Seconds within which an error is the status of the response."""
SILENCE = 15.0
"""Seconds without a response or bookmark after which the stream of an API server is closed."""
KEEP = 256 << 10
"""The size of the window in bytes, for clients that resume."""
LIMIT = 8 << 20
"""The size of the window in bytes at which slow watches end."""
TAKE = 256 << 10
"""The size in bytes of the responses that a watch receives at once."""
PAUSE, MAX_PAUSE = 0.0001, 0.01
"""Seconds between two wake-ups of the watches of a stream: PAUSE for each watch, but at most MAX_PAUSE."""
MAX_TIMEOUT = 24 * 3600.0
"""Seconds after which a watch ends in any case. The API server ends its stream earlier."""
MAX_DIGITS = 20
log = logging.getLogger(__name__)


class WatchSelection(NamedTuple):
    """The watches that can share a stream."""

    user: User
    service: str
    namespace: str
    labels: str
    fields: str


class _BufferedResponse:
    """A response of a stream, and the position of the watches that have received it."""

    __slots__ = ("data", "following", "lost", "original", "revision", "watches")

    def __init__(self, data: bytes, revision: int) -> None:
        """`revision`: 0 for a part of the initial state."""
        self.data = data
        self.revision = revision
        self.following: _BufferedResponse | None = None
        self.original: _BufferedResponse | None = None
        """The response after which the watches continue, if it is not this one."""
        self.lost = False
        """Whether the next response is no longer in the window."""
        self.watches = 0

    def position(self) -> "_BufferedResponse":
        response = self
        while response.original is not None:
            response = response.original
        return response


class _UpstreamWatch:
    """A stream from an API server with its window."""

    def __init__(self, selection: WatchSelection, stream: Any, since: int, leave: "Callable[[_UpstreamWatch], None]") -> None:
        """`since`: the revision at which the stream starts, or 0 if the API server chooses it. `leave` is called at the end."""
        self.selection = selection
        self.watches = 0
        self.ended = False
        self.error: ApiError | None = None
        self.successor: _UpstreamWatch | None = None
        """The stream to which the watches have moved."""
        self._stream = stream
        self._leave = leave
        self._floor = self._last = _BufferedResponse(b"", since)
        self._size = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._demand: asyncio.Future[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._woken = 0.0
        UPSTREAM_WATCHES.inc()

    @property
    def revision(self) -> int:
        return self._last.revision

    @property
    def last_response(self) -> _BufferedResponse:
        return self._last

    def has_revision(self, revision: int) -> bool:
        """Return whether a watch can start at a revision."""
        return not self.ended and 0 < self._floor.revision <= revision <= self._last.revision

    def position_at(self, revision: int) -> _BufferedResponse:
        """Return the position of a watch that starts at a revision in the window."""
        at = self._floor
        while at.following is not None and at.following.revision <= revision:
            at = at.following
        if at.revision == revision or at.following is None:
            return at
        start, rest = (
            _BufferedResponse(b"", revision),
            _BufferedResponse(skip_through_revision(at.following.data, revision), at.following.revision),
        )
        start.following, rest.original = rest, at.following
        return start

    def start(self, first: "asyncio.Future[Any]", advanced: "Callable[[_UpstreamWatch], None]") -> None:
        """Start to read. `advanced` is called after each response."""
        self._reading = asyncio.create_task(self._read(first, advanced))

    def move_watches_to(self, other: "_UpstreamWatch") -> None:
        """Move all watches to another stream, whose window has the revision of the last response."""
        self._last.original = other.position_at(self._last.revision)
        self.successor = other
        other.watches += self.watches
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether the stream was closed after its last watch has left."""
        return self.ended and self.error is None and self.successor is None

    def close(self) -> None:
        if not self.ended:
            self._end_stream(None)
            if self._reading is not None:
                self._reading.cancel()

    def close_unused(self) -> None:
        if not self.watches:
            self.close()

    def wait_for_response(self) -> "asyncio.Future[None]":
        """Return a future that is done after the next response, or at the end."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if self._demand is not None and not self._demand.done():
            self._demand.set_result(None)
        return waiter

    async def _read(self, first: "asyncio.Future[Any]", advanced: "Callable[[_UpstreamWatch], None]") -> None:
        try:
            answer = await first
            while answer is not None:
                self._append_response(answer.data)
                advanced(self)
                if not self._waiting:
                    self._demand = asyncio.get_running_loop().create_future()
                    await self._demand
                answer = await self._stream.read(SILENCE)
            self._end_stream(None)
        except ApiError as error:
            self._end_stream(error)
        except Exception:
            log.exception("the watch of %s failed", self.selection.service)
            self._end_stream(unavailable_error("the response of the API server cannot be read"))

    def _append_response(self, data: bytes) -> None:
        version = last_bytes_field(data, 2)
        response = _BufferedResponse(data, int(version) if version else 0)
        self._last.following = response
        self._last = response
        self._size += len(data)
        if response.revision and not self._floor.revision:  # a watch cannot start before the end of the initial state
            self._floor, self._size = response, 0
        while self._size > KEEP and (oldest := self._floor.following) is not None:
            if (self._floor.watches or not self.watches) and self._size <= LIMIT:
                break  # without watches, the one that opened the stream has not joined yet
            self._size -= len(oldest.data)
            self._floor.following, self._floor.lost = None, True
            self._floor = oldest
        self._schedule_wake()

    def _schedule_wake(self) -> None:
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        due = self._woken + min(MAX_PAUSE, PAUSE * self.watches)
        if loop.time() >= due:
            self._wake_waiters()
        else:
            self._timer = loop.call_at(due, self._wake_waiters)

    def _wake_waiters(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._woken = asyncio.get_running_loop().time()
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _end_stream(self, error: ApiError | None) -> None:
        if self.ended:
            return
        self.ended, self.error = True, error
        self._stream.cancel()
        UPSTREAM_WATCHES.dec()
        self._leave(self)
        self._wake_waiters()


class SharedWatch:
    """The position of one watch. The caller must call `close`."""

    def __init__(self, upstream: _UpstreamWatch, at: _BufferedResponse, timeout: float) -> None:
        """`timeout`: in seconds; 0 for none."""
        self._upstream = upstream
        self._current_upstream().watches += 1
        self._at = at
        at.watches += 1
        self._closed = self._timed_out = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        if timeout > 0:
            self._timer = asyncio.get_running_loop().call_later(min(timeout, MAX_TIMEOUT), self._time_out)

    async def next(self) -> Sequence[bytes]:
        """Return the next responses, or () at the end. Raises ApiError: Unavailable if the watch is too slow."""
        while not (taken := self._take_responses()):
            upstream = self._current_upstream()
            if self._at.lost:
                raise unavailable_error("the client reads too slowly")
            if self._closed or self._timed_out:
                return ()
            if upstream.ended:
                if upstream.error is not None:
                    raise upstream.error
                return ()
            self._waiter = upstream.wait_for_response()
            await self._waiter
        return taken

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._at.watches -= 1
        upstream = self._current_upstream()
        upstream.watches -= 1
        if not upstream.watches:
            upstream.close()

    def _take_responses(self) -> list[bytes]:
        taken, size, at = list[bytes](), 0, self._at.position()
        while at.following is not None and size < TAKE:
            response = at.following
            taken.append(response.data)
            size += len(response.data)
            at = response.position()
        if at is not self._at:
            self._at.watches -= 1
            self._at = at
            at.watches += 1
        return taken

    def _current_upstream(self) -> _UpstreamWatch:
        while (successor := self._upstream.successor) is not None:
            self._upstream = successor
        return self._upstream

    def _time_out(self) -> None:
        self._timed_out = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _OpeningStream:
    """A stream that is being opened, and the number of watches that wait for it."""

    def __init__(self, task: "asyncio.Task[_StartedStream]") -> None:
        self.task = task
        self.waiting = 0


class _StartedStream(NamedTuple):
    upstream: _UpstreamWatch
    at: _BufferedResponse
    """The position before the first response."""


class SharedWatches:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._open: dict[WatchSelection, list[_UpstreamWatch]] = {}
        """The streams whose windows have a revision."""
        self._opening: dict[tuple[WatchSelection, int], _OpeningStream] = {}

    async def watch(self, request: Request, service: str, message: WatchRequest) -> SharedWatch:
        """Start a watch of the user. Raises ApiError."""
        options = message.options
        selection = WatchSelection(request.user, service, message.namespace, options.labelSelector, options.fieldSelector)
        timeout, options.timeoutSeconds = float(options.timeoutSeconds), 0
        chosen = options.HasField("sendInitialEvents") or options.resourceVersionMatch
        since = 0 if chosen else _parse_start_revision(options.resourceVersion)
        if not since:
            return SharedWatch(*await self._start(request, selection, message, 0), timeout)
        while True:
            for upstream in self._open.get(selection, ()):
                if upstream.has_revision(since):
                    return SharedWatch(upstream, upstream.position_at(since), timeout)
            started = await self._join_or_start(request, selection, message, since)
            if not started.upstream.is_closed:  # by another watch, which has already left
                return SharedWatch(*started, timeout)

    async def _join_or_start(
        self, request: Request, selection: WatchSelection, message: WatchRequest, since: int
    ) -> _StartedStream:
        """Open a stream, or wait until another watch has opened it. Raises ApiError."""
        key = selection, since
        if (result := self._opening.get(key)) is None:
            result = self._opening[key] = _OpeningStream(asyncio.create_task(self._start(request, selection, message, since)))
            result.task.add_done_callback(lambda _: self._opening.pop(key))
        result.waiting += 1
        try:
            return await asyncio.shield(result.task)
        except asyncio.CancelledError:
            if result.waiting == 1 and not result.task.cancel() and not result.task.cancelled() and not result.task.exception():
                result.task.result().upstream.close_unused()
            raise
        finally:
            result.waiting -= 1

    async def _start(self, request: Request, selection: WatchSelection, message: WatchRequest, since: int) -> _StartedStream:
        stream = await self._backend.stream(request, f"/{selection.service}/Watch", message)
        first = await await_first_response(stream, OPENING, SILENCE)
        upstream = _UpstreamWatch(selection, stream, since, self._remove)
        if since:
            self._open.setdefault(selection, []).append(upstream)
        upstream.start(first, self._share_if_same_revision)
        return _StartedStream(upstream, upstream.last_response)

    def _share_if_same_revision(self, upstream: _UpstreamWatch) -> None:
        """Move the watches of a stream to another one with the same events, if there is one."""
        if not upstream.revision or upstream.ended:
            return
        others = self._open.setdefault(upstream.selection, [])
        for other in others:
            if other is not upstream and other.has_revision(upstream.revision):
                upstream.move_watches_to(other)
                return
        if upstream not in others:
            others.append(upstream)

    def _remove(self, upstream: _UpstreamWatch) -> None:
        others = self._open.get(upstream.selection, [])
        if upstream in others:
            others.remove(upstream)
        if not others:
            self._open.pop(upstream.selection, None)


def _parse_start_revision(version: str) -> int:
    """Return the revision at which a watch starts; 0 if the API server chooses it or rejects the version."""
    return int(version) if version.isascii() and version.isdigit() and len(version) < MAX_DIGITS else 0
