"""The metrics of a gateway, under the names that kube-apiserver has for them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
"""Of its own: an API server in the same process, as in tests, has metrics of the same names."""

REQUESTS = Counter(
    "apiserver_request_total", "Requests by method and code of the response.", ("method", "code"), registry=REGISTRY
)
DURATION = Histogram(
    "apiserver_request_duration_seconds",
    "Seconds from a request to the end of its response, streams included.",
    ("method",),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
    registry=REGISTRY,
)
OPEN_STREAMS = Gauge("apiserver_longrunning_requests", "Watches and logs that are open.", registry=REGISTRY)
