"""Faults on demand: what the annotations of a node and of a pod ask the fleet to pretend. Pure.

    on a node   pinnace.io/fault: failed    the machine has lost its power: no heartbeats, no writes, no containers; when the
                                            annotation goes it boots, and what was there runs anew
                pinnace.io/fault: frozen    the network is gone: no heartbeats, no writes, nothing is heard; containers go on
    on a pod    pinnace.io/crash.CONTAINER: "ATTEMPT CODE"
                                            that attempt at the container ends, with this exit code

A crash names the attempt: whoever sees the annotation twice, or after a restart, crashes nothing twice. Values that make no
sense ask for nothing.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import ContainerStateTerminated, Node, Pod
from pinnace.api.scalars import natural, to_time
from pinnace.api.wellknown import CRASH_ANNOTATION, FAULT_ANNOTATION

LOST_POWER = 255
"""The exit code of a container that was running when its machine lost power: nobody was there to see it end. The code, and the
reason "Unknown" beside it, are those that containerd gives."""


class Fault(StrEnum):
    FAILED = "failed"
    FROZEN = "frozen"


class Crash(NamedTuple):
    container: str
    attempt: int
    code: int


def fault_of(node: Node) -> Fault | None:
    value = node.metadata.annotations.get(FAULT_ANNOTATION, "")
    return next((fault for fault in Fault if fault == value), None)


def crashes(pod: Pod) -> Iterator[Crash]:
    for key, value in pod.metadata.annotations.items():
        if key.startswith(CRASH_ANNOTATION):
            attempt, code = map(natural, value.partition(" ")[::2])
            if attempt is not None and code is not None:
                yield Crash(key.removeprefix(CRASH_ANNOTATION), attempt, code % 256)


def rebooted(pod: Pod, now: float) -> Pod:
    """The pod as a kubelet finds it after its machine has lost power: what ran runs no more. `now` is Unix time."""
    found = Pod()
    found.CopyFrom(pod)
    for status in (*found.status.initContainerStatuses, *found.status.containerStatuses):
        if status.state.HasField("running"):
            ended = ContainerStateTerminated(exitCode=LOST_POWER, reason="Unknown", finishedAt=to_time(now))
            ended.startedAt.CopyFrom(status.state.running.startedAt)
            status.state.Clear()
            status.state.terminated.CopyFrom(ended)
            status.ready = status.started = False
    return found
