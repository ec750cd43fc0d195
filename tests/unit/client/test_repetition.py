"""Which calls a Connection retries, until when, and the errors of those that fail."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import GetRequest
from pinnace.client import errors
from pinnace.client.channel import Peer
from tests.unit.client.calls import METHOD, answering, get, hang
from tests.unit.client.conftest import Connect, Serve
from tests.unit.client.fakeserver import lose, refuse, unavailable

UPDATE = "/pinnace.v1.Pods/Update"


async def test_refused_call_is_retried_on_another_server(serve: Serve, connect: Connect) -> None:
    one, two = await serve(), await serve()
    answering(one, unavailable())
    answering(two)
    assert await get(connect(one, two), retry=False) == two.address


@pytest.mark.parametrize("retry", [True, False])
async def test_unauthenticated_call_is_retried_once(serve: Serve, connect: Connect, retry: bool) -> None:
    """The request was not executed, and the next connection may present another certificate."""
    unknown = Refusal(Code.UNAUTHENTICATED, "CertificateExpired", "renew it")
    server = await serve()
    answering(server, unavailable(), unknown, unknown, unknown, unknown)
    connection = connect(server)
    with pytest.raises(errors.Unauthenticated):
        await get(connection, retry=retry)
    assert len(server.calls) == 3
    answering(server, unknown)
    assert await get(connection, retry=retry) == server.address


async def test_retry_waits_for_the_delay_of_the_server(serve: Serve, connect: Connect) -> None:
    server = await serve()
    answering(server, unavailable(retry_after=0.2))
    started = asyncio.get_running_loop().time()
    await get(connect(server))
    assert asyncio.get_running_loop().time() - started >= 0.2


@pytest.mark.parametrize("retry", [True, False])
async def test_call_is_not_retried_after_the_deadline(serve: Serve, connect: Connect, retry: bool) -> None:
    """The duration of the first attempt was not counted, so a call could take twice its timeout and send its write late."""
    server, asked = await serve(), asyncio.Event()

    async def late(context: Any) -> None:
        await asyncio.sleep(0.4)
        asked.set()
        await refuse(context, unavailable(retry_after=30.0))

    answering(server, late)
    started = asyncio.get_running_loop().time()
    with pytest.raises(errors.Unavailable, match="etcd: no answer"):
        await get(connect(server), timeout=5.0, retry=retry)
    assert asked.is_set() and asyncio.get_running_loop().time() - started < 5.0
    assert server.calls == [METHOD]


async def test_call_without_time_left_is_not_sent(serve: Serve, connect: Connect) -> None:
    server = await serve()
    answering(server)
    connection = connect(server)
    await get(connection)
    with pytest.raises(errors.Timeout, match="was not sent"):
        await get(connection, timeout=0.0)
    assert server.calls == [METHOD]


async def test_read_with_a_lost_response_is_retried(serve: Serve, connect: Connect) -> None:
    one, two = await serve(), await serve()
    answering(one, lose)
    answering(two)
    assert await get(connect(one, two)) == two.address


async def test_create_with_a_lost_response_is_not_retried(serve: Serve, connect: Connect) -> None:
    one, two = await serve(), await serve()
    answering(one, lose)
    answering(two)
    with pytest.raises(errors.OutcomeUnknown, match="outcome of the request is unknown"):
        await get(connect(one, two), retry=False)
    assert (one.calls, two.calls) == ([METHOD], [])


async def test_unknown_outcome_is_retried_only_for_safe_calls(serve: Serve, connect: Connect) -> None:
    unknown = Refusal(Code.UNAVAILABLE, "OutcomeUnknown", "etcd did not answer")
    server = await serve()
    answering(server, unknown, unknown)
    connection = connect(server)
    with pytest.raises(errors.OutcomeUnknown, match=r"^etcd did not answer$"):
        await get(connection, retry=False)
    assert await get(connection) == server.address


async def test_unsent_call_is_retried(
    serve: Serve, connect: Connect, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closes its connection and its port between the check and the call."""

    async def always_connected(peer: Peer) -> bool:
        return True

    monkeypatch.setattr(Peer, "connect", always_connected)
    server = await serve()
    answering(server)
    assert await get(connect(f"127.0.0.1:{free_port()}", server), retry=False) == server.address


async def test_read_without_a_response_times_out(serve: Serve, connect: Connect) -> None:
    server = await serve()
    answering(server, hang)
    with pytest.raises(errors.Timeout):
        await get(connect(server), timeout=0.2)


@pytest.mark.parametrize("retry", [True, False])
async def test_write_without_a_response_has_an_unknown_outcome(serve: Serve, connect: Connect, retry: bool) -> None:
    server = await serve()
    answering(server, hang, method=UPDATE)
    with pytest.raises(errors.OutcomeUnknown, match="outcome of the request is unknown"):
        await connect(server).call(UPDATE, GetRequest(), Pod, timeout=0.2, retry=retry)


async def test_write_stays_unknown_when_its_retry_is_refused(serve: Serve, connect: Connect) -> None:
    one, two = await serve(), await serve()
    answering(one, lose, method=UPDATE)
    answering(two, unavailable(retry_after=30.0), method=UPDATE)
    with pytest.raises(errors.OutcomeUnknown, match="etcd: no answer"):
        await connect(one, two).call(UPDATE, GetRequest(), Pod, timeout=5.0)


async def test_timeout_reports_the_error_of_an_earlier_attempt(serve: Serve, connect: Connect) -> None:
    server = await serve()
    answering(server, unavailable(), hang)
    with pytest.raises(errors.Unavailable, match="etcd: no answer"):
        await get(connect(server), timeout=1.0)
    assert server.calls == [METHOD, METHOD]


async def test_create_without_a_response_has_an_unknown_outcome(serve: Serve, connect: Connect) -> None:
    server = await serve()
    answering(server, hang)
    with pytest.raises(errors.OutcomeUnknown):
        await get(connect(server), timeout=0.2, retry=False)
