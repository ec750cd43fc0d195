"""Record events about objects.

    event() --> pending, equal events are counted --every FLUSH_INTERVAL, or at FLUSH_SIZE events--> Events.Record

Events with the same object, type, reason and message are merged into one event with a count. Events that differ only in their
messages are similar. From the MANY-th message on, similar events are combined into one event with a count and the latest
message, which limits the number of events of an object. `event` never blocks and never raises. Events that do not fit or cannot
be sent are dropped and counted (metric `pinnace_client_events_dropped_total`).

Source for similar events: tools/record/events_cache.go of client-go
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import Counter

from pinnace.api.core_v1_pb2 import Event
from pinnace.api.resources import ALL, DEFAULT_NAMESPACE, Object
from pinnace.api.scalars import to_micro_time
from pinnace.client.client import EventClient
from pinnace.client.errors import ApiError, OutcomeUnknown, Unavailable
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

FLUSH_INTERVAL = 0.5
FLUSH_SIZE = 500
"""The maximum number of events in a request. If as many events are pending, they are sent immediately."""
MAX_PENDING = 10_000
"""The maximum number of different pending events."""
MAX_NAME = 236
"""The maximum length of the object's name in the event's name. With a dot and the hash, an event's name has at most 253
characters."""
MAX_MESSAGE = 1024
"""The maximum length of a message that the API server accepts, in bytes."""
_CUT = " ..."
MANY = 10
"""The number of different messages from which similar events are combined. Kubernetes uses the same value."""
SIMILAR_FOR = 600.0
"""Seconds after its latest event for which a group of similar events is kept."""
MAX_SIMILAR = 4096
"""The maximum number of groups (object, type and reason). The least recently used group is dropped."""
COMBINED = "(combined from similar events): "
_API_VERSIONS = {resource.kind: resource.api_version for resource in ALL}
DROPPED = Counter("pinnace_client_events_dropped", "Events that were not recorded, by reason.", ["reason"])


class EventKey(NamedTuple):
    """The identity of an event. Events with the same identity are merged."""

    component: str
    kind: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class EventTally:
    """The occurrences of an event. Times are Unix time. `message`: the latest message."""

    count: int
    first: float
    last: float
    message: str


class SimilarEvents:
    """The different messages of similar events."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, ...], tuple[float, tuple[int, ...]]] = OrderedDict()
        """By identity without the message: the Unix time of the latest event, and the hashes of its messages."""

    def should_combine(self, alike: EventKey, now: float) -> bool:
        """Return whether to combine this event with similar events."""
        group, message = alike[:-1], hash(alike.message)
        last, messages = self._seen.get(group, (now, ()))
        if now - last > SIMILAR_FOR:
            messages = ()
        many = False
        if message not in messages:
            many = len(messages) + 1 >= MANY
            messages = messages if many else (*messages, message)
        self._seen[group] = now, messages
        self._seen.move_to_end(group)
        if len(self._seen) > MAX_SIMILAR:
            self._seen.popitem(last=False)
        return many


