"""The command line of `pinnace-gateway`."""

import asyncio
import logging
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import uvloop
from prometheus_client import REGISTRY

from pinnace.api.version_pb2 import GetVersionRequest, VersionInfo
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError
from pinnace.client.flags import Servers, server_options
from pinnace.gateway import metrics
from pinnace.gateway.authentication import Authenticator
from pinnace.gateway.backend import Backend, add_warning, record_created
from pinnace.gateway.custom_resources import CustomKinds
from pinnace.gateway.dispatch import Dispatcher
from pinnace.gateway.endpoints import EndpointReconciler, GatewayAddress, advertised_host
from pinnace.gateway.server import Server, tls_context
from pinnace.gateway.timeline import TimelineService
from pinnace.gateway.workers import ConversionWorker
from pinnace.runtime import flags, process
from pinnace.runtime.http import StatusServer

log = logging.getLogger(__name__)

CHECK_INTERVAL = 2.0
"""Seconds between two readiness checks of the API servers."""
CHECK_TIMEOUT = 2.0
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("pinnace-gateway", cls=flags.ComponentCommand)
@flags.replica_name_option
@server_options
@click.option(
    "--listen", type=flags.parse_address_option, default="127.0.0.1:6443", help="Address of the Kubernetes API (HTTPS)."
)
@click.option("--permit-port-sharing", is_flag=True, help="Let other gateways listen on the same address (SO_REUSEPORT).")
@click.option(
    "--advertise-address",
    help="IP address for clients in pods, in the EndpointSlice of the service kubernetes.",
    show_default="the address of --listen",
)
@click.option("--tls-cert-file", type=_FILE, required=True, help="File containing the serving certificate (PEM).")
@click.option("--tls-private-key-file", type=_FILE, required=True, help="File containing its private key (PEM).")
@click.option("--client-ca-file", type=_FILE, required=True, help="File containing the CA of client certificates (PEM).")
@click.option(
    "--http", type=flags.parse_address_option, default="127.0.0.1:7483", help="Address of /metrics, /livez and /readyz (HTTP)."
)
@click.option("--timeline", type=flags.parse_address_option, default="127.0.0.1:7484", help="Address of the timeline (HTTP).")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="The data directory of a local cluster. The timeline displays its processes, and administrators can kill them.",
)
def main(
    name: str,
    servers: Servers,
    listen: tuple[str, int],
    permit_port_sharing: bool,
    advertise_address: str | None,
    tls_cert_file: Path,
    tls_private_key_file: Path,
    client_ca_file: Path,
    http: tuple[str, int],
    timeline: tuple[str, int],
    data_dir: Path | None,
) -> None:
    """Serve the Kubernetes API over HTTPS to kubectl and other clients.

    The gateway calls the API servers as the user of each request.
    """
    try:
        context = tls_context(str(tls_cert_file), str(tls_private_key_file), str(client_ca_file))
    except OSError as error:
        raise click.UsageError(f"unable to load the certificates: {error}") from None
    options = Options(name, servers(), listen, permit_port_sharing, advertise_address, context, http, timeline, data_dir)
    sys.exit(process.run_component(lambda stop: serve(stop, options), new_loop=uvloop.new_event_loop))


@dataclass(frozen=True, slots=True)
class Options:
    name: str
    servers: ClientConfig
    listen: tuple[str, int]
    permit_port_sharing: bool
    advertise_address: str | None
    context: ssl.SSLContext
    http: tuple[str, int]
    timeline: tuple[str, int]
    data_dir: Path | None


class Readiness:
    """Checks every CHECK_INTERVAL seconds that an API server responds."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.problem = "waiting for the first response of an API server"

    async def run(self) -> None:
        while True:
            try:
                await self._connection.call("/pinnace.v1.Version/Get", GetVersionRequest(), VersionInfo, timeout=CHECK_TIMEOUT)
                self.problem = ""
            except ApiError as error:
                self.problem = error.message
            await asyncio.sleep(CHECK_INTERVAL)


async def serve(stop: asyncio.Event, options: Options) -> None:
    """Serve until `stop` is set."""
    connection = Connection(
        options.servers.endpoints, tls=options.servers.tls, on_warning=add_warning, on_created=record_created, exchanges=True
    )
    readiness = Readiness(connection)
    backend = Backend(connection)
    timeline = TimelineService(connection, backend, options.timeline, options.data_dir)
    workers = ConversionWorker()
    custom = CustomKinds(Client(connection))
    dispatcher = Dispatcher(backend, lambda: readiness.problem, options.servers, workers, timeline.create_link, custom)
    server = Server(dispatcher, Authenticator(backend), options.context, dispatcher.turns)
    status = StatusServer(
        *options.http,
        {"apiserver": lambda: readiness.problem or None},
        asyncio.get_running_loop(),
        registries=(REGISTRY, metrics.REGISTRY),
    )
    status.start()
    host, port = await server.start(*options.listen, shared=options.permit_port_sharing)
    address = GatewayAddress(options.advertise_address or advertised_host(host), port)
    endpoints = EndpointReconciler(Client(connection), options.name, address)
    log.info("serving the Kubernetes API on https://%s:%d, status on %s", host, port, status.address)
    try:
        async with asyncio.TaskGroup() as group:
            working = [group.create_task(part.run()) for part in (readiness, timeline, workers, custom, endpoints)]
            await stop.wait()
            working.pop().cancel()
            await endpoints.remove_address()
            for task in working:
                task.cancel()
            await server.stop()
    finally:
        status.stop()
        await connection.close()


if __name__ == "__main__":
    main()
