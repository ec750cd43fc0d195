"""The gRPC transport of the API server.

Several gRPC servers (listener shards) listen on one port, and call the methods of the assembly through
`pinnace.apiserver.services.handlers`:

    connections --the kernel hashes their addresses--> shard 1: its calls, in order of arrival --,
                                                   |-> shard 2: ... ----------------------------+--> the handlers
                                                   '-> ...                                    --'

gRPC for Python dispatches the calls of a server in order of arrival, and needs several iterations of the event loop per call.
With one gRPC server, a client that floods the server with calls delays all other clients. With shards, it delays only the
clients of its shard. All shards share one thread, the handlers and the limits of the port.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import grpc
import grpc.aio

from pinnace.apiserver.assembly import DEFAULTS, Assembly, ServerSettings
from pinnace.apiserver.auth.authentication import RequestAuthenticator
from pinnace.apiserver.auth.tokens import UnionTokenAuthenticator
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.services.handlers import MethodHandlers
from pinnace.apiserver.services.methods import Method
from pinnace.apiserver.storage.interface import Storage
from pinnace.runtime import grpc_server
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.tls import TlsFiles, shared_port_credentials

MAX_REQUEST = 4 << 20
"""Maximum size of a request in bytes. The limit is larger than the limit of an object, because a request can be a batch."""
TOKEN_SHARDS, TOKEN_CONNECTIONS, TOKEN_SHARE = 2, 1000, 0.1
"""The number of shards, the maximum number of connections, and the share of file descriptors of the token port. Any client can
connect to this port. With separate shards and limits, its clients cannot exhaust the connections of clients with certificates
or delay their calls."""
MAX_STREAMS = 250
"""Maximum number of concurrent calls per connection, as --http2-max-streams-per-connection of kube-apiserver. The client queues
further calls. The calls of one connection can delay the other clients of its shard by up to this many calls."""
DRAIN_GRACE = 0.2
"""Seconds for which a stopping server refuses new calls with ShuttingDown. Clients then retry safely at another replica. If
calls arrive within this time, the server waits again, up to MAX_DRAIN_GRACE in total."""
MAX_DRAIN_GRACE = 1.0
"""Maximum seconds of all drain periods."""
STOP_GRACE = 2.0
"""Seconds for running calls to end after the drain."""
OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", MAX_REQUEST),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    # Overload protection resets streams even of clients within the limit. The outcome of such a call is unknown.
    ("grpc.http.overload_protection", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
)
SHARDS = 8
"""The number of listener shards. A client that floods the server from two connections delays a quarter of the other clients."""
MAX_CONNECTIONS = 10_000
"""Maximum connections of all shards, if there are enough file descriptors: two connections for each of 5,000 nodes."""
DESCRIPTOR_SHARE = 0.65
"""The share of the process's file descriptors for the connections of the port."""


def grpc_options(election_lease: int) -> Sequence[tuple[str, int]]:
    """Return the options of the gRPC servers. An unreachable peer is detected within two seconds and the duration of the leases
    of elections, in seconds. Clients may send pings at the same rate."""
    timeout = election_lease * 1000
    return (
        *OPTIONS,
        ("grpc.keepalive_time_ms", 2000),
        ("grpc.keepalive_timeout_ms", timeout),
        ("grpc.http2.ping_timeout_ms", timeout),  # the default is one minute and overrides keepalive_timeout_ms
    )


