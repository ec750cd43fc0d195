"""What an object uses, by the documented rules: https://kubernetes.io/docs/concepts/policy/resource-quotas/."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    LIMIT_RANGES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    RESOURCE_QUOTAS,
    ROLES,
    SERVICES,
    Resource,
)
from pinnace.apiserver.quota import usage
from pinnace.apiserver.quota.usage import compute_usage
from tests.builders import PodBuilder, make_pod

NOW = 1_000.0
PLACE = {"count/pods": 1, "pods": 1}


def used(obj: Any) -> dict[str, int]:
    """What is more than nothing."""
    return {name: amount for name, amount in compute_usage(obj, NOW).amounts if amount}


def made(resource: Resource[Any], **data: Any) -> Any:
    return from_dict(resource, {"metadata": {"name": "a", "namespace": "default"}, **data})


def claim(**more: Any) -> Any:
    return made(PERSISTENT_VOLUME_CLAIMS, spec={"resources": {"requests": {"storage": "1Gi"}}, **more})


def service(**spec: Any) -> Any:
    return made(SERVICES, spec={"ports": [{"port": 80, "nodePort": 30000}, {"port": 443}], **spec})


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod("a").req(), {}),
        (make_pod("a").req(cpu="100m"), {"cpu": 100, "requests.cpu": 100}),
        (
            make_pod("a").container({"cpu": 1, "memory": "1Gi"}, {"cpu": 2, "memory": "2Gi"}).req(cpu="500m"),
            {
                "cpu": 1500, "requests.cpu": 1500, "limits.cpu": 2000,
                "memory": 1 << 30, "requests.memory": 1 << 30, "limits.memory": 2 << 30,
            },
        ),
        (make_pod("a").req(cpu=1).init(cpu=3), {"cpu": 3000, "requests.cpu": 3000}),
        (make_pod("a").req(cpu=1).init(sidecar=True, cpu=1).init(cpu=2), {"cpu": 3000, "requests.cpu": 3000}),
        (
            make_pod("a").container({"cpu": 1}, {"cpu": 1}).overhead(cpu="250m", memory="1Mi"),
            {"cpu": 1250, "requests.cpu": 1250, "limits.cpu": 1250, "memory": 1 << 20, "requests.memory": 1 << 20},
        ),
        (
            make_pod("a").container({"ephemeral_storage": "1Ki"}, {"ephemeral_storage": "2Ki"}),
            {"ephemeral-storage": 1024, "requests.ephemeral-storage": 1024, "limits.ephemeral-storage": 2048},
        ),
        (make_pod("a").container({"example.com/gpu": 2}, {"example.com/gpu": 2}), {"requests.example.com/gpu": 2}),
        (
            make_pod("a").container({"hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"}),
            {"hugepages-2Mi": 4 << 20, "requests.hugepages-2Mi": 4 << 20},
        ),
    ],
)  # fmt: skip
def test_pod(pod: PodBuilder, expected: dict[str, int]) -> None:
    assert used(pod.build()) == PLACE | expected


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_that_has_ended_uses_nothing_but_its_place_in_the_store(phase: str) -> None:
    assert used(make_pod("a").req(cpu=1).phase(phase).build()) == {"count/pods": 1}


@pytest.mark.parametrize(("deleted_at", "counts"), [(NOW - 31, False), (NOW - 30, True), (NOW + 30, True)])
def test_pod_that_should_have_gone_long_ago_is_not_counted(deleted_at: float, counts: bool) -> None:
    pod = make_pod("a").req(cpu=1).terminating(deleted_at).build()
    pod.metadata.deletionGracePeriodSeconds = 30
    assert ("pods" in used(pod)) is counts


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (claim(), {}),
        (
            claim(storageClassName="fast"),
            {
                "fast.storageclass.storage.k8s.io/persistentvolumeclaims": 1,
                "fast.storageclass.storage.k8s.io/requests.storage": 1 << 30,
            },
        ),
    ],
)
def test_claim(obj: Any, expected: dict[str, int]) -> None:
    of_any = {"count/persistentvolumeclaims": 1, "persistentvolumeclaims": 1, "requests.storage": 1 << 30}
    assert used(obj) == of_any | expected


@pytest.mark.parametrize(("allocated", "counted"), [("2Gi", 2 << 30), ("512Mi", 1 << 30), ("much", 1 << 30)])
def test_claim_that_asks_for_less_again_counts_what_it_was_given(allocated: str, counted: int) -> None:
    obj = claim(storageClassName="fast")
    obj.status.allocatedResources["storage"].string = allocated
    result = used(obj)
    assert (result["requests.storage"], result["fast.storageclass.storage.k8s.io/requests.storage"]) == (counted, counted)


def test_stored_claim_with_other_invalid_quantities_is_counted() -> None:
    obj = claim()
    obj.spec.resources.requests["cpu"].string = "much"
    assert used(obj) == used(claim())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"type": "ClusterIP"}, {}),
        ({"type": "NodePort"}, {"services.nodeports": 2}),
        ({"type": "LoadBalancer"}, {"services.nodeports": 2, "services.loadbalancers": 1}),
        (
            {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False},
            {"services.nodeports": 1, "services.loadbalancers": 1},
        ),
    ],
)
def test_service(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert used(service(**spec)) == {"count/services": 1, "services": 1} | expected


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (RESOURCE_QUOTAS, {"count/resourcequotas": 1, "resourcequotas": 1}),
        (LIMIT_RANGES, {"count/limitranges": 1}),
        (POD_DISRUPTION_BUDGETS, {"count/poddisruptionbudgets.policy": 1}),
        (DEPLOYMENTS, {"count/deployments.apps": 1}),
        (ENDPOINT_SLICES, {"count/endpointslices.discovery.k8s.io": 1}),
        (ROLES, {"count/roles.rbac.authorization.k8s.io": 1}),
    ],
)
def test_any_object(resource: Resource[Any], expected: dict[str, int]) -> None:
    assert used(made(resource)) == expected


def test_only_what_is_more_is_charged_for_an_update() -> None:
    old, new = compute_usage(service(type="LoadBalancer"), NOW), compute_usage(service(type="NodePort"), NOW)
    assert old.increase_over(new).amounts == (("services.loadbalancers", 1),)
    assert new.increase_over(old).amounts == ()


def test_large_specs_are_not_remembered() -> None:
    """There is room for thousands: of megabytes each they would fill the memory."""
    usage._cached_usage.cache_clear()
    pod = make_pod("a").req(cpu="1").build()
    assert used(pod)["requests.cpu"] == 1000 and usage._cached_usage.cache_info().currsize == 1
    pod.spec.containers[0].args.append("x" * 5000)
    assert used(pod)["requests.cpu"] == 1000 and usage._cached_usage.cache_info().currsize == 1


@pytest.mark.parametrize(("reason", "expected"), [("Deferred", 2000), ("Infeasible", 1000)])
def test_resize_that_is_pending_counts_unless_it_is_infeasible(reason: str, expected: int) -> None:
    pod = make_pod("a").req(cpu=2).condition("PodResizePending", "True", reason).build()
    pod.metadata.generation = pod.status.observedGeneration = 2
    status = pod.status.containerStatuses.add(name=pod.spec.containers[0].name)
    status.allocatedResources["cpu"].string = status.resources.requests["cpu"].string = "1"
    assert used(pod)["requests.cpu"] == expected
