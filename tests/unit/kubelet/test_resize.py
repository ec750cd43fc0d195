"""In-place resize on a node: applied at once, after a restart of the container, or when the node has room."""

import pytest

from pinnace.api.core_v1_pb2 import ContainerResizePolicy, ContainerStatus, Pod, PodCondition
from pinnace.fit import pod_requests
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.kubelet.fakeapi import FakeApi

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


def restarting(name: str) -> PodBuilder:
    builder = make_pod(name).req(cpu="1").declare(start_seconds="2", stop_seconds="3")
    policy = ContainerResizePolicy(resourceName="cpu", restartPolicy="RestartContainer")
    builder.main_containers()[0].resizePolicy.append(policy)
    return builder


def condition(pod: Pod, kind: str) -> PodCondition | None:
    return next((item for item in pod.status.conditions if item.type == kind), None)


def cpu(status: ContainerStatus) -> tuple[str, str]:
    """The allocated and the actual CPU."""
    return status.allocatedResources["cpu"].string, status.resources.requests["cpu"].string


def counted(pod: Pod) -> int:
    """The millicores that the scheduler and quotas count."""
    return dict(pod_requests(pod).amounts)["cpu"]


async def test_status_has_allocated_and_actual_resources(api: FakeApi) -> None:
    api.create(make_pod("a").container({"cpu": "1"}, {"cpu": "2"}))
    await api.clock.advance(0.0)
    (status,) = api.pod("a").status.containerStatuses
    assert cpu(status) == ("1", "1")
    assert status.resources.limits["cpu"].string == "2"
    api.resize("a", "1500m")
    await api.clock.advance(0.0)
    pod = api.pod("a")
    assert cpu(pod.status.containerStatuses[0]) == ("1500m", "1500m")
    assert pod.status.containerStatuses[0].restartCount == 0
    assert condition(pod, PENDING) is condition(pod, IN_PROGRESS) is None
    assert api.events == [("a", "ResizeCompleted")]


async def test_resize_is_deferred_until_another_pod_frees_room(api: FakeApi) -> None:
    api.create(make_pod("a").req(cpu="1"))
    api.create(make_pod("b").req(cpu="3"))
    await api.clock.advance(0.0)
    api.resize("a", "2")
    await api.clock.advance(0.0)
    pod = api.pod("a")
    pending = condition(pod, PENDING)
    assert pending is not None
    assert (pending.status, pending.reason, pending.observedGeneration) == ("True", "Deferred", pod.metadata.generation)
    assert pending.message == "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
    assert cpu(pod.status.containerStatuses[0]) == ("1", "1")
    assert counted(pod) == 2000
    api.remove("b")
    await api.clock.advance(0.0)
    pod = api.pod("a")
    assert condition(pod, PENDING) is None
    assert cpu(pod.status.containerStatuses[0]) == ("2", "2")
    assert api.events == [("a", "ResizeDeferred"), ("a", "ResizeCompleted")]


async def test_deferred_resize_is_applied_when_another_pod_shrinks(api: FakeApi) -> None:
    for name, amount in (("a", "1"), ("b", "3")):
        api.create(make_pod(name).req(cpu=amount))
    await api.clock.advance(0.0)
    api.resize("a", "2")
    api.resize("b", "2")
    await api.clock.advance(0.0)
    assert condition(api.pod("a"), PENDING) is None
    assert counted(api.pod("a")) == 2000


async def test_deferred_resize_of_the_highest_priority_is_applied_first(api: FakeApi) -> None:
    api.create(make_pod("blocker").req(cpu="2"))
    for name, priority in (("low", 1), ("high", 2)):
        api.create(make_pod(name).req(cpu="1").priority(priority))
    await api.clock.advance(0.0)
    for name in ("low", "high"):
        api.resize(name, "3")
    await api.clock.advance(0.0)
    api.remove("blocker")
    await api.clock.advance(0.0)
    assert condition(api.pod("high"), PENDING) is None
    assert condition(api.pod("low"), PENDING) is not None


async def test_resize_beyond_the_node_is_infeasible_until_the_node_grows(api: FakeApi) -> None:
    api.create(make_pod("a").req(cpu="1"))
    await api.clock.advance(0.0)
    api.resize("a", "8")
    await api.clock.advance(0.0)
    pending = condition(api.pod("a"), PENDING)
    assert pending is not None
    assert pending.reason == "Infeasible"
    assert pending.message == "Node didn't have enough capacity: cpu, requested: 8000, capacity: 4000"
    assert counted(api.pod("a")) == 1000
    api.create(make_pod("b").req(cpu="3"))
    await api.clock.advance(0.0)
    assert api.phases("b") == ["Running"]
    api.fleet.set_node(make_node("n").capacity(cpu=16, pods=10).build())
    await api.clock.advance(0.0)
    assert condition(api.pod("a"), PENDING) is None
    assert counted(api.pod("a")) == 8000


