"""How many logs and commands somebody may have open."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest

from pinnace.api.pods_pb2 import ExecRequest, ExecStart, LogsRequest
from pinnace.api.status import Code
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow import control
from pinnace.apiserver.flow.control import PriorityAndFairness
from pinnace.apiserver.flow.levels import MAX_IDLE_FLOWS, WORKLOAD
from pinnace.apiserver.services.pods import ContainerStreams
from tests.unit.auth.matrix import OTHER, OWN, PEOPLE, Caller, serving

KINDS = ("Logs", "Exec")
TOO_MANY = "2 logs and commands are open: close some of them"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MAX_CONNECTIONS", 2)


@pytest.fixture
def kubelets(monkeypatch: pytest.MonkeyPatch) -> None:
    """They answer once, and then have nothing to say."""

    async def answer(*_: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.Event().wait()

    monkeypatch.setattr(ContainerStreams, "logs", answer)
    monkeypatch.setattr(ContainerStreams, "exec", answer)


def stream(server: Assembly, kind: str, person: str, namespace: str = OWN) -> aclosing[AsyncGenerator[bytes, None]]:
    """Of the pod "thing"."""

    async def said() -> AsyncIterator[ExecRequest]:
        yield ExecRequest(start=ExecStart(namespace=namespace, name="thing", command=["true"]))
        await asyncio.Event().wait()

    request: Any = said() if kind == "Exec" else LogsRequest(namespace=namespace, name="thing")
    return aclosing(server.methods[f"/pinnace.v1.Pods/{kind}"].stream(request, Caller(PEOPLE[person])))


@pytest.mark.usefixtures("kubelets")
@pytest.mark.parametrize("kind", KINDS)
async def test_flow_has_so_many_open_of_both_together(kind: str) -> None:
    """Each is a connection to a kubelet: with a thousand a user left the server no descriptor for anybody else's."""
    async with serving() as server, AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(stream(server, item, "editor")) for item in KINDS]
        assert [await anext(first), await anext(second)] == [b"first", b"first"]
        with pytest.raises(Rejected, match=TOO_MANY) as caught:
            async with stream(server, kind, "editor") as third:
                await anext(third)
        refusal = caught.value.refusal
        assert refusal.code is Code.UNAVAILABLE and refusal.reason == "TooManyRequests" and refusal.retry_after
        async with stream(server, kind, "namespace admin") as another:
            assert await anext(another)
        await first.aclose()
        async with stream(server, kind, "editor") as third:
            assert await anext(third)


@pytest.mark.usefixtures("kubelets")
@pytest.mark.parametrize("kind", KINDS)
async def test_only_masters_have_as_many_as_they_like(kind: str) -> None:
    async with serving() as server, AsyncExitStack() as stack:
        for _ in range(3):
            assert await anext(await stack.enter_async_context(stream(server, kind, "admin", OTHER)))


@pytest.mark.parametrize("kind", KINDS)
async def test_failed_stream_is_not_counted_as_open(kind: str) -> None:
    async with serving() as server:
        for _ in range(3):
            with pytest.raises(Rejected) as caught:
                async with stream(server, kind, "editor") as failing:
                    await anext(failing)
            assert caught.value.refusal.reason == "NoKubeletEndpoint"


async def test_seats_stay_with_their_flow() -> None:
    flow = PriorityAndFairness()
    with flow.request_seat(WORKLOAD, "eve") as seat:
        pass
    with seat.count_connection(bounded=True), seat.count_connection(bounded=True):
        for user in range(2 * MAX_IDLE_FLOWS):
            flow.request_seat(WORKLOAD, f"user-{user}").release()
        with pytest.raises(Rejected, match=TOO_MANY), flow.request_seat(WORKLOAD, "eve").count_connection(bounded=True):
            pass
