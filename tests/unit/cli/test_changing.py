"""Read, change, compare-and-swap, and again."""

from typing import Any, cast

import pytest

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.resources import NODES
from pinnace.cli.changing import ATTEMPTS, change_one
from pinnace.client.errors import Conflict, NotFound
from pinnace.client.resource import ResourceClient
from tests.builders import make_node
from tests.unit.cli.fakes import STALE, FakeApi


def cordon(node: Node) -> str:
    node.spec.unschedulable = True
    return "cordoned"


async def with_node() -> tuple[FakeApi, ResourceClient[Any], Node]:
    api = FakeApi()
    node = await api.of(NODES).put(make_node("n").build())
    return api, cast(ResourceClient[Any], api.of(NODES)), node


async def test_a_change_is_stored_and_nothing_is_not() -> None:
    api, client, node = await with_node()
    assert await change_one(client, node, cordon) == "cordoned"
    assert not node.spec.unschedulable, "the object that was read is left as it is"
    stored = await client.get("n")
    assert stored.spec.unschedulable
    await change_one(client, stored, cordon)
    assert api.calls.count("update nodes") == 1


async def test_somebody_elses_change_is_kept() -> None:
    api, client, node = await with_node()
    theirs = make_node("n").label("theirs", "1").build()
    await api.of(NODES).put(theirs)
    assert await change_one(client, node, cordon) == "cordoned"
    stored = await client.get("n")
    assert stored.spec.unschedulable and stored.metadata.labels["theirs"] == "1"


async def test_it_gives_up_in_the_end() -> None:
    api, client, node = await with_node()
    for _ in range(ATTEMPTS):
        api.of(NODES).fail("update", STALE)
    with pytest.raises(Conflict):
        await change_one(client, node, cordon)
    assert api.calls.count("update nodes") == ATTEMPTS


async def test_what_has_gone_is_not_found() -> None:
    api, client, node = await with_node()
    await api.of(NODES).remove("n")
    with pytest.raises(NotFound):
        await change_one(client, node, cordon)
