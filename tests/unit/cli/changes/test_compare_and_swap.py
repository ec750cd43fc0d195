"""Read, change, compare-and-swap, and again."""

from typing import Any, cast

import pytest

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import DEPLOYMENTS, NODES
from pinnace.cli.changes import change_one
from pinnace.cli.outcomes import Failure
from pinnace.client.errors import Conflict, NotFound
from pinnace.client.resource import ATTEMPTS, ResourceClient
from tests.builders import make_node
from tests.unit.cli.fakes import STALE, FakeApi


def cordon(node: Node) -> str:
    node.spec.unschedulable = True
    return "cordoned"


def mark(deployment: Deployment) -> str:
    """Not to be done twice."""
    if "marked" in deployment.metadata.annotations:
        raise Failure("is marked")
    deployment.metadata.annotations["marked"] = deployment.metadata.annotations.pop("old")
    return "marked"


async def with_node() -> tuple[FakeApi, ResourceClient[Any], Node]:
    api = FakeApi()
    node = await api.of(NODES).put(make_node("n").build())
    return api, cast(ResourceClient[Any], api.of(NODES)), node


async def test_change_is_stored_and_nothing_is_not() -> None:
    api, client, node = await with_node()
    assert await change_one(client, node, cordon) == "cordoned"
    assert not node.spec.unschedulable, "the object that was read is left as it is"
    stored = await client.get("n")
    assert stored.spec.unschedulable
    await change_one(client, stored, cordon)
    assert api.calls.count("update nodes") == 1


async def test_concurrent_change_is_kept() -> None:
    api, client, node = await with_node()
    theirs = make_node("n").label("theirs", "1").build()
    await api.of(NODES).put(theirs)
    assert await change_one(client, node, cordon) == "cordoned"
    stored = await client.get("n")
    assert stored.spec.unschedulable and stored.metadata.labels["theirs"] == "1"


async def test_change_that_was_made_is_no_refusal_though_its_answer_was_lost() -> None:
    """The connection sends it again, to a server that finds what the first one has stored."""
    api = FakeApi()
    deployments = api.of(DEPLOYMENTS)
    web = await deployments.put(Deployment(metadata=ObjectMeta(name="web", namespace="default", annotations={"old": "1"})))

    def went_on(deployment: Deployment) -> None:
        deployment.metadata.generation += 1
        deployment.metadata.annotations["deployment.kubernetes.io/revision"] = "2"
        deployment.status.observedGeneration = 2

    deployments.complete = went_on
    client = cast(ResourceClient[Any], deployments)
    deployments.fail("update", STALE, after=True)
    assert await change_one(client, await deployments.get("web", web.metadata.namespace), mark) == "marked"
    assert api.calls.count("update deployments") == 1


async def test_same_change_is_made_again_where_it_was_not_stored() -> None:
    api, client, node = await with_node()
    node.spec.taints.add(key="theirs")
    await api.of(NODES).put(node)
    for _ in range(2):
        api.of(NODES).fail("update", STALE)
    assert await change_one(client, node, cordon) == "cordoned"
    assert (await client.get("n")).spec.unschedulable


async def test_compare_and_swap_gives_up_after_retries() -> None:
    api, client, node = await with_node()
    for _ in range(ATTEMPTS):
        api.of(NODES).fail("update", STALE)
    with pytest.raises(Conflict):
        await change_one(client, node, cordon)
    assert api.calls.count("update nodes") == ATTEMPTS


async def test_deleted_object_is_not_found() -> None:
    api, client, node = await with_node()
    await api.of(NODES).remove("n")
    with pytest.raises(NotFound):
        await change_one(client, node, cordon)
