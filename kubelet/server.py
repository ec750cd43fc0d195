"""The kubelet's server: logs, exec, attach, port-forward and stats, for API servers only.

With TLS, the client certificate must be one that the cluster's authority issues to API servers: users call the API server,
which authorizes them. Without TLS, any client that can connect may run commands, so the server then listens on loopback only.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from ipaddress import ip_address
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
import grpc.aio
from cryptography import x509
from google.protobuf.message import Message

from pinnace.api.kubelet_pb2 import StatsRequest, StatsResponse
from pinnace.api.pods_pb2 import (
    AttachRequest,
    ExecRequest,
    ExecResponse,
    LogsRequest,
    LogsResponse,
    PortForwardRequest,
    PortForwardResponse,
)
from pinnace.api.status import Code
from pinnace.kubelet.registration import KubeletEndpoint
from pinnace.kubelet.runtime.interface import StreamError, Streams
from pinnace.pki import Subject
from pinnace.pki.authority import CLIENT
from pinnace.runtime import grpc_server
from pinnace.runtime.grpc_server import RefusalPacer, abort_call, break_reference_cycle
from pinnace.runtime.tls import TlsFiles, server_credentials

SERVICE = "pinnace.v1.Kubelet"
STOP_GRACE = 0.5
"""Seconds of grace for open streams when the kubelet stops."""
LINGER = 5.0
"""Maximum seconds for which a call stays open if its command has ended before its input. If the call ended at once, the next
write of the API server would fail, and gRPC would discard the output and exit code that the API server has not read yet.
"""
OPTIONS = (
    ("grpc.so_reuseport", 0),  # an occupied port is an error, not a second server
    ("grpc.keepalive_time_ms", 2000),  # detects disconnected API servers, to kill their commands
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.max_concurrent_streams", 1000),  # per connection: an API server has as many streams as its users need
)
MAX_CONNECTIONS = 256
"""One connection per API server."""
M = TypeVar("M", bound=Message)
_GRPC = {code: next(item for item in grpc.StatusCode if item.value[0] == int(code)) for code in Code}


class Statistics(Protocol):
    """The methods that this module needs of pinnace.kubelet.stats.Stats."""

    async def answer_stats_request(self, request: StatsRequest) -> StatsResponse: ...


class KubeletServer:
    """Call `bind`, which returns the address, then `start`."""

    def __init__(self, streams: Streams, tls: TlsFiles | None) -> None:
        self._streams = streams
        self._tls = tls
        self._refusals = RefusalPacer()
        self._server = grpc.aio.server(options=(*OPTIONS, *grpc_server.server_options(MAX_CONNECTIONS)))

    def bind(self, host: str, port: int) -> KubeletEndpoint:
        """Bind the address, and return it with the actual port. Raises OSError."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if self._tls is None and not is_loopback(host):
            raise OSError(f"cannot listen on {address}: without certificates, only loopback addresses are allowed")
        try:
            if self._tls is not None:
                bound = self._server.add_secure_port(address, server_credentials(self._tls))
            else:
                bound = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: is the port taken? ({error})") from error
        return KubeletEndpoint(host, bound)

    async def start(self, statistics: Callable[[], Statistics]) -> None:
        """Start to serve. `statistics`: returns the current statistics."""

        async def stats(requests: AsyncIterator[StatsRequest]) -> AsyncGenerator[StatsResponse, None]:
            yield await statistics().answer_stats_request(await _first_request(requests, StatsRequest))

        self._server.add_generic_rpc_handlers(
            (
                _MethodHandlers(
                    {
                        f"/{SERVICE}/Stats": self._build_handler(stats, StatsRequest),
                        f"/{SERVICE}/Logs": self._build_handler(self._serve_logs, LogsRequest),
                        f"/{SERVICE}/Exec": self._build_handler(self._serve_exec, ExecRequest),
                        f"/{SERVICE}/Attach": self._build_handler(self._attach, AttachRequest),
                        f"/{SERVICE}/PortForward": self._build_handler(self._port_forward, PortForwardRequest),
                    },
                    self._require_api_server,
                ),
            )
        )
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(STOP_GRACE)

    def _build_handler(
        self, serve: Callable[[AsyncIterator[Any]], AsyncGenerator[Message, None]], message: type[Message]
    ) -> "grpc.RpcMethodHandler":
        """Requests are read as a stream for all methods. Otherwise gRPC would read the request of a unary method before the
        client is authenticated.
        """

        async def call(requests: AsyncIterator[bytes], context: "grpc.aio.ServicerContext") -> AsyncGenerator[bytes, None]:
            await self._require_api_server(context)
            try:
                async with aclosing(serve(_parse_requests(requests, message))) as responses:
                    async for response in responses:
                        yield response.SerializeToString()
            except StreamError as error:
                await _abort(context, error)

        return grpc.stream_stream_rpc_method_handler(call)

    async def _serve_logs(self, requests: AsyncIterator[LogsRequest]) -> AsyncGenerator[LogsResponse, None]:
        async with aclosing(self._streams.logs(await _first_request(requests, LogsRequest))) as chunks:
            async for data in chunks:
                yield LogsResponse(data=data)

    async def _serve_exec(self, requests: AsyncIterator[ExecRequest]) -> AsyncGenerator[ExecResponse, None]:
        first = await anext(requests, None)
        if first is None or not first.HasField("start"):
            raise StreamError(Code.INVALID_ARGUMENT, "the first request of an exec must contain the command")
        stdin = _CommandInput(requests)
        async with aclosing(self._streams.exec(first.start, stdin.read())) as responses:
            async for response in responses:
                yield response
        if first.start.stdin and not stdin.ended:
            await asyncio.sleep(LINGER)  # usually cut short: the API server cancels the call

    async def _attach(self, requests: AsyncIterator[AttachRequest]) -> AsyncGenerator[ExecResponse, None]:
        async with aclosing(self._streams.attach(await _first_request(requests, AttachRequest))) as responses:
            async for response in responses:
                yield response

    async def _port_forward(self, requests: AsyncIterator[PortForwardRequest]) -> AsyncGenerator[PortForwardResponse, None]:
        first = await anext(requests, None)
        if first is None or not first.HasField("start"):
            raise StreamError(Code.INVALID_ARGUMENT, "the first request of a port-forward must have the port")
        async with aclosing(self._streams.port_forward(first.start, requests)) as responses:
            async for response in responses:
                yield response

    async def _require_api_server(self, context: "grpc.aio.ServicerContext") -> None:
        """Accept only API servers. TLS has verified the certificate. Refusals of other clients are delayed."""
        if self._tls is None:
            return
        (shown,) = context.auth_context().get("x509_pem_cert", [b""])
        try:
            user = Subject.of(x509.load_pem_x509_certificate(shown)).user
        except ValueError:
            user = ""
        if user != CLIENT.user:
            await self._refusals.wait(user, remaining=context.time_remaining())
            await _abort(
                context,
                StreamError(Code.PERMISSION_DENIED, f'kubelets serve "{CLIENT.user}" and not "{user}": call an API server'),
            )


