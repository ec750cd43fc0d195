"""Logging of the components: one line per event, to stderr, in one of two formats; and structured log events.

text    2026-11-22T11:45:59.720Z I apiserver-0 apiserver.errors: what happened (request 916e40357970-3)
json    an object with the fields of Kubernetes' JSON logs (ts: seconds since 1970; msg; err: a traceback), `requestID`, and
        for lines with a structured event `event` and `fields`

A line that belongs to a call contains the request id, which the caller gets with the answer and the audit log records. Messages
may contain text from clients, such as user names. Control characters are escaped, so that such text can neither begin a line
nor move a terminal's cursor.

A structured event is a name and typed fields beside the message:

    log.warning("token %d is fenced: another leader has been elected", token, extra=TokenFenced(token).extra)

In the JSON format the line has `"event": "token.fenced", "fields": {"token": 7}`; the text format shows the message only.
Programs read events, never messages: chaos, benchmarks and tests do not depend on the wording. Names and fields of events are
an interface, like metrics: fields may be added, and none is renamed.

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
"""All kinds of events, by name."""


@dataclass_transform(frozen_default=True, eq_default=True)
class LogEvent:
    """The base class of events, which are values. The docstring of a subclass is its description in docs/observability.md.

    It is a dataclass for type checkers only: twenty real dataclasses would add 20 ms to the import.
    """

    name: ClassVar[str]
    fields: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, name: str) -> None:
        cls.name, cls.fields = name, tuple(cls.__annotations__)
        EVENTS[name] = cls

    def __init__(self, *args: object, **named: object) -> None:
        """Raises TypeError: a field is missing or unknown."""
        given = dict(zip(self.fields, args, strict=False)) | named
        if len(args) + len(named) != len(given) or not given.keys() <= set(self.fields):
            raise TypeError(f"{type(self).__name__}({', '.join(self.fields)}): {args}, {named}")
        for field in self.fields:
            if field in given:
                self.__dict__[field] = given[field]
            elif not hasattr(type(self), field):
                raise TypeError(f"{type(self).__name__}: no {field}")
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
        """The fields, by name."""
        return dict(self.__dict__)

    @property
    def extra(self) -> dict[str, object]:
        """The `extra` of a log call."""
        return {"log_event": self}


E = TypeVar("E", bound=LogEvent)


class LeadershipAcquired(LogEvent, name="leadership.acquired"):
    """The candidate leads, with this fencing token."""

    election: str
    token: int


class LeadershipLost(LogEvent, name="leadership.lost"):
    """The candidate does not lead any more; `reason` is a sentence."""

    election: str
    token: int
    reason: str


class LeadershipAbandoned(LogEvent, name="leadership.abandoned"):
    """The leader resigns because its work does not go on; `reason` is a sentence."""

    election: str
    reason: str


class TokenFenced(LogEvent, name="token.fenced"):
    """A write of the leader was refused because another leader has been elected."""

    token: int


class NodesTakenOver(LogEvent, name="nodes.taken_over"):
    """The API server reports that the session of another fleet has taken over `count` nodes of this one."""

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
    """The fleet stops `count` nodes whose Node objects are gone."""

    count: int


class ComponentRestarted(LogEvent, name="component.restarted"):
    """The component starts again within its process, such as after a restore of etcd; `reason` is a sentence."""

    reason: str


class StoreRestored(LogEvent, name="store.restored"):
    """The watch cache found at revision `revision` that etcd has another history than it applied: etcd was restored."""

    revision: int


class PluginFailed(LogEvent, name="plugin.failed"):
    """A scheduler plugin raised, or did not return in time; `error` is the type of the exception, `pod` may be empty."""

    plugin: str
    point: str
    error: str
    pod: str = ""


class StateDumped(LogEvent, name="state.dumped"):
    """The scheduler wrote its `queue` or `cache` to the log, as SIGUSR2 asks; `state` is what it holds."""

    part: str
    state: Mapping[str, Any]


class ProcessFailed(LogEvent, name="process.failed"):
    """The process ends because of an error, whose type this is; `expected`: the environment is at fault, not the program."""

    error: str
    expected: bool


class PluginSlow(LogEvent, name="plugin.slow"):
    """A scheduler plugin has not answered for `pods` pods, for `seconds` at most."""

    plugin: str
    point: str
    pods: int
    seconds: float


class PluginAbandoned(LogEvent, name="plugin.abandoned"):
    """A scheduler plugin ignores its cancellation; the decision is taken without it."""

    plugin: str
    point: str
    pod: str


class SyncSlow(LogEvent, name="sync.slow"):
    """A controller has been busy with one key for `seconds`."""

    controller: str
    key: str
    seconds: float


class SyncTimedOut(LogEvent, name="sync.timed_out"):
    """A controller was busy with one key for too long; the sync was cancelled, and is retried."""

    controller: str
    key: str


class SyncAbandoned(LogEvent, name="sync.abandoned"):
    """A sync ignores its cancellation; another worker replaces its own."""

    controller: str
    key: str


class EventLoopStalled(LogEvent, name="event_loop.stalled"):
    """The event loop has not answered for `seconds`; `culprit` is the plugin that holds it, or empty."""

    culprit: str
    seconds: float


class EventLoopResumed(LogEvent, name="event_loop.resumed"):
    """The event loop answers again, after `seconds`."""

    seconds: float


class ActivityFailed(LogEvent, name="activity.failed"):
    """A background activity failed, and is retried; `repeats`: the same failures since the last line about them."""

    activity: str
    repeats: int


class ActivityRecovered(LogEvent, name="activity.recovered"):
    """A background activity has not failed for a while, after so many `failures`."""

    activity: str
    failures: int


class CompactionFailed(LogEvent, name="compaction.failed"):
    """The API server could not compact the history of etcd; it tries again at the next interval."""

    reason: str


class BootstrapFailed(LogEvent, name="bootstrap.failed"):
    """The API server cannot create the objects that every cluster has, and tries again."""

    reason: str


class AuditLinesLost(LogEvent, name="audit.lines_lost"):
    """`count` lines of the audit log could not be written."""

    count: int


class CertificateReloaded(LogEvent, name="certificate.reloaded"):
    """The process uses new certificates; `file` is the certificate, or that of the authority."""

    file: str


class CallsRefused(LogEvent, name="calls.refused"):
    """The API server refused `count` calls since the last line, because it is out of `lack`, such as memory."""

    lack: str
    count: int
    method: str


class WebhookFailed(LogEvent, name="webhook.failed"):
    """A webhook could not be called; `ignored`: the object was written without it; `repeats`: failures since the last line."""

    webhook: str
    ignored: bool
    repeats: int


class ExtenderIgnored(LogEvent, name="extender.ignored"):
    """An extender failed, and the scheduler goes on without its answer."""

    verb: str
    reason: str


class LogLine(NamedTuple):
    """One line of a JSON log. `at`: Unix seconds. `message` is for people; programs compare `event`, which is None if the line
    has no event, or one that this version does not know."""

    at: float
    severity: str
    component: str
    logger: str
    message: str
    event: LogEvent | None = None


def parse(line: str) -> LogLine | None:
    """None if it is not a line of our JSON logs, but one of another program, or cut off."""
    try:
        found = json.loads(line)
        happened = _event(found["event"], found["fields"]) if "event" in found else None
        return LogLine(float(found["ts"]), found["severity"], found["component"], found["logger"], str(found["msg"]), happened)
    except (ValueError, TypeError, KeyError):
        return None


def read(path: Path) -> Iterator[LogLine]:
    """The lines of a log that `parse` can read. Raises OSError."""
    with path.open(errors="replace") as log:
        yield from filter(None, map(parse, log))


def of_kind(lines: Iterable[LogLine], kind: type[E]) -> list[E]:
    """The events of one kind, in their order."""
    return [line.event for line in lines if isinstance(line.event, kind)]


def _event(name: str, values: Mapping[str, Any]) -> LogEvent | None:
    if (kind := EVENTS.get(name)) is None:
        return None
    return kind(**{field: value for field, value in values.items() if field in kind.fields})  # a newer version may add some


Format = Literal["text", "json"]

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the call that the present task serves; "" if there is none. Tasks that it starts inherit it."""

_ESCAPED = {number: repr(chr(number))[1:-1] for number in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
"""Characters that are escaped as in a Python string."""


class _OneLine(logging.Formatter):
    """The text format. Tracebacks follow on lines of their own."""

    def __init__(self, component: str) -> None:
        line = f"%(asctime)s.%(msecs)03dZ %(levelname).1s {component} %(name)s: %(message)s"
        super().__init__(line, datefmt="%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        line = super().formatMessage(record).translate(_ESCAPED)
        return f"{line} (request {of})" if (of := request_id.get()) else line


class _Json(logging.Formatter):
    """The JSON format. A traceback is a field of the line."""

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


def configure(component: str, verbosity: int = 0, form: Format = "text") -> None:
    """`verbosity`: 0 info, 1 and more debug."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(component) if form == "json" else _OneLine(component))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity else logging.INFO)
    logging.getLogger("grpc").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
