"""Evictions by a node under pressure: victims, their order and the messages."""

import pytest

from pinnace.api.wellknown import PRESSURE_ANNOTATION
from pinnace.kubelet.eviction import (
    CRITICAL,
    THRESHOLD,
    PodConsumption,
    PressureKind,
    available_bytes,
    build_consumer,
    declared_shortages,
    eviction_message,
    exceeded_storage_limit,
    pressure_rejection,
    select_pod_to_evict,
)
from tests.builders import PodBuilder, make_node, make_pod

GI = 1 << 30


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("memory", {PressureKind.MEMORY: None}),
        ("memory=4Gi,disk,pid", {PressureKind.MEMORY: 4 * GI, PressureKind.DISK: None, PressureKind.PID: None}),
        ("memory=lots,patience,pid", {PressureKind.PID: None}),
    ],
)
def test_pressure_annotation_sets_conditions(text: str, wanted: dict[PressureKind, int | None]) -> None:
    node = make_node("n").build()
    node.metadata.annotations[PRESSURE_ANNOTATION] = text
    assert declared_shortages(node) == wanted


def order(kind: PressureKind, *consumers: PodConsumption) -> list[str]:
    """The names of the consumers in the order of their eviction."""
    left, gone = list(consumers), list[str]()
    while uid := select_pod_to_evict(kind, left):
        gone.append(uid)
        left = [item for item in left if item.uid != uid]
    return gone


def test_eviction_order_is_excess_then_priority_then_amount() -> None:
    assert order(
        PressureKind.MEMORY,
        PodConsumption("guaranteed", 0, used=2 * GI, requested=4 * GI),
        PodConsumption("modest", -5, used=GI, requested=GI),
        PodConsumption("best-effort", 0, used=GI, requested=0),
        PodConsumption("greedy", 0, used=3 * GI, requested=GI),
        PodConsumption("important", 100, used=9 * GI, requested=GI),
    ) == ["greedy", "best-effort", "important", "modest", "guaranteed"]


@pytest.mark.parametrize(
    ("builder", "requested"),
    [
        (make_pod("a").req(memory="1Gi").req(memory="1Gi"), 2),
        (make_pod("a").init(memory="10Gi").req(memory="1Gi"), 10),
        (make_pod("a").init(sidecar=True, memory="2Gi").init(memory="3Gi").req(memory="1Gi"), 5),
        (make_pod("a").req(memory="1Gi").overhead(memory="1Gi"), 2),
    ],
)
def test_requested_amount_includes_init_containers_sidecars_and_overhead(builder: PodBuilder, requested: int) -> None:
    assert build_consumer(builder.build(), PressureKind.MEMORY).requested == requested * GI


def test_eviction_order_under_pid_pressure_is_by_priority() -> None:
    high, low = PodConsumption("high", 10, used=9, requested=0), PodConsumption("low", 1, used=0, requested=0)
    assert order(PressureKind.PID, high, low) == ["low", "high"]


def test_critical_pods_are_not_evicted() -> None:
    assert order(
        PressureKind.MEMORY, PodConsumption("critical", CRITICAL, used=9 * GI, requested=0), PodConsumption("a", 0, 0, 0)
    ) == ["a"]


def test_available_amount_decreases_with_other_usage() -> None:
    uses = [3 * GI, GI]
    assert available_bytes(uses, 4 * GI, others=0) == THRESHOLD, "exactly the threshold"
    assert available_bytes(uses, 4 * GI, others=1) == THRESHOLD - 1
    assert available_bytes(uses, 4 * GI, others=9 * GI) == 0


def pod(**declared: str) -> PodBuilder:
    return make_pod("a").req(memory="1Gi").req(memory="1Gi").declare(**declared)


@pytest.mark.parametrize(
    ("builder", "used"),
    [
        (pod(), 2 * GI),
        (pod(memory_usage="3Gi"), 6 * GI),
        (pod(memory_usage="3Gi", memory_usage__c1="0"), 3 * GI),
        (pod(memory_usage="much"), 2 * GI),
        (pod().init(memory="8Gi").declare(memory_usage__i0="9Gi"), 2 * GI),
    ],
)
def test_usage_is_declared_or_equals_the_request(builder: PodBuilder, used: int) -> None:
    assert build_consumer(builder.build(), PressureKind.MEMORY).used == used


def test_eviction_message_names_resource_threshold_and_usage() -> None:
    built = pod(memory_usage__c1="3Gi").build()
    assert eviction_message(built, PressureKind.MEMORY, GI // 64) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 16Mi. "
        "Container c1 was using 3Gi, request is 1Gi, has larger consumption of memory."
    )
    assert eviction_message(built, PressureKind.PID, None) == "The node was low on resource: pids."


