"""What a command that runs out of time says: what it had met, and what may have happened."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import GetRequest
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from tests.unit.client.conftest import Serve
from tests.unit.client.conftest import serve as serve
from tests.unit.client.fakeserver import FakeServer, refuse

GET, CREATE = "/pinnace.v1.Pods/Get", "/pinnace.v1.Pods/Create"


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


async def test_the_last_error_is_told(serve: Serve) -> None:
    async def answer(request: GetRequest, context: Any) -> Pod:
        await refuse(context, Refusal(Code.UNAVAILABLE, "StorageUnavailable", "etcd is dead", retry_after=0.01))
        return Pod()

    server = await serve()
    server.on(GET, GetRequest, answer)
    assert "etcd is dead" in str(await late(server, lambda session: session.client.pods.get("a", "default")))


async def test_that_there_was_no_answer_is_told(serve: Serve) -> None:
    server = await serve()
    server.on(GET, GetRequest, silence)
    failure = await late(server, lambda session: session.client.pods.get("a", "default"))
    assert f"no answer from the API server at {server.address}" in str(failure) and "pinnace doctor" in failure.report.hint


async def test_of_a_write_it_is_told_that_it_may_have_happened(serve: Serve) -> None:
    server = await serve()
    server.on(CREATE, CreatePodRequest, silence)
    failure = await late(server, lambda session: session.client.pods.create(Pod()))
    assert "the outcome is unknown, it may have happened" in str(failure) and "before you repeat it" in failure.report.hint
