"""Why others end a pod, as the pod's condition tells it.

Source: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""

from pinnace.api.core_v1_pb2 import PodStatus
from pinnace.api.meta_v1_pb2 import Time

CONDITION = "DisruptionTarget"


def say(status: PodStatus, reason: str, message: str, now: Time) -> None:
    """What was said before is replaced; since when others end the pod stays."""
    conditions = status.conditions
    found = next((each for each in conditions if each.type == CONDITION), None) or conditions.add(type=CONDITION)
    if found.status != "True":
        found.lastTransitionTime.CopyFrom(now)
    found.status, found.reason, found.message = "True", reason, message
