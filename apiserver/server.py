"""The API server as a process: its assembly behind gRPC.

The ports serve only the methods of the assembly, through the handlers of `apiserver.services.handlers`. Several gRPC servers
(listener shards) listen on one port:

    connections --the kernel hashes their addresses--> shard 1: its calls, in order of arrival --,
                                                   |-> shard 2: ... ----------------------------+--> the handlers
                                                   '-> ...                                    --'

gRPC for Python hands over calls one by one in order of arrival, whatever their connection, and needs several iterations of the
event loop for each. With one gRPC server, a client that sends more calls than that delays every other client. With shards, it
delays only the clients of its shard. The shards share the thread, the handlers and the limits of the port.
"""

import asyncio
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import grpc
import grpc.aio

from apiserver.assembly import DEFAULTS, Assembly, ServerSettings
from apiserver.auth.authentication import Authenticator
from apiserver.cacher.cacher import Cacher
from apiserver.services.handlers import MethodHandlers, RequestIds
from apiserver.services.methods import Method
from apiserver.storage.interface import Storage
from pinnace.runtime import grpc_server
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.grpc_server import Refusals
from pinnace.runtime.tls import TlsFiles, line_credentials

MAX_REQUEST = 4 << 20
"""Bytes of one request: a batch may be larger than an object may be."""
TOKEN_SHARDS, TOKEN_CONNECTIONS, TOKEN_SHARE = 2, 1000, 0.1
"""Of the port for tokens: shards, connections, and its share of file descriptors. Any client can connect to this port. Its own
shards keep its clients from using the connections and delaying the calls of clients with certificates."""
MAX_STREAMS = 250
"""Calls that one connection may have open; the client holds back further calls (as with kube-apiserver's
--http2-max-streams-per-connection). gRPC hands over calls in order of arrival, so this many calls of one connection may delay
the other clients of its shard."""
DRAIN_GRACE = 0.2
"""Seconds for which a stopping server still refuses calls with ShuttingDown, so that their clients know that nothing happened
and use another server. The server waits again for as long as calls arrived meanwhile..."""
MAX_DRAIN_GRACE = 1.0
"""...up to this many seconds in all."""
STOP_GRACE = 2.0
"""Seconds that running calls may take after that."""
OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", MAX_REQUEST),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.http.overload_protection", 0),  # it resets streams of clients that keep to the limit: their outcome is unknown
    # A peer that swallows packets is found within five seconds; clients may ping as eagerly as we do.
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),  # without it gRPC waits a minute for the answer, whatever the line above says
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
)


class ApiServer:
    """Call `start`, then `run`, which runs until cancelled, then `stop`. `authenticator` is None on a server without TLS, where
    every client has all permissions."""

    def __init__(
        self, storage: Storage, authenticator: Authenticator | None = None, settings: ServerSettings = DEFAULTS
    ) -> None:
        self._assembly = Assembly(storage, settings)
        self._authenticator = authenticator
        self._tracer = settings.tracer
        self._ids = RequestIds(uuid.uuid4().hex[:12])
        self._refusals = Refusals()
        self._lines = [ListenerShards(OPTIONS, self._handlers)]

    @property
    def methods(self) -> Mapping[str, Method]:
        """All that the server serves, by path."""
        return self._assembly.methods

    @property
    def cacher(self) -> Cacher:
        return self._assembly.cacher

    def listen_for_tokens(self, address: str, tls: TlsFiles) -> str:
        """Opens a second port, for clients with a bearer token and no certificate; call it before `start`. (In gRPC for Python
        a port either requires a client certificate or does not request one.) Returns and raises as `start`."""
        handlers = partial(self._handlers, by_token=True)
        lines = ListenerShards(OPTIONS, handlers, count=TOKEN_SHARDS, connections=TOKEN_CONNECTIONS, share=TOKEN_SHARE)
        self._lines.append(lines)
        return lines.listen(address, line_credentials(tls, ask=False))

    async def start(self, address: str, tls: TlsFiles | None = None) -> str:
        """Starts to listen and returns the address with the actual port. With `tls`, clients must show a certificate of its
        authority. Raises OSError."""
        listening = self._lines[0].listen(address, line_credentials(tls) if tls is not None else None)
        for lines in self._lines:
            await lines.start()
        return listening

    async def run(self) -> None:
        """Serves until cancelled. Ends with the error of any part that fails."""
        await self._assembly.run()

    async def stop(self) -> None:
        """Refuses new calls, lets running calls end, and closes."""
        await self._assembly.drain()
        deadline = SYSTEM_CLOCK.monotonic() + MAX_DRAIN_GRACE
        came = -1
        while came != self._assembly.opening.turned_away and SYSTEM_CLOCK.monotonic() < deadline:
            came = self._assembly.opening.turned_away
            await SYSTEM_CLOCK.sleep(DRAIN_GRACE)
        await asyncio.gather(*(lines.stop(STOP_GRACE) for lines in self._lines))

    async def close(self) -> None:
        """Closes at once, also after a failed start. A gRPC server that is not stopped raises in its finalizer."""
        await asyncio.gather(*(lines.stop(0.0) for lines in self._lines))

    def readiness(self) -> str | None:
        """The reason why the server is not ready; None if it is ready."""
        return self._assembly.opening.readiness()

    def _handlers(self, *, by_token: bool = False) -> MethodHandlers:
        assembly, authenticator = self._assembly, self._authenticator
        return MethodHandlers(
            assembly.methods,
            authenticator,
            self._ids,
            self._refusals,
            self._tracer,
            by_token=by_token,
            authorizer=assembly.policy,
        )


