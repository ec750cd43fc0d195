"""What a pod asks for: the rules of Kubernetes, one case a row."""

import pytest

from pinnace.api.core_v1_pb2 import ContainerStatus, Pod, PodCondition, ResourceRequirements
from pinnace.fit import HostPort, pod_requests
from pinnace.fit.requests import DEFAULT_CPU, DEFAULT_MEMORY, MAX_AMOUNT, MAX_SPEC, counted_spec
from tests.builders import PodBuilder, make_pod

MI = 1 << 20


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod("empty"), {}),
        (make_pod("one").req(cpu="100m", memory="500Mi"), {"cpu": 100, "memory": 500 * MI}),
        (make_pod("two").req(cpu="100m").req(cpu=1, memory="1Mi"), {"cpu": 1100, "memory": MI}),
        (make_pod("zero").req(cpu=0, memory="1Mi"), {"memory": MI}),
        (make_pod("limit").container(limits={"cpu": 2}), {"cpu": 2000}),
        (make_pod("request-wins").container({"cpu": 1}, limits={"cpu": 2, "memory": "1Mi"}), {"cpu": 1000, "memory": MI}),
        (make_pod("init-is-less").req(cpu=2).init(cpu=1), {"cpu": 2000}),
        (make_pod("init-is-more").req(cpu=2, memory="1Mi").init(cpu=3), {"cpu": 3000, "memory": MI}),
        (make_pod("inits-by-max").req(cpu=1).init(cpu=2).init(cpu=3), {"cpu": 3000}),
        (make_pod("sidecar").req(cpu=1).init(sidecar=True, cpu=2), {"cpu": 3000}),
        (make_pod("init-after-sidecar").req(cpu=1).init(sidecar=True, cpu=2).init(cpu=5), {"cpu": 7000}),
        (make_pod("init-before-sidecar").req(cpu=1).init(cpu=5).init(sidecar=True, cpu=2), {"cpu": 5000}),
        (make_pod("overhead").req(cpu=1).overhead(cpu="250m", memory="1Mi"), {"cpu": 1250, "memory": MI}),
        (make_pod("gpu").container({"example.com/gpu": 2}), {"example.com/gpu": 2}),
        (make_pod("absurd").req(memory="7Ei"), {"memory": MAX_AMOUNT}),
    ],
    ids=lambda value: value.build().metadata.name if isinstance(value, PodBuilder) else "",
)
def test_amounts(pod: PodBuilder, expected: dict[str, int]) -> None:
    assert dict(pod_requests(pod.build()).amounts) == {"pods": 1, **expected}


def test_reasons_are_reported_in_a_fixed_order() -> None:
    pod = make_pod("a").container({"example.com/a": 1, "ephemeral-storage": 1, "memory": 1, "cpu": 1}).build()
    assert [name for name, _ in pod_requests(pod).amounts] == ["pods", "cpu", "memory", "ephemeral-storage", "example.com/a"]


def test_host_ports_of_containers_and_sidecars() -> None:
    pod = make_pod("a").host_port(80).host_port(53, "UDP", "10.0.0.1").host_port(80).init(sidecar=True).init().build()
    for container, port in zip(pod.spec.initContainers, (90, 91), strict=True):
        container.ports.add(containerPort=port, hostPort=port)
    assert pod_requests(pod).ports == (
        HostPort("0.0.0.0", "TCP", 80),
        HostPort("0.0.0.0", "TCP", 90),
        HostPort("10.0.0.1", "UDP", 53),
    )


def test_pod_on_the_host_network_takes_its_container_ports() -> None:
    pod = make_pod("a").req().build()
    pod.spec.containers[0].ports.add(containerPort=8080)
    assert pod_requests(pod).ports == ()
    pod.spec.hostNetwork = True
    assert pod_requests(pod).ports == (HostPort("0.0.0.0", "TCP", 8080),)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod("nothing").req(), (DEFAULT_CPU, DEFAULT_MEMORY)),
        (make_pod("none").req(cpu=0, memory=0), (0, 0)),
        (make_pod("one-of-them").req(cpu=1, memory=0), (1000, 0)),
        (make_pod("stated").req(cpu=1, memory="1Mi"), (1000, MI)),
        (make_pod("per-container").req(cpu=1).req(memory="1Mi"), (1000 + DEFAULT_CPU, MI + DEFAULT_MEMORY)),
    ],
    ids=lambda value: value.build().metadata.name if isinstance(value, PodBuilder) else "",
)
def test_scores_count_what_is_not_requested(pod: PodBuilder, expected: tuple[int, int]) -> None:
    assert pod_requests(pod.build()).scored == expected


def test_pods_of_one_template_share_their_requests() -> None:
    assert pod_requests(make_pod("a").req(cpu=1).build()) is pod_requests(make_pod("b").req(cpu=1).build())


def test_large_specs_are_not_remembered() -> None:
    """Thousands of them would be gigabytes."""
    small, large = make_pod("small").req(cpu=1).build(), make_pod("large").req(cpu=1).build()
    large.spec.containers[0].image = "i" * MAX_SPEC
    assert pod_requests(small) is pod_requests(small)
    assert pod_requests(large) is not pod_requests(large)
    assert pod_requests(large) == pod_requests(small)


def resized(desired: str, allocated: str, actual: str, reason: str = "", *, seen: int = 2, condition_seen: int = 2) -> Pod:
    """`reason`: of PodResizePending; empty: there is no such condition. The spec has generation 2."""
    pod = make_pod("a").req(cpu=desired, memory="1Mi").build()
    pod.metadata.generation, pod.status.observedGeneration = 2, seen
    status = ContainerStatus(name=pod.spec.containers[0].name, resources=ResourceRequirements())
    status.allocatedResources["cpu"].string = allocated
    status.resources.requests["cpu"].string = actual
    pod.status.containerStatuses.append(status)
    if reason:
        pending = PodCondition(type="PodResizePending", status="True", reason=reason, observedGeneration=condition_seen)
        pod.status.conditions.append(pending)
    return pod


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (resized("2", "1", "1", "Deferred"), 2000),
        (resized("1", "2", "1", "Deferred"), 2000),
        (resized("1", "1", "2", "Deferred"), 2000),
        (resized("8", "1", "2", "Infeasible"), 2000),
        (resized("4", "1", "2", "Infeasible", seen=1, condition_seen=1), 4000),
        (resized("1", "2", "2", seen=1), 2000),
        (resized("1", "2", "2"), 1000),
        (resized("1", "2", "2", seen=0), 1000),
    ],
    ids=["deferred", "allocated", "actual", "infeasible", "newer-than-infeasible", "unseen", "seen", "never-seen"],
)
def test_pod_that_is_resized_counts_with_its_largest_amounts(pod: Pod, expected: int) -> None:
    requests = pod_requests(pod)
    assert dict(requests.amounts)["cpu"] == requests.scored[0] == expected


def test_pod_in_progress_counts_its_actual_limits_and_keeps_its_spec() -> None:
    pod = resized("1", "1", "2")
    pod.status.conditions.append(PodCondition(type="PodResizeInProgress", status="True"))
    pod.status.containerStatuses[0].resources.limits["cpu"].string = "3"
    assert counted_spec(pod).containers[0].resources.limits["cpu"].string == "3"
    assert pod.spec.containers[0].resources.requests["cpu"].string == "1"
    assert "cpu" not in pod.spec.containers[0].resources.limits
