"""The metrics of a gateway, with the names of kube-apiserver's metrics."""

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
"""A separate registry, because an API server in the same process (in tests) has metrics with the same names."""

REQUESTS = Counter(
    "apiserver_request_total", "Number of requests by method and response code.", ("method", "code"), registry=REGISTRY
)
DURATION = Histogram(
    "apiserver_request_duration_seconds",
    "Time from a request to the end of its response in seconds, including streams.",
    ("method",),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
    registry=REGISTRY,
)
OPEN_STREAMS = Gauge("apiserver_longrunning_requests", "Number of open watches and log streams.", registry=REGISTRY)
UPSTREAM_WATCHES = Gauge("pinnace_gateway_upstream_watches", "Number of open watches of API servers.", registry=REGISTRY)


@cache  # one entry per method of httptools and code
def request_counter(method: str, code: int) -> Counter:
    """Return the counter of requests with these labels. The lookup of labels takes 3 us."""
    return REQUESTS.labels(method, str(code))


@cache
def duration_histogram(method: str) -> Histogram:
    """Return the histogram with this label."""
    return DURATION.labels(method)
