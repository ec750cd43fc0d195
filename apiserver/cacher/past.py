"""What a watcher is told before it is live: the initial state, then the events of the ring up to now, in bounded chunks.

A generator that is taken further at the reader's pace. Between two steps the cache goes on, so each looks at the ring anew; it
is exhausted when there is nothing after its position, and whoever takes that step must join the live watchers at once.

The parts of the initial state carry no resourceVersion but the last: a reader that loses the stream half-way has no state to
resume from.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from apiserver.cacher.entry import Entry
from apiserver.cacher.errors import Expired
from apiserver.cacher.event import Event
from apiserver.cacher.marks import Marks
from apiserver.cacher.outbox import Told
from apiserver.cacher.progress import Progress
from apiserver.cacher.ring import Ring
from apiserver.cacher.selection import Selection
from pinnace.api import wire
from pinnace.api.resources import Object
from pinnace.api.verbs_pb2 import ADDED

T = TypeVar("T", bound=Object)
CHUNK_EVENTS = 500
CHUNK_BYTES = 512 << 10
"""A chunk ends with the event that reaches this."""


def initial_state(selection: Selection, candidates: Sequence[Entry[T]], revision: int, marks: Marks) -> Iterator[Told]:
    """The state at `revision`, which is that of now, as ADDED events. `candidates` are asked whether they match only when their
    turn comes."""
    chunk: list[bytes] = []
    mark = marks.at(revision) or b""
    size = asked = 0
    for entry in candidates:
        asked += 1
        if selection.matches(entry):
            chunk.append(wire.watch_event(ADDED, entry.stamped))
            size += len(chunk[-1])
        if asked >= CHUNK_EVENTS or size >= CHUNK_BYTES:
            yield Told(b"".join(chunk), 0, len(chunk))
            chunk, size, asked = [], 0, 0
    yield Told(wire.watch_response(chunk, revision, mark), revision, len(chunk))


def replay(selection: Selection, ring: Ring[Event[T]], since: int, progress: Progress, marks: Marks) -> Iterator[Told]:
    """The events after `since`. Raises Expired when the ring has moved on since the last step."""
    position = since
    while position < progress.revision:
        if position < ring.floor:
            raise Expired(ring.floor)
        events = ring.after(position, CHUNK_EVENTS, CHUNK_BYTES)
        told = [event.encode(kind) for event in events if (kind := event.kind(selection)) is not None]
        position = events[-1].revision if events else progress.revision
        last = position >= progress.revision  # the reader is told how far it is, even if nothing concerned it
        response = wire.watch_response(told, position, marks.at(position) or b"") if told or last else b""
        yield Told(response, position, len(told))
