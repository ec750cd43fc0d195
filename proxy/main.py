"""The command line of `pinnace-proxy`."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click
import uvloop

from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.client.flags import Servers, servers
from pinnace.client.informer import RestartSupervisor
from pinnace.runtime import flags, process
from pinnace.runtime.http import StatusServer
from proxy.healthcheck import HealthChecks
from proxy.proxier import Backend, Proxier
from proxy.userspace import Userspace

log = logging.getLogger(__name__)

DRAIN_GRACE = 2.0
"""Seconds for which open connections may continue after SIGTERM."""


@click.command("pinnace-proxy", cls=flags.Component)
@flags.replica
@servers
@click.option("--http", type=flags.address, default="127.0.0.1:10249", help="Address of /metrics, /livez and /readyz.")
@click.option("--node", help="Name of the node of this machine.  [default: all nodes are on this machine]")
@click.option(
    "--nodeport-address",
    "nodeport_addresses",
    multiple=True,
    default=("127.0.0.1",),
    metavar="IP",
    help="An address on which node ports are served. Can be repeated.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(min=1),
    help="The maximum number of open TCP connections.  [default: from the limit of open files]",
)
def main(
    name: str,
    servers: Servers,
    http: tuple[str, int],
    node: str | None,
    nodeport_addresses: Sequence[str],
    max_connections: int | None,
) -> None:
    """Forward connections to the addresses of services to their endpoints."""
    options = Options(name, servers(), http, node, nodeport_addresses, max_connections)
    sys.exit(process.run(lambda stop: serve(stop, options), new_loop=uvloop.new_event_loop))


@dataclass(frozen=True, slots=True)
class Options:
    name: str
    servers: ClientConfig
    http: tuple[str, int]
    node: str | None
    nodeport_addresses: Sequence[str]
    max_connections: int | None


async def serve(stop: asyncio.Event, options: Options) -> None:
    """Forward until `stop` is set."""
    backend: Backend = Userspace(options.nodeport_addresses, max_connections=options.max_connections)
    connection = Connection(options.servers.endpoints, tls=options.servers.tls)
    health = HealthChecks(options.nodeport_addresses[0])
    lives = RestartSupervisor(lambda: Proxier(Client(connection), backend, options.node, applied=health.apply))
    status = StatusServer(*options.http, lives.checks, asyncio.get_running_loop())
    status.start()
    log.info("proxy %s, status on %s, API servers at %s", options.name, status.address, ",".join(options.servers.endpoints))
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(lives.run())
            await stop.wait()
            running.cancel()
    finally:
        await backend.close(DRAIN_GRACE)
        await health.close()
        status.stop()
        await connection.close()


if __name__ == "__main__":
    main()
