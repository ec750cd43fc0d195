"""Elections as objects of pinnace.io/v1: get, list, tables, and watches that follow a change of leader."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pinnace.client.client import ElectionClient
from pinnace.client.election import LeaderElector
from pinnace.gateway.http import User
from pinnace.gateway.watch_events import INITIAL_EVENTS_END
from tests.contract.servers import PATIENCE
from tests.contract.voters import ELECTION
from tests.unit.client.fakeserver import connect
from tests.unit.gateway.serving import Gateway, gateway

pytestmark = pytest.mark.processes

PATH = "/apis/pinnace.io/v1/elections"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
INITIAL = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
UNPRIVILEGED = User("nemo", ("system:authenticated",))


@pytest.fixture
async def served() -> AsyncIterator[Gateway]:
    async with gateway() as result:
        yield result


@asynccontextmanager
async def leading(served: Gateway, holder: str) -> AsyncIterator[int]:
    """The token of a leader that resigns at the end."""
    elected: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    connection = connect(served.address)
    candidate = LeaderElector(connection, ELECTION, holder, on_elected=elected.set_result, on_lost=lambda reason: None)
    running = asyncio.ensure_future(candidate.run())
    try:
        async with asyncio.timeout(PATIENCE):
            yield await elected
        await candidate.release()
    finally:
        running.cancel()
        await asyncio.wait((running,))
        await connection.close()


async def recorded(served: Gateway, condition: Callable[[Any], bool]) -> None:
    """Wait until a term of the election satisfies the condition."""
    connection = connect(served.address)
    stream = await ElectionClient(connection).watch(ELECTION)
    try:
        async with asyncio.timeout(PATIENCE):
            while (response := await stream.read(PATIENCE)) is not None:
                if any(condition(term) for state in response.events for term in state.terms):
                    return
    finally:
        stream.cancel()
        await connection.close()


async def test_election_is_served_as_object_and_table(served: Gateway) -> None:
    assert (await served.ask("GET", f"{PATH}/{ELECTION}")).code == 404
    async with leading(served, "a") as token:
        result = (await served.ask("GET", f"{PATH}/{ELECTION}")).json
        assert (result["kind"], result["apiVersion"], result["metadata"]["name"]) == ("Election", "pinnace.io/v1", ELECTION)
        assert (result["status"]["holder"], result["status"]["token"]) == ("a", token)
        (term,) = result["status"]["terms"]
        assert (term["holder"], term["token"]) == ("a", token) and "endTime" not in term
        listed = (await served.ask("GET", PATH)).json
        assert [item["status"]["token"] for item in listed["items"]] == [token]
        table = (await served.ask("GET", PATH, accept=TABLE)).json
        columns = ["Name", "Holder", "Token", "Age", "Heartbeat", "Waiting", "Terms", "Last End"]
        assert [item["name"] for item in table["columnDefinitions"]] == columns
        cells = table["rows"][0]["cells"]
        assert cells[:3] == [ELECTION, "a", token] and cells[5:7] == ["<none>", 1]
        assert 0 <= float(cells[4].removesuffix("s")) < PATIENCE
    await recorded(served, lambda term: term.reason == "resigned")
    left = (await served.ask("GET", PATH)).json["items"][0]["status"]
    assert "holder" not in left and left["terms"][0]["reason"] == "resigned"


async def test_watch_follows_the_leader(served: Gateway) -> None:
    reading = asyncio.ensure_future(served.ask("GET", f"{PATH}?{INITIAL}&timeoutSeconds=4"))
    async with leading(served, "a") as token:
        pass
    events = (await reading).lines
    kinds = [event["type"] for event in events]
    bookmark = events[kinds.index("BOOKMARK")]["object"]
    assert bookmark["kind"] == "Election" and bookmark["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}
    statuses = [event["object"]["status"] for event in events if event["type"] != "BOOKMARK"]
    assert [status["token"] for status in statuses if "token" in status][:1] == [token]
    assert "holder" not in statuses[-1] and statuses[-1]["terms"][-1]["reason"] == "resigned"
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events if event["type"] != "BOOKMARK"]
    assert versions == sorted(versions)


async def test_watch_from_a_revision_receives_later_changes_only(served: Gateway) -> None:
    async with leading(served, "a"):
        pass
    await recorded(served, lambda term: term.reason == "resigned")
    version = (await served.ask("GET", PATH)).json["metadata"]["resourceVersion"]
    assert (await served.ask("GET", f"{PATH}?watch=1&resourceVersion={version}&timeoutSeconds=1")).lines == []
    (event,) = (await served.ask("GET", f"{PATH}?watch=1&resourceVersion=1&timeoutSeconds=1")).lines
    assert event["object"]["status"]["terms"][0]["reason"] == "resigned"


async def test_election_selectors_and_permissions(served: Gateway) -> None:
    async with leading(served, "a"):
        for query, count in (
            (f"fieldSelector=metadata.name%3D{ELECTION}", 1),
            ("fieldSelector=metadata.name%3Dother", 0),
            ("labelSelector=a%3Db", 0),
        ):
            assert len((await served.ask("GET", f"{PATH}?{query}")).json["items"]) == count, query
        refused = await served.ask("GET", f"{PATH}?fieldSelector=status.holder%3Da")
        assert (refused.code, refused.json["reason"]) == (400, "BadRequest")
        for target in (PATH, f"{PATH}/{ELECTION}", f"{PATH}?watch=1&timeoutSeconds=1"):
            assert (await served.ask("GET", target, user=UNPRIVILEGED)).code == 403, target
        assert (await served.ask("DELETE", f"{PATH}/{ELECTION}")).code == 405
