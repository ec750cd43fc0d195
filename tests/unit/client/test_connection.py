"""How a connection chooses servers, and the errors that it raises. Retries: test_repetition.py."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse
from pinnace.api.pods_pb2 import CreatePodRequest, Fence
from pinnace.api.status import Code, Refusal, Violation
from pinnace.api.verbs_pb2 import GetRequest
from pinnace.client import connection, errors
from pinnace.client.channel import Peer, resolve_addresses
from pinnace.client.connection import Connection
from tests.unit.client.calls import METHOD, answering, get, hang, named
from tests.unit.client.conftest import Connect, Serve
from tests.unit.client.fakeserver import FakeServer, refuse

UNKNOWN = "/pinnace.v1.Pods/CreateBatch"


async def test_connection_keeps_its_server(serve: Serve, connect: Connect) -> None:
    one, two = await serve(), await serve()
    answering(one)
    answering(two)
    connection = connect(one, two)
    assert {await get(connection) for _ in range(5)} == {one.address}


@pytest.mark.parametrize("retry", [True, False])
async def test_unreachable_server_is_skipped(serve: Serve, connect: Connect, free_port: Callable[[], int], retry: bool) -> None:
    two = await serve()
    answering(two)
    connection = connect(f"127.0.0.1:{free_port()}", two)
    assert await get(connection, retry=retry) == two.address


async def test_call_fails_when_no_server_is_reachable(connect: Connect, free_port: Callable[[], int]) -> None:
    connection = connect(f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}")
    with pytest.raises(errors.Unavailable, match="cannot connect to the API server at 127"):
        await get(connection, timeout=0.3)


async def test_error_has_a_reason_per_unreachable_server(
    connect: Connect, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinnace.client.connection.PROBE_AFTER", 0.1)
    monkeypatch.setattr(connection, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        refusing, silent = f"127.0.0.1:{free_port()}", "{}:{}".format(*mute.getsockname())
        with pytest.raises(errors.Unavailable) as caught:
            await get(connect(refusing, silent), timeout=3.0)
    assert f"the API server at {refusing} (connection refused), {silent} (no answer without TLS in 0 s)" in str(caught.value)


async def test_earlier_error_is_not_reported_for_the_next_failure(
    connect: Connect, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinnace.client.connection.PROBE_AFTER", 0.1)
    address = f"127.0.0.1:{free_port()}"
    connection = connect(address)
    with pytest.raises(errors.Unavailable, match="connection refused"):
        await get(connection, timeout=1.0)
    server = await FakeServer().start(address)
    answering(server)
    await get(connection)
    await server.stop()
    with pytest.raises(errors.Unavailable, match=f"at {address}( in time)?$"):
        await get(connection, timeout=0.05)


async def test_closed_channel_fails_a_create_and_retries_a_read(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another caller closes the channel to present a new certificate, or because a name resolves to other addresses.

    These calls were not cancelled.
    """
    peers: list[Peer] = []

    class Known(Peer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            peers.append(self)

    monkeypatch.setattr("pinnace.client.connection.Peer", Known)
    server = await serve()
    held = asyncio.Semaphore(0)

    async def hold(context: Any) -> None:
        held.release()
        await hang(context)

    answering(server, hold, hold)
    connection = connect(server)
    creating = asyncio.ensure_future(get(connection, retry=False))
    reading = asyncio.ensure_future(get(connection))
    for _ in range(2):
        await held.acquire()
    await peers[0].close()
    with pytest.raises(errors.OutcomeUnknown):
        await creating
    assert await reading == server.address


async def test_close_cancels_pending_calls(serve: Serve, connect: Connect) -> None:
    server = await serve()
    held = asyncio.Event()

    async def hold(context: Any) -> None:
        held.set()
        await hang(context)

    answering(server, hold)
    connection = connect(server)
    calling = asyncio.ensure_future(get(connection))
    await held.wait()
    await connection.close()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_cancellation_is_never_lost(serve: Serve, connect: Connect) -> None:
    """gRPC loses a cancellation at the moment of the server's refusal. A stopped candidate then continued forever."""
    server = await serve()
    connection = connect(server)

    async def talk() -> None:
        stream = await connection.duplex("/pinnace.v1.Elections/Nothing", GetRequest, Pod)
        await stream.write(GetRequest(name="a"))
        await stream.read(5.0)

    await asyncio.gather(talk(), return_exceptions=True)
    for turn in range(900):
        talking = asyncio.ensure_future(talk())
        for _ in range(1 + turn % 15):
            await asyncio.sleep(0)
        if turn % 2:
            await asyncio.sleep(turn % 30 * 5e-5)  # the response arrives after 0.3 to 1 ms
        if talking.cancel():
            with pytest.raises(asyncio.CancelledError):
                await talking
        else:
            with pytest.raises(errors.ApiError):
                await talking


async def test_call_survives_a_server_restart(serve: Serve, connect: Connect) -> None:
    server = await serve()
    answering(server)
    connection = connect(server)
    await get(connection)
    await server.stop()
    pending = asyncio.ensure_future(get(connection))
    again = FakeServer()
    answering(again)
    await again.start(server.address)
    try:
        assert await pending == again.address
    finally:
        await again.stop()


async def test_error_contains_all_details_of_the_server(serve: Serve, connect: Connect) -> None:
    violations = (Violation("spec.containers", "Required value"), Violation("metadata.name", "Invalid value"))
    server = await serve()
    answering(server, Refusal(Code.INVALID_ARGUMENT, "Invalid", 'Pod "ä" is invalid', violations, metadata=(("a", "b"),)))
    with pytest.raises(errors.Invalid) as caught:
        await get(connect(server))
    error = caught.value
    assert (error.code, error.reason, error.message) == (Code.INVALID_ARGUMENT, "Invalid", 'Pod "ä" is invalid')
    assert (error.violations, error.metadata, error.retry_after) == (violations, (("a", "b"),), None)


async def test_unimplemented_method_is_sent_to_the_next_server(serve: Serve, connect: Connect) -> None:
    one, two, three = await serve(), await serve(), await serve()
    answering(three)
    connection = connect(one, two, three)
    assert {await get(connection, retry=False) for _ in range(3)} == {three.address}
    assert (one.calls, two.calls) == ([METHOD], [METHOD])


async def test_method_that_no_server_implements(serve: Serve, connect: Connect, free_port: Callable[[], int]) -> None:
    """Each server is called once. Afterwards the connection uses its old server for other methods."""
    one, two = await serve(), await serve()
    answering(one)
    answering(two)
    connection = connect(one, two, f"127.0.0.1:{free_port()}")
    assert await get(connection) == one.address
    with pytest.raises(errors.Unimplemented) as caught:
        await connection.call(UNKNOWN, CreatePodRequest(), Pod, timeout=5.0)
    assert caught.value.message == (
        f"the API server at {one.address}, {two.address} does not implement pods.CreateBatch: it is older than this client"
    )
    assert "upgrade the API servers before the clients" in dict(caught.value.metadata)["hint"]
    assert [server.calls.count(UNKNOWN) for server in (one, two)] == [1, 1]
    assert await get(connection) == one.address


async def test_method_that_the_only_server_does_not_implement(serve: Serve, connect: Connect) -> None:
    server = await serve()
    with pytest.raises(
        errors.Unimplemented, match=f"^the API server at {server.address} does not implement pods.Get: it is older"
    ):
        await get(connect(server))
    assert server.calls == [METHOD]


async def test_search_for_a_server_with_a_method_ends_at_the_deadline(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await serve(), await serve()
    connects = Peer.connect

    async def never(peer: Peer) -> bool:
        return await (hang(None) if peer.endpoint == two.address else connects(peer))

    monkeypatch.setattr(Peer, "connect", never)
    with pytest.raises(errors.Unimplemented, match=f"the API server at {one.address} does not implement"):
        await get(connect(one, two), timeout=0.2)


async def test_method_missing_on_a_kubelet_is_called_once(serve: Serve, connect: Connect) -> None:
    """The API server implements the method and forwards the kubelet's error."""
    one, two = await serve(), await serve()
    answering(one, Refusal(Code.UNIMPLEMENTED, "InternalError", "Method not found!"))
    answering(two)
    with pytest.raises(errors.Unimplemented, match=r"^Method not found!$"):
        await get(connect(one, two))
    assert two.calls == []


async def test_unimplemented_stream_opens_on_the_next_server(serve: Serve, connect: Connect) -> None:
    one, two = await serve(), await serve()
    two.on_watch(METHOD, GetRequest, two_pods)
    stream = await connect(one, two).stream(METHOD, GetRequest(name="a"), Pod)
    assert [pod.metadata.name if (pod := await stream.read()) else "" for _ in range(3)] == ["a", "a", ""]
    assert stream.endpoint == two.address
    stream = await connect(one).stream(METHOD, GetRequest(name="a"), Pod)
    with pytest.raises(errors.Unimplemented, match=f"the API server at {one.address} does not implement pods.Get"):
        await stream.read()


async def two_pods(request: GetRequest, context: Any) -> AsyncIterator[bytes]:
    for _ in range(2):
        yield named(request.name).SerializeToString()


async def test_unimplemented_duplex_stream_opens_on_the_next_server(serve: Serve, connect: Connect) -> None:
    async def echo(requests: AsyncIterator[GetRequest], context: object) -> AsyncIterator[Pod]:
        async for request in requests:
            yield named(request.name)

    one, two, three = await serve(), await serve(), await serve()
    three.on_duplex(METHOD, GetRequest, echo)
    connection = connect(one, two, three)
    stream = await connection.duplex(METHOD, GetRequest, Pod)
    for name in ("a", "b"):
        await stream.write(GetRequest(name=name))
        assert await stream.read() == named(name)
    assert stream.endpoint == connection.endpoint == three.address
    stream.cancel()

    stream = await connect(one, three).duplex(METHOD, GetRequest, Pod)
    await stream.write(GetRequest(name="a"))
    await stream._call.code()  # a write while gRPC receives the end becomes "Internal error from Core"
    await stream.write(GetRequest(name="b"))
    with pytest.raises(errors.Unimplemented, match=f"the API server at {one.address} does not implement pods.Get"):
        await stream.read()


def test_connection_needs_a_server() -> None:
    with pytest.raises(ValueError, match="no API server"):
        Connection([])


async def test_name_is_resolved_again_when_all_its_addresses_fail(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = await serve(), await serve(), await serve()
    for server in (one, two, three):
        answering(server)
    names = {"apiserver:7443": [one.address, two.address]}

    async def resolve_addresses(endpoint: str) -> list[str]:
        return names[endpoint]

    monkeypatch.setattr("pinnace.client.connection.resolve_addresses", resolve_addresses)
    connection = connect("apiserver:7443")
    first = await get(connection)
    (gone,) = (server for server in (one, two) if server.address == first)
    await gone.stop()
    assert await get(connection) in {one.address, two.address} - {first}

    names["apiserver:7443"] = [three.address]
    await one.stop()
    await two.stop()
    assert await get(connection) == three.address


async def test_unresolvable_endpoints_are_returned_unchanged() -> None:
    assert await resolve_addresses("127.0.0.1:7443") == ["127.0.0.1:7443"]
    assert await resolve_addresses("[::1]:7443") == ["[::1]:7443"]
    assert await resolve_addresses("no-such-host.invalid:7443") == ["no-such-host.invalid:7443"]


async def test_blocked_write_changes_the_server(serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async def deaf(requests: object, context: object) -> AsyncIterator[HeartbeatResponse]:
        await asyncio.get_running_loop().create_future()
        yield HeartbeatResponse()

    one, two = await serve(), await serve()
    one.on_duplex("/a.B/C", HeartbeatRequest, deaf)
    connection = connect(one, two)
    monkeypatch.setattr("pinnace.client.channel.WRITE_TIMEOUT", 0.2)
    stream = await connection.duplex("/a.B/C", HeartbeatRequest, HeartbeatResponse)
    much = HeartbeatRequest(add=HeartbeatRequest.Add(nodes=["n" * 1000] * 1000))
    with pytest.raises(errors.Unavailable, match=f"API server {one.address} does not accept requests"):
        for _ in range(100):
            await stream.write(much)
    assert connection.endpoint == two.address


async def test_retries_end_with_the_term(serve: Serve, connect: Connect) -> None:
    server, asked = await serve(), list[None]()
    terms = iter([Fence(election="scheduler", token=7), None])

    async def refuse_first(context: Any) -> None:
        asked.append(None)
        await refuse(context, Refusal(Code.UNAVAILABLE, "", "not now", retry_after=0.0))

    answering(server, refuse_first)
    with pytest.raises(errors.Fenced):
        await connect(server).call(METHOD, GetRequest(name="a"), Pod, timeout=5.0, fence=lambda: next(terms))
    assert len(asked) == 1


class Unreadable:
    """A response that does not decode."""

    def SerializeToString(self) -> bytes:  # noqa: N802 (protobuf's name)
        return b"\xff"


async def test_undecodable_response_is_an_error(serve: Serve, connect: Connect) -> None:
    """gRPC returns None for it, which also marks the end of a stream."""
    server = await serve()

    async def answer(request: GetRequest, context: Any) -> Any:
        return Unreadable()

    server.on(METHOD, GetRequest, answer)
    connection = connect(server)
    with pytest.raises(errors.Internal, match=f"cannot decode .* {METHOD}"):
        await connection.call(METHOD, GetRequest(name="a"), Pod)
    assert server.calls == [METHOD]


async def test_undecodable_stream_message_is_an_error(serve: Serve, connect: Connect) -> None:
    server = await serve()

    async def watch(request: GetRequest, context: Any) -> AsyncIterator[bytes]:
        yield named("a").SerializeToString()
        yield b"\xff"

    server.on_watch(METHOD, GetRequest, watch)
    stream = await connect(server).stream(METHOD, GetRequest(name="a"), Pod)
    assert await stream.read() == named("a")
    with pytest.raises(errors.Internal, match="cannot decode"):
        await stream.read()
