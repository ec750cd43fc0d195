"""The subresource `why` of pods: another process computes the explanation with the permissions of the user."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pinnace.gateway import why
from pinnace.gateway.http import User
from tests.unit.gateway.serving import Gateway, gateway

pytestmark = pytest.mark.processes

PATH = "/apis/pinnace.io/v1/namespaces/default/pods"
POD = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}


@pytest.fixture
async def served() -> AsyncIterator[Gateway]:
    async with gateway() as result:
        assert (await result.ask("POST", "/api/v1/namespaces/default/pods", POD)).code == 201
        yield result


async def test_pending_pod_is_explained(served: Gateway) -> None:
    result = await served.ask("GET", f"{PATH}/a/why")
    assert result.code == 200, result.body
    assert (result.json["kind"], result.json["pod"], result.json["nodes"]) == ("Why", "default/a", 0)


async def test_invalid_why_requests_are_refused(served: Gateway) -> None:
    missing = await served.ask("GET", f"{PATH}/b/why")
    assert (missing.code, missing.json["reason"]) == (404, "NotFound")
    assert (await served.ask("GET", f"{PATH}/a/why", user=User("nemo", ("system:authenticated",)))).code == 403
    assert [(await served.ask("GET", target)).code for target in (PATH, f"{PATH}/a")] == [405, 405]


async def test_number_of_concurrent_explanations_is_bounded(served: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "AT_ONCE", 1)
    codes = [item.code for item in await asyncio.gather(*(served.ask("GET", f"{PATH}/a/why") for _ in range(2)))]
    assert sorted(codes) == [200, 429]


async def test_discovery_lists_the_subresource_without_pods(served: Gateway) -> None:
    listed = (await served.ask("GET", "/apis/pinnace.io/v1")).json["resources"]
    assert [item["name"] for item in listed] == ["elections", "pods/why"]
