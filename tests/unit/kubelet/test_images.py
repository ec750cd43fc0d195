"""A container whose image changes is stopped and started with the new image, under any restart policy."""

import pytest

from pinnace.api.core_v1_pb2 import ContainerStatus
from tests.builders import PodBuilder, make_pod
from tests.unit.kubelet.fakeapi import FakeApi


def pod() -> PodBuilder:
    return make_pod("a").image("v1")


def status(api: FakeApi) -> ContainerStatus:
    return api.pod("a").status.containerStatuses[0]


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
async def test_changed_image_restarts_the_container(api: FakeApi, policy: str) -> None:
    api.create(pod().restart_policy(policy).declare(stop_seconds=2))
    await api.clock.advance(10.0)
    api.set_image("a", "c0", "v2")
    await api.clock.advance(1.0)
    assert (status(api).image, status(api).restartCount) == ("v1", 0), "the old container still runs"
    assert api.events == [("a", "Killing")]
    await api.clock.advance(2.0)
    assert (status(api).image, status(api).restartCount, status(api).ready) == ("v2", 1, True)
    assert status(api).state.HasField("running") and status(api).lastState.terminated.exitCode == 0
    assert {phase for _, phase in api.history} == {"Running"}
    await api.clock.advance(60.0)
    assert status(api).restartCount == 1 and api.events == [("a", "Killing")]


async def test_reverted_image_change_restarts_nothing(api: FakeApi) -> None:
    api.create(pod().declare(start_seconds=5))
    api.set_image("a", "c0", "v2")
    api.set_image("a", "c0", "v1")
    await api.clock.advance(20.0)
    assert (status(api).image, status(api).restartCount, api.events) == ("v1", 0, [])


async def test_new_image_skips_the_crash_backoff(api: FakeApi) -> None:
    api.create(pod().declare(run_seconds="1", exit_code="1"))
    await api.clock.advance(20.0)
    assert status(api).state.waiting.reason == "CrashLoopBackOff"
    count = status(api).restartCount
    api.set_image("a", "c0", "v2")
    await api.clock.advance(0.5)
    assert (status(api).image, status(api).restartCount) == ("v2", count + 1)
    assert status(api).state.HasField("running")
    await api.clock.advance(1.0)
    assert status(api).restartCount == count + 2, "the back-off is reset"


async def test_finished_container_ignores_an_image_change(api: FakeApi) -> None:
    api.create(pod().container().restart_policy("Never").declare(run_seconds__c0=1))
    await api.clock.advance(5.0)
    api.set_image("a", "c0", "v2")
    await api.clock.advance(5.0)
    assert status(api).state.terminated.reason == "Completed" and status(api).restartCount == 0


async def test_restarted_kubelet_applies_a_missed_image_change(api: FakeApi) -> None:
    """The image changed while no kubelet process ran."""
    api.create(pod())
    await api.clock.advance(5.0)
    await api.stop_fleet()
    api.set_image("a", "c0", "v2")
    await api.start_fleet()
    await api.clock.advance(5.0)
    assert (status(api).image, status(api).restartCount) == ("v2", 1)


async def test_image_change_restarts_only_its_container(api: FakeApi) -> None:
    api.create(pod().container().init(sidecar=True).init())
    await api.clock.advance(5.0)
    api.set_image("a", "c1", "v2")
    api.set_image("a", "i1", "v2")  # i1 has succeeded, and does not run again
    await api.clock.advance(5.0)
    said = api.pod("a").status
    assert [container_status.restartCount for container_status in said.containerStatuses] == [0, 1]
    assert [container_status.restartCount for container_status in said.initContainerStatuses] == [0, 0]
    api.set_image("a", "i0", "v2")
    await api.clock.advance(5.0)
    assert [container_status.restartCount for container_status in api.pod("a").status.initContainerStatuses] == [1, 0]
    assert api.pod("a").status.phase == "Running"


async def test_terminating_pod_ignores_an_image_change(api: FakeApi) -> None:
    api.create(pod().declare(stop_seconds=3))
    await api.clock.advance(5.0)
    api.delete("a")
    api.set_image("a", "c0", "v2")
    await api.clock.advance(10.0)
    assert api.pods == {}


async def test_image_reverted_after_the_stop_hook_restarts(api: FakeApi) -> None:
    """The container was asked to end, so that its state is unknown."""
    builder = pod()
    builder.main_containers()[0].lifecycle.preStop.sleep.seconds = 5
    api.create(builder)
    await api.clock.advance(5.0)
    api.set_image("a", "c0", "v2")
    await api.clock.advance(2.0)
    api.set_image("a", "c0", "v1")
    await api.clock.advance(20.0)
    assert (status(api).image, status(api).restartCount, status(api).ready) == ("v1", 1, True)
    await api.clock.advance(60.0)
    assert status(api).restartCount == 1
    api.delete("a")
    await api.clock.advance(4.0)
    assert api.pods, "the hook runs again"
    await api.clock.advance(2.0)
    assert not api.pods