SHARDS = 8
"""Listener shards. A client that floods the server from two connections delays at most a quarter of the other clients."""
MAX_CONNECTIONS = 10_000
"""Of all shards together, if there are enough file descriptors: two connections for each of 5,000 nodes."""
SHARE = 0.65
"""Share of the file descriptors that the process may have. The port for tokens has a tenth."""


class ListenerShards:
    """Several gRPC servers on one port. Call `listen`, then `start`, then `stop`."""

    def __init__(
        self,
        options: Sequence[tuple[str, int]],
        handlers: Callable[[], "grpc.GenericRpcHandler"],
        *,
        count: int = SHARDS,
        connections: int = MAX_CONNECTIONS,
        share: float = SHARE,
    ) -> None:
        """`handlers`: creates the handlers of a shard. `count`: number of shards. `connections`: of all shards together.
        `share`: of the process's file descriptors, see pinnace.runtime.grpc_server."""
        options = (*options, *grpc_server.options(connections, count, share), ("grpc.so_reuseport", 1))
        self._servers = [grpc.aio.server(options=options) for _ in range(count)]
        for server in self._servers:
            server.add_generic_rpc_handlers((handlers(),))

    def listen(self, address: str, credentials: Callable[[], grpc.ServerCredentials] | None) -> str:
        """Binds the port and returns the address with the actual port. `credentials`: creates the credentials of a shard; None:
        no TLS. Raises OSError, for example when another process listens there."""
        host, _, port = address.rpartition(":")
        try:
            with _claimed(host, int(port)):
                port = _add(self._servers[0], f"{host}:{port}", credentials)
            for server in self._servers[1:]:
                _add(server, f"{host}:{port}", credentials)
        except (RuntimeError, ValueError, OSError) as error:
            raise OSError(f"cannot listen on {address}: is the port taken? ({error})") from error
        return f"{host}:{port}"

    async def start(self) -> None:
        for server in self._servers:
            await server.start()

    async def stop(self, grace: float) -> None:
        """Stops after running calls have ended, or after `grace` seconds."""
        await asyncio.gather(*(server.stop(grace) for server in self._servers))


def _add(server: "grpc.aio.Server", address: str, credentials: Callable[[], grpc.ServerCredentials] | None) -> str:
    """Adds the port to a gRPC server and returns its number."""
    return str(server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials()))


@contextmanager
def _claimed(host: str, port: int) -> Iterator[None]:
    """Reserves a port until the first shard listens on it. Raises OSError when another process listens there or reserves it.

    Shards share a port with SO_REUSEPORT. With that option alone, a second API server of the same user would get half of the
    connections of the first. So the port is bound without the option first, which fails if it is in use, and the option is set
    afterwards. Two sockets with SO_REUSEADDR can be bound to one port, but only one can listen: so this one listens. Port 0
    needs no reservation, because the kernel picks a free port.
    """
    found = socket.getaddrinfo(host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with ExitStack() as claims:
        for family, kind, protocol, _, address in found[:1] if port else ():
            claim = claims.enter_context(socket.socket(family, kind, protocol))
            claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore connections in TIME_WAIT
            claim.bind(address)
            claim.listen()
            claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        yield
