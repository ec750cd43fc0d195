"""A channel to one API server, streams over it, and the interface of all callers.

`Peer` is one server with its gRPC channel. `Stream` and `Duplex` are streams from one server; they are not resumed.
`Caller` is the interface of Connection, and `FencedCaller` adds a leader's fence to each call.
"""

import asyncio
import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from pinnace.api.pods_pb2 import Fence
from pinnace.client.errors import (
    ApiError,
    from_rpc,
    unavailable_error,
    unimplemented_error,
    unknown_method,
    unreadable_response_error,
)
from pinnace.client.exchange import Exchange
from pinnace.runtime import grpc_stream
from pinnace.runtime.tasks import CallCancelled, CancellationGuard
from pinnace.runtime.tls import Credentials, ReloadingCredentials

CONNECT_TIMEOUT = 1.0
"""Seconds to wait for a connection to one server before the next server is tried."""
DRAIN_GRACE = 5.0
"""Seconds that open calls have to finish after their channel is replaced."""
LOOKUP_TIMEOUT = 1.0
"""Seconds before a DNS lookup times out."""
MAX_MESSAGE = 512 << 20
"""The maximum size of a response in bytes. A list without a limit is one response, of objects of up to 1.5 MiB."""
OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),  # the default of one minute takes precedence over keepalive_timeout_ms
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),  # the minimum that gRPC supports
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),  # ignore the proxy variables of the environment
    ("grpc.use_local_subchannel_pool", 1),  # do not share sockets between Connections
)
STREAMS_PER_CHANNEL = 150
"""Streams on one connection. An API server accepts 250 calls on it, and gRPC queues further ones without an error."""
WRITE_TIMEOUT = 1.0
"""Seconds before sending one stream request times out. Without a timeout, gRPC blocks forever if a call ends before its
metadata is sent (`_StreamRequestMixin._write` in grpcio)."""
Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
PresentFence: TypeAlias = Callable[[], Fence | None]
"""A function that returns the fence of a leader's term, or None after the term has ended."""


@dataclass(slots=True, eq=False)
class _StreamChannel:
    channel: grpc.aio.Channel
    is_further: bool
    streams: int = 0


class Peer:
    """One API server. Its channel is created on first use. Above STREAMS_PER_CHANNEL streams, it has further channels."""

    def __init__(self, endpoint: str, host: str = "", tls: ReloadingCredentials | None = None) -> None:
        """`host`: the host name of the endpoint. With `tls`, the server's certificate must be valid for it."""
        self.endpoint = endpoint
        self._host = host
        self._tls = tls
        self._presented: Credentials | None = None
        self._credentials_rejected = False
        self._channel: grpc.aio.Channel | None = None
        self._exchange: Exchange | None = None
        self._stream_channels: list[_StreamChannel] = []
        """The channel, if it has streams, and further channels."""
        self._closing_channels: set[asyncio.Task[None]] = set()

    @property
    def channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = self._create_channel()
        return self._channel

    @property
    def exchange(self) -> Exchange:
        """The stream for many calls. It is replaced when it has ended."""
        if self._exchange is None or self._exchange.is_closed:
            self._exchange = Exchange(self.channel, self.endpoint)
        return self._exchange

    def open_stream(self, start: Callable[[grpc.aio.Channel], Any]) -> Any:
        """Start a stream on a channel with room for it. Return its call."""
        place = next((place for place in self._stream_channels if place.streams < STREAMS_PER_CHANNEL), None)
        if place is None:
            is_further = bool(self._stream_channels)
            place = _StreamChannel(self._create_channel() if is_further else self.channel, is_further)
            self._stream_channels.append(place)
        call = start(place.channel)
        place.streams += 1
        call.add_done_callback(lambda _: self._release_stream(place))
        return call

    def _release_stream(self, place: _StreamChannel) -> None:
        place.streams -= 1
        if place.is_further and not place.streams and place in self._stream_channels:
            self._stream_channels.remove(place)
            self._close_later(place.channel, 0.0)

    def is_ready(self) -> bool:
        """Return whether the channel is connected and the server has not rejected its credentials."""
        return self.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY and not self._credentials_rejected

    async def connect(self) -> bool:
        """Wait up to CONNECT_TIMEOUT for a connection. Return whether the channel is connected."""
        if self.is_ready():
            return True
        state = self.channel.get_state()
        self._credentials_rejected = False
        if self._tls is not None and (self._tls.reload_if_changed() or self._presented is not self._tls.current):
            self._replace_channel()
            state = self.channel.get_state(try_to_connect=True)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                while state in (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING):
                    await self.channel.wait_for_state_change(state)
                    state = self.channel.get_state(try_to_connect=True)
        except (TimeoutError, grpc.aio.UsageError):  # UsageError if the channel was closed meanwhile
            return False
        return state is grpc.ChannelConnectivity.READY

    def mark_credentials_rejected(self) -> None:
        """Record that the server rejected the credentials. The next `connect` reloads them."""
        self._credentials_rejected = True

    async def close(self) -> None:
        if self._exchange is not None:
            self._exchange.close()
        for channel in self._forget_channels():
            await channel.close()
        for task in self._closing_channels:
            task.cancel()
        await asyncio.gather(*self._closing_channels, return_exceptions=True)

    def _replace_channel(self) -> None:
        """Replace the channel for new calls. Open calls have DRAIN_GRACE seconds to finish."""
        for channel in self._forget_channels():
            self._close_later(channel, DRAIN_GRACE)
        self._exchange = None

    def _forget_channels(self) -> list[grpc.aio.Channel]:
        """Return the channels. New calls create others."""
        channels = [place.channel for place in self._stream_channels if place.is_further]
        if self._channel is not None:
            channels.append(self._channel)
        self._channel, self._stream_channels = None, []
        return channels

    def _close_later(self, channel: grpc.aio.Channel, seconds: float) -> None:
        task = asyncio.create_task(_close_after(channel, seconds))
        self._closing_channels.add(task)
        task.add_done_callback(self._closing_channels.discard)

    def _create_channel(self) -> grpc.aio.Channel:
        if self._tls is None:
            return grpc.aio.insecure_channel(self.endpoint, options=OPTIONS)
        self._presented = self._tls.current
        named = [("grpc.ssl_target_name_override", self._host)] if self._host else []
        return grpc.aio.secure_channel(self.endpoint, self._presented.for_channel(), options=[*OPTIONS, *named])


