"""One API server, as a client sees it: an address, and whether there is a connection to it."""

import asyncio
import socket
from collections.abc import Sequence

import grpc
import grpc.aio

CONNECT_TIMEOUT = 1.0
"""Seconds that one server is given to accept a connection, before the next is tried."""
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

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._channel: grpc.aio.Channel | None = None

    @property
    def channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self.endpoint, options=OPTIONS)
        return self._channel

    async def connect(self) -> bool:
        """Is there a connection? Waits for one that is being made, at most CONNECT_TIMEOUT."""
        state = self.channel.get_state(try_to_connect=True)
        if state is grpc.ChannelConnectivity.READY:
            return True
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                while state in (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING):
                    await self.channel.wait_for_state_change(state)
                    state = self.channel.get_state(try_to_connect=True)
        except TimeoutError:
            return False
        return state is grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()


async def addresses(endpoint: str) -> list[str]:
    """All addresses of "host:port"; itself, when it is one, or cannot be looked up now."""
    host, _, port = endpoint.rpartition(":")
    try:
        async with asyncio.timeout(LOOKUP_TIMEOUT):
            found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # TimeoutError is an OSError
        return [endpoint]
    return [f"[{address[0]}]:{port}" if family is socket.AF_INET6 else f"{address[0]}:{port}" for family, *_, address in found]
