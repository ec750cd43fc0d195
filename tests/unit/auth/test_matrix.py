"""Every method of the API, called as everybody: does the door open for those whom it should, and for nobody else?"""

from typing import Any

import pytest

from pinnace.api.resources import EVENTS_V1
from pinnace.api.verbs_pb2 import PatchRequest
from tests.unit.auth.matrix import OWN, PEOPLE, documented, matrix, may, serving, table

Cells = dict[str, list[str]]
OPEN = ("Authorization/Self", "Calls/", "Version/", "grpc.")
"""To everybody. The calls of a stream of Calls have permissions of their own."""
CHANGING = ("Create", "Update", "Patch", "Delete", "Bind", "Record", "Campaign", "Transfer", "Heartbeat")


@pytest.fixture(scope="module")
async def cells() -> Cells:
    async with serving() as assembly:
        return await matrix(assembly)


def column(cells: Cells, person: str) -> dict[str, str]:
    """By method, without its package."""
    index = list(PEOPLE).index(person)
    return {name.removeprefix("pinnace.v1."): row[index] for name, row in cells.items()}


async def test_document_says_what_is(cells: Cells) -> None:
    """A new method, or a change of anybody's rights, is seen there: `make security-table`, and read what has changed."""
    assert table(cells) == documented()


async def test_masters_may_do_everything(cells: Cells) -> None:
    assert set(column(cells, "admin").values()) == {"yes"}


async def test_user_without_roles_may_only_review_itself(cells: Cells) -> None:
    assert {name for name, cell in column(cells, "nobody").items() if cell != "no"} == {
        name for name in column(cells, "nobody") if name.startswith(OPEN)
    }


async def test_fleet_gets_at_nothing_of_others(cells: Cells) -> None:
    reach = column(cells, "fleet")
    all_objects = {
        name for name, cell in reach.items() if cell == "yes" and not name.startswith((*OPEN, "Events/", EVENTS_V1.service))
    }
    assert all_objects == {"Services/Get", "Services/List", "Services/Watch"}
    wanted = {"Nodes/Create", "Nodes/Get", "Nodes/Watch", "Nodes/Update", "Nodes/UpdateStatus", "Nodes/Heartbeat", "Pods/Watch",
              "Pods/UpdateStatusBatch", "Pods/DeleteBatch", "Leases/List"}  # fmt: skip
    assert {name for name in wanted if reach[name] == "own"} == wanted


@pytest.mark.parametrize("person", ["namespace admin", "editor", "viewer"])
async def test_people_keep_to_their_namespace(cells: Cells, person: str) -> None:
    reach = column(cells, person)
    assert {name for name, cell in reach.items() if cell == "yes"} == {name for name in reach if name.startswith(OPEN)}


async def test_viewer_changes_nothing(cells: Cells) -> None:
    reach = column(cells, "viewer")
    assert {name for name, cell in reach.items() if cell != "no" and name.partition("/")[2].startswith(CHANGING)} == set()


async def test_roles_are_given_by_administrators_only(cells: Cells) -> None:
    for person in PEOPLE:
        reach = column(cells, person)
        given = {
            reach[name]
            for name in reach
            if name.startswith(("ClusterRole", "Role")) and name.endswith(("Create", "Update", "Patch"))
        }
        assert given == {"admin": {"yes"}, "namespace admin": {"own", "no"}}.get(person, {"no"})


@pytest.mark.parametrize(
    ("person", "subresource", "expected"),
    [
        ("scheduler", "status", True),
        ("scheduler", "", False),
        ("editor", "status", False),
        ("editor", "", True),
        ("controllers", "status", True),
        ("controllers", "scale", False),
        ("fleet", "status", False),
    ],
)
async def test_patch_needs_the_permission_of_its_subresource(person: str, subresource: str, expected: bool) -> None:
    async with serving() as assembly:
        method = assembly.methods["/pinnace.v1.Pods/Patch"]
        request: Any = method.parse(b"")
        request.namespace, request.name, request.subresource = OWN, "thing", subresource
        request.type, request.patch = PatchRequest.MERGE, b"{}"
        assert await may(method, PEOPLE[person], request) is expected


async def test_only_schedulers_bind_and_stand_for_election(cells: Cells) -> None:
    binding = {person for person in PEOPLE if column(cells, person)["Pods/BindBatch"] != "no"}
    assert binding == {"admin", "scheduler"}
    standing = {person for person in PEOPLE if column(cells, person)["Elections/Campaign"] != "no"}
    assert standing == {"admin", "scheduler", "controllers"}
