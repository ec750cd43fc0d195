"""The disruptions that a budget allows."""

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from pinnace.api.apps_v1_pb2 import ReplicaSet
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget, PodDisruptionBudgetStatus
from pinnace.api.resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, REPLICA_SETS, STATEFUL_SETS
from pinnace.api.scalars import MAX_INT32, STRING, to_time
from pinnace.controllers.disruption import UNCONFIRMED, DisruptionController, ExpectedScale, calculate_budget_status
from pinnace.controllers.informers import LabelIndex, SelectorIndex, select_all
from pinnace.controllers.pods import PodProperties, PodPropertiesCache, compute_pod_properties
from tests.builders import make_pod
from tests.workloads import make_deployment, make_replica_set, make_stateful_set, pod_of, running

NOW = 10_000.0
WEB = make_replica_set("web", replicas=10)


def budget(**bounds: int | str) -> PodDisruptionBudget:
    made = PodDisruptionBudget(metadata=ObjectMeta(name="b", namespace="default", generation=3))
    made.spec.selector.matchLabels["app"] = "web"
    for field, bound in bounds.items():
        value = IntOrString(intVal=bound) if isinstance(bound, int) else IntOrString(type=STRING, strVal=bound)
        getattr(made.spec, field).CopyFrom(value)
    return made


def healthy(number: int) -> list[Pod]:
    return [running(pod_of(WEB, f"p{index}")).build() for index in range(number)]


def facts(pods: list[Pod]) -> list[PodProperties]:
    return [compute_pod_properties(pod) for pod in pods]


def counts(status: PodDisruptionBudgetStatus) -> tuple[int, int, int, int]:
    return status.expectedPods, status.desiredHealthy, status.currentHealthy, status.disruptionsAllowed


@pytest.mark.parametrize(
    ("bounds", "pods", "expected"),
    [
        ({"minAvailable": 2}, 3, (3, 2, 3, 1)),
        ({"minAvailable": 5}, 3, (3, 5, 3, 0)),
        ({"minAvailable": "75%"}, 10, (10, 8, 10, 2)),
        ({"minAvailable": "0" * 5000 + "75%"}, 10, (10, 8, 10, 2)),
        ({"maxUnavailable": 1}, 10, (10, 9, 10, 1)),
        ({"maxUnavailable": "25%"}, 9, (10, 7, 9, 2)),
        ({"maxUnavailable": 20}, 4, (10, 0, 4, 4)),
        ({"minAvailable": 0}, 0, (0, 0, 0, 0)),
    ],
)
def test_allowed_disruptions_are_healthy_minus_desired(
    bounds: dict[str, int | str], pods: int, expected: tuple[int, int, int, int]
) -> None:
    status, again = calculate_budget_status(budget(**bounds), facts(healthy(pods)), ExpectedScale(10), NOW)
    assert counts(status) == expected
    condition = status.conditions[0]
    allowed = expected[3] > 0
    assert (condition.status, condition.reason) == (str(allowed), "SufficientPods" if allowed else "InsufficientPods")
    assert (status.observedGeneration, again) == (3, None)


def test_unready_or_terminating_pod_is_not_healthy() -> None:
    pods = [*healthy(3), pod_of(WEB, "x").node("n").build(), running(pod_of(WEB, "y")).terminating().build()]
    assert counts(calculate_budget_status(budget(minAvailable=1), facts(pods), ExpectedScale(0), NOW)[0]) == (5, 1, 3, 2)


def test_granted_eviction_counts_as_disrupted_until_its_timeout() -> None:
    granted = budget(minAvailable=1)
    for name, at in (("p0", NOW - 10), ("gone", NOW - 10), ("leaves", NOW - 10), ("p1", NOW - UNCONFIRMED)):
        granted.status.disruptedPods[name].CopyFrom(to_time(at))
    pods = [*healthy(3), running(pod_of(WEB, "leaves")).terminating().build()]
    status, again = calculate_budget_status(granted, facts(pods), ExpectedScale(0), NOW)
    assert list(status.disruptedPods) == ["p0"]
    assert (status.currentHealthy, status.disruptionsAllowed, again) == (2, 1, UNCONFIRMED - 10)


@pytest.mark.parametrize("bounds", [{"maxUnavailable": 1}, {"minAvailable": "100%"}, {"maxUnavailable": "1%"}])
def test_expected_pods_are_capped_at_the_maximum_of_an_int32(bounds: dict[str, int | str]) -> None:
    status, _ = calculate_budget_status(budget(**bounds), facts(healthy(2)), ExpectedScale(4 * MAX_INT32), NOW)
    assert counts(status) == (MAX_INT32, MAX_INT32, 2, 0)