class _MethodHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """All methods of the server, by path. Other paths are refused; for API servers as unknown."""

    def __init__(
        self, handlers: Mapping[str, "grpc.RpcMethodHandler"], admit: Callable[["grpc.aio.ServicerContext"], Awaitable[None]]
    ) -> None:
        async def unknown(requests: object, context: "grpc.aio.ServicerContext") -> None:
            await admit(context)
            await _abort(context, StreamError(Code.UNIMPLEMENTED, "the kubelet has no such method"))

        self._handlers = handlers
        self._unknown = grpc.stream_stream_rpc_method_handler(unknown)

    def service(self, handler_call_details: "grpc.HandlerCallDetails") -> "grpc.RpcMethodHandler":
        return self._handlers.get(handler_call_details.method, self._unknown)


async def _parse_requests(requests: AsyncIterator[bytes], message: type[Message]) -> AsyncGenerator[Any, None]:
    async for data in requests:
        yield message.FromString(data)


async def _first_request(requests: AsyncIterator[M], message: type[M]) -> M:
    """The first request; empty if there is none."""
    return await anext(requests, None) or message()


class _CommandInput:
    """The input of a command."""

    def __init__(self, requests: AsyncIterator[ExecRequest]) -> None:
        self._requests = requests
        self.ended = False

    async def read(self) -> AsyncIterator[bytes]:
        """Run until the end of the stream."""
        async for request in self._requests:
            if request.closeStdin:
                break
            yield request.stdin
        self.ended = True


async def _abort(context: "grpc.aio.ServicerContext", error: StreamError) -> NoReturn:
    break_reference_cycle(error)
    await abort_call(context, _GRPC[error.code], str(error))


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
