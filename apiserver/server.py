"""The API server as a process: its assembly behind gRPC.

All that its ports serve are the methods of the assembly, behind the one door of `apiserver.services.handlers`.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from functools import partial

from apiserver.assembly import DEFAULTS, Assembly, Settings
from apiserver.auth.authentication import Authenticator
from apiserver.cacher.cacher import Cacher
from apiserver.lines import Lines
from apiserver.services.handlers import MethodHandlers
from apiserver.services.methods import Method
from apiserver.services.requests import RequestIds
from apiserver.storage.interface import Storage
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.grpc_server import Refusals
from pinnace.runtime.tls import TlsFiles, line_credentials

MAX_REQUEST = 4 << 20
"""Bytes of one request: a batch may be larger than an object may be."""
TOKEN_COUNT, TOKEN_CONNECTIONS, TOKEN_SHARE = 2, 1000, 0.1
"""Of the port for tokens: lines, connections, and its share of descriptors. Everybody can connect to it. It has lines of its
own, so that its callers take neither connections nor turns of those that have certificates."""
MAX_STREAMS = 250
"""Calls that one connection may have open; its client keeps back the others (as kube-apiserver's
--http2-max-streams-per-connection). gRPC hands over calls in the order in which they came: behind so many of one
connection the others of its line (apiserver.lines) may have to wait."""
FAREWELL = 0.2
"""Seconds in which a server that stops still answers, with "go on with another": a call that meets a closed door instead would
not know whether it has happened. As long as somebody came in these seconds it stays for as many again..."""
LONGEST_FAREWELL = 1.0
"""...up to this."""
STOP_GRACE = 2.0
"""Seconds that running calls are given when the server stops."""
OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", MAX_REQUEST),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.http.overload_protection", 0),  # it resets streams of clients that keep to the limit, and nobody knows what happened
    # A peer that swallows packets is found within five seconds; clients may ping as eagerly as we do.
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),  # without it gRPC waits a minute for the answer, whatever the line above says
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
)


class ApiServer:
    """`start`, then `run` until cancelled, then `stop`. `authenticator`: None on a server without TLS, where everybody may do
    everything."""

    def __init__(self, storage: Storage, authenticator: Authenticator | None = None, settings: Settings = DEFAULTS) -> None:
        self._assembly = Assembly(storage, settings)
        self._authenticator = authenticator
        self._tracer = settings.tracer
        self._ids = RequestIds(uuid.uuid4().hex[:12])
        self._refusals = Refusals()
        self._lines = [Lines(OPTIONS, self._handlers)]

    @property
    def methods(self) -> Mapping[str, Method]:
        """All that the server serves, by path."""
        return self._assembly.methods

    @property
    def cacher(self) -> Cacher:
        return self._assembly.cacher

    def listen_for_tokens(self, address: str, tls: TlsFiles) -> str:
        """Before the start: another port, where nobody is asked for a certificate, and who wants to do anything shows a token.
        (A port of gRPC's in Python either demands a certificate or does not ask.) As `start`."""
        handlers = partial(self._handlers, by_token=True)
        lines = Lines(OPTIONS, handlers, count=TOKEN_COUNT, connections=TOKEN_CONNECTIONS, share=TOKEN_SHARE)
        self._lines.append(lines)
        return lines.listen(address, line_credentials(tls, ask=False))

    async def start(self, address: str, tls: TlsFiles | None = None) -> str:
        """Listens; the address with the real port. With `tls` only to those who show a certificate of its authority. Raises
        OSError when it cannot."""
        listening = self._lines[0].listen(address, line_credentials(tls) if tls is not None else None)
        for lines in self._lines:
            await lines.start()
        return listening

    async def run(self) -> None:
        """Serves until cancelled. A part that dies takes the server with it."""
        await self._assembly.run()

    async def stop(self) -> None:
        """Sends everybody on to another server, lets running calls end, and closes."""
        await self._assembly.drain()
        deadline = SYSTEM_CLOCK.monotonic() + LONGEST_FAREWELL
        came = -1
        while came != self._assembly.opening.turned_away and SYSTEM_CLOCK.monotonic() < deadline:
            came = self._assembly.opening.turned_away
            await SYSTEM_CLOCK.sleep(FAREWELL)
        await asyncio.gather(*(lines.stop(STOP_GRACE) for lines in self._lines))

    async def close(self) -> None:
        """Closes at once, also after a failed start. A gRPC server that is only dropped raises in its finalizer."""
        await asyncio.gather(*(lines.stop(0.0) for lines in self._lines))

    def readiness(self) -> str | None:
        """Why the server is not ready; None: it is."""
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
