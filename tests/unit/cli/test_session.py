"""Errors at the end of a session: the last error, and the unknown outcome of a write after a timeout."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import GetRequest
from pinnace.cli.errors import explain_error
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.session import CommandSession, run_session
from pinnace.cli.settings import Settings
from pinnace.client.errors import ApiError
from tests.unit.client.conftest import Serve
from tests.unit.client.conftest import serve as serve
from tests.unit.client.fakeserver import FakeServer, refuse

GET, CREATE = "/pinnace.v1.Pods/Get", "/pinnace.v1.Pods/Create"


async def late(server: FakeServer, body: Callable[[CommandSession], Awaitable[object]]) -> Failure:
    async def done(session: CommandSession) -> None:
        await body(session)

    with pytest.raises(Failure, match=r"^timed out after 1 s: ") as caught:
        await asyncio.to_thread(run_session, Settings(server=server.address, timeout=1.0), done)
    assert caught.value.report.code is ExitCode.UNAVAILABLE
    return caught.value


async def silence(request: Any, context: Any) -> Pod:
    await asyncio.Event().wait()
    return Pod()


async def test_timeout_reports_the_last_error(serve: Serve) -> None:
    async def answer(request: GetRequest, context: Any) -> Pod:
        await refuse(context, Refusal(Code.UNAVAILABLE, "StorageUnavailable", "etcd is dead", retry_after=0.01))
        return Pod()

    server = await serve()
    server.on(GET, GetRequest, answer)
    assert "etcd is dead" in str(await late(server, lambda session: session.client.pods.get("a", "default")))


async def test_retries_on_unavailable_storage_are_limited(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command was silent for ten seconds and then printed "try again in a moment"."""
    monkeypatch.setattr("pinnace.cli.session.STORAGE_TIMEOUT", 0.2)

    async def answer(request: GetRequest, context: Any) -> Pod:
        await refuse(context, Refusal(Code.UNAVAILABLE, "StorageUnavailable", "etcd is dead", retry_after=0.01))
        return Pod()

    async def body(session: CommandSession) -> None:
        await session.client.pods.get("a", "default")

    server = await serve()
    server.on(GET, GetRequest, answer)
    began = asyncio.get_running_loop().time()
    with pytest.raises(ApiError, match="etcd is dead") as caught:
        await asyncio.to_thread(run_session, Settings(server=server.address), body)
    assert asyncio.get_running_loop().time() - began < 5
    report = explain_error(caught.value)
    assert report is not None and "`pinnace doctor`" in report.hint


async def test_timeout_reports_a_missing_response(serve: Serve) -> None:
    server = await serve()
    server.on(GET, GetRequest, silence)
    failure = await late(server, lambda session: session.client.pods.get("a", "default"))
    assert f"no response from the API server at {server.address}" in str(failure) and "pinnace doctor" in failure.report.hint


async def test_timeout_of_a_write_reports_an_unknown_outcome(serve: Serve) -> None:
    server = await serve()
    server.on(CREATE, CreatePodRequest, silence)
    failure = await late(server, lambda session: session.client.pods.create(Pod()))
    assert "the outcome of the request is unknown" in str(failure) and "before you retry" in failure.report.hint


async def test_timeout_does_not_report_errors_of_other_calls(serve: Serve) -> None:
    async def answer(request: GetRequest, context: Any) -> Pod:
        await refuse(context, Refusal(Code.UNAVAILABLE, "StorageUnavailable", "etcd is dead", retry_after=0.01))
        return Pod()

    async def body(session: CommandSession) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await session.client.pods.get("a", "default")
        await asyncio.Event().wait()

    server = await serve()
    server.on(GET, GetRequest, answer)
    with pytest.raises(TimeoutError, match=r"^timed out after 0\.4 s$"):
        await asyncio.to_thread(run_session, Settings(server=server.address, timeout=0.4), body)


async def test_timeout_with_responsive_servers_does_not_blame_them(serve: Serve) -> None:
    async def answer(request: GetRequest, context: Any) -> Pod:
        return Pod()

    async def body(session: CommandSession) -> None:
        while True:
            await session.client.pods.get("a", "default")

    server = await serve()
    server.on(GET, GetRequest, answer)
    with pytest.raises(TimeoutError, match=r"^timed out after 0\.3 s$"):
        await asyncio.to_thread(run_session, Settings(server=server.address, timeout=0.3), body)
