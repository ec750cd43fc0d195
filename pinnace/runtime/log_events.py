"""Structured log events: what happened, as a name and typed fields, beside the sentence for people.

    log.warning("token %d is fenced: another leader has been elected", token, extra=TokenFenced(token).extra)

With `--logging-format json` the line has them as `"event": "token.fenced", "fields": {"token": 7}`; the text format shows the
sentence only. Programs read events: chaos, benchmarks and tests never match a sentence, so that rewording one breaks nothing.

Names and fields are an interface, as metrics are: a field may be added, none is renamed.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar


@dataclass(frozen=True)
class LogEvent:
    """The base of all. The docstring of a subclass is its meaning in docs/observability.md."""

    name: ClassVar[str]

    @property
    def extra(self) -> dict[str, object]:
        """The `extra` of a log call."""
        return {"log_event": self}


E = TypeVar("E", bound=LogEvent)


@dataclass(frozen=True)
class LeadershipAcquired(LogEvent):
    """The candidate leads, with this fencing token."""

    name: ClassVar[str] = "leadership.acquired"
    election: str
    token: int


@dataclass(frozen=True)
class LeadershipLost(LogEvent):
    """The candidate does not lead any more; `reason` is a sentence."""

    name: ClassVar[str] = "leadership.lost"
    election: str
    token: int
    reason: str


@dataclass(frozen=True)
class LeadershipAbandoned(LogEvent):
    """The leader resigns because its work does not go on; `reason` is a sentence."""

    name: ClassVar[str] = "leadership.abandoned"
    election: str
    reason: str


@dataclass(frozen=True)
class TokenFenced(LogEvent):
    """A write of the leader was refused because another leader has been elected."""

    name: ClassVar[str] = "token.fenced"
    token: int


@dataclass(frozen=True)
class NodesTakenOver(LogEvent):
    """The API server reports that the session of another fleet has taken over `count` nodes of this one."""

    name: ClassVar[str] = "nodes.taken_over"
    holder: str
    count: int


@dataclass(frozen=True)
class NodesYielded(LogEvent):
    """The fleet stops `count` nodes that another holder has taken over."""

    name: ClassVar[str] = "nodes.yielded"
    holder: str
    count: int


@dataclass(frozen=True)
class NodesReclaimed(LogEvent):
    """The fleet runs `count` nodes again because their other holder has left."""

    name: ClassVar[str] = "nodes.reclaimed"
    count: int


@dataclass(frozen=True)
class NodesDropped(LogEvent):
    """The fleet stops `count` nodes whose Node objects are gone."""

    name: ClassVar[str] = "nodes.dropped"
    count: int


@dataclass(frozen=True)
class ComponentRestarted(LogEvent):
    """The component starts again within its process, such as after a restore of etcd; `reason` is a sentence."""

    name: ClassVar[str] = "component.restarted"
    reason: str


@dataclass(frozen=True)
class StoreRestored(LogEvent):
    """The watch cache found at revision `revision` that etcd has another history than it applied: etcd was restored."""

    name: ClassVar[str] = "store.restored"
    revision: int


@dataclass(frozen=True)
class PluginFailed(LogEvent):
    """A scheduler plugin raised, or did not return in time; `error` is the type of the exception, `pod` may be empty."""

    name: ClassVar[str] = "plugin.failed"
    plugin: str
    point: str
    error: str
    pod: str = ""


@dataclass(frozen=True)
class StateDumped(LogEvent):
    """The scheduler wrote its `queue` or `cache` to the log, as SIGUSR2 asks; `state` is what it holds."""

    name: ClassVar[str] = "state.dumped"
    part: str
    state: Mapping[str, Any]


@dataclass(frozen=True)
class ProcessFailed(LogEvent):
    """The process ends because of an error, whose type this is; `expected`: the environment is at fault, not the program."""

    name: ClassVar[str] = "process.failed"
    error: str
    expected: bool


@dataclass(frozen=True)
class PluginSlow(LogEvent):
    """A scheduler plugin has not answered for `pods` pods, for `seconds` at most."""

    name: ClassVar[str] = "plugin.slow"
    plugin: str
    point: str
    pods: int
    seconds: float


@dataclass(frozen=True)
class PluginAbandoned(LogEvent):
    """A scheduler plugin ignores its cancellation; the decision is taken without it."""

    name: ClassVar[str] = "plugin.abandoned"
    plugin: str
    point: str
    pod: str


@dataclass(frozen=True)
class SyncSlow(LogEvent):
    """A controller has been busy with one key for `seconds`."""

    name: ClassVar[str] = "sync.slow"
    controller: str
    key: str
    seconds: float


@dataclass(frozen=True)
class SyncTimedOut(LogEvent):
    """A controller was busy with one key for too long; the sync was cancelled, and is retried."""

    name: ClassVar[str] = "sync.timed_out"
    controller: str
    key: str


@dataclass(frozen=True)
class SyncAbandoned(LogEvent):
    """A sync ignores its cancellation; another worker replaces its own."""

    name: ClassVar[str] = "sync.abandoned"
    controller: str
    key: str


@dataclass(frozen=True)
class EventLoopStalled(LogEvent):
    """The event loop has not answered for `seconds`; `culprit` is the plugin that holds it, or empty."""

    name: ClassVar[str] = "event_loop.stalled"
    culprit: str
    seconds: float


@dataclass(frozen=True)
class EventLoopResumed(LogEvent):
    """The event loop answers again, after `seconds`."""

    name: ClassVar[str] = "event_loop.resumed"
    seconds: float


@dataclass(frozen=True)
class ActivityFailed(LogEvent):
    """A background activity failed, and is retried; `repeats`: the same failures since the last line about them."""

    name: ClassVar[str] = "activity.failed"
    activity: str
    repeats: int


@dataclass(frozen=True)
class ActivityRecovered(LogEvent):
    """A background activity has not failed for a while, after so many `failures`."""

    name: ClassVar[str] = "activity.recovered"
    activity: str
    failures: int


EVENTS: Mapping[str, type[LogEvent]] = {kind.name: kind for kind in LogEvent.__subclasses__()}
"""All, by name."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a JSON log. `at`: Unix seconds. `message` is for people only: compare `event`. `event`: None when the line
    has none, or one that this version does not know."""

    at: float
    severity: str
    component: str
    logger: str
    message: str
    event: LogEvent | None = None


def parse(line: str) -> LogLine | None:
    """None when it is no line of our JSON logs: another program's, or one that is cut off."""
    try:
        found = json.loads(line)
        happened = _event(found["event"], found["fields"]) if "event" in found else None
        return LogLine(float(found["ts"]), found["severity"], found["component"], found["logger"], str(found["msg"]), happened)
    except (ValueError, TypeError, KeyError):
        return None


def read(path: Path) -> Iterator[LogLine]:
    """The lines of a log that are ours. Raises OSError."""
    with path.open(errors="replace") as log:
        yield from filter(None, map(parse, log))


def of_kind(lines: Iterable[LogLine], kind: type[E]) -> list[E]:
    """The events of one kind, in their order."""
    return [line.event for line in lines if isinstance(line.event, kind)]


def _event(name: str, values: Mapping[str, Any]) -> LogEvent | None:
    if (kind := EVENTS.get(name)) is None:
        return None
    known = {each.name for each in fields(kind)}  # a newer version may add some
    return kind(**{field: value for field, value in values.items() if field in known})
