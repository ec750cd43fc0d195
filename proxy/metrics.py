"""Metrics of the service proxy. Those that kube-proxy also has use its names."""

from prometheus_client import Counter, Gauge, Histogram

SYNC_DURATION = Histogram(
    "kubeproxy_sync_proxy_rules_duration_seconds",
    "Duration of a sync of the rules in seconds.",
    buckets=(0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15),
)
PROGRAMMING_DURATION = Histogram(
    "kubeproxy_network_programming_duration_seconds",
    "Time in seconds from the receipt of a change of a service or its endpoints until the rules are applied.",
    buckets=(0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30, 60),
)
LAST_SYNC = Gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "Time of the last successful sync.")
LAST_QUEUED = Gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "Time at which a sync was last queued.")
ENDPOINT_CHANGES = Counter("kubeproxy_sync_proxy_rules_endpoint_changes", "Number of received changes of EndpointSlices.")
SERVICE_CHANGES = Counter("kubeproxy_sync_proxy_rules_service_changes", "Number of received changes of Services.")
SYNC_FAILURES = Counter("kubeproxy_sync_proxy_rules_nftables_sync_failures", "Number of failed syncs of the rules.")
SERVICES = Gauge("pinnace_proxy_services", "Number of services with rules.")
LISTENERS = Gauge("pinnace_proxy_listeners", "Number of open listeners (userspace).")
CONNECTIONS = Gauge("pinnace_proxy_connections", "Number of open connections (userspace).")
REJECTED = Counter("pinnace_proxy_rejected_connections", "Number of connections that exceeded the limit (userspace).")
RETRIES = Counter("pinnace_proxy_endpoint_failures", "Number of endpoints that did not accept a connection (userspace).")
FAILED = Counter("pinnace_proxy_failed_connections", "Number of connections that no endpoint accepted (userspace).")
