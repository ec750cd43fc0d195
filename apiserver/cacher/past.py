"""What a watcher is told before it is live: the initial state, then the events of the ring up to now, in bounded chunks.

A generator that is taken further at the reader's pace. Between two steps the cache goes on, so each looks at the ring anew; it
is exhausted when there is nothing after its position, and whoever takes that step must join the live watchers at once.

A step also ends when its time is over, with what it has found. But the events of one revision are told together: in the middle
of one it tells b"", goes on there with the next step, and keeps the references to these events (a chunk's at most) until then.

The parts of the initial state carry no resourceVersion but the last: a reader that loses the stream half-way has no state to
resume from.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from apiserver.cacher.errors import Expired
from apiserver.cacher.event import Event
from apiserver.cacher.marks import Marks
from apiserver.cacher.outbox import Told
from apiserver.cacher.progress import Progress
from apiserver.cacher.ring import Ring
from apiserver.cacher.selection import Selection
from apiserver.cacher.snapshots import Snapshot
from pinnace.api import wire
from pinnace.api.resources import Object
from pinnace.api.verbs_pb2 import ADDED, WatchEventType

T = TypeVar("T", bound=Object)
CHUNK_EVENTS = 500
CHUNK_BYTES = 512 << 10
"""A chunk ends with the event that reaches this."""
BURST = 50
"""Questions of a selection (`Selection.questions`) that are asked before the clock is looked at: 10 us."""
Over = Callable[[], bool]
"""Has the time of a step passed?"""


def initial_state(selection: Selection, snapshot: Snapshot[T], revision: int, marks: Marks, over: Over) -> Iterator[Told]:
    """The state at `revision`, which is that of now, as ADDED events. The entries are asked whether they match only when their
    turn comes. Raises Expired when the snapshot is let go meanwhile."""
    chunk: list[bytes] = []
    mark = marks.at(revision) or b""
    size = asked = 0
    burst = _burst(selection)
    for entry in snapshot.entries:
        asked += 1
        if selection.matches(entry):
            chunk.append(wire.watch_event(ADDED, entry.stamped))
            size += len(chunk[-1])
        if asked >= CHUNK_EVENTS or size >= CHUNK_BYTES or (asked % burst == 0 and over()):
            yield Told(b"".join(chunk), 0, len(chunk))
            chunk, size, asked = [], 0, 0
    snapshot.check()
    del snapshot  # the reader may take its time with the last part
    yield Told(wire.watch_response(chunk, revision, mark), revision, len(chunk))


def replay(
    selection: Selection, ring: Ring[Event[T]], since: int, progress: Progress, marks: Marks, over: Over
) -> Iterator[Told]:
    """The events after `since`. Raises Expired when the ring has moved on since the last step."""
    position = since
    burst = _burst(selection)
    while position < progress.revision:
        if position < ring.floor:
            raise Expired(ring.floor)
        found: list[tuple[Event[T], WatchEventType]] = []
        events = ring.after(position, CHUNK_EVENTS, CHUNK_BYTES)
        reached = position if events else progress.revision
        for number, event in enumerate(events):
            if number and number % burst == 0 and over():
                if event.revision > reached:
                    break
                yield Told(b"", position)
            if (kind := event.kind(selection)) is not None:
                found.append((event, kind))
            reached = event.revision
        told = [event.encode(kind) for event, kind in found]
        position = reached
        last = position >= progress.revision  # the reader is told how far it is, even if nothing concerned it
        response = wire.watch_response(told, position, marks.at(position) or b"") if told or last else b""
        yield Told(response, position, len(told))


def _burst(selection: Selection) -> int:
    """Events that are asked between two looks at the clock."""
    return max(1, BURST // selection.questions)