def test_uncountable_budget_allows_no_disruption() -> None:
    before = budget(maxUnavailable=1)
    before.status.disruptionsAllowed = 1
    status, _ = calculate_budget_status(before, facts(healthy(3)), ExpectedScale(0, "found no scale of Job default/j"), NOW)
    assert (status.disruptionsAllowed, status.conditions[0].reason) == (0, "SyncFailed")
    assert (
        calculate_budget_status(budget(minAvailable=1), facts(healthy(3)), ExpectedScale(0, "no matter"), NOW)[
            0
        ].disruptionsAllowed
        == 2
    )


# --- expected pods


class Synced(NamedTuple):
    status: PodDisruptionBudgetStatus
    events: list[str]


async def synced(
    replica_set: ReplicaSet, pods: list[Pod], granted: Mapping[str, float] = MappingProxyType({}), **bounds: int | str
) -> Synced:
    """The status and events that the controller writes in a cluster of a deployment of 8 and this replica set. `granted`
    has the names and times of granted evictions.
    """
    kept = budget(**bounds)
    for name, at in granted.items():
        kept.status.disruptedPods[name].CopyFrom(to_time(at))
    deployment = make_deployment("web", replicas=8)
    stores: dict[Any, dict[str, Any]] = {
        POD_DISRUPTION_BUDGETS: {"default/b": kept},
        REPLICA_SETS: {"default/web": replica_set},
        DEPLOYMENTS: {"default/web": deployment},
        STATEFUL_SETS: {"default/db": make_stateful_set("db", replicas=6)},
    }
    written, reasons = list[PodDisruptionBudget](), list[str]()

    async def update_status(obj: PodDisruptionBudget) -> PodDisruptionBudget:
        written.append(obj)
        return obj

    informers = SimpleNamespace(
        store=lambda resource: stores.get(resource, {}),
        selecting=lambda resource, selector_of: SelectorIndex(selector_of),
        labelled=lambda resource: LabelIndex(select_all, pods),
        pod_properties=PodPropertiesCache(),
    )
    client = SimpleNamespace(of=lambda resource: SimpleNamespace(update_status=update_status))
    events = SimpleNamespace(event=lambda obj, type_, reason, message: reasons.append(reason))
    shared: Any = SimpleNamespace(informers=informers, client=client, clock=SimpleNamespace(time=lambda: NOW), events=events)
    await DisruptionController(shared).sync("default/b")
    return Synced(written[0].status, reasons)


async def test_expected_pods_of_a_stateful_set_are_its_replicas() -> None:
    db = make_stateful_set("db", replicas=6)
    pods = [running(pod_of(db, f"db-{number}")).build() for number in range(5)]
    status = (await synced(make_replica_set("web"), pods, maxUnavailable=2)).status
    assert (status.expectedPods, status.desiredHealthy, status.disruptionsAllowed) == (6, 4, 1)


async def test_expected_pods_of_a_rollout_are_the_replicas_of_the_deployment() -> None:
    owned = make_replica_set("web", replicas=10)
    owned.metadata.ownerReferences.add(kind="Deployment", name="web", uid="uid-web", controller=True)
    pods = [*healthy(5), make_pod("alone").label("app", "web").build()]
    assert counts((await synced(owned, pods, maxUnavailable=4)).status) == (8, 4, 5, 1)
    assert counts((await synced(WEB, pods, maxUnavailable=4)).status) == (10, 6, 5, 0)


async def test_pods_of_a_controller_without_a_scale_fail_the_sync() -> None:
    pod = make_pod("p").label("app", "web").owner("Job", "j", "uid-j").build()
    status, events = await synced(WEB, [pod], maxUnavailable=1)
    assert status.conditions[0].message == "found no scale of Job default/j, the controller of pod p"
    assert events == ["CalculateExpectedPodCountFailed"]


async def test_events_report_missing_and_unmanaged_pods() -> None:
    alone = make_pod("alone").label("app", "web").build()
    assert (await synced(WEB, [], minAvailable=1)).events == ["NoPods"]
    assert (await synced(WEB, [*healthy(5), alone], maxUnavailable=1)).events == ["UnmanagedPods"]
    assert (await synced(WEB, [alone], minAvailable=1)).events == []
    assert (await synced(WEB, healthy(5), maxUnavailable=1)).events == []


async def test_failed_eviction_is_reported() -> None:
    """The client that was granted the eviction did not delete the pod."""
    going = running(pod_of(WEB, "going")).terminating().build()
    granted = {"p0": NOW - UNCONFIRMED, "p1": NOW - 1, "going": NOW - UNCONFIRMED, "gone": NOW - UNCONFIRMED}
    assert (await synced(WEB, [*healthy(3), going], granted, minAvailable=1)).events == ["NotDeleted"]
