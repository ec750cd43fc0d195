"""Nodes that fail or freeze on demand, and containers that crash on demand, as seen in the API."""

import pytest

from pinnace.api.core_v1_pb2 import ContainerStatus
from pinnace.api.wellknown import CRASH_ANNOTATION, FAULT_ANNOTATION
from pinnace.kubelet.node import ContainerCrash, NodeFault, node_fault, requested_crashes
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.kubelet.fakeapi import FakeApi


def small(name: str) -> PodBuilder:
    return make_pod(name).req(cpu="100m")


async def recover(api: FakeApi) -> None:
    """The node recovers."""
    api.fleet.set_node(make_node("n").build())
    api.relist()
    await api.clock.advance(0.0)


def container(api: FakeApi, name: str) -> ContainerStatus:
    (result,) = api.pod(name).status.containerStatuses
    return result


async def test_frozen_node_writes_nothing_and_its_containers_continue(api: FakeApi) -> None:
    api.create(small("a").declare(run_seconds="5", exit_code="1"))
    await api.clock.advance(0.0)
    api.nodes.freeze_nodes(["n"])
    await api.clock.advance(7.0)
    assert api.history == [("a", "Running")]
    assert api.events == [], "the crash is not reported either"
    await recover(api)
    assert container(api, "a").restartCount == 1
    assert container(api, "a").state.HasField("running")


async def test_frozen_node_ignores_changes_until_it_recovers(api: FakeApi) -> None:
    api.create(small("deleted"))
    api.create(small("removed"))
    await api.clock.advance(0.0)
    api.nodes.freeze_nodes(["n"])
    api.create(small("new"))
    api.delete("deleted")
    api.remove("removed")
    await api.clock.advance(60.0)
    assert api.phases("new") == []
    assert api.phases("deleted") == ["Running"]
    await recover(api)
    assert api.phases("deleted") == ["Running", "Succeeded", "deleted"]
    assert api.phases("new") == ["Running"]
    assert len(api.fleet) == 1, "removed pods are forgotten"


async def test_thawed_node_merges_foreign_status_changes(api: FakeApi) -> None:
    api.create(small("a").restart_policy("Never").declare(run_seconds="5"))
    api.create(small("b"))
    await api.clock.advance(0.0)
    api.nodes.freeze_nodes(["n"])
    await api.clock.advance(5.0)
    api.say_not_ready("a")
    api.say_not_ready("b")
    await recover(api)
    assert api.phases("a") == ["Running", "Succeeded"]
    assert api.is_ready("b")


async def test_pods_of_a_failed_node_are_restarted_when_it_boots(api: FakeApi) -> None:
    api.create(small("a"))
    api.create(small("job").restart_policy("Never"))
    await api.clock.advance(0.0)
    api.fleet.power_off(["n"])
    await api.clock.advance(60.0)
    assert len(api.fleet) == 0, "no container is running"
    assert api.history == [("a", "Running"), ("job", "Running")]
    api.delete("job")
    await recover(api)
    result = container(api, "a")
    assert (result.restartCount, result.ready, api.is_ready("a")) == (1, True, True)
    last = result.lastState.terminated
    assert (last.exitCode, last.reason) == (255, "Unknown")
    assert api.phases("job") == ["Running", "Failed", "deleted"]


async def test_boot_restarts_a_pod_once(api: FakeApi) -> None:
    api.create(small("a"))
    await api.clock.advance(0.0)
    api.fleet.power_off(["n"])
    await recover(api)
    await recover(api)
    api.touch("a")
    await api.clock.advance(0.0)
    assert container(api, "a").restartCount == 1


async def test_frozen_node_that_fails_loses_its_containers(api: FakeApi) -> None:
    api.create(small("a"))
    await api.clock.advance(0.0)
    api.nodes.freeze_nodes(["n"])
    api.fleet.power_off(["n"])
    api.nodes.freeze_nodes(["n"])
    assert len(api.fleet) == 0
    await recover(api)
    assert container(api, "a").restartCount == 1


async def test_requested_crash_happens_once(api: FakeApi) -> None:
    api.create(small("a"))
    await api.clock.advance(1.0)
    api.annotate("a", CRASH_ANNOTATION + "c0", "0 7")
    await api.clock.advance(1.0)
    result = container(api, "a")
    assert (result.restartCount, result.lastState.terminated.exitCode) == (1, 7)
    api.touch("a")
    await api.clock.advance(1.0)
    assert container(api, "a").restartCount == 1
    await api.start_fleet()
    assert container(api, "a").restartCount == 1, "the next process does not repeat the crash"


async def test_crash_requested_while_disconnected_happens(api: FakeApi) -> None:
    api.create(small("a").restart_policy("Never"))
    await api.clock.advance(0.0)
    await api.stop_fleet()
    api.annotate("a", CRASH_ANNOTATION + "c0", "0 7")
    await api.start_fleet()
    assert api.phases("a") == ["Running", "Failed"]


async def test_crash_annotation_with_thousands_of_digits_is_ignored(api: FakeApi) -> None:
    """Python does not parse such a number. An annotation could end the fleet, and every process that adopted the pod."""
    absurd = "9" * 5000
    key = CRASH_ANNOTATION + "c0"
    api.create(small("before").annotation(key, f"{absurd} 1"))
    api.create(small("a"))
    await api.clock.advance(1.0)
    api.annotate("a", key, f"0 {absurd}")
    await api.start_fleet()
    await api.clock.advance(1.0)
    assert api.history == [("before", "Running"), ("a", "Running")]


@pytest.mark.parametrize(
    ("value", "fault"), [("failed", NodeFault.FAILED), ("frozen", NodeFault.FROZEN), ("Failed", None), ("", None)]
)
def test_fault_annotation_of_a_node_is_parsed(value: str, fault: NodeFault | None) -> None:
    node = make_node("n").build()
    assert node_fault(node) is None
    node.metadata.annotations[FAULT_ANNOTATION] = value
    assert node_fault(node) is fault


@pytest.mark.parametrize(
    ("value", "crash"),
    [
        ("0 1", ContainerCrash("c0", 0, 1)),
        ("12 137", ContainerCrash("c0", 12, 137)),
        ("1", None),
        ("one 1", None),
        ("-1 1", None),
    ],
)
def test_crash_annotation_of_a_container_is_parsed(value: str, crash: ContainerCrash | None) -> None:
    pod = make_pod("a").build()
    pod.metadata.annotations[CRASH_ANNOTATION + "c0"] = value
    assert list(requested_crashes(pod)) == ([crash] if crash else [])
