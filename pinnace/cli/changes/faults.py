"""Faults on demand, as changes of objects: the fleet that plays the node obeys the annotations. Pure.

What they mean: kubelet/faults.py.
"""

from collections.abc import Sequence

from pinnace.api.core_v1_pb2 import ContainerStatus, Node, Pod
from pinnace.api.wellknown import CRASH_ANNOTATION, FAULT_ANNOTATION, FLEET_LABEL, PRESSURE_ANNOTATION
from pinnace.cli.changes.compare_and_swap import Change
from pinnace.cli.outcomes import Failure

SHORTAGES = ("memory", "disk", "pid")


def failing(fault: str) -> Change:
    """`fault`: "failed" or "frozen"."""

    def change(node: Node) -> str:
        _check(node)
        if node.metadata.annotations.get(FAULT_ANNOTATION) == fault:
            return f"already {fault}"
        node.metadata.annotations[FAULT_ANNOTATION] = fault
        return fault

    return change


def pressing(kinds: Sequence[str]) -> Change:
    """`kinds`: such as "memory=4Gi", "pid"."""
    value = ",".join(kinds)

    def change(node: Node) -> str:
        _check(node)
        node.metadata.annotations[PRESSURE_ANNOTATION] = value
        return f"under pressure: {value}"

    return change


def recovering(node: Node) -> str:
    annotations = node.metadata.annotations
    found = [key for key in (FAULT_ANNOTATION, PRESSURE_ANNOTATION) if key in annotations]
    for key in found:
        del annotations[key]
    return "recovered" if found else "has nothing to recover from"


def crashing(container: str, code: int) -> Change:
    """`container`: its name; empty: all that run."""

    def change(pod: Pod) -> str:
        running = [each for each in _statuses(pod) if each.state.HasField("running") and container in ("", each.name)]
        if not running:
            raise Failure(f"its container {container} does not run" if container else "none of its containers runs")
        for each in running:
            pod.metadata.annotations[CRASH_ANNOTATION + each.name] = f"{each.restartCount} {code}"
        return f"crashed: {', '.join(each.name for each in running)}"

    return change


def _statuses(pod: Pod) -> Sequence[ContainerStatus]:
    return (*pod.status.initContainerStatuses, *pod.status.containerStatuses)


def _check(node: Node) -> None:
    """Raises Failure for a node that nobody would obey."""
    if FLEET_LABEL not in node.metadata.labels:
        raise Failure("no fleet plays it", hint="only virtual nodes can be told to fail: those of `pinnace node add`")
