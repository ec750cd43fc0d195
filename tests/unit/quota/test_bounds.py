"""What a quota says of an object, and of itself."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, RESOURCE_QUOTAS, SERVICES
from pinnace.apiserver.quota.usage import ObjectUsage, QuotaLimits, compute_usage
from tests.builders import make_pod

NOW = 1_000.0


def quota(hard: dict[str, str], **spec: Any) -> Any:
    return from_dict(RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard, **spec}})


def bounds(hard: dict[str, str], **spec: Any) -> QuotaLimits:
    return QuotaLimits(quota(hard, **spec))


def use(pod: Pod) -> ObjectUsage:
    return compute_usage(pod, NOW)


def deadline(pod: Pod) -> Pod:
    pod.spec.activeDeadlineSeconds = 60
    return pod


def elsewhere(pod: Pod) -> Pod:
    affinity = pod.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution
    affinity.add(topologyKey="zone", namespaces=["other"])
    return pod


def selecting(scope: str, operator: str, *values: str) -> dict[str, Any]:
    return {"scopeSelector": {"matchExpressions": [{"scopeName": scope, "operator": operator, "values": list(values)}]}}


PLAIN = make_pod("a").req().build()
BUSY = make_pod("a").req(cpu=1).build()
HIGH = make_pod("a").req().priority_class("high").build()


@pytest.mark.parametrize(
    ("spec", "inside", "outside"),
    [
        ({"scopes": ["Terminating"]}, deadline(make_pod("a").build()), PLAIN),
        ({"scopes": ["NotTerminating"]}, PLAIN, deadline(make_pod("a").build())),
        ({"scopes": ["BestEffort"]}, PLAIN, BUSY),
        ({"scopes": ["NotBestEffort"]}, BUSY, PLAIN),
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, BUSY, deadline(make_pod("a").req(cpu=1).build())),
        ({"scopes": ["PriorityClass"]}, HIGH, PLAIN),
        ({"scopes": ["CrossNamespacePodAffinity"]}, elsewhere(make_pod("a").build()), PLAIN),
        (selecting("PriorityClass", "In", "high", "higher"), HIGH, PLAIN),
        (selecting("PriorityClass", "NotIn", "high"), PLAIN, HIGH),
        (selecting("PriorityClass", "Exists"), HIGH, PLAIN),
        (selecting("PriorityClass", "DoesNotExist"), PLAIN, HIGH),
        ({"scopes": ["BestEffort"], **selecting("PriorityClass", "In", "high")}, HIGH, PLAIN),
    ],
)
def test_scopes(spec: dict[str, Any], inside: Pod, outside: Pod) -> None:
    scoped = bounds({"pods": "1"}, **spec)
    assert scoped.usage_in_quota(use(inside)) == {"pods": 1}
    assert scoped.usage_in_quota(use(outside)) == {}


def test_quota_with_a_scope_counts_nothing_that_the_scope_is_not_about() -> None:
    service = compute_usage(from_dict(SERVICES, {"metadata": {"name": "a"}}), NOW)
    assert bounds({"count/services": "1"}).usage_in_quota(service) == {"count/services": 1}
    assert bounds({"count/services": "1"}, **selecting("PriorityClass", "DoesNotExist")).usage_in_quota(service) == {}


def test_claims_are_scoped_by_the_class_of_their_attributes() -> None:
    spec = {"resources": {"requests": {"storage": "1"}}, "volumeAttributesClassName": "gold"}
    claim = compute_usage(from_dict(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "a"}, "spec": spec}), NOW)
    hard = {"requests.storage": "1Gi"}
    assert bounds(hard, **selecting("VolumeAttributesClass", "In", "gold")).usage_in_quota(claim) == {"requests.storage": 1}
    assert bounds(hard, **selecting("VolumeAttributesClass", "In", "silver")).usage_in_quota(claim) == {}


def test_unbounded_resources_are_not_counted() -> None:
    assert bounds({"memory": "1Gi"}).usage_in_quota(use(BUSY)) == {}
    assert bounds({"requests.cpu": "1", "pods": "1"}).usage_in_quota(use(BUSY)) == {"requests.cpu": 1000, "pods": 1}


def test_many_count_together() -> None:
    many = bounds({"pods": "9", "cpu": "9", "memory": "1Gi"})
    assert many.charged_usage({use(PLAIN): 2, use(BUSY): 3}) == {"pods": 5, "cpu": 3000, "memory": 0}


@pytest.mark.parametrize(
    ("hard", "pod", "expected"),
    [
        ({"pods": "1"}, PLAIN, ""),
        ({"requests.cpu": "1"}, BUSY, ""),
        ({"requests.cpu": "1"}, PLAIN, "must specify requests.cpu for: c0"),
        ({"cpu": "1", "limits.memory": "1Gi"}, BUSY, "must specify limits.memory for: c0"),
        ({"cpu": "1"}, make_pod("a").req().req().init().build(), "must specify cpu for: c0,c1,i0"),
        ({"limits.cpu": "1", "memory": "1"}, PLAIN, "must specify limits.cpu for: c0; memory for: c0"),
        ({"requests.ephemeral-storage": "1"}, PLAIN, ""),
    ],
)
def test_quota_names_missing_requests_and_limits(hard: dict[str, str], pod: Pod, expected: str) -> None:
    said = bounds(hard).missing_requirements(pod, use(pod))
    assert said == (f"failed quota: q: {expected}" if expected else "")


def test_only_containers_of_pods_in_its_scopes_must_say_it() -> None:
    scoped = bounds({"cpu": "1"}, **selecting("PriorityClass", "In", "high"))
    assert not scoped.missing_requirements(PLAIN, use(PLAIN))
    assert scoped.missing_requirements(HIGH, use(HIGH))


@pytest.mark.parametrize(
    ("hard", "used", "share", "expected"),
    [
        ({"pods": "50"}, {"pods": 49}, {"pods": 1}, ""),
        ({"pods": "50"}, {"pods": 50}, {"pods": 1}, "requested: pods=1, used: pods=50, limited: pods=50"),
        (
            {"limits.cpu": "2", "pods": "9", "memory": "1G"},
            {"limits.cpu": 1500, "pods": 1, "memory": 999 << 20},
            {"limits.cpu": 750, "pods": 1, "memory": 1 << 20},
            "requested: limits.cpu=750m,memory=1Mi, used: limits.cpu=1500m,memory=999Mi, limited: limits.cpu=2,memory=1G",
        ),
        (
            {"requests.storage": "20G"},
            {"requests.storage": 10**10},
            {"requests.storage": 15 * 10**9},
            "requested: requests.storage=15G, used: requests.storage=10G, limited: requests.storage=20G",
        ),
        ({"pods": "1", "cpu": "1"}, {"pods": 0, "cpu": 9000}, {"pods": 1}, ""),
    ],
)
def test_quota_names_exceeded_resources(
    hard: dict[str, str], used: dict[str, int], share: dict[str, int], expected: str
) -> None:
    assert bounds(hard).exceeded_message(used, share) == (f"exceeded quota: q, {expected}" if expected else "")


def test_bound_returns_the_set_usage() -> None:
    hard = {"requests.cpu": "2", "requests.storage": "10Gi", "pods": "5", "requests.example.com/gpu": "3"}
    used = {"requests.cpu": 1500, "requests.storage": 3 << 30, "pods": 2, "requests.example.com/gpu": 1}
    untold = quota(hard)
    assert QuotaLimits(untold).used is None and not QuotaLimits(untold).matches_status(used)
    told = QuotaLimits(untold).quota_with_used(used)
    assert (
        QuotaLimits(told).used == used
        and QuotaLimits(told).matches_status(used)
        and not QuotaLimits(told).matches_status(used | {"pods": 3})
    )
    assert {name: amount.string for name, amount in told.status.used.items()} == {
        "requests.cpu": "1500m", "requests.storage": "3Gi", "pods": "2", "requests.example.com/gpu": "1"
    }  # fmt: skip
    assert dict(told.status.hard) == dict(told.spec.hard)


@pytest.mark.parametrize(("name", "most"), [("memory", 2**63 - 1), ("limits.cpu", (2**63 - 1) * 1000), ("pods", 2**63 - 1)])
def test_more_than_a_quantity_can_say_is_said_once_and_leaves_no_room(name: str, most: int) -> None:
    """Else the quota would be written for ever: what it says would never be what is used."""
    told = QuotaLimits(bounds({name: str(2**63 - 1)}).quota_with_used({name: most + 5}))
    assert (
        told.matches_status({name: most + 5})
        and told.matches_status({name: most})
        and not told.matches_status({name: most - 1})
    )
    assert told.used is not None and told.exceeded_message(told.used, {name: 1})


def test_uncounted_bound_is_unknown() -> None:
    told = bounds({"pods": "5"}).quota_with_used({"pods": 2})
    told.spec.hard["services"].string = "1"
    assert QuotaLimits(told).used is None
    del told.spec.hard["services"], told.spec.hard["pods"]
    assert not QuotaLimits(told).matches_status({})
