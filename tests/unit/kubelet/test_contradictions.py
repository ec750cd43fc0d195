"""The status of a pod after another client overwrites fields that the kubelet owns."""

from collections.abc import Callable

import pytest

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import PodStatus
from pinnace.api.verbs_pb2 import MODIFIED
from pinnace.kubelet import pod_record
from pinnace.kubelet.status_manager import OVERWRITE_INTERVAL
from tests.builders import make_pod
from tests.unit.kubelet.fakeapi import FakeApi


def write_over(api: FakeApi, change: Callable[[PodStatus], None]) -> None:
    """Change the status of the pod as another client."""
    pod = api.pod("a")
    change(pod.status)
    api._changed(pod, MODIFIED)


def no_containers(status: PodStatus) -> None:
    del status.containerStatuses[:]


def not_ready(status: PodStatus) -> None:
    result = conditions.find_condition(status.conditions, "ContainersReady")
    assert result is not None
    result.status = "False"


def no_condition(status: PodStatus) -> None:
    del status.conditions[:]


def another_address(status: PodStatus) -> None:
    status.podIP = status.podIPs[0].ip = "198.51.100.9"


def another_host(status: PodStatus) -> None:
    status.hostIP = status.hostIPs[0].ip = "198.51.100.9"


def a_reason(status: PodStatus) -> None:
    status.reason, status.message = "Lost", "somebody says so"


async def running(api: FakeApi) -> PodStatus:
    """The reported status of a running pod."""
    api.create(make_pod("a").req(cpu="100m"))
    await api.clock.advance(1.0)
    reported = PodStatus()
    reported.CopyFrom(api.pod("a").status)
    api.history.clear()
    return reported


@pytest.mark.parametrize("change", [no_containers, not_ready, no_condition, another_address, another_host, a_reason])
async def test_contradiction_is_corrected_by_one_report(api: FakeApi, change: Callable[[PodStatus], None]) -> None:
    reported = await running(api)
    write_over(api, change)
    await api.clock.advance(600.0)
    assert len(api.history) == 1
    reported.conditions.sort(key=lambda item: item.type)
    result = api.pod("a").status
    result.conditions.sort(key=lambda item: item.type)
    assert result == reported


async def test_contradiction_is_handled_before_the_report_is_answered(api: FakeApi) -> None:
    api.answers.clear()
    api.create(make_pod("a").req(cpu="100m"))
    await api.clock.advance(1.0)
    write_over(api, no_containers)
    api.touch("a")
    api.answers.set()
    await api.clock.advance(1.0)
    assert len(api.pod("a").status.containerStatuses) == 1


def shuffled(status: PodStatus) -> None:
    status.conditions.reverse()


def other_transition_times(status: PodStatus) -> None:
    for condition in status.conditions:
        condition.lastTransitionTime.seconds += 60


def foreign_fields(status: PodStatus) -> None:
    status.conditions.add(type="example.com/audited", status="True")
    status.nominatedNodeName = "other"


@pytest.mark.parametrize("change", [shuffled, other_transition_times, foreign_fields])
async def test_equal_or_foreign_fields_are_not_corrected(api: FakeApi, change: Callable[[PodStatus], None]) -> None:
    await running(api)
    write_over(api, change)
    await api.clock.advance(600.0)
    assert api.history == []


@pytest.mark.parametrize("code", [0, 3])
async def test_recorded_end_of_a_pod_survives_foreign_changes(api: FakeApi, code: int) -> None:
    api.create(make_pod("a").req(cpu="100m").restart_policy("Never").declare(run_seconds=5, exit_code=code))
    await api.clock.advance(6.0)
    await api.start_fleet()
    reported = api.pod("a").status.containerStatuses[0]
    assert reported.state.terminated.exitCode == code and reported.state.terminated.reason in ("Completed", "Error")
    api.history.clear()
    write_over(api, foreign_fields)
    await api.clock.advance(600.0)
    assert api.history == [] and api.pod("a").status.containerStatuses[0] == reported


async def test_start_reported_by_another_process_is_not_repeated(api: FakeApi) -> None:
    """The other process still runs the nodes that this one has taken over."""

    def started(status: PodStatus) -> None:
        status.phase = "Running"

    api.create(make_pod("a").req(cpu="100m").declare(start_seconds="5"))
    await api.clock.advance(1.0)
    api.history.clear()
    write_over(api, started)
    await api.clock.advance(3.0)
    assert api.history == []
    await api.clock.advance(60.0)
    assert api.phases("a") == ["Running"] and len(api.pod("a").status.containerStatuses) == 1


async def test_conflicting_writers_do_not_loop_and_the_kubelet_wins(api: FakeApi) -> None:
    await running(api)
    for _ in range(600):
        write_over(api, a_reason)
        await api.clock.advance(0.1)
    assert 0 < len(api.history) <= 60 / OVERWRITE_INTERVAL + 1
    await api.clock.advance(OVERWRITE_INTERVAL)
    assert api.pod("a").status.reason == ""
    api.history.clear()
    await api.clock.advance(600.0)
    assert api.history == []


@pytest.mark.parametrize("late", [False, True])
async def test_only_foreign_writes_are_compared(api: FakeApi, monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    """Thousands of pods change per second, and a comparison is expensive."""

    def alike(one: PodStatus, other: PodStatus) -> bool:
        raise AssertionError("compared")

    monkeypatch.setattr(pod_record, "statuses_equal", alike)
    api.create(make_pod("a").req(cpu="100m").declare(start_seconds="1"))
    await api.clock.advance(0.0)
    api.deaf = late
    await api.clock.advance(2.0)
    api.deliver()
    api.touch("a")
    await api.clock.advance(1.0)
    api.delete("a")
    await api.clock.advance(60.0)
    assert api.phases("a") == ["Pending", "Running", "Succeeded", "deleted"]
