"""What was reported of containers, read again by a kubelet process that comes later."""

from kubelet.runtime import Exit, Instant, past
from pinnace.api.core_v1_pb2 import ContainerState
from pinnace.api.scalars import to_seconds

BY_CODE = ("Completed", "Error")
"""Reasons that follow from the code."""


def reported_exit(state: ContainerState, now: Instant) -> Exit | None:
    """None when it does not say that the container has ended."""
    if not state.HasField("terminated"):
        return None
    ended = state.terminated
    started, finished = past(to_seconds(ended.startedAt), now), past(to_seconds(ended.finishedAt), now)
    return Exit(ended.exitCode, started, finished, "" if ended.reason in BY_CODE else ended.reason, ended.message)
