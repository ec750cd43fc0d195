"""What one watcher has still to send: a bounded queue of encoded responses.

Responses are shared by all watchers with the same selection, so a queue costs references, until the others have sent theirs.
So those of one flow are charged for a response once, until the last of them has let it go. Several that wait are sent as one:
encoded WatchResponses that are concatenated are one WatchResponse (see pinnace.api.wire).
"""

from collections import deque
from typing import NamedTuple

from apiserver.flow.account import Account, Room

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
    """What so many watchers of one flow are told. Each of them lets it go once."""

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
    """That nobody is charged for."""
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
        """Drops what waits."""
        for parcel in self._waiting:
            parcel.let_go()
        self._waiting.clear()
        self.bytes = 0
