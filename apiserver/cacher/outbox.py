"""What one watcher has still to send: a bounded queue of encoded responses.

Responses are shared by all watchers with the same selection, so a queue costs references, until the others have sent theirs.
Several that wait are sent as one: encoded WatchResponses that are concatenated are one WatchResponse (see pinnace.api.wire).
"""

from collections import deque
from typing import NamedTuple

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


class Outbox:
    """First in, first out."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_responses: int = MAX_RESPONSES) -> None:
        self._max_bytes = max_bytes
        self._max_responses = max_responses
        self._waiting: deque[Told] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, told: Told) -> bool:
        """False: there is no room, and what waited is dropped too, for the reader will resume."""
        if self._bytes + len(told.response) > self._max_bytes or len(self._waiting) >= self._max_responses:
            self._waiting.clear()
            self._bytes = 0
            return False
        self._waiting.append(told)
        self._bytes += len(told.response)
        return True

    def take(self) -> Told:
        """Everything that waits, as far as it goes into one response. Not to be called when nothing does."""
        waiting = self._waiting
        first = waiting.popleft()
        parts, size, revision, events = [first.response], len(first.response), first.revision, first.events
        while waiting and size + len(waiting[0].response) <= MERGE_BYTES:
            response, revision, more = waiting.popleft()
            events += more
            parts.append(response)
            size += len(response)
        self._bytes -= size
        return Told(first.response if len(parts) == 1 else b"".join(parts), revision, events)
