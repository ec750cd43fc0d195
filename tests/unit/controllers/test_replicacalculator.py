"""The replicas that the usage of a resource asks for."""

from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.metrics_v1beta1_pb2 import PodMetrics
from pinnace.controllers.replicacalculator import (
    MetricError,
    PodUsage,
    StartupDelays,
    Tolerances,
    group_pods,
    propose_for_average,
    propose_for_utilization,
    requests_by_pod,
    usage_by_pod,
)

NOW = 10_000.0
TOLERANCES = Tolerances(0.1, 0.1)


def make_pod(
    name: str, *, request: str = "1", phase: str = "Running", ready: str = "True", started: float = 0.0, **more: Any
) -> Pod:
    pod = Pod()
    pod.metadata.name = name
    pod.spec.containers.add(name="main").resources.requests["cpu"].string = request
    pod.status.phase = phase
    pod.status.startTime.seconds = int(started)
    pod.status.conditions.add(type="Ready", status=ready).lastTransitionTime.seconds = int(more.get("changed", started))
    if more.get("deleted"):
        pod.metadata.deletionTimestamp.seconds = 1
    return pod


def proposed(pods: list[Pod], usage: dict[str, int], target: int, current: int | None = None) -> tuple[int, int | None]:
    used = {name: PodUsage(value, NOW, 0.0) for name, value in usage.items()}
    groups = group_pods(pods, used, "cpu", StartupDelays(), NOW)
    replicas = len(pods) if current is None else current
    result = propose_for_utilization(replicas, target, used, groups, requests_by_pod(pods, "cpu"), TOLERANCES)
    return result.replicas, result.utilization


@pytest.mark.parametrize(
    ("usage", "target", "expected"),
    [
        ({"a": 900, "b": 900}, 50, (4, 90)),
        ({"a": 100, "b": 100}, 50, (1, 10)),
        ({"a": 520, "b": 520}, 50, (2, 52)),  # within the tolerance
        ({"a": 900, "b": 0}, 50, (2, 45)),
    ],
)
def test_replicas_follow_the_utilization(usage: dict[str, int], target: int, expected: tuple[int, int]) -> None:
    assert proposed([make_pod("a"), make_pod("b")], usage, target) == expected


def test_pods_that_start_count_as_idle_when_scaling_up_only() -> None:
    pods = [make_pod("a"), make_pod("b", phase="Pending"), make_pod("c", ready="False", started=NOW - 10)]
    assert proposed(pods, {"a": 2000, "c": 2000}, 50) == (4, 200)  # 2000 of 3 pods: 66 % of 50 % is 1.32; ceil(1.32 * 3)
    assert proposed(pods, {"a": 100, "c": 2000}, 50) == (1, 10)


def test_pods_without_usage_never_turn_the_change_around() -> None:
    pods = [make_pod("a"), make_pod("b"), make_pod("c")]
    assert proposed(pods, {"a": 700}, 50) == (3, 70)  # one of three would be fewer
    assert proposed(pods, {"a": 100}, 50) == (3, 10)  # with the others at 100 % it would be more
    assert proposed(pods, {"a": 3000}, 50) == (6, 300)
    assert proposed(pods, {"a": 100, "b": 100}, 80) == (2, 10)


def test_deleted_and_ended_pods_are_ignored() -> None:
    pods = [make_pod("a"), make_pod("b", deleted=True), make_pod("c", phase="Succeeded")]
    assert proposed(pods, {"a": 900, "b": 5000}, 50, current=1) == (2, 90)


def test_target_above_the_requests_counts_missing_pods_at_the_target() -> None:
    assert proposed([make_pod("a"), make_pod("b")], {"a": 900}, 200) == (2, 90)


@pytest.mark.parametrize(
    ("started", "changed", "timestamp", "window", "ready"),
    [
        (NOW - 100, NOW - 50, NOW, 15.0, True),
        (NOW - 100, NOW - 10, NOW, 15.0, False),  # the window began before the pod was ready
        (NOW - 1000, NOW - 10, NOW, 15.0, True),
    ],
)
def test_cpu_of_a_new_pod_counts_after_a_whole_window(
    started: float, changed: float, timestamp: float, window: float, ready: bool
) -> None:
    pod = make_pod("a", started=started, changed=changed)
    groups = group_pods([pod], {"a": PodUsage(1, timestamp, window)}, "cpu", StartupDelays(), NOW)
    assert ("a" in groups.ready) is ready
    assert "a" in group_pods([pod], {"a": PodUsage(1, timestamp, window)}, "memory", StartupDelays(), NOW).ready


def test_average_value_has_no_requests() -> None:
    pods = [make_pod("a"), make_pod("b")]
    usage = {name: PodUsage(300, NOW, 0.0) for name in ("a", "b")}
    groups = group_pods(pods, usage, "cpu", StartupDelays(), NOW)
    assert propose_for_average(2, 100, usage, groups, TOLERANCES)[:2] == (6, 300)


@pytest.mark.parametrize(("tolerances", "replicas"), [(Tolerances(0.1, 0.0), 3), (Tolerances(0.0, 0.1), 2)])
def test_tolerance_is_that_of_the_direction(tolerances: Tolerances, replicas: int) -> None:
    pods = [make_pod("a"), make_pod("b")]
    usage = {name: PodUsage(105, NOW, 0.0) for name in ("a", "b")}
    groups = group_pods(pods, usage, "cpu", StartupDelays(), NOW)
    assert propose_for_average(2, 100, usage, groups, tolerances).replicas == replicas


def test_errors_name_the_container_and_the_pod() -> None:
    pod = make_pod("a")
    pod.spec.containers.add(name="side")
    with pytest.raises(MetricError, match=r"^missing request for cpu in container side of Pod a$"):
        requests_by_pod([pod], "cpu")
    assert requests_by_pod([pod], "cpu", "main") == {"a": 1000}
    with pytest.raises(MetricError, match=r"^container other not found in Pod a$"):
        requests_by_pod([pod], "cpu", "other")
    pod.spec.resources.requests["cpu"].string = "3"
    assert requests_by_pod([pod], "cpu") == {"a": 3000}


def test_usage_is_that_of_all_containers_or_of_one() -> None:
    metrics = PodMetrics()
    metrics.metadata.name, metrics.metadata.namespace = "a", "n"
    for name, cpu in (("main", "250m"), ("side", "1500000n")):
        metrics.containers.add(name=name).usage["cpu"].string = cpu
    assert usage_by_pod([metrics], "cpu")["a"].value == 252
    assert usage_by_pod([metrics], "cpu", "main")["a"].value == 250
    assert usage_by_pod([metrics], "memory") == {}
    with pytest.raises(MetricError, match=r"^container other not present in metrics for pod n/a$"):
        usage_by_pod([metrics], "cpu", "other")
