"""Events in a table, oldest first: what happened last stands where one looks first, at the end."""

from pinnace.api.core_v1_pb2 import Event
from pinnace.api.meta_v1_pb2 import MicroTime, Time
from pinnace.api.resources import by_kind
from pinnace.api.times import to_seconds
from pinnace.printers.ages import is_set, since
from pinnace.printers.columns import NONE, Columns


def first_seen(event: Event) -> Time | MicroTime:
    return event.firstTimestamp if is_set(event.firstTimestamp) else event.eventTime


def last_seen(event: Event) -> Time | MicroTime:
    for instant in (event.series.lastObservedTime, event.lastTimestamp):
        if is_set(instant):
            return instant
    return first_seen(event)


def count(event: Event) -> int:
    return event.series.count or event.count or 1


def when(event: Event) -> tuple[float, int]:
    """Sort key: the last occurrence, in Unix time, as exactly as it is known; of the same instant, what was stored first."""
    last = to_seconds(last_seen(event))
    exact = to_seconds(event.eventTime)  # lastTimestamp has whole seconds; eventTime is of the first occurrence
    revision = event.metadata.resourceVersion
    return exact if int(exact) == last else last, int(revision) if revision.isdecimal() else 0


def target(event: Event) -> str:
    """ "pod/a": what the event is about, as one would type it."""
    about = event.involvedObject
    resource = by_kind(about.kind, about.apiVersion or "v1")
    return f"{resource.kind.lower() if resource else about.kind.lower()}/{about.name}"


def reporter(event: Event) -> str:
    component = event.reportingComponent or event.source.component
    instance = event.reportingInstance or event.source.host
    return f"{component}, {instance}" if component and instance else component or instance or NONE


def occurrences(event: Event, now: float) -> str:
    """ "5s", or "5s (x3 over 10m)" for an event that came more than once."""
    last, times = since(last_seen(event), now), count(event)
    return last if times == 1 else f"{last} (x{times} over {since(first_seen(event), now)})"


def row(event: Event, now: float) -> tuple[str, ...]:
    return (
        occurrences(event, now),
        event.type,
        event.reason,
        target(event),
        event.message.strip(),
        reporter(event),
        since(first_seen(event), now),
        str(count(event)),
        event.metadata.name,
    )


COLUMNS = Columns(
    headers=("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"),
    wide=("SOURCE", "FIRST SEEN", "COUNT", "NAME"),
    row=row,
    order=when,
)
