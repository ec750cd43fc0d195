"""Preemption on a node: the pods that end for a critical pod."""

from typing import Any
from unittest.mock import patch

import pytest

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod
from pinnace.kubelet.eviction import CRITICAL
from pinnace.kubelet.pod_admission import PREEMPTING, select_pods_to_preempt
from pinnace.kubelet.runtime.interface import Moment
from pinnace.kubelet.runtime.simulated_runtime import SimulatedRuntime
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.kubelet.fakeapi import FakeApi

MI = 1 << 20


def burstable(name: str, size: int) -> PodBuilder:
    """A pod that requests `size` millicores and MiB."""
    return make_pod(name).container(size_of(size))


def guaranteed(name: str, size: int) -> PodBuilder:
    return make_pod(name).container(size_of(size), size_of(size))


def size_of(size: int) -> dict[str, str]:
    return {"cpu": f"{size}m", "memory": f"{size}Mi"}


BEST_EFFORT, SMALL, LARGE = make_pod("best-effort"), burstable("small", 100), burstable("large", 300)
SURE, SURE_LARGE = guaranteed("sure", 100), guaranteed("sure-large", 300)
CLUSTER, NODE = burstable("cluster", 100).priority(CRITICAL), burstable("node", 100).priority(CRITICAL + 1000)


@pytest.mark.parametrize(
    ("pod", "others", "cpu", "memory", "pods", "expected"),
    [
        (CLUSTER, [], 0, 0, 0, []),
        (CLUSTER, [], 0, 0, 1, None),
        (CLUSTER, [SMALL], 100, 100, 1, ["small"]),
        (CLUSTER, [SMALL], 200, 200, 2, None),
        (CLUSTER, [BEST_EFFORT], 0, 1, 0, None),
        (CLUSTER, [SMALL, BEST_EFFORT], 0, 0, 1, ["best-effort"]),
        (CLUSTER, [SMALL, SURE], 0, 0, 1, ["small"]),
        (CLUSTER, [BEST_EFFORT, LARGE, SMALL], 100, 100, 0, ["small"]),
        (CLUSTER, [BEST_EFFORT, SMALL, LARGE], 150, 150, 0, ["large"]),
        (CLUSTER, [BEST_EFFORT, SMALL, LARGE, SURE, SURE_LARGE], 350, 350, 0, ["large", "small"]),
        (CLUSTER, [BEST_EFFORT, SMALL, LARGE, SURE, SURE_LARGE], 0, 550, 0, ["large", "sure-large"]),
        (NODE, [CLUSTER], 100, 0, 0, ["cluster"]),
        (CLUSTER, [NODE], 100, 0, 0, None),
        (CLUSTER, [burstable("equal", 100).priority(CRITICAL)], 100, 0, 0, None),
    ],
)
def test_preempted_pods_are_few_and_of_low_importance(
    pod: PodBuilder, others: list[PodBuilder], cpu: int, memory: int, pods: int, expected: list[str] | None
) -> None:
    """The cases of Kubernetes' TestGetPodsToPreempt."""
    wanted = {"cpu": cpu, "memory": memory * MI, "pods": pods}
    lacking = {resource: amount for resource, amount in wanted.items() if amount}
    result = select_pods_to_preempt(pod.build(), [other.build() for other in others], lacking)
    assert (result if result is None else sorted(item.metadata.name for item in result)) == expected


async def test_critical_pod_runs_after_a_preempted_pod_has_ended(api: FakeApi) -> None:
    api.create(make_pod("keeps").req(cpu="1"))
    api.create(make_pod("goes").req(cpu="3").declare(stop_seconds="5"))
    await api.clock.advance(0.0)
    api.create(make_pod("critical").req(cpu="3").priority(CRITICAL))
    await api.clock.advance(4.9)
    assert (api.phases("goes"), api.phases("critical")) == (["Running"], [])
    await api.clock.advance(1.0)
    assert (api.phases("keeps"), api.phases("goes"), api.phases("critical")) == (
        ["Running"], ["Running", "Failed"], ["Running"],
    )  # fmt: skip
    status = api.pod("goes").status
    assert status.reason == PREEMPTING and conditions.is_condition_true(status.conditions, "DisruptionTarget")
    assert api.events == [("goes", PREEMPTING), ("goes", "Killing")]


