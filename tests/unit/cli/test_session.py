"""Errors at the end of a session: the last error, and the unknown outcome of a write after a timeout."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.api.resources import NODES
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import GetRequest
from pinnace.cli.errors import explain
from pinnace.cli.objects.query import Query
from pinnace.cli.outcomes import ExitCode, Failure, Reported
from pinnace.cli.output import showing
from pinnace.cli.output.documents import Document
from pinnace.cli.output.showing import Style
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.client.config import ClientConfig
from pinnace.client.errors import ApiError
from pinnace.printers.columns import View
from tests.builders import make_node
from tests.unit.cli.fakes import FakeApi
from tests.unit.client.conftest import Serve
from tests.unit.client.conftest import serve as serve
from tests.unit.client.fakeserver import FakeServer, refuse

GET, CREATE = "/pinnace.v1.Pods/Get", "/pinnace.v1.Pods/Create"


async def test_last_error_is_printed_with_its_hint(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(Settings(), ClientConfig(("a:1",)), FakeApi().client(), asyncio.timeout(None))
    session.tell_failures_last()
    for name in "ab":
        session.failed(Failure(f"no {name}", hint="look", code=ExitCode.NOT_FOUND))
    assert capsys.readouterr().err == "" and session.has_failed
    with pytest.raises(Reported):
        session.finish()
    session.tell_failures()
    assert capsys.readouterr().err == "error: no a\nerror: no b\nhint: look\n"


async def test_table_is_printed_before_the_error_and_its_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = FakeApi()
    session = Session(Settings(), ClientConfig(("a:1",)), api.client(), asyncio.timeout(None))
    monkeypatch.setattr(showing, "out", lambda text: print(text, file=sys.stderr, end=""))

    await api.of(NODES).put(make_node("n").new())
    await showing.show(session, Query.of(["node", "nope", "n"]), Style(Document("name"), View(), headers=True))
    with pytest.raises(Reported):
        session.finish()
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == "node/n" and "nope" in second and third.startswith("hint: ")


async def late(server: FakeServer, body: Callable[[Session], Awaitable[object]]) -> Failure:
    async def done(session: Session) -> None:
        await body(session)

    with pytest.raises(Failure, match=r"^timed out after 1 s: ") as caught:
        await asyncio.to_thread(run, Settings(server=server.address, timeout=1.0), done)
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

    async def body(session: Session) -> None:
        await session.client.pods.get("a", "default")

    server = await serve()
    server.on(GET, GetRequest, answer)
    began = asyncio.get_running_loop().time()
    with pytest.raises(ApiError, match="etcd is dead") as caught:
        await asyncio.to_thread(run, Settings(server=server.address), body)
    assert asyncio.get_running_loop().time() - began < 5
    report = explain(caught.value)
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

    async def body(session: Session) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await session.client.pods.get("a", "default")
        await asyncio.Event().wait()

    server = await serve()
    server.on(GET, GetRequest, answer)
    with pytest.raises(TimeoutError, match=r"^timed out after 0\.4 s$"):
        await asyncio.to_thread(run, Settings(server=server.address, timeout=0.4), body)


async def test_timeout_with_responsive_servers_does_not_blame_them(serve: Serve) -> None:
    async def answer(request: GetRequest, context: Any) -> Pod:
        return Pod()

    async def body(session: Session) -> None:
        while True:
            await session.client.pods.get("a", "default")

    server = await serve()
    server.on(GET, GetRequest, answer)
    with pytest.raises(TimeoutError, match=r"^timed out after 0\.3 s$"):
        await asyncio.to_thread(run, Settings(server=server.address, timeout=0.3), body)
