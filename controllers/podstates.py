"""What the status of a pod means to those who count pods. Pure; times are Unix time.

Source: pkg/controller/controller_utils.go and pkg/api/v1/pod/util.go of Kubernetes.
"""

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.podstatus import ended
from pinnace.api.times import to_seconds


def active(pod: Pod) -> bool:
    """It has not ended, and nobody ends it."""
    return not ended(pod) and not pod.metadata.HasField("deletionTimestamp")


def terminating(pod: Pod) -> bool:
    """Somebody ends it, and it has not ended yet."""
    return not ended(pod) and pod.metadata.HasField("deletionTimestamp")


def ready(pod: Pod) -> bool:
    return conditions.is_true(pod.status.conditions, "Ready")


def ready_since(pod: Pod) -> float | None:
    """None: it is not ready, or nobody has said since when."""
    condition = conditions.find(pod.status.conditions, "Ready")
    if condition is None or condition.status != "True" or not condition.HasField("lastTransitionTime"):
        return None
    return to_seconds(condition.lastTransitionTime)


def restarts(pod: Pod) -> int:
    """Of the container that was restarted most often; sidecars count."""
    statuses = (*pod.status.containerStatuses, *pod.status.initContainerStatuses)
    return max((status.restartCount for status in statuses), default=0)
