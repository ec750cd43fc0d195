"""One API server, as a client sees it: an address, and whether there is a connection to it."""

import asyncio
import socket
from collections.abc import Sequence

import grpc
import grpc.aio

from pinnace.runtime.tls import Credentials, Renewed

CONNECT_TIMEOUT = 1.0
"""Seconds that one server is given to accept a connection, before the next is tried."""
GRACE = 5.0
"""Seconds that calls are given which are under way when their connection is replaced."""
LOOKUP_TIMEOUT = 1.0
"""Seconds that a name server is given."""
MAX_MESSAGE = 64 << 20
"""Bytes of the largest response that is taken."""
OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),  # without it gRPC waits a minute for the answer, whatever the line above says
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),  # the least that gRPC takes
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),  # an API server is reached directly, also where the environment names a proxy
    ("grpc.use_local_subchannel_pool", 1),  # each Connection has sockets of its own
)


class Peer:
    """One API server: an address, and a channel that is made when it is first needed."""

    def __init__(self, endpoint: str, host: str = "", tls: Renewed | None = None) -> None:
        """`host`: what stands for the address; with `tls` the server's certificate must bear that name."""
        self.endpoint = endpoint
        self._host = host
        self._tls = tls
        self._shown: Credentials | None = None
        self._doubted = False
        self._channel: grpc.aio.Channel | None = None
        self._retired: set[asyncio.Task[None]] = set()

    @property
    def channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = self._open()
        return self._channel

    def is_ready(self) -> bool:
        """Is there a connection, of which there is no doubt?"""
        return self.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY and not self._doubted

    async def connect(self) -> bool:
        """As `is_ready`; waits for a connection that is being made, at most CONNECT_TIMEOUT."""
        if self.is_ready():
            return True
        state = self.channel.get_state()
        self._doubted = False
        if self._tls is not None and (self._tls.renew() or self._shown is not self._tls.current):
            self._retire()
            state = self.channel.get_state(try_to_connect=True)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                while state in (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING):
                    await self.channel.wait_for_state_change(state)
                    state = self.channel.get_state(try_to_connect=True)
        except (TimeoutError, grpc.aio.UsageError):  # the latter when it was closed meanwhile
            return False
        return state is grpc.ChannelConnectivity.READY

    def doubt(self) -> None:
        """The server does not take what it was shown any more: if there is something new, the next `connect` shows that."""
        self._doubted = True

    async def close(self) -> None:
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()
        for task in self._retired:
            task.cancel()
        await asyncio.gather(*self._retired, return_exceptions=True)

    def _retire(self) -> None:
        """Makes room for a new channel. What was sent on the old one is answered there."""
        if self._channel is not None:
            task = asyncio.create_task(_close_later(self._channel))
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)
            self._channel = None

    def _open(self) -> grpc.aio.Channel:
        if self._tls is None:
            return grpc.aio.insecure_channel(self.endpoint, options=OPTIONS)
        self._shown = self._tls.current
        named = [("grpc.ssl_target_name_override", self._host)] if self._host else []
        return grpc.aio.secure_channel(self.endpoint, self._shown.for_channel(), options=[*OPTIONS, *named])


async def _close_later(channel: grpc.aio.Channel) -> None:
    try:
        await asyncio.sleep(GRACE)
    finally:
        await channel.close()


def host_of(endpoint: str) -> str:
    """Of "host:port" or "[address]:port"."""
    return endpoint.rpartition(":")[0].strip("[]")


async def addresses(endpoint: str) -> list[str]:
    """All addresses of "host:port"; itself, when it is one, or cannot be looked up now."""
    port = endpoint.rpartition(":")[2]
    try:
        async with asyncio.timeout(LOOKUP_TIMEOUT):
            found = await asyncio.get_running_loop().getaddrinfo(host_of(endpoint), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # TimeoutError is an OSError
        return [endpoint]
    return [f"[{address[0]}]:{port}" if family is socket.AF_INET6 else f"{address[0]}:{port}" for family, *_, address in found]
