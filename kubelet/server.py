"""What the kubelet serves: logs, exec and what is used, to API servers alone.

With TLS only a certificate of the cluster's authority gets through, and only that which API servers have for this: a user of
the API asks the API server, which knows what he may do. Without TLS, in a cluster where nobody is told apart, anybody who can
connect may run commands; so that is only for loopback.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from ipaddress import ip_address
from typing import NoReturn, Protocol

import grpc
import grpc.aio
from cryptography import x509

from kubelet.nodes import Endpoint
from kubelet.streams import Streams, Unstreamable
from pinnace.api.kubelet_pb2 import StatsRequest, StatsResponse
from pinnace.api.pods_pb2 import ExecRequest, ExecResponse, LogsRequest, LogsResponse
from pinnace.api.status import Code
from pinnace.pki import Subject
from pinnace.pki.kubelets import CLIENT
from pinnace.runtime import peers
from pinnace.runtime.tls import TlsFiles, server_credentials

SERVICE = "pinnace.v1.Kubelet"
STOP_GRACE = 0.5
"""Seconds that streams are given when the kubelet stops."""
OPTIONS = (
    ("grpc.so_reuseport", 0),  # a port that is taken is an error, not a second server
    ("grpc.keepalive_time_ms", 2000),  # an API server that is gone is noticed, and its commands are killed
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
)
MAX_CONNECTIONS = 256
"""Each of a few API servers has one."""
_GRPC = {code: next(each for each in grpc.StatusCode if each.value[0] == int(code)) for code in Code}


class Statistics(Protocol):
    """What this needs of kubelet.stats.Stats."""

    async def answer(self, request: StatsRequest) -> StatsResponse: ...


class KubeletServer:
    """`bind` it, which says where; then `start`."""

    def __init__(self, streams: Streams, tls: TlsFiles | None) -> None:
        self._streams = streams
        self._tls = tls
        self._server = grpc.aio.server(options=(*OPTIONS, *peers.options(MAX_CONNECTIONS)))

    def bind(self, host: str, port: int) -> Endpoint:
        """Takes an address: with the real port. Raises OSError when it cannot."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if self._tls is None and not is_loopback(host):
            raise OSError(f"cannot serve on {address}: without certificates only on this machine's own addresses")
        try:
            if self._tls is not None:
                bound = self._server.add_secure_port(address, server_credentials(self._tls))
            else:
                bound = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: is the port taken? ({error})") from error
        return Endpoint(host, bound)

    async def start(self, statistics: Callable[[], Statistics]) -> None:
        """Answers from now on. `statistics`: those that there are when somebody asks."""

        async def stats(request: StatsRequest, context: "grpc.aio.ServicerContext") -> StatsResponse:
            await self._admit(context)
            return await statistics().answer(request)

        handlers = {
            "Stats": grpc.unary_unary_rpc_method_handler(stats, StatsRequest.FromString, StatsResponse.SerializeToString),
            "Logs": grpc.unary_stream_rpc_method_handler(
                self._logs, LogsRequest.FromString, LogsResponse.SerializeToString
            ),
            "Exec": grpc.stream_stream_rpc_method_handler(
                self._exec, ExecRequest.FromString, ExecResponse.SerializeToString
            ),
        }  # fmt: skip
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(STOP_GRACE)

    async def _logs(self, request: LogsRequest, context: "grpc.aio.ServicerContext") -> AsyncGenerator[LogsResponse, None]:
        await self._admit(context)
        try:
            async with aclosing(self._streams.logs(request)) as chunks:
                async for data in chunks:
                    yield LogsResponse(data=data)
        except Unstreamable as error:
            await _abort(context, error)

    async def _exec(
        self, requests: AsyncIterator[ExecRequest], context: "grpc.aio.ServicerContext"
    ) -> AsyncGenerator[ExecResponse, None]:
        await self._admit(context)
        try:
            first = await anext(requests, None)
            if first is None or not first.HasField("start"):
                raise Unstreamable(Code.INVALID_ARGUMENT, "the first request of an exec says what to start")
            async with aclosing(self._streams.exec(first.start, _input(requests))) as responses:
                async for response in responses:
                    yield response
        except Unstreamable as error:
            await _abort(context, error)

    async def _admit(self, context: "grpc.aio.ServicerContext") -> None:
        """Only API servers. TLS has looked at the authority of what they show."""
        if self._tls is None:
            return
        (shown,) = context.auth_context().get("x509_pem_cert", [b""])
        try:
            user = Subject.of(x509.load_pem_x509_certificate(shown)).user
        except ValueError:
            user = ""
        if user != CLIENT.user:
            await _abort(
                context,
                Unstreamable(Code.PERMISSION_DENIED, f'kubelets serve "{CLIENT.user}" and not "{user}": ask an API server'),
            )


async def _input(requests: AsyncIterator[ExecRequest]) -> AsyncIterator[bytes]:
    """Until its end, which is said, or that of the stream."""
    async for request in requests:
        if request.closeStdin:
            return
        yield request.stdin


async def _abort(context: "grpc.aio.ServicerContext", error: Unstreamable) -> NoReturn:
    await context.abort(_GRPC[error.code], str(error))
    raise AssertionError("abort raises")


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
