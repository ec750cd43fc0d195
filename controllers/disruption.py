"""Why a pod is about to be ended by others, said of the pod. Pure.

Source: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.podstatus import status_of
from pinnace.api.times import to_time

CONDITION = "DisruptionTarget"


def disrupted(pod: Pod, reason: str, message: str, now: float) -> Pod:
    """Its status, which says so; `now` is Unix time. What was said before is replaced."""
    changed = status_of(pod)
    conditions = changed.status.conditions
    found = next((each for each in conditions if each.type == CONDITION), None) or conditions.add(type=CONDITION)
    if found.status != "True":
        found.lastTransitionTime.CopyFrom(to_time(now))
    found.status, found.reason, found.message = "True", reason, message
    return changed
