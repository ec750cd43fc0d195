"""Metrics of the controllers, named as kube-controller-manager's where it has the same."""

from prometheus_client import Counter, Gauge, Histogram

SYNCS = Counter("controllers_syncs", "Keys looked at, by controller and result.", ["controller", "result"])
DEPTH = Gauge("workqueue_depth", "Keys that wait for a worker.", ["name"])
RETRIES = Counter("workqueue_retries", "Keys that are looked at again after a failure.", ["name"])
WORK = Histogram(
    "workqueue_work_duration_seconds",
    "Seconds that a look at a key takes.",
    ["name"],
    buckets=[0.0001 * 4**step for step in range(10)],  # 0.1 milliseconds to 26 seconds
)