class EventRecorder:
    """Records events in batches. `component` and `instance` name the reporter, for example "default-scheduler" and its replica.
    In a process with several reporters, `for_component` returns a recorder for each."""

    def __init__(self, client: EventClient, component: str, instance: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._instance = instance
        self._similar = SimilarEvents()
        self._pending: dict[EventKey, EventTally] = {}
        self._full = asyncio.Event()

    def event(self, obj: Object, type_: str, reason: str, message: str) -> None:
        """Record an event. `type_`: Normal or Warning. `reason`: one word in CamelCase. `message`: a sentence without values
        that differ each time. Messages longer than MAX_MESSAGE are truncated."""
        self.report(self._component, obj, type_, reason, message)

    def for_component(self, component: str) -> "Reporter":
        """Return a reporter for another component. It shares the queue of this recorder."""
        return Reporter(self, component)

    def report(self, component: str, obj: Object, type_: str, reason: str, message: str) -> None:
        metadata = obj.metadata
        kind = type(obj).__name__
        message, now = _truncate_message(message), self._clock.time()
        alike = EventKey(component, kind, metadata.namespace, metadata.name, metadata.uid, type_, reason, message)
        if self._similar.should_combine(alike, now):
            alike, message = alike._replace(message=COMBINED), _truncate_message(COMBINED + message)
        self._count(alike, EventTally(1, now, now, message))

    async def run(self) -> None:
        """Send events until cancelled."""
        while True:
            try:
                async with asyncio.timeout(FLUSH_INTERVAL):
                    await self._full.wait()
            except TimeoutError:
                pass
            await self.flush()

    async def flush(self) -> None:
        """Send the pending events."""
        pending, self._pending = self._pending, {}
        self._full.clear()
        items = list(pending.items())
        for start in range(0, len(items), FLUSH_SIZE):
            await self._send(items[start : start + FLUSH_SIZE])

    async def _send(self, items: list[tuple[EventKey, EventTally]]) -> None:
        try:
            outcomes = await self._client.record([self._build_event(alike, tally) for alike, tally in items])
        except OutcomeUnknown as error:
            self._drop(len(items), "OutcomeUnknown", error)
        except Unavailable as error:
            log.warning("unable to record events: %s", error)
            for alike, tally in items:
                self._count(alike, tally)
        except ApiError as error:
            self._drop(len(items), error.reason or type(error).__name__, error)
        else:
            refused = [outcome.error.message for outcome in outcomes if outcome.HasField("error")]
            if refused:
                self._drop(len(refused), "Refused", refused[0])

    def _count(self, alike: EventKey, tally: EventTally) -> None:
        known = self._pending.get(alike)
        if known is not None:
            known.count += tally.count
            known.first = min(known.first, tally.first)
            if tally.last >= known.last:
                known.last, known.message = tally.last, tally.message
        elif len(self._pending) >= MAX_PENDING:
            DROPPED.labels("Full").inc(tally.count)
        else:
            self._pending[alike] = tally
            if len(self._pending) >= FLUSH_SIZE:
                self._full.set()

    def _drop(self, count: int, reason: str, error: object) -> None:
        DROPPED.labels(reason).inc(count)
        log.warning("dropped %d events: %s", count, error)

    def _build_event(self, alike: EventKey, tally: EventTally) -> Event:
        event = Event(reportingComponent=alike.component, reportingInstance=self._instance)
        event.source.component, event.source.host = alike.component, self._instance
        event.reason, event.message, event.type, event.count = alike.reason, tally.message, alike.type, tally.count
        event.action = alike.reason  # required with an eventTime
        event.firstTimestamp.seconds, event.lastTimestamp.seconds = int(tally.first), int(tally.last)
        event.eventTime.CopyFrom(to_micro_time(tally.first))
        metadata, involved = event.metadata, event.involvedObject
        metadata.namespace = alike.namespace or DEFAULT_NAMESPACE
        metadata.name = event_name(alike.name, alike)
        involved.kind, involved.namespace, involved.name, involved.uid = alike.kind, alike.namespace, alike.name, alike.uid
        involved.apiVersion = _API_VERSIONS[alike.kind]
        return event


@dataclass(frozen=True, slots=True)
class Reporter:
    """A recorder for one of several components of a process."""

    recorder: EventRecorder
    component: str

    def event(self, obj: Object, type_: str, reason: str, message: str) -> None:
        """See EventRecorder.event."""
        self.recorder.report(self.component, obj, type_, reason, message)


def _truncate_message(message: str) -> str:
    data = message.encode()
    return message if len(data) <= MAX_MESSAGE else data[: MAX_MESSAGE - len(_CUT)].decode(errors="ignore") + _CUT


def event_name(name: str, identity: Iterable[str]) -> str:
    """Return the event's name. It is the same for equal events of any reporter, so a restarted reporter continues the count."""
    digest = hashlib.blake2b("\0".join(identity).encode(), digest_size=8)
    return f"{name[:MAX_NAME].rstrip('-.')}.{digest.hexdigest()}"
