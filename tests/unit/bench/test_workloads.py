"""The workloads have valid objects, constraints on their own pods, and enough room."""

import asyncio

import pytest

from pinnace.api.core_v1_pb2 import Pod, PodAffinityTerm
from pinnace.api.quantity import amounts
from pinnace.api.resources import (
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SERVICES,
    Object,
    Resource,
)
from pinnace.api.selectors import from_message
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.verification.bench import workloads
from pinnace.verification.bench.load import build_pod, shape_with_cpu
from pinnace.verification.bench.workloads import BEFORE, MEASURED, TOO_LARGE, WORKLOADS, PodGroup, Workload

EACH = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)


def problems(resource: Resource[Object], obj: Object) -> list[str]:
    """The violations of an object that is to be created."""
    strategy = STRATEGIES[resource.plural]
    strategy.prepare_create(obj)
    return [str(violation) for violation in strategy.validate(obj)]


def terms(made: Pod) -> list[PodAffinityTerm]:
    """The affinity terms of a pod."""
    affinity, anti = made.spec.affinity.podAffinity, made.spec.affinity.podAntiAffinity
    required = [term for item in (affinity, anti) for term in item.requiredDuringSchedulingIgnoredDuringExecution]
    preferred = [
        term.podAffinityTerm for item in (affinity, anti) for term in item.preferredDuringSchedulingIgnoredDuringExecution
    ]
    return required + preferred


@EACH
def test_pods_of_a_workload_are_valid(workload: Workload) -> None:
    for group in (workload.placed, workload.waiting, workload.measured):
        made = group.shape("a")
        assert made.metadata.name == "a" and not problems(PODS, made)


@EACH
def test_workload_fits_at_full_and_reduced_size(workload: Workload) -> None:
    assert workload.measured.count <= workload.max_measured_pods(workload.nodes)
    assert workload.measured.count // 50 <= workload.max_measured_pods(workload.nodes // 50)


@EACH
def test_constraints_select_the_pods_of_the_workload(workload: Workload) -> None:
    made = workload.measured.shape("a")
    for term in terms(made):
        assert from_message(term.labelSelector).matches(made.metadata.labels)
        assert set(term.namespaces) == {BEFORE, MEASURED}
    for constraint in made.spec.topologySpreadConstraints:
        assert from_message(constraint.labelSelector).matches(made.metadata.labels)


@pytest.mark.parametrize("name", [name for name in WORKLOADS if "affinity" in name or "spread" in name])
def test_constraints_match_the_name_of_the_workload(name: str) -> None:
    made = WORKLOADS[name].measured.shape("a")
    affinity = made.spec.affinity
    preferred = any(
        item.preferredDuringSchedulingIgnoredDuringExecution for item in (affinity.podAffinity, affinity.podAntiAffinity)
    ) or any(
        spread_constraint.whenUnsatisfiable == "ScheduleAnyway" for spread_constraint in made.spec.topologySpreadConstraints
    )
    assert preferred == name.startswith("preferred-")
    assert affinity.HasField("podAntiAffinity") == ("anti" in name)
    assert affinity.HasField("podAffinity") == ("pod-affinity" in name)
    assert affinity.HasField("nodeAffinity") == (name == "node-affinity")
    assert bool(made.spec.topologySpreadConstraints) == ("spread" in name)


def test_waiting_pods_cannot_be_bound() -> None:
    unschedulable, gated = (WORKLOADS[name].waiting.shape("a") for name in ("unschedulable", "gated"))
    asked, had = (
        amounts(item)["cpu"]
        for item in (unschedulable.spec.containers[0].resources.requests, workloads.build_node("n").status.capacity)
    )
    assert asked > had and unschedulable.spec.priorityClassName == "high"
    assert gated.spec.schedulingGates


def test_placed_pods_scale_with_the_nodes() -> None:
    workload = Workload(about="", nodes=5000, placed=PodGroup(1000), measured=PodGroup(1), per_node=1)
    assert [workload.scaled(1000, nodes) for nodes in (5000, 100, 1)] == [1000, 20, 1]
    assert [workload.max_measured_pods(nodes) for nodes in (5000, 100)] == [4000, 80]


def test_earlier_pods_are_checked_only_if_they_have_the_constraint() -> None:
    assert WORKLOADS["pod-anti-affinity"].constrained_pods({"old"}, {"new"}) == {"old", "new"}
    assert WORKLOADS["topology-spread"].constrained_pods({"old"}, {"new"}) == {"new"}


def test_shape_extends_the_default_pod() -> None:
    made = shape_with_cpu("metadata: {labels: {app: web}}", cpu="2")("a")
    expected = build_pod("a")
    expected.metadata.labels["app"] = "web"
    expected.spec.containers[0].resources.requests["cpu"].string = "2"
    assert made == expected


def test_claim_and_volume_are_bound_to_each_other() -> None:
    volume, claim, user = (
        workloads.build_volume("a", BEFORE),
        workloads.build_claim("a", BEFORE),
        workloads.build_pod_with_volume("a"),
    )
    assert claim.spec.volumeName == volume.metadata.name
    assert (volume.spec.claimRef.namespace, volume.spec.claimRef.name) == (BEFORE, claim.metadata.name)
    assert user.spec.volumes[0].volumeSource.persistentVolumeClaim.claimName == claim.metadata.name
    assert workloads.build_volume("a", MEASURED).metadata.name != volume.metadata.name
    assert not problems(PERSISTENT_VOLUMES, volume) and not problems(PERSISTENT_VOLUME_CLAIMS, claim)
    assert not problems(CSI_NODES, workloads.build_csi_node("n"))


def test_background_objects_are_valid() -> None:
    assert not problems(NODES, workloads.build_node("n")) and not problems(SERVICES, workloads.build_service("s"))
    assert not problems(PODS, TOO_LARGE("p"))


async def test_background_errors_are_reported_at_the_end() -> None:
    async def work() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        async with workloads.run_in_background(work()):
            await asyncio.sleep(0)


async def test_background_task_ends_with_the_body() -> None:
    task: list[asyncio.Task[None] | None] = []

    async def work() -> None:
        task.append(asyncio.current_task())
        await asyncio.Event().wait()

    async with workloads.run_in_background(work()):
        await asyncio.sleep(0)
    assert task[0] is not None and task[0].cancelled()
