"""What the verbs that let nodes fail and pods crash change."""

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.wellknown import FAULT_ANNOTATION, FLEET_LABEL, PRESSURE_ANNOTATION
from pinnace.cli.outcomes import Failure
from pinnace.cli.verbs.node import build_crash_change, build_failure_change, build_pressure_change, remove_failures
from tests.builders import make_node, make_pod


def test_node_fails_freezes_and_recovers() -> None:
    node = make_node("n").label(FLEET_LABEL, "f").build()
    assert build_failure_change("failed")(node) == "failed"
    assert build_failure_change("failed")(node) == "already failed"
    assert build_failure_change("frozen")(node) == "frozen"
    assert node.metadata.annotations[FAULT_ANNOTATION] == "frozen"
    assert build_pressure_change(["memory=4Gi", "pid"])(node) == "under pressure: memory=4Gi,pid"
    assert node.metadata.annotations[PRESSURE_ANNOTATION] == "memory=4Gi,pid"
    assert remove_failures(node) == "recovered"
    assert not node.metadata.annotations
    assert remove_failures(node) == "has nothing to recover from"


@pytest.mark.parametrize("change", [build_failure_change("failed"), build_pressure_change(["memory"])])
def test_fault_on_a_node_without_a_fleet_is_refused(change: object) -> None:
    assert callable(change)
    with pytest.raises(Failure, match="no fleet plays it"):
        change(make_node("n").build())


def crashed(container: str) -> Pod:
    """Of two containers; b has been restarted twice, and c waits."""
    pod = make_pod("p").build()
    for name, restarts in (("a", 0), ("b", 2), ("c", 1)):
        status = pod.status.containerStatuses.add(name=name, restartCount=restarts)
        if name != "c":
            status.state.running.SetInParent()
    build_crash_change(container, 7)(pod)
    return pod


def test_all_containers_that_run_crash_or_one() -> None:
    assert dict(crashed("").metadata.annotations) == {"pinnace.io/crash.a": "0 7", "pinnace.io/crash.b": "2 7"}
    assert dict(crashed("b").metadata.annotations) == {"pinnace.io/crash.b": "2 7"}


def test_crash_needs_a_running_container() -> None:
    with pytest.raises(Failure, match="its container c does not run"):
        crashed("c")
    with pytest.raises(Failure, match="none of its containers runs"):
        build_crash_change("", 1)(make_pod("p").build())
