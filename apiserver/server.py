"""The API server as a process: its assembly behind gRPC, with health and reflection."""

import asyncio
import uuid
from collections.abc import Sequence

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from apiserver.assembly import DEFAULTS, Assembly, Settings
from apiserver.cacher.cacher import Cacher
from apiserver.lines import Lines
from apiserver.services.handlers import MethodHandlers, Who, anybody
from apiserver.services.requests import RequestIds
from apiserver.storage.interface import Storage
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.tls import TlsFiles, line_credentials

MAX_REQUEST = 4 << 20
"""Bytes of one request: a batch may be larger than an object may be."""
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
    """`start`, then `run` until cancelled, then `stop`. `who` says who calls; by default anybody may do everything."""

    def __init__(self, storage: Storage, who: Who = anybody, settings: Settings = DEFAULTS) -> None:
        self._assembly = Assembly(storage, settings)
        self._health = health.HealthServicer()
        methods = self._assembly.methods
        handlers = MethodHandlers(methods, who, RequestIds(uuid.uuid4().hex[:12]), settings.tracer)
        services = [*sorted({method.name.partition("/")[0] for method in methods.values()}), HEALTH, reflection.SERVICE_NAME]

        def equip(server: grpc.aio.Server) -> None:
            server.add_generic_rpc_handlers((handlers,))
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
            reflection.enable_server_reflection(services, server)

        self._lines = Lines(OPTIONS, equip)

    @property
    def cacher(self) -> Cacher:
        return self._assembly.cacher

    def listen_for_tokens(self, address: str, tls: TlsFiles) -> str:
        """Before the start: another port, where nobody is asked for a certificate, and who wants to do anything shows a token.
        (A port of gRPC's in Python either demands a certificate or does not ask.) As `start`."""
        return self._lines.listen(address, line_credentials(tls, ask=False))

    async def start(self, address: str, tls: TlsFiles | None = None) -> str:
        """Listens; the address with the real port. With `tls` only to those who show a certificate of its authority. Raises
        OSError when it cannot."""
        listening = self._lines.listen(address, line_credentials(tls) if tls is not None else None)
        await self._lines.start()
        return listening

    async def run(self) -> None:
        """Serves until cancelled. A part that dies takes the server with it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._assembly.run(), name="assembly")
            tasks.create_task(self._announce(), name="health")

    async def stop(self) -> None:
        """Sends everybody on to another server, lets running calls end, and closes."""
        await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._assembly.drain()
        deadline = SYSTEM_CLOCK.monotonic() + LONGEST_FAREWELL
        came = -1
        while came != self._assembly.opening.turned_away and SYSTEM_CLOCK.monotonic() < deadline:
            came = self._assembly.opening.turned_away
            await SYSTEM_CLOCK.sleep(FAREWELL)
        await self._lines.stop(STOP_GRACE)

    async def close(self) -> None:
        """Closes at once, also after a failed start. A gRPC server that is only dropped raises in its finalizer."""
        await self._lines.stop(0.0)

    def readiness(self) -> str | None:
        """Why the server is not ready; None: it is."""
        return self._assembly.opening.readiness()

    async def _announce(self) -> None:
        await self._assembly.opening.bootstrapped.wait()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
