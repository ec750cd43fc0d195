"""What the API promises of kinds: names that are no words of selectors, pages, a status apart, the past, and the examples."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.manifest import load
from pinnace.api.resources import CLUSTER_ROLES, POD_DISRUPTION_BUDGETS, store_key
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import NotFound
from tests.builders import make_pod
from tests.integration.cli.commands import Server
from tests.storage.memory import MemoryStorage

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    server = Server(MemoryStorage())
    await server.start()
    connection = Connection([server.address])
    yield Client(connection)
    await connection.close()
    await server.stop()


@pytest.mark.parametrize("name", ["system:node", "Ada, (b)=c\\!", "x" * 253])
async def test_role_name_may_be_any_path_segment(client: Client, name: str) -> None:
    roles = client.of(CLUSTER_ROLES)
    await roles.create(from_dict(CLUSTER_ROLES, {"metadata": {"name": name}}))
    assert (await roles.modify(name, "", lambda role: role.metadata.labels.update({"tier": "front"}))).metadata.name == name
    await roles.delete(name)
    with pytest.raises(NotFound):
        await roles.get(name)


async def test_lists_of_long_names_have_pages(client: Client) -> None:
    """The name at which a page ends is a part of the token of the next one."""
    roles = client.of(CLUSTER_ROLES)
    names = [letter * 253 for letter in "äöü"] + ["\U0001f680" * 253]
    for name in names:
        await roles.create(from_dict(CLUSTER_ROLES, {"metadata": {"name": name}}))
    listed = await roles.list(page_size=1)
    assert [role.metadata.name for role in listed.items][-len(names) :] == names


async def test_status_is_written_apart(client: Client) -> None:
    budgets = client.of(POD_DISRUPTION_BUDGETS)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    budget = await budgets.create(
        from_dict(POD_DISRUPTION_BUDGETS, {"metadata": {"name": "b", "namespace": "default"}, "spec": spec})
    )
    budget.status.disruptionsAllowed = 2
    budget = await budgets.update(budget)
    assert (await budgets.get("b", "default")).status.disruptionsAllowed == 0
    budget.status.disruptionsAllowed = 2
    await budgets.update_status(budget)
    stored = await budgets.get("b", "default")
    assert (stored.status.disruptionsAllowed, stored.metadata.generation) == (2, 1)


async def test_get_and_list_read_a_past_revision(client: Client) -> None:
    first = await client.pods.create(make_pod("a").req(cpu="1").new())
    await client.pods.delete("a", "default")
    two = [(await client.pods.create(make_pod(name).req(cpu="1").new())).metadata.resourceVersion for name in "bcd"][1]
    then = Client(client.connection, at=int(first.metadata.resourceVersion))
    assert (await then.pods.get("a", "default")).metadata.uid == first.metadata.uid
    past = Client(client.connection, at=int(two))
    assert [pod.metadata.name for pod in (await past.pods.list(page_size=1)).items] == ["b", "c"]
    with pytest.raises(NotFound, match=f'pods "a" not found at revision {two}'):
        await past.pods.get("a", "default")


def test_examples_have_distinct_objects() -> None:
    """No two of them are the same object, or the second would change the first."""
    objects = [item.obj for path in sorted(EXAMPLES.glob("*.yaml")) for item in load(path.read_text(), path.name)]
    keys = [(type(obj), store_key(obj)) for obj in objects]
    assert len(keys) > 10 and len(set(keys)) == len(keys)