class ApiServer:
    """Call `start`, then `run`, which runs until cancelled, then `stop`. `authenticator` is None on a server without TLS, where
    every client has all permissions."""

    def __init__(
        self, storage: Storage, authenticator: RequestAuthenticator | None = None, settings: ServerSettings = DEFAULTS
    ) -> None:
        self._assembly = Assembly(storage, settings)
        if authenticator is not None and self._assembly.account_tokens is not None:
            authenticator.tokens = UnionTokenAuthenticator(authenticator.tokens, self._assembly.account_tokens)
        self._authenticator = authenticator
        self._options = grpc_options(settings.election_lease)
        self._lines = [ListenerShards(self._options, self._build_handlers)]

    @property
    def methods(self) -> Mapping[str, Method]:
        """All methods of the server by path."""
        return self._assembly.methods

    @property
    def cacher(self) -> Cacher:
        return self._assembly.cacher

    def listen_for_tokens(self, address: str, tls: TlsFiles) -> str:
        """Open a second port for clients with a bearer token and without a certificate. Call it before `start`. (In gRPC for
        Python a port either requires a client certificate or does not request one.) Returns and raises as `start`."""
        handlers = partial(self._build_handlers, by_token=True)
        lines = ListenerShards(self._options, handlers, count=TOKEN_SHARDS, connections=TOKEN_CONNECTIONS, share=TOKEN_SHARE)
        self._lines.append(lines)
        return lines.listen(address, shared_port_credentials(tls, ask=False))

    async def start(self, address: str, tls: TlsFiles | None = None) -> str:
        """Start to listen, and return the address with the actual port. With `tls`, clients must present a certificate that its
        CA signed. Raises OSError."""
        listening = self._lines[0].listen(address, shared_port_credentials(tls) if tls is not None else None)
        for lines in self._lines:
            await lines.start()
        return listening

    async def run(self) -> None:
        """Serve until cancelled. Raises the error of any task that fails."""
        await self._assembly.run()

    async def stop(self) -> None:
        """Refuse new calls, wait for running calls, and close the ports."""
        await self._assembly.drain()
        deadline = SYSTEM_CLOCK.monotonic() + MAX_DRAIN_GRACE
        came = -1
        while came != self._assembly.opening.turned_away and SYSTEM_CLOCK.monotonic() < deadline:
            came = self._assembly.opening.turned_away
            await SYSTEM_CLOCK.sleep(DRAIN_GRACE)
        await asyncio.gather(*(lines.stop(STOP_GRACE) for lines in self._lines))

    async def close(self) -> None:
        """Close the ports immediately. Call it after a failed start too: a gRPC server that is not stopped raises an error in
        its finalizer."""
        await asyncio.gather(*(lines.stop(0.0) for lines in self._lines))

    def readiness(self) -> str | None:
        """The reason why the server is not ready; None if it is ready."""
        return self._assembly.opening.readiness()

    def _build_handlers(self, *, by_token: bool = False) -> MethodHandlers:
        return MethodHandlers(self._assembly.methods, self._authenticator, self._assembly.runner, by_token=by_token)


class ListenerShards:
    """Several gRPC servers on one port. Call `listen`, then `start`, then `stop`."""

    def __init__(
        self,
        options: Sequence[tuple[str, int]],
        handlers: Callable[[], "grpc.GenericRpcHandler"],
        *,
        count: int = SHARDS,
        connections: int = MAX_CONNECTIONS,
        share: float = DESCRIPTOR_SHARE,
    ) -> None:
        """`handlers` creates the handlers of a shard. `count` is the number of shards. `connections` is the maximum of all
        shards together. `share` is the share of the process's file descriptors (see pinnace.runtime.grpc_server)."""
        options = (*options, *grpc_server.server_options(connections, count, share), ("grpc.so_reuseport", 1))
        self._servers = [grpc.aio.server(options=options) for _ in range(count)]
        for server in self._servers:
            server.add_generic_rpc_handlers((handlers(),))

    def listen(self, address: str, credentials: Callable[[], grpc.ServerCredentials] | None) -> str:
        """Bind the port, and return the address with the actual port. `credentials` creates the credentials of a shard; None
        disables TLS. Raises OSError, for example if the port is in use."""
        host, _, port = address.rpartition(":")
        try:
            with _reserve_port(host, int(port)):
                port = _bind_address(self._servers[0], f"{host}:{port}", credentials)
            for server in self._servers[1:]:
                _bind_address(server, f"{host}:{port}", credentials)
        except (RuntimeError, ValueError, OSError) as error:
            raise OSError(f"cannot listen on {address}: {error} (the port may be in use)") from error
        return f"{host}:{port}"

    async def start(self) -> None:
        for server in self._servers:
            await server.start()

    async def stop(self, grace: float) -> None:
        """Stop when all running calls have ended, or after `grace` seconds."""
        await asyncio.gather(*(server.stop(grace) for server in self._servers))


def _bind_address(server: "grpc.aio.Server", address: str, credentials: Callable[[], grpc.ServerCredentials] | None) -> str:
    """Add the port to a gRPC server, and return its number."""
    return str(server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials()))


@contextmanager
def _reserve_port(host: str, port: int) -> Iterator[None]:
    """Reserve a port until the first shard listens on it. Raises OSError if another process uses or reserves the port.

    Shards share a port with SO_REUSEPORT. With this option alone, a second API server of the same user could bind the port too,
    and would receive half of the connections. So this function binds the port without the option, which fails if the port is in
    use, and sets the option afterwards. It also listens: several sockets with SO_REUSEADDR can bind one port, but only one of
    them can listen. Port 0 needs no reservation, because the kernel selects a free port.
    """
    result = socket.getaddrinfo(host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with ExitStack() as claims:
        for family, kind, protocol, _, address in result[:1] if port else ():
            claim = claims.enter_context(socket.socket(family, kind, protocol))
            claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore connections in TIME_WAIT
            claim.bind(address)
            claim.listen()
            claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        yield