async def _close_after(channel: grpc.aio.Channel, seconds: float) -> None:
    try:
        await asyncio.sleep(seconds)
    finally:
        await channel.close()


def host_of(endpoint: str) -> str:
    """Return the host of "host:port" or "[address]:port"."""
    return endpoint.rpartition(":")[0].strip("[]")


async def resolve_addresses(endpoint: str) -> list[str]:
    """Resolve "host:port" to all of its addresses. Return the endpoint itself if the lookup fails."""
    port = endpoint.rpartition(":")[2]
    try:
        async with asyncio.timeout(LOOKUP_TIMEOUT):
            address_infos = await asyncio.get_running_loop().getaddrinfo(host_of(endpoint), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # TimeoutError is an OSError
        return [endpoint]
    return [
        f"[{address[0]}]:{port}" if family is socket.AF_INET6 else f"{address[0]}:{port}"
        for family, *_, address in address_infos
    ]


StreamOpener: TypeAlias = Callable[[Peer], Any]
"""A function that starts a stream on one server."""


class Decoder(Generic[R]):
    """A deserializer that returns None for malformed responses (see `unreadable`). If a deserializer raises, gRPC logs the
    exception and returns None as well. `size`: the size of the latest response in bytes."""

    def __init__(self, response: type[R]) -> None:
        self._response = response
        self.size = 0

    def __call__(self, data: bytes) -> R | None:
        self.size = len(data)
        try:
            return self._response.FromString(data)
        except DecodeError:
            return None


class Servers(Protocol):
    """The part of Connection that streams use."""

    async def select_server(self, method: str, ignorant: Collection[str]) -> Peer: ...

    def handle_failure(self, peer: Peer, failure: ApiError) -> ApiError: ...

    def switch_server(self, peer: Peer) -> None: ...


class Stream(Generic[R]):
    """A stream of responses from one server. It is not resumed. The caller must call `cancel`."""

    def __init__(self, servers: Servers, method: str, peer: Peer, open_stream: StreamOpener, decode: Decoder[R]) -> None:
        self._servers = servers
        self._method = method
        self._peer = peer
        self._open_stream = open_stream
        self._decode = decode
        self._call = open_stream(peer)
        self._ignorant: list[str] = []
        """Endpoints of the servers that do not implement the method."""

    @property
    def endpoint(self) -> str:
        return self._peer.endpoint

    @property
    def size(self) -> int:
        """The size of the latest response in bytes."""
        return self._decode.size

    async def read(self, silence: float | None = None) -> R | None:
        """Return the next response, or None at the end of the stream. Raises ApiError.

        If no response arrives within `silence` seconds, the connection switches to the next server and Unavailable is raised.
        """
        try:
            with CancellationGuard():
                async with asyncio.timeout(silence):
                    response = await self._read_next()
        except TimeoutError:
            self.cancel_and_switch_server()
            raise unavailable_error(f"API server {self.endpoint} sent nothing for {silence:.0f} s") from None
        except CallCancelled:
            raise unavailable_error(f"the stream from API server {self.endpoint} was cancelled") from None
        except grpc.aio.AioRpcError as error:
            failure = self._servers.handle_failure(self._peer, from_rpc(error))
            if not unknown_method(failure):
                raise failure from None
            self._ignorant.append(self.endpoint)
            await self._reopen_elsewhere()
            return await self.read(silence)
        if response is None:
            raise unreadable_response_error(self._method, self.endpoint)
        return None if response is grpc.aio.EOF else response

    def switch_server(self) -> None:
        """Switch the connection to another server. The stream stays open."""
        self._servers.switch_server(self._peer)

    def cancel_and_switch_server(self) -> None:
        """Cancel the stream, and switch the connection to another server."""
        self.switch_server()
        self.cancel()

    def cancel(self) -> None:
        self._call.cancel()

    async def _reopen_elsewhere(self) -> None:
        self._peer = await self._servers.select_server(self._method, self._ignorant)
        self._call = self._open_stream(self._peer)

    async def _read_next(self) -> Any:
        return await self._call.read()


class Duplex(Stream[R], Generic[Q, R]):
    """A bidirectional stream. It stays open when a read is cancelled.

    If the server does not implement the method, the first request is sent to another server. If more than one request was
    written, Unimplemented is raised instead."""

    def __init__(self, servers: Servers, method: str, peer: Peer, open_stream: StreamOpener, decode: Decoder[R]) -> None:
        super().__init__(servers, method, peer, open_stream, decode)
        self._writing = asyncio.Lock()  # gRPC allows one write at a time
        self._first: Q | None = None
        self._written = 0
        self._reading: asyncio.Future[Any] | None = None

    async def write(self, request: Q, *, patience: float | None = WRITE_TIMEOUT) -> None:
        """Send a request. Has no effect if the stream has ended: `read` raises the error of the stream.

        If the send buffer stays full for `patience` seconds, the connection switches to the next server and Unavailable is
        raised."""
        async with self._writing:
            if self._first is None:
                self._first = request
            self._written += 1
            await self._write(request, patience)

    async def _write(self, request: Q, patience: float | None) -> None:
        try:
            async with asyncio.timeout(patience):
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, CallCancelled), CancellationGuard():
                    await grpc_stream.write_request(self._call, request)
        except TimeoutError:
            self.cancel_and_switch_server()
            raise unavailable_error(f"API server {self.endpoint} does not accept requests") from None

    async def _reopen_elsewhere(self) -> None:
        async with self._writing:
            if self._written > 1:
                raise unimplemented_error(self._method, self._ignorant)
            await super()._reopen_elsewhere()
            self._reading = None
            if self._first is not None:
                await self._write(self._first, WRITE_TIMEOUT)

    async def _read_next(self) -> Any:
        """Read the next response in a separate task, because gRPC cancels the call when a reader is cancelled
        (`_StreamResponseMixin._read` in grpcio). If this reader is cancelled, the next reader receives the response."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._call.read())
            self._reading.add_done_callback(_retrieve_exception)
        response = await asyncio.shield(self._reading)
        self._reading = None
        return response


def _retrieve_exception(reading: asyncio.Future[Any]) -> None:
    """Mark the exception of an abandoned read as retrieved, so that asyncio does not log it."""
    if not reading.cancelled():
        reading.exception()


class Caller(Protocol):
    """The interface of Connection, and of wrappers such as Guarded. See Connection for the methods."""

    @property
    def endpoint(self) -> str: ...

    async def call(
        self,
        method: str,
        request: Message,
        response: type[R],
        *,
        timeout: float = 10.0,
        retry: bool = True,
        fence: PresentFence | None = None,
    ) -> R: ...

    async def stream(self, method: str, request: Message, response: type[R]) -> Stream[R]: ...

    async def duplex(self, method: str, request: type[Q], response: type[R]) -> Duplex[Q, R]: ...

    async def close(self) -> None: ...


class FencedCaller:
    """A Caller that adds a leader's fence to each call of another Caller. Calls raise Fenced after the term has ended.

    A leader that was paused or starved of CPU may continue before it detects that another replica leads. Each attempt therefore
    reads the fence when it is sent, and includes it in the request in case the request arrives late. A call belongs to the term
    in which it started. Streams are read-only and have no fence."""

    def __init__(self, connection: Caller, fence: PresentFence) -> None:
        self._connection = connection
        self._fence = fence

    @property
    def endpoint(self) -> str:
        return self._connection.endpoint

    async def call(
        self,
        method: str,
        request: Message,
        response: type[R],
        *,
        timeout: float = 10.0,
        retry: bool = True,
        fence: PresentFence | None = None,
    ) -> R:
        if fence is not None:
            raise ValueError(f"{method}: a guarded connection uses its own fence")
        began = self._fence()

        def current_fence() -> Fence | None:
            return began if self._fence() == began else None

        return await self._connection.call(method, request, response, timeout=timeout, retry=retry, fence=current_fence)

    async def stream(self, method: str, request: Message, response: type[R]) -> Stream[R]:
        return await self._connection.stream(method, request, response)

    async def duplex(self, method: str, request: type[Q], response: type[R]) -> Duplex[Q, R]:
        return await self._connection.duplex(method, request, response)

    async def close(self) -> None:
        await self._connection.close()
