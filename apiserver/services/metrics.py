"""Metrics of the API server, with Kubernetes' names where they exist (docs/observability.md lists the differences).

Source: https://kubernetes.io/docs/reference/instrumentation/metrics/
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any

from prometheus_client import Counter, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import REGISTRY, Collector

from pinnace.api.resources import ALL, Resource
from pinnace.api.status import Code
from pinnace.apiserver.auth.permissions import ResourceAction
from pinnace.apiserver.cacher.cacher import Cacher, ResourceCache
from pinnace.apiserver.flow.control import Seat
from pinnace.apiserver.flow.levels import PriorityLevel
from pinnace.apiserver.registry.events import EventRetention

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LABELS = ["verb", "group", "version", "resource", "subresource"]
_VERBS = {
    "create": "POST", "get": "GET", "list": "LIST", "watch": "WATCH", "update": "PUT", "patch": "PATCH", "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
}  # fmt: skip
_READ_VERBS = ("get", "list", "watch")
REQUESTS = Counter("apiserver_request_total", "Completed requests by gRPC status code.", [*_LABELS, "batch", "code"])
DURATION = Histogram("apiserver_request_duration_seconds", "Duration of requests.", [*_LABELS, "batch"], buckets=_BUCKETS)
IN_FLIGHT = Gauge("apiserver_current_inflight_requests", "Requests in progress.", ["request_kind"])
STREAMS = Gauge("apiserver_longrunning_requests", "Open streams: watches, elections, heartbeats.", _LABELS)
OBJECTS = Gauge("apiserver_resource_objects", "Stored objects.", ["group", "resource"])
EVENTS_HELD = Gauge("apiserver_events_held", "Stored events.")
EVENTS_BYTES = Gauge("apiserver_events_held_bytes", "Total size of the stored events in bytes.")
ETCD = Histogram("etcd_request_duration_seconds", "Duration of requests to etcd.", ["operation"], buckets=_BUCKETS)
ETCD_ERRORS = Counter("etcd_request_errors_total", "Failed requests to etcd.", ["operation"])
AUTHENTICATION = Counter("authentication_attempts", "Calls with failed authentication.", ["result"])
UNAUTHENTICATED = AUTHENTICATION.labels("failure")
UNKNOWN = Counter("apiserver_unknown_methods", "Calls of unknown methods.")
FENCED = Counter("apiserver_fenced_bindings", "Bindings refused because the leader's term is over.")
FLOW_REJECTED = Counter(
    "apiserver_flowcontrol_rejected_requests_total",
    "Rejected or abandoned requests: queue-full, time-out, cancelled, untaken, watches, connections, streams.",
    ["priority_level", "reason"],
)
FLOW_WAIT = Histogram(
    "apiserver_flowcontrol_request_wait_duration_seconds",
    "Time in queue of requests that waited for a seat; execute: whether the request received one.",
    ["priority_level", "execute"],
    buckets=_BUCKETS,
)
FLOW_QUEUED = Gauge("apiserver_flowcontrol_current_inqueue_requests", "Requests waiting for a seat.", ["priority_level"])
FLOW_EXECUTING = Gauge("apiserver_flowcontrol_current_executing_requests", "Requests with a seat.", ["priority_level"])
FLOW_SEATS = Gauge("apiserver_flowcontrol_current_executing_seats", "Occupied seats.", ["priority_level"])
FLOW_LIMIT = Gauge("apiserver_flowcontrol_nominal_limit_seats", "Nominal number of seats.", ["priority_level"])
WEBHOOK_DURATION = Histogram(
    "apiserver_admission_webhook_admission_duration_seconds",
    "Duration of webhook calls.",
    ["name", "type", "operation", "rejected"],
    buckets=(0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0),
)
WEBHOOK_REQUESTS = Counter(
    "apiserver_admission_webhook_request_total",
    "Webhook calls by the HTTP status code of the verdict or failure.",
    ["name", "type", "operation", "code", "rejected"],
)
WEBHOOK_REJECTED = Counter(
    "apiserver_admission_webhook_rejection_count",
    "Writes rejected by a webhook: no_error: the webhook denied the write; calling_webhook_error: the call failed; "
    "apiserver_internal_error: the webhook was not called, because too many calls were waiting for it.",
    ["name", "type", "operation", "error_type", "rejection_code"],
)
WEBHOOK_FAIL_OPEN = Counter(
    "apiserver_admission_webhook_fail_open_count",
    "Writes that were admitted after a failed webhook call, because the failurePolicy is Ignore.",
    ["name", "type"],
)
_POLICY_LABELS = ["policy", "policy_binding", "error_type", "enforcement_action"]
_POLICY_BUCKETS = (0.0000005, 0.001, 0.01, 0.1, 1.0)
POLICY_CHECKS = {
    mutating: (
        Counter(f"apiserver_{kind}_admission_policy_check_total", f"Uses of {kind} admission policies.", _POLICY_LABELS),
        Histogram(
            f"apiserver_{kind}_admission_policy_check_duration_seconds",
            f"Duration of the uses of {kind} admission policies.",
            _POLICY_LABELS,
            buckets=_POLICY_BUCKETS,
        ),
    )
    for mutating, kind in ((False, "validating"), (True, "mutating"))
}
"""The metrics of policies: False for validating ones, True for mutating ones."""
MATCH_CONDITION_EXCLUSIONS = Counter(
    "apiserver_admission_match_condition_exclusions_total",
    "Writes that the match conditions of a webhook or policy excluded.",
    ["name", "kind", "type", "operation"],
)
AUDIT_EVENTS = Counter("apiserver_audit_event_total", "Lines written to the audit log.")
AUDIT_ERRORS = Counter(
    "apiserver_audit_error_total", "Lines missing from the audit log: the disk is full or too slow.", ["plugin"]
)
_etcd = cache(ETCD.labels)


class ReadCounters(Collector):
    """Counters that other objects keep as plain numbers, and that are read at each scrape."""

    def __init__(self, name: str, documentation: str, labels: list[str]) -> None:
        self._made = name, documentation, labels
        self._read: dict[tuple[str, ...], Callable[[], float]] = {}
        REGISTRY.register(self)

    def register_reader(self, *labels: str, read: Callable[[], float]) -> None:
        self._read[labels] = read

    def collect(self) -> Iterable[Metric]:
        name, documentation, labels = self._made
        family = CounterMetricFamily(name, documentation, labels=labels)
        for values, read in tuple(self._read.items()):
            family.add_metric(list(values), read())
        yield family


WATCH_EVENTS = ReadCounters(
    "apiserver_watch_events",
    "Events sent to watchers, including events for the initial state.",
    ["group", "version", "resource"],
)
EVENTS_DROPPED = ReadCounters(
    "apiserver_events_dropped",
    "Events deleted by this server before their expiry, by exceeded limit: count, bytes.",
    ["reason"],
)
FLOW_DISPATCHED = ReadCounters(
    "apiserver_flowcontrol_dispatched_requests", "Requests that received a seat.", ["priority_level"]
)


class _RequestsInFlight:
    """Read requests or write requests in progress. A plain number is faster than a gauge."""

    def __init__(self, name: str) -> None:
        self.in_flight = 0
        IN_FLIGHT.labels(name).set_function(lambda: self.in_flight)


_READ_ONLY, _MUTATING = _RequestsInFlight("readOnly"), _RequestsInFlight("mutating")


class RequestMetrics:
    """The metrics of one method. `connects`: requests are streamed. Labels appear with the first call: with a line for each
    code of each method, a scrape took 280 ms."""

    def __init__(self, action: ResourceAction, *, batch: bool = False, connects: bool = False) -> None:
        resource, _, subresource = action.resource.partition("/")
        verb = "CONNECT" if connects else _VERBS.get(action.verb, "POST")
        self._what = (verb, action.group, "v1", resource, subresource)
        self._batch = str(batch).lower()
        self._kind = _READ_ONLY if action.verb in _READ_VERBS else _MUTATING
        self._ended: dict[Code, Counter] = {}
        self._duration: Histogram | None = None

    def record_start(self) -> None:
        self._kind.in_flight += 1

    def record_end(self, code: Code, seconds: float) -> None:
        self._kind.in_flight -= 1
        self._count_result(code)
        if self._duration is None:
            self._duration = DURATION.labels(*self._what, self._batch)
        self._duration.observe(seconds)

    def stream(self) -> AbstractContextManager[object]:
        """Return a context that counts an open stream."""
        return STREAMS.labels(*self._what).track_inprogress()

    def record_stream_end(self, code: Code) -> None:
        """Count the end of a stream. A stream that its client cancels ends with OK."""
        self._count_result(code)

    def _count_result(self, code: Code) -> None:
        counter = self._ended.get(code)
        if counter is None:
            counter = self._ended[code] = REQUESTS.labels(*self._what, self._batch, code.name)
        counter.inc()


def observe_etcd(operation: str, seconds: float, failed: bool) -> None:
    _etcd(operation).observe(seconds)
    if failed:
        ETCD_ERRORS.labels(operation).inc()


class FlowMeter:
    """Implements pinnace.apiserver.flow.control.FlowMetrics."""

    def record_rejection(self, level: str, reason: str) -> None:
        FLOW_REJECTED.labels(level, reason).inc()

    def record_wait(self, level: str, seconds: float, execute: bool) -> None:
        FLOW_WAIT.labels(level, str(execute).lower()).observe(seconds)


class AuditMeter:
    """Implements pinnace.apiserver.auth.audit.AuditMetrics. The error counter is exported before the first error."""

    def __init__(self) -> None:
        self._errors = AUDIT_ERRORS.labels("log")

    def record_written_lines(self, lines: int) -> None:
        AUDIT_EVENTS.inc(lines)

    def record_lost_lines(self, lines: int) -> None:
        self._errors.inc(lines)


class PolicyMeter:
    """Implements pinnace.apiserver.webhooks.evaluation.PolicyMetrics."""

    def record_policy_check(self, mutating: bool, policy: str, binding: str, error: str, action: str, seconds: float) -> None:
        checks, durations = POLICY_CHECKS[mutating]
        checks.labels(policy, binding, error, action).inc()
        durations.labels(policy, binding, error, action).observe(seconds)


class WebhookMeter:
    """Implements pinnace.apiserver.webhooks.dispatch.WebhookMetrics."""

    def record_answer(self, name: str, kind: str, operation: str, code: int, allowed: bool, seconds: float) -> None:
        self._observe_duration(name, kind, operation, code, not allowed, seconds)
        if not allowed:
            WEBHOOK_REJECTED.labels(name, kind, operation, "no_error", str(code)).inc()

    def record_failure(self, name: str, kind: str, operation: str, code: int, ignored: bool, seconds: float) -> None:
        self._observe_duration(name, kind, operation, code, not ignored, seconds)
        if ignored:
            WEBHOOK_FAIL_OPEN.labels(name, kind).inc()
        else:
            WEBHOOK_REJECTED.labels(name, kind, operation, "calling_webhook_error", str(code)).inc()

    def record_full_queue(self, name: str, kind: str, operation: str, seconds: float) -> None:
        self._observe_duration(name, kind, operation, 0, True, seconds)
        WEBHOOK_REJECTED.labels(name, kind, operation, "apiserver_internal_error", "0").inc()

    def record_match_condition_exclusion(self, name: str, kind: str, operation: str) -> None:
        MATCH_CONDITION_EXCLUSIONS.labels(name, "webhook", kind, operation).inc()

    def _observe_duration(self, name: str, kind: str, operation: str, code: int, rejected: bool, seconds: float) -> None:
        shown = str(rejected).lower()
        WEBHOOK_DURATION.labels(name, kind, operation, shown).observe(seconds)
        WEBHOOK_REQUESTS.labels(name, kind, operation, str(code), shown).inc()


def register_readers(levels: Mapping[str, PriorityLevel[Seat]], cacher: Cacher, retention: EventRetention) -> None:
    """Register the values that are read at each scrape, so that calls need not report them."""
    EVENTS_HELD.set_function(lambda: retention.usage.count)
    EVENTS_BYTES.set_function(lambda: retention.usage.size)
    for reason in retention.dropped:
        EVENTS_DROPPED.register_reader(reason, read=partial(retention.dropped.__getitem__, reason))
    for level in levels.values():
        _register_level_gauges(level)
    for resource in ALL:
        _register_cache_gauges(resource, cacher.cache_of(resource))


def _register_level_gauges(level: PriorityLevel[Seat]) -> None:
    FLOW_LIMIT.labels(level.name).set(level.seats)
    FLOW_SEATS.labels(level.name).set_function(lambda: level.seats_in_use)
    FLOW_EXECUTING.labels(level.name).set_function(lambda: level.calls)
    FLOW_QUEUED.labels(level.name).set_function(lambda: level.waiting)
    FLOW_DISPATCHED.register_reader(level.name, read=lambda: level.started_calls)


def _register_cache_gauges(resource: Resource[Any], cache: ResourceCache[Any]) -> None:
    OBJECTS.labels(resource.group, resource.plural).set_function(cache.__len__)
    WATCH_EVENTS.register_reader(resource.group, "v1", resource.plural, read=lambda: cache.delivered_events)
