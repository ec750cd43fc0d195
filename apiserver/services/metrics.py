"""What the API server counts, under Kubernetes' names where they exist."""

from collections.abc import Mapping
from functools import partial

from prometheus_client import Counter, Gauge, Histogram

from apiserver.flow.queue import Level
from apiserver.flow.seat import Seat
from pinnace.api.status import Code

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

REQUESTS = Counter("apiserver_request_total", "Requests that have ended, by method and gRPC code.", ["method", "code"])
DURATION = Histogram("apiserver_request_duration_seconds", "Time of a request.", ["method"], buckets=_BUCKETS)
ETCD = Histogram("etcd_request_duration_seconds", "Time of a request to etcd.", ["operation"], buckets=_BUCKETS)
FENCED = Counter("apiserver_fenced_bindings", "Bindings refused because their leader does not lead any more.")
STREAMS = Gauge("apiserver_longrunning_requests", "Streams that are open: watches, elections, heartbeats.", ["method"])
FLOW_REJECTED = Counter(
    "apiserver_flowcontrol_rejected_requests_total",
    "Requests that were refused before they began, or given up: queue-full, time-out, cancelled.",
    ["priority_level", "reason"],
)
FLOW_WAIT = Histogram(
    "apiserver_flowcontrol_request_wait_duration_seconds",
    "Time that requests waited for a seat, of those that did; execute: did they get one?",
    ["priority_level", "execute"],
    buckets=_BUCKETS,
)
FLOW_QUEUED = Gauge("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for a seat.", ["priority_level"])
FLOW_SEATS = Gauge("apiserver_flowcontrol_current_executing_seats", "Seats that are taken.", ["priority_level"])
FLOW_LIMIT = Gauge("apiserver_flowcontrol_nominal_limit_seats", "Seats of the level itself.", ["priority_level"])


def observe_etcd(operation: str, seconds: float) -> None:
    ETCD.labels(operation).observe(seconds)


def observe(method: str, code: Code, seconds: float) -> None:
    REQUESTS.labels(method, code.name).inc()
    DURATION.labels(method).observe(seconds)


class FlowMeter:
    """An apiserver.flow.control.Meter."""

    def rejected(self, level: str, reason: str) -> None:
        FLOW_REJECTED.labels(level, reason).inc()

    def waited(self, level: str, seconds: float, execute: bool) -> None:
        FLOW_WAIT.labels(level, str(execute).lower()).observe(seconds)


def show(levels: Mapping[str, Level[Seat]]) -> None:
    """Has the gauges read them when somebody asks, so that calls need not tell."""
    for name, level in levels.items():
        FLOW_LIMIT.labels(name).set(level.seats)
        FLOW_SEATS.labels(name).set_function(partial(getattr, level, "held"))
        FLOW_QUEUED.labels(name).set_function(partial(getattr, level, "waiting"))
