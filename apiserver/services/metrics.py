"""What the API server counts, under Kubernetes' names where they exist."""

from prometheus_client import Counter, Gauge, Histogram

from pinnace.api.status import Code

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

REQUESTS = Counter("apiserver_request_total", "Requests that have ended, by method and gRPC code.", ["method", "code"])
DURATION = Histogram("apiserver_request_duration_seconds", "Time of a request.", ["method"], buckets=_BUCKETS)
ETCD = Histogram("etcd_request_duration_seconds", "Time of a request to etcd.", ["operation"], buckets=_BUCKETS)
FENCED = Counter("apiserver_fenced_bindings", "Bindings refused because their leader does not lead any more.")
STREAMS = Gauge("apiserver_longrunning_requests", "Streams that are open: watches, elections, heartbeats.", ["method"])


def observe_etcd(operation: str, seconds: float) -> None:
    ETCD.labels(operation).observe(seconds)


def observe(method: str, code: Code, seconds: float) -> None:
    REQUESTS.labels(method, code.name).inc()
    DURATION.labels(method).observe(seconds)