def test_sidecars_count_for_usage_and_requests() -> None:
    built = pod().init(memory="2Gi").init(sidecar=True, memory="1Gi").declare(memory_usage__i1="5Gi").build()
    result = build_consumer(built, PressureKind.MEMORY)
    assert (result.used, result.requested) == (7 * GI, 3 * GI)
    assert eviction_message(built, PressureKind.MEMORY, None) == (
        "The node was low on resource: memory. Container i1 was using 5Gi, request is 1Gi, has larger consumption of memory."
    )


def test_sidecar_over_its_local_storage_limit_is_reported() -> None:
    built = local("2Gi").init(sidecar=True).declare(ephemeral_storage_usage__i0="2Gi").build()
    assert exceeded_storage_limit(built) == "", "the sidecar has no limit, and the limit of the pod suffices"
    built.spec.initContainers[0].resources.limits["ephemeral-storage"].string = "1Gi"
    assert exceeded_storage_limit(built) == 'Container i0 exceeded its local ephemeral storage limit "1Gi".'


def local(*limits: str) -> PodBuilder:
    builder = make_pod("a")
    for limit in limits:
        builder = builder.container(limits={"ephemeral-storage": limit} if limit else None)
    return builder


def with_request(amount: str) -> PodBuilder:
    """A container with a limit of 1Gi, and another without a limit that requests `amount`."""
    return local("1Gi").container(requests={"ephemeral-storage": amount})


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        (local("1Gi").declare(ephemeral_storage_usage="1Gi"), ""),
        (local("1Gi").declare(ephemeral_storage_usage="2Gi"), 'Container c0 exceeded its local ephemeral storage limit "1Gi".'),
        (local("1Gi", "").declare(ephemeral_storage_usage__c1="1Gi"), ""),
        (
            local("1Gi", "").declare(ephemeral_storage_usage__c1="9Gi"),
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.",
        ),
        (local("1Gi").init(sidecar=True).declare(ephemeral_storage_usage__c0="0", ephemeral_storage_usage__i0="1Gi"), ""),
        (local("1Gi").declare(ephemeral_storage_usage="2Gi").priority(CRITICAL), ""),
        (local("").declare(ephemeral_storage_usage="2Gi"), ""),
        (with_request("2Gi").declare(ephemeral_storage_usage__c0="1Gi"), ""),
        (with_request("2Gi").declare(ephemeral_storage_usage__c0="1Gi", ephemeral_storage_usage__c1="much"), ""),
        (
            with_request("2Gi").declare(ephemeral_storage_usage__c0="1Gi", ephemeral_storage_usage__c1="1"),
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.",
        ),
    ],
)
def test_pod_over_its_local_storage_limit_is_reported(builder: PodBuilder, words: str) -> None:
    assert exceeded_storage_limit(builder.build()) == words


BEST_EFFORT, BURSTABLE = make_pod("a").req(), make_pod("a").req(cpu="1m")


@pytest.mark.parametrize(
    ("builder", "pressures", "words"),
    [
        (BEST_EFFORT, (), ""),
        (BEST_EFFORT, (PressureKind.MEMORY,), "The node had condition: [MemoryPressure]."),
        (BURSTABLE, (PressureKind.MEMORY,), ""),
        (BURSTABLE, (PressureKind.DISK,), "The node had condition: [DiskPressure]."),
        (BURSTABLE, (PressureKind.MEMORY, PressureKind.PID), "The node had condition: [MemoryPressure PIDPressure]."),
        (make_pod("a").req().priority(CRITICAL), (PressureKind.DISK,), ""),
    ],
)
def test_admission_under_pressure_depends_on_qos_and_priority(
    builder: PodBuilder, pressures: tuple[PressureKind, ...], words: str
) -> None:
    assert pressure_rejection(builder.build(), pressures) == words


@pytest.mark.parametrize("operator", ["Exists", "Equal", ""])
def test_pod_that_tolerates_memory_pressure_is_admitted(operator: str) -> None:
    """The taint has no value and equals an empty one. The scheduler assigns such pods to this node."""
    built = make_pod("a").req().build()
    built.spec.tolerations.add(key="node.kubernetes.io/memory-pressure", operator=operator, effect="NoSchedule")
    assert not pressure_rejection(built, [PressureKind.MEMORY])
    assert pressure_rejection(built, [PressureKind.DISK])
