"""What the status of a pod means to those who count pods. Pure; times are Unix time.

Source: pkg/controller/controller_utils.go and pkg/api/v1/pod/util.go of Kubernetes.
"""

from pinnace.api.core_v1_pb2 import Pod, PodCondition
from pinnace.api.times import to_seconds

ENDED = ("Succeeded", "Failed")


def active(pod: Pod) -> bool:
    """It has not ended, and nobody ends it."""
    return pod.status.phase not in ENDED and not pod.metadata.HasField("deletionTimestamp")


def terminating(pod: Pod) -> bool:
    """Somebody ends it, and it has not ended yet."""
    return pod.status.phase not in ENDED and pod.metadata.HasField("deletionTimestamp")


def ready(pod: Pod) -> bool:
    condition = _ready_condition(pod)
    return condition is not None and condition.status == "True"


def ready_since(pod: Pod) -> float | None:
    """None: it is not ready, or nobody has said since when."""
    condition = _ready_condition(pod)
    if condition is None or condition.status != "True" or not condition.HasField("lastTransitionTime"):
        return None
    return to_seconds(condition.lastTransitionTime)


def restarts(pod: Pod) -> int:
    """Of the container that was restarted most often; sidecars count."""
    statuses = (*pod.status.containerStatuses, *pod.status.initContainerStatuses)
    return max((status.restartCount for status in statuses), default=0)


def _ready_condition(pod: Pod) -> PodCondition | None:
    return next((each for each in pod.status.conditions if each.type == "Ready"), None)
