"""One port, and several gRPC servers behind it, each with a line of its own.

    connections --the kernel, by a hash of their addresses--> line 1: gRPC hands over its calls one by one --\
                                                        |---> line 2: ... ------------------------------------> the handlers
                                                        '---> ...                                           --/

gRPC for Python hands calls over in the order in which they came, from whatever connection, and needs several turns of the event
loop for each. In one line everybody waits behind a client who sends more than that; so only his line does. The lines share all
else: the thread, the handlers, and what the port promises.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import grpc
import grpc.aio

from pinnace.runtime import grpc_server

COUNT = 8
"""Of lines. A client who floods the server from two connections holds up a quarter of the others', at most."""
MAX_CONNECTIONS = 10_000
"""Of all lines together, if there are descriptors for so many: two of each of 5,000 nodes."""
SHARE = 0.65
"""Of the descriptors that the process may have. The port for tokens has a tenth (apiserver.server)."""


class Lines:
    """`listen`, once for each port, then `start`, then `stop`."""

    def __init__(
        self,
        options: Sequence[tuple[str, int]],
        handlers: Callable[[], "grpc.GenericRpcHandler"],
        *,
        count: int = COUNT,
        connections: int = MAX_CONNECTIONS,
        share: float = SHARE,
    ) -> None:
        """`handlers`: makes all that a line serves. `count`: of lines. `connections`: of all lines together. `share`: of the
        process's descriptors, as pinnace.runtime.grpc_server."""
        options = (*options, *grpc_server.options(connections, count, share), ("grpc.so_reuseport", 1))
        self._servers = [grpc.aio.server(options=options) for _ in range(count)]
        for server in self._servers:
            server.add_generic_rpc_handlers((handlers(),))

    def listen(self, address: str, credentials: Callable[[], grpc.ServerCredentials] | None) -> str:
        """The address with the real port. `credentials`: makes those of a line; None: it talks to everybody in clear. Raises
        OSError when it cannot, such as when somebody else listens there."""
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
        """Calls that are under way may end within `grace` seconds."""
        await asyncio.gather(*(server.stop(grace) for server in self._servers))


def _add(server: "grpc.aio.Server", address: str, credentials: Callable[[], grpc.ServerCredentials] | None) -> str:
    """The port at which it listens from now on."""
    return str(server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials()))


@contextmanager
def _claimed(host: str, port: int) -> Iterator[None]:
    """Until the first line listens, which then stands for all. Raises OSError when somebody listens there, or is about to.

    Those who may share a port, as the lines do, share it with all processes of their user that may, too: a second API server
    would get half of the connections of the first. So a port is asked for as one that is not to be shared, and only who has got
    it allows that: whoever comes meanwhile asks in the same way, and is refused. To be bound is not enough, as two can be that
    forgive what is left of closed connections; only one can listen. Port 0 needs no claim: the kernel gives one that is free.
    """
    found = socket.getaddrinfo(host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with ExitStack() as claims:
        for family, kind, protocol, _, address in found[:1] if port else ():
            claim = claims.enter_context(socket.socket(family, kind, protocol))
            claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what is left of closed connections is in nobody's way
            claim.bind(address)
            claim.listen()
            claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        yield
