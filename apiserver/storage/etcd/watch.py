"""One watch stream: whole revisions in order, or an error that says why it ended.

    create --> created --> events* --> canceled (compacted) --> Compacted
                  |           |    --> canceled (other)     --> Unavailable
                  +-- silence: ask for progress; still silent --> Unavailable
                  +-- a gap, or no events although the store is ahead --> Unavailable

What is relied on, and what is not:

* A response that is not a fragment holds whole revisions (etcd's eventBatch). Fragments of one response are split between any
  two events; so the last revision of a fragment is held back until it is known to be complete.
* The revision of a response's header may be ahead of its events while the watch catches up. A batch is good up to its last
  event's revision, not up to the header's.
* The answer to a manual progress request (watch id -1) may overtake events (etcd#15220, until 3.4.25 and 3.5.8). It is a sign
  of life and no promise; but the events up to the revision that it says must follow soon.
* Every revision changes some key, so a watch of all keys sees each. A revision that is left out is a loss (etcd#17529): the
  watch ends before anything after it is told.
* The deletes of exactly the compacted revision may be lost to a watch that starts there (etcd#18089, #19179). The stream is
  opened one revision earlier than asked and the surplus dropped, so that etcd refuses with "compacted" where it might lie.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
from aetcd.rpc import WatchCreateRequest, WatchProgressRequest, WatchRequest

from apiserver.storage.etcd.codec import ALL_KEYS, decode_event
from apiserver.storage.etcd.errors import describe
from apiserver.storage.etcd.members import REQUIRE_LEADER, Member
from apiserver.storage.etcd.streams import send
from apiserver.storage.interface import Change, Changes, Compacted, Unavailable
from pinnace.runtime.tasks import CallCancelled, HeedsCancellation

PROBE_INTERVAL = 1.0
"""Seconds of silence after which progress is asked for, again and again."""
SILENCE_LIMIT = 4.0
"""Seconds of silence after which the stream counts as dead."""
_PROBE = WatchRequest(progress_request=WatchProgressRequest())


FIRST_REVISION = 1
"""Of a new store: it holds nothing, and no event tells of it."""


class Assembler:
    """Puts fragments together to whole revisions, one after another. Pure. `revision`: everything up to here has come out."""

    def __init__(self, start_revision: int) -> None:
        self.revision = max(start_revision - 1, FIRST_REVISION)
        self._held: list[Change] = []

    def add(self, response: Any) -> list[Change]:
        """The changes that are complete now. Raises Unavailable when some were left out before them."""
        changes = self._held
        changes.extend(map(decode_event, response.events))
        self._held = []
        if response.fragment and changes:
            whole = len(changes) - 1
            while whole and changes[whole - 1].mod_revision == changes[-1].mod_revision:
                whole -= 1
            changes, self._held = changes[:whole], changes[whole:]
        if changes and changes[0].mod_revision <= self.revision:
            changes = [change for change in changes if change.mod_revision > self.revision]
        if changes:
            _refuse_gap(self.revision, changes)
            self.revision = changes[-1].mod_revision
        return changes


class Stall:
    """Whether a watch that is alive still tells anything. Pure; times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: float | None = None

    def look(self, response: Any, told: int, now: float) -> None:
        """`told`: the revision up to which the watch has come. Raises Unavailable when it has been behind the store, without an
        event, for too long."""
        if response.events or response.header.revision <= told:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= SILENCE_LIMIT:
            store = response.header.revision
            raise Unavailable(f"the watch shows nothing after revision {told}, although the store is at revision {store}")


async def watch(member: Member, start_revision: int) -> AsyncGenerator[Changes]:
    """All keys from `start_revision` on. Raises Compacted and Unavailable; always cancels its call when closed."""
    assembler, stall = Assembler(start_revision), Stall()
    loop = asyncio.get_running_loop()
    call = member.watch.Watch(metadata=REQUIRE_LEADER)
    try:
        await _write(call, WatchRequest(create_request=_everything_from(max(1, start_revision - 1))))
        while True:
            response = await _read(call)
            if response.canceled:
                raise _why_canceled(response)
            changes = assembler.add(response)
            stall.look(response, assembler.revision, loop.time())
            if changes or not response.events:
                yield Changes(assembler.revision, changes)
    except grpc.aio.AioRpcError as error:
        raise Unavailable(f"watch on {member.endpoint} broke: {describe(error)}") from None
    finally:
        call.cancel()


async def oldest_revision(member: Member, timeout: float) -> int | None:
    """The revision etcd was compacted at, which only a watch from before it tells. None: it does not say in time."""
    call = member.watch.Watch(metadata=REQUIRE_LEADER, timeout=timeout)
    try:
        await send(call, WatchRequest(create_request=_everything_from(1)))
        with HeedsCancellation():
            async for response in call:
                if response.canceled:
                    return int(response.compact_revision) or None
    except (grpc.aio.AioRpcError, CallCancelled):
        pass
    finally:
        call.cancel()
    return None


async def _read(call: Any) -> Any:
    """The next response. Raises Unavailable when there is silence although progress was asked for."""
    reading = asyncio.ensure_future(call.read())
    try:
        for _ in range(int(SILENCE_LIMIT / PROBE_INTERVAL)):
            await asyncio.wait((reading,), timeout=PROBE_INTERVAL)
            if reading.done():
                if reading.cancelled():  # a channel that is closed cancels its calls
                    raise Unavailable("the connection of the watch was closed")
                response = reading.result()
                if response is grpc.aio.EOF:
                    raise Unavailable("etcd ended the watch")
                return response
            await _write(call, _PROBE)
        raise Unavailable(f"watch silent for {SILENCE_LIMIT:g} s")
    finally:
        reading.cancel()


async def _write(call: Any, request: WatchRequest) -> None:
    try:
        # Not wait_for: until Python 3.12 it swallows a cancellation that comes as the write ends.
        async with asyncio.timeout(SILENCE_LIMIT):
            with HeedsCancellation():
                await call.write(request)
    except TimeoutError:
        raise Unavailable(f"watch took no request for {SILENCE_LIMIT:g} s") from None
    except (asyncio.InvalidStateError, CallCancelled):
        pass  # the call has ended; reading raises the reason


def _refuse_gap(told: int, changes: list[Change]) -> None:
    for change in changes:
        if change.mod_revision > told + 1:
            raise Unavailable(f"etcd left out the events of revisions {told + 1} to {change.mod_revision - 1}")
        told = change.mod_revision


def _everything_from(revision: int) -> WatchCreateRequest:
    return WatchCreateRequest(key=ALL_KEYS, range_end=ALL_KEYS, start_revision=revision, progress_notify=True, fragment=True)


def _why_canceled(response: Any) -> Compacted | Unavailable:
    if response.compact_revision:
        return Compacted(response.compact_revision)
    return Unavailable(f"etcd canceled the watch: {response.cancel_reason or 'it gave no reason'}")
