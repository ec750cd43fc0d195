"""Evictions as a client meets them: one API server, with everything that is in it."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import DeleteOptions, LabelSelector, ObjectMeta, Preconditions
from pinnace.api.pods_pb2 import EvictRequest
from pinnace.api.policy_v1_pb2 import Eviction, PodDisruptionBudget
from pinnace.api.resources import POD_DISRUPTION_BUDGETS
from pinnace.api.selectors import from_message
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.apiserver.registry import eviction as eviction_rules
from pinnace.apiserver.services import pods
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError, Conflict, Exhausted, Invalid, NotFound, from_status
from pinnace.runtime import tasks
from tests.builders import make_pod
from tests.regression.servers import serving
from tests.storage.memory import MemoryStorage

WOULD_VIOLATE = "Cannot evict pod as it would violate the pod's disruption budget."


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with serving(MemoryStorage()) as address:
        connection = Connection([address])
        yield Client(connection)
        await connection.close()


async def running(client: Client, *names: str, phase: str = "Running", ready: str = "True") -> None:
    """Makes pods on a node, in this phase."""
    for name in names:
        pod = await client.pods.create(make_pod(name).req().label("app", "web").node("n").new())
        pod.status.phase = phase
        pod.status.conditions.add(type="Ready", status=ready)
        await client.pods.update_status(pod)


async def budget(client: Client, name: str = "web", status: dict[str, Any] | None = None, **spec: Any) -> None:
    """Makes one, of all pods, and says its status as whoever counts would."""
    data = {"metadata": {"name": name}, "spec": {"selector": {}, "minAvailable": 1, **spec}}
    made = await client.of(POD_DISRUPTION_BUDGETS).create(from_dict(POD_DISRUPTION_BUDGETS, data))
    told = {"observedGeneration": 1, "desiredHealthy": 1, "currentHealthy": 3, "disruptionsAllowed": 2} | (status or {})
    made.status.CopyFrom(from_dict(POD_DISRUPTION_BUDGETS, {"status": told}).status)
    await client.of(POD_DISRUPTION_BUDGETS).update_status(made)


async def left(client: Client, name: str = "web") -> PodDisruptionBudget:
    return await client.of(POD_DISRUPTION_BUDGETS).get(name, "default")


def eviction(name: str, **options: Any) -> Eviction:
    return Eviction(metadata=ObjectMeta(namespace="default", name=name), deleteOptions=DeleteOptions(**options))


async def evicted(client: Client, *names: str, **options: Any) -> list[ApiError | None]:
    """Why not, for each; None: it is."""
    items = await client.pods.evict_batch([eviction(name, **options) for name in names])
    return [from_status(item.error) if item.HasField("error") else None for item in items]


async def ending(client: Client) -> Sequence[Pod]:
    return [pod for pod in (await client.pods.list()).items if pod.metadata.HasField("deletionTimestamp")]


async def test_pod_is_counted_marked_and_deleted(client: Client) -> None:
    await running(client, "a", "b")
    await budget(client)
    assert await evicted(client, "a", gracePeriodSeconds=7) == [None]
    status = (await left(client)).status
    assert (status.disruptionsAllowed, list(status.disruptedPods)) == (1, ["a"])
    assert status.disruptedPods["a"].seconds > 0
    (pod,) = await ending(client)
    assert (pod.metadata.name, pod.metadata.deletionGracePeriodSeconds) == ("a", 7)
    (target,) = [condition for condition in pod.status.conditions if condition.type == "DisruptionTarget"]
    assert (target.status, target.reason) == ("True", "EvictionByEvictionAPI")


async def test_eviction_of_one_pod(client: Client) -> None:
    await running(client, "a")
    item = await client.connection.call("/pinnace.v1.Pods/Evict", EvictRequest(eviction=eviction("a")), BatchItem, retry=False)
    (pod,) = await ending(client)
    assert (item.name, item.uid, item.resourceVersion) == ("a", pod.metadata.uid, pod.metadata.resourceVersion)


async def test_batch_eviction_uses_the_budget_in_order(client: Client) -> None:
    await running(client, *"abcd")
    await budget(client, status={"disruptionsAllowed": 2})
    refused = await evicted(client, *"dcba")
    assert refused[:2] == [None, None]
    for error in refused[2:]:
        assert isinstance(error, Exhausted) and error.message == WOULD_VIOLATE
        assert (error.reason, error.retry_after) == ("DisruptionBudget", 1.0)
    assert {pod.metadata.name for pod in await ending(client)} == {"c", "d"}
    assert (await left(client)).status.disruptionsAllowed == 0


async def test_concurrent_evictions_use_distinct_disruptions(client: Client) -> None:
    names = [f"web-{number}" for number in range(8)]
    await running(client, *names)
    await budget(client, status={"disruptionsAllowed": 3})
    outcomes = await asyncio.gather(*(evicted(client, name) for name in names))
    assert sum(outcome == [None] for outcome in outcomes) == 3
    assert len(await ending(client)) == len((await left(client)).status.disruptedPods) == 3


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ({"disruptionsAllowed": 0}, "The disruption budget web needs 1 healthy pods and has 3 currently"),
        ({"observedGeneration": 0}, "The disruption budget web is still being processed by the server."),
    ],
)
async def test_budget_that_allows_none(client: Client, status: dict[str, Any], cause: str) -> None:
    await running(client, "a")
    await budget(client, status=status)
    (error,) = await evicted(client, "a")
    assert isinstance(error, Exhausted) and error.message == WOULD_VIOLATE
    assert error.refusal.metadata == (("cause", cause),)
    assert not await ending(client)


async def test_last_allowed_disruption_updates_the_condition(client: Client) -> None:
    await running(client, "a")
    told = {"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods"}
    await budget(client, status={"disruptionsAllowed": 1, "conditions": [told]})
    assert await evicted(client, "a") == [None]
    (condition,) = (await left(client)).status.conditions
    assert (condition.status, condition.reason, condition.observedGeneration) == ("False", "InsufficientPods", 1)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_pod_that_does_not_run_needs_no_budget(client: Client, phase: str) -> None:
    await running(client, "a", phase=phase, ready="False")
    await budget(client, status={"disruptionsAllowed": 0})
    assert await evicted(client, "a") == [None]
    assert not (await left(client)).status.disruptedPods


@pytest.mark.parametrize(
    ("policy", "healthy", "goes"),
    [("IfHealthyBudget", 3, True), ("IfHealthyBudget", 1, False), (None, 1, False), ("AlwaysAllow", 1, True)],
)
async def test_unready_pod_is_evicted_if_enough_others_are_ready(
    client: Client, policy: str | None, healthy: int, goes: bool
) -> None:
    await running(client, "a", ready="False")
    status = {"disruptionsAllowed": 0, "desiredHealthy": 2, "currentHealthy": healthy}
    await budget(client, status=status, unhealthyPodEvictionPolicy=policy)
    (error,) = await evicted(client, "a")
    assert (error is None) is goes


async def test_budget_is_of_the_pods_that_it_selects(client: Client) -> None:
    await running(client, "a")
    await budget(client, status={"disruptionsAllowed": 0}, selector={"matchLabels": {"app": "other"}})
    await budget(client, "nobody", status={"disruptionsAllowed": 0}, selector=None)
    assert await evicted(client, "a") == [None]


async def test_two_budgets_are_one_too_many(client: Client) -> None:
    await running(client, "a")
    await budget(client)
    await budget(client, "too")
    (error,) = await evicted(client, "a")
    assert error is not None and error.message.startswith("This pod has more than one PodDisruptionBudget")
    assert (await left(client)).status.disruptionsAllowed == 2


async def test_refused_delete_costs_no_disruption(client: Client) -> None:
    await running(client, "a")
    await budget(client)
    (error,) = await evicted(client, "a", preconditions=Preconditions(uid="of another"))
    assert isinstance(error, Conflict) and error.reason == "UIDMismatch"
    (error,) = await evicted(client, "nothing")
    assert isinstance(error, NotFound) and error.message == 'pods "nothing" not found'
    (error,) = await evicted(client, "")
    assert isinstance(error, Invalid)
    assert (await left(client)).status.disruptionsAllowed == 2


async def test_dry_run_changes_nothing(client: Client) -> None:
    await running(client, "a", "b")
    await budget(client, status={"disruptionsAllowed": 1})
    first, second = await evicted(client, "a", "b", dryRun=["All"])
    assert first is None and isinstance(second, Exhausted)
    assert (await left(client)).status.disruptionsAllowed == 1 and not await ending(client)
    with pytest.raises(Invalid, match="some items set it and others do not"):
        await client.pods.evict_batch([eviction("a", dryRun=["All"]), eviction("b")])


async def test_pod_that_is_named_again_is_not_looked_at_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets times items is half a million looks for a request of 16 KB."""
    read, searched = list[object](), list[str]()

    def reading(selector: LabelSelector) -> Any:
        read.append(selector)
        return from_message(selector)

    def searching(pod: Pod, protections: Iterable[eviction_rules.ParsedBudget]) -> PodDisruptionBudget | None:
        searched.append(pod.metadata.name)
        return eviction_rules.find_budget(pod, protections)

    await running(client, "a", "b")
    await budget(client)
    await budget(client, "other", selector={"matchLabels": {"app": "other"}})
    monkeypatch.setattr(eviction_rules, "from_message", reading)
    monkeypatch.setattr(pods, "find_budget", searching)
    outcomes = await evicted(client, *"abab", dryRun=["All"])
    assert outcomes == [None] * 4
    assert searched == ["a", "b"] and len(read) == 2


async def test_all_evictions_of_a_pod_with_two_budgets_are_refused(client: Client) -> None:
    await running(client, "a")
    await budget(client)
    await budget(client, "too")
    for error in await evicted(client, "a", "a"):
        assert error is not None and error.reason == "SeveralDisruptionBudgets"


async def test_others_have_their_turn_between_two_pods(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await running(client, *"abc")
    await budget(client)
    monkeypatch.setattr(tasks, "SLICE", -1.0)
    turn, seen = 0, list[int]()

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def searching(pod: Pod, protections: Iterable[eviction_rules.ParsedBudget]) -> PodDisruptionBudget | None:
        seen.append(turn)
        return eviction_rules.find_budget(pod, protections)

    monkeypatch.setattr(pods, "find_budget", searching)
    other = asyncio.create_task(others())
    await evicted(client, *"abc")
    other.cancel()
    assert len(set(seen)) == 3