async def test_critical_pod_that_cannot_fit_evicts_nothing(api: FakeApi) -> None:
    """All candidates together may not suffice, or the missing resource may not be the reason."""
    await api.start_fleet(make_node("n").capacity(cpu=4, pods=10).build())
    api.create(make_pod("small").req(cpu="3"))
    api.create(make_pod("large").req(cpu="5").priority(CRITICAL))
    api.create(make_pod("elsewhere").req(cpu="3").node_selector("zone", "a").priority(CRITICAL))
    api.create(make_pod("common").req(cpu="3").priority(CRITICAL - 1))
    await api.clock.advance(60.0)
    assert api.phases("small") == ["Running"]
    refused = {name: api.pod(name).status.reason for name in ("large", "elsewhere", "common")}
    assert refused == {"large": "UnexpectedAdmissionError", "elsewhere": "OutOfcpu", "common": "OutOfcpu"}
    assert "reclaim resources: [(res: cpu, q: 4000), ]" in api.pod("large").status.message


async def test_critical_pod_waits_for_terminating_pods(api: FakeApi) -> None:
    api.create(make_pod("ends").req(cpu="2").declare(stop_seconds="5"))
    api.create(make_pod("stays").req(cpu="2"))
    await api.clock.advance(0.0)
    api.delete("ends")
    api.create(make_pod("critical").req(cpu="2").priority(CRITICAL))
    await api.clock.advance(6.0)
    assert (api.phases("stays"), api.phases("critical")) == (["Running"], ["Running"])


async def test_waiting_critical_pod_can_be_deleted(api: FakeApi) -> None:
    api.create(make_pod("goes").req(cpu="3").declare(stop_seconds="20"))
    await api.clock.advance(0.0)
    api.create(make_pod("critical").req(cpu="3").priority(CRITICAL))
    await api.clock.advance(1.0)
    api.delete("critical")
    await api.clock.advance(0.0)
    assert api.phases("critical") == ["Failed", "deleted"]


async def test_failing_pod_is_not_waited_for(api: FakeApi) -> None:
    """The failing pod keeps its resources and cannot be ended, so that another pod is preempted."""
    api.trips = True
    await api.start_fleet(make_node("n").capacity(cpu=5, pods=10).build())
    api.create(make_pod("bugged").req(cpu="2"))
    api.create(make_pod("other").req(cpu="3"))
    await api.clock.advance(1)
    adopt = SimulatedRuntime.adopt_pod

    def tripping(self: SimulatedRuntime, pod: Pod, now: Moment) -> Any:
        if pod.metadata.name == "bugged":
            raise RuntimeError("a bug")
        return adopt(self, pod, now)

    with patch.object(SimulatedRuntime, "adopt_pod", tripping):
        await api.start_fleet(make_node("n").capacity(cpu=5, pods=10).build())
        await api.clock.advance(1)
        api.create(make_pod("critical").req(cpu="2").priority(CRITICAL))
        await api.clock.advance(60)
    assert api.pod("other").status.reason == PREEMPTING and api.pod("critical").status.phase == "Running"


async def test_freed_room_is_reserved_for_the_critical_pod(api: FakeApi) -> None:
    for number in range(4):
        api.create(make_pod(f"old-{number}").req(cpu="1"))
    await api.clock.advance(0.0)
    api.create(make_pod("critical").req(cpu="1").priority(CRITICAL))
    for number in range(3):
        await api.clock.advance(0.2)
        api.create(make_pod(f"new-{number}").req(cpu="1"))
        await api.clock.advance(0.3)
    await api.clock.advance(60)
    reasons = [api.pod(name).status.reason for name in api.created]
    assert api.pod("critical").status.phase == "Running"
    assert (reasons.count(PREEMPTING), reasons.count("OutOfcpu")) == (1, 3)


async def test_deleted_waiting_pod_releases_its_reservation(api: FakeApi) -> None:
    for number in range(4):
        api.create(make_pod(f"old-{number}").req(cpu="1"))
    await api.clock.advance(0.0)
    api.create(make_pod("critical").req(cpu="1").priority(CRITICAL))
    await api.clock.advance(0.1)
    api.delete("critical")
    await api.clock.advance(60)
    api.create(make_pod("new").req(cpu="1"))
    await api.clock.advance(1)
    assert api.pod("new").status.phase == "Running"