async def test_pending_resize_ends_when_the_spec_is_reverted(api: FakeApi) -> None:
    api.create(make_pod("a").req(cpu="1"))
    await api.clock.advance(0.0)
    api.resize("a", "8")
    await api.clock.advance(0.0)
    api.resize("a", "1")
    await api.clock.advance(0.0)
    assert condition(api.pod("a"), PENDING) is None


async def test_pod_can_shrink_on_an_overcommitted_node(api: FakeApi) -> None:
    api.create(make_pod("a").req(cpu="4"))
    await api.clock.advance(0.0)
    api.fleet.set_node(make_node("n").capacity(cpu=2, pods=10).build())
    api.resize("a", "3")
    await api.clock.advance(0.0)
    assert cpu(api.pod("a").status.containerStatuses[0]) == ("3", "3")


async def test_resize_policy_restart_container_restarts_the_container(api: FakeApi) -> None:
    api.create(restarting("a"))
    await api.clock.advance(2.0)
    api.resize("a", "500m")
    await api.clock.advance(0.0)
    pod = api.pod("a")
    progress = condition(pod, IN_PROGRESS)
    assert progress is not None
    assert progress.status == "True"
    assert cpu(pod.status.containerStatuses[0]) == ("500m", "1")
    assert counted(pod) == 1000
    await api.clock.advance(3.0)
    await api.clock.advance(2.0)
    pod = api.pod("a")
    assert condition(pod, IN_PROGRESS) is None
    assert cpu(pod.status.containerStatuses[0]) == ("500m", "500m")
    assert (pod.status.containerStatuses[0].restartCount, counted(pod)) == (1, 500)
    assert set(api.phases("a")) == {"Pending", "Running"}


async def test_restart_for_a_resize_skips_the_backoff(api: FakeApi) -> None:
    api.create(restarting("a"))
    await api.clock.advance(2.0)
    for restarts, amount in enumerate(("500m", "600m", "700m"), start=1):
        api.resize("a", amount)
        await api.clock.advance(3.0)
        await api.clock.advance(2.0)
        status = api.pod("a").status.containerStatuses[0]
        assert (status.restartCount, status.state.HasField("running")) == (restarts, True)


@pytest.mark.parametrize("delivered", [True, False], ids=["reported", "undelivered"])
async def test_restarted_kubelet_continues_a_pending_resize(api: FakeApi, delivered: bool) -> None:
    for name, amount in (("a", "1"), ("b", "3")):
        api.create(make_pod(name).req(cpu=amount))
    await api.clock.advance(0.0)
    api.deaf = not delivered
    api.resize("a", "2")
    await api.clock.advance(0.0)
    api.deaf = False
    await api.start_fleet()
    assert cpu(api.pod("a").status.containerStatuses[0]) == ("1", "1")
    assert condition(api.pod("a"), PENDING) is not None
    api.remove("b")
    await api.clock.advance(0.0)
    assert cpu(api.pod("a").status.containerStatuses[0]) == ("2", "2")


async def test_restarted_kubelet_continues_a_restart_for_a_resize(api: FakeApi) -> None:
    api.create(restarting("a"))
    await api.clock.advance(2.0)
    api.resize("a", "500m")
    await api.clock.advance(1.0)
    await api.start_fleet()
    assert condition(api.pod("a"), IN_PROGRESS) is not None
    await api.clock.advance(3.0)
    await api.clock.advance(2.0)
    pod = api.pod("a")
    assert condition(pod, IN_PROGRESS) is None
    assert cpu(pod.status.containerStatuses[0]) == ("500m", "500m")
    assert pod.status.containerStatuses[0].restartCount == 1


async def test_restarted_kubelet_does_not_take_a_changed_image_for_a_resize(api: FakeApi) -> None:
    api.create(make_pod("a").req(cpu="1"))
    await api.clock.advance(0.0)
    api.deaf = True
    api.set_image("a", "c0", "other")
    api.deaf = False
    await api.start_fleet()
    assert [reason for _, reason in api.events if reason.startswith("Resize")] == []
