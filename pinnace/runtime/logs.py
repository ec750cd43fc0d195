"""Logging of components: one line per event to stderr, in one of two formats, and structured log events.

text    2026-11-22T11:45:59.720Z I apiserver-0 apiserver.errors: message (request 916e40357970-3)
json    an object with the fields of Kubernetes' JSON logs (ts: Unix seconds; msg; err: the traceback), `requestID`, and for
        structured events `event` and `fields`

Lines that belong to a call contain its request ID, which the response and the audit log also contain. Messages can contain text
from clients, such as user names. Control characters are escaped, so that this text can neither start a new line nor move the
terminal's cursor.

A structured event adds a name and typed fields to the message:

    log.warning("token %d is fenced: another leader has been elected", token, extra=TokenFenced(token).extra)

The JSON format adds `"event": "token.fenced", "fields": {"token": 7}` to the line; the text format contains the message only.
Chaos runs, benchmarks and tests read events and never messages. Event names and fields are a stable interface like metrics:
fields may be added, but not renamed.

Source: https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#json-log-format
"""

import json
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, dataclass_transform

EVENTS: "dict[str, type[LogEvent]]" = {}
"""All event classes by name."""
Format = Literal["text", "json"]
request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The ID of the call that the current task serves, or "". Tasks that it starts inherit the ID."""
_ESCAPED = {number: repr(chr(number))[1:-1] for number in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
"""Control characters and line separators, which are escaped as in Python strings."""


@dataclass_transform(frozen_default=True, eq_default=True)
class LogEvent:
    """The base class of events, which are compared by value. The docstring of a subclass is its description in
    docs/observability.md.

    It is a dataclass for type checkers only, because twenty real dataclasses add 20 ms to the import.
    """

    name: ClassVar[str]
    fields: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, name: str) -> None:
        cls.name, cls.fields = name, tuple(cls.__annotations__)
        EVENTS[name] = cls

    def __init__(self, *args: object, **named: object) -> None:
        """Raises TypeError if a field is missing or unknown."""
        given = dict(zip(self.fields, args, strict=False)) | named
        if len(args) + len(named) != len(given) or not given.keys() <= set(self.fields):
            raise TypeError(f"{type(self).__name__}({', '.join(self.fields)}): {args}, {named}")
        for field in self.fields:
            if field in given:
                self.__dict__[field] = given[field]
            elif not hasattr(type(self), field):
                raise TypeError(f"{type(self).__name__}: missing field {field}")
            else:
                self.__dict__[field] = getattr(type(self), field)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self.name, *map(str, self.__dict__.values())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{field}={value!r}' for field, value in self.__dict__.items())})"

    @property
    def values(self) -> dict[str, Any]:
        """The fields by name."""
        return dict(self.__dict__)

    @property
    def extra(self) -> dict[str, object]:
        """The `extra` argument of a log call."""
        return {"log_event": self}


E = TypeVar("E", bound=LogEvent)


class LeadershipAcquired(LogEvent, name="leadership.acquired"):
    """The candidate was elected and leads with this fencing token."""

    election: str
    token: int


class LeadershipLost(LogEvent, name="leadership.lost"):
    """The candidate no longer leads; `reason` is a sentence."""

    election: str
    token: int
    reason: str


class LeadershipAbandoned(LogEvent, name="leadership.abandoned"):
    """The leader resigns because it makes no progress; `reason` is a sentence."""

    election: str
    reason: str


class TokenFenced(LogEvent, name="token.fenced"):
    """A write of the leader was rejected because another leader has been elected."""

    token: int


class NodesTakenOver(LogEvent, name="nodes.taken_over"):
    """The API server reports that another fleet has taken over `count` nodes of this fleet."""

    holder: str
    count: int


class NodesYielded(LogEvent, name="nodes.yielded"):
    """The fleet stops `count` nodes that another holder has taken over."""

    holder: str
    count: int


class NodesReclaimed(LogEvent, name="nodes.reclaimed"):
    """The fleet runs `count` nodes again because their other holder has left."""

    count: int


class NodesDropped(LogEvent, name="nodes.dropped"):
    """The fleet stops `count` nodes whose Node objects were deleted."""

    count: int


class ComponentRestarted(LogEvent, name="component.restarted"):
    """The component restarts within its process, for example after a restore of etcd; `reason` is a sentence."""

    reason: str


class StoreRestored(LogEvent, name="store.restored"):
    """The watch cache detected at `revision` that etcd was restored to another history."""

    revision: int


class PluginFailed(LogEvent, name="plugin.failed"):
    """A scheduler plugin raised an exception or timed out; `error` is the type of the exception, `pod` may be empty."""

    plugin: str
    point: str
    error: str
    pod: str = ""


class StateDumped(LogEvent, name="state.dumped"):
    """The scheduler logged its `queue` or `cache` on SIGUSR2; `state` is the content."""

    part: str
    state: Mapping[str, Any]


class ProcessFailed(LogEvent, name="process.failed"):
    """The process exits because of an error of type `error`; `expected`: it is caused by the environment."""

    error: str
    expected: bool


class PluginSlow(LogEvent, name="plugin.slow"):
    """A scheduler plugin has not responded for `pods` pods; `seconds` is the longest wait."""

    plugin: str
    point: str
    pods: int
    seconds: float


class PluginAbandoned(LogEvent, name="plugin.abandoned"):
    """A scheduler plugin ignores its cancellation; scheduling continues without its result."""

    plugin: str
    point: str
    pod: str


class SyncSlow(LogEvent, name="sync.slow"):
    """A controller has been processing one key for `seconds`."""

    controller: str
    key: str
    seconds: float


class SyncTimedOut(LogEvent, name="sync.timed_out"):
    """A controller processed one key for too long; the sync was cancelled and is retried."""

    controller: str
    key: str


class SyncAbandoned(LogEvent, name="sync.abandoned"):
    """A sync ignores its cancellation; its worker is replaced."""

    controller: str
    key: str


class EventLoopStalled(LogEvent, name="event_loop.stalled"):
    """The event loop has not responded for `seconds`; `culprit` is the plugin that blocks it, or empty."""

    culprit: str
    seconds: float


class EventLoopStepLong(LogEvent, name="event_loop.step_long"):
    """The longest of `count` long steps took `cpu_seconds`, `gc_seconds` of it for garbage collection, in `seconds`."""

    seconds: float
    cpu_seconds: float
    gc_seconds: float
    count: int
    stack: str


class EventLoopResumed(LogEvent, name="event_loop.resumed"):
    """The event loop responds again after `seconds`."""

    seconds: float


class ActivityFailed(LogEvent, name="activity.failed"):
    """A background activity failed and is retried; `repeats` is the number of equal failures since the last line."""

    activity: str
    repeats: int


class ActivityRecovered(LogEvent, name="activity.recovered"):
    """A background activity has recovered after `failures` failures."""

    activity: str
    failures: int


class CompactionFailed(LogEvent, name="compaction.failed"):
    """The API server failed to compact the history of etcd; it retries at the next interval."""

    reason: str


class BootstrapFailed(LogEvent, name="bootstrap.failed"):
    """The API server failed to create the objects that every cluster has; it retries."""

    reason: str


class AuditLinesLost(LogEvent, name="audit.lines_lost"):
    """`count` lines of the audit log could not be written."""

    count: int


class CertificateReloaded(LogEvent, name="certificate.reloaded"):
    """The process uses new certificates; `file` is the certificate or the CA."""

    file: str


class CallsRefused(LogEvent, name="calls.refused"):
    """The API server refused `count` calls since the last line because it is out of `lack`, such as memory."""

    lack: str
    count: int
    method: str


class WebhookFailed(LogEvent, name="webhook.failed"):
    """A webhook call failed; `ignored`: the object was written anyway; `repeats`: failures since the last line."""

    webhook: str
    ignored: bool
    repeats: int


class ExtenderIgnored(LogEvent, name="extender.ignored"):
    """An extender failed, and the scheduler continues without its result."""

    verb: str
    reason: str


class LogLine(NamedTuple):
    """One line of a JSON log. `at` is in Unix seconds. Programs compare `event`, never `message`. `event` is None if the line
    has no event, or an event that this version does not define."""

    at: float
    severity: str
    component: str
    logger: str
    message: str
    event: LogEvent | None = None


def parse_line(line: str) -> LogLine | None:
    """Parse a line. Return None for truncated lines and lines of other programs."""
    try:
        result = json.loads(line)
        happened = _decode_log_event(result["event"], result["fields"]) if "event" in result else None
        return LogLine(
            float(result["ts"]), result["severity"], result["component"], result["logger"], str(result["msg"]), happened
        )
    except (ValueError, TypeError, KeyError):
        return None


def read_log(path: Path) -> Iterator[LogLine]:
    """Yield the lines of a log that `parse_line` accepts. Raises OSError."""
    with path.open(errors="replace") as log:
        yield from filter(None, map(parse_line, log))


def select_events(lines: Iterable[LogLine], kind: type[E]) -> list[E]:
    """Return the events of one class in order."""
    return [line.event for line in lines if isinstance(line.event, kind)]


def _decode_log_event(name: str, values: Mapping[str, Any]) -> LogEvent | None:
    if (kind := EVENTS.get(name)) is None:
        return None
    return kind(**{field: value for field, value in values.items() if field in kind.fields})  # a newer version may add fields


class _TextFormatter(logging.Formatter):
    """The text format. A traceback follows the message on separate lines."""

    def __init__(self, component: str) -> None:
        line = f"%(asctime)s.%(msecs)03dZ %(levelname).1s {component} %(name)s: %(message)s"
        super().__init__(line, datefmt="%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        line = super().formatMessage(record).translate(_ESCAPED)
        return f"{line} (request {of})" if (of := request_id.get()) else line


class _JsonFormatter(logging.Formatter):
    """The JSON format. The traceback is a field."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": round(record.created, 6),
            "severity": record.levelname,
            "component": self._component,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if of := request_id.get():
            line["requestID"] = of
        if happened := record.__dict__.get("log_event"):
            line |= {"event": happened.name, "fields": happened.values}
        if record.exc_info:
            line["err"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _is_departed_peer(record: logging.LogRecord) -> bool:
    """Report whether gRPC logs the failure to send a message of a call that has ended. Each client that leaves during an
    answer, such as the output of exec, causes it. gRPC means to ignore it, but may not know yet that the call has ended."""
    error = record.exc_info[0] if record.exc_info else None
    return record.name == "grpc._cython.cygrpc" and error is not None and error.__name__ == "ExecuteBatchError"


def configure_logging(component: str, verbosity: int = 0, form: Format = "text") -> None:
    """Configure the root logger. `verbosity`: 0 logs info and above; 1 or more logs debug as well."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(component) if form == "json" else _TextFormatter(component))
    handler.addFilter(lambda record: not _is_departed_peer(record))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity else logging.INFO)
    logging.getLogger("grpc").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
