"""Whether a pod has ended; and what a batch of UpdateStatus needs of one: many whole pods may be more than a call takes."""

from pinnace.api.core_v1_pb2 import Pod

ENDED = ("Succeeded", "Failed")
"""The phases that nothing leaves."""
EVICTED = "Evicted"
"""The reason of a pod that its node ended for want of room."""


def ended(pod: Pod) -> bool:
    """No container of it runs any more, nor will: it uses nothing."""
    return pod.status.phase in ENDED


def status_of(pod: Pod) -> Pod:
    """A copy of its status, with which pod it is and the version that it must still have. The API looks at no more."""
    source = pod.metadata
    copy = Pod(status=pod.status)
    target = copy.metadata
    target.name, target.namespace = source.name, source.namespace
    target.uid, target.resourceVersion = source.uid, source.resourceVersion
    return copy
