"""The command line of `pinnace-proxy`."""

import asyncio
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import click
import uvloop

from pinnace.api.core_v1_pb2 import Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.client.flags import Servers, servers
from pinnace.client.informer import RestartSupervisor
from pinnace.runtime import flags, process
from pinnace.runtime.http import StatusServer, format_address
from proxy.dns import DnsServer, Resolver
from proxy.healthcheck import HealthChecks
from proxy.nftables import NfTables
from proxy.proxier import Backend, Proxier
from proxy.userspace import Userspace

log = logging.getLogger(__name__)

USERSPACE, NFTABLES = "userspace", "nftables"
LOOPBACK = ("127.0.0.1",)
DRAIN_GRACE = 2.0
"""Seconds for which open connections may continue after SIGTERM."""


@click.command("pinnace-proxy", cls=flags.Component)
@flags.replica
@servers
@click.option("--http", type=flags.address, default="127.0.0.1:10249", help="Address of /metrics, /livez and /readyz.")
@click.option(
    "--proxy-mode",
    "mode",
    type=click.Choice([USERSPACE, NFTABLES]),
    default=USERSPACE,
    help="Forward in this process, or by rules of the kernel, which requires root.",
)
@click.option("--node", help="Name of the node of this machine.  [default: all nodes are on this machine]")
@click.option(
    "--nodeport-address",
    "nodeport_addresses",
    multiple=True,
    metavar="IP",
    help="An address on which node ports are served. Can be repeated.  [default: 127.0.0.1, or with nftables all]",
)
@click.option(
    "--max-connections",
    type=click.IntRange(min=1),
    help="The maximum number of open TCP connections.  [default: from the limit of open files]",
)
@click.option("--dns", type=flags.address, help="Address of the DNS server (UDP and TCP).  [default: none]", show_default=False)
@click.option("--cluster-domain", default="cluster.local", help="The domain of the DNS server.")
def main(
    name: str,
    servers: Servers,
    http: tuple[str, int],
    mode: str,
    node: str | None,
    nodeport_addresses: Sequence[str],
    max_connections: int | None,
    dns: tuple[str, int] | None,
    cluster_domain: str,
) -> None:
    """Forward connections to the addresses of services to their endpoints."""
    options = Options(name, servers(), http, mode, node, nodeport_addresses, max_connections, dns, cluster_domain)
    sys.exit(process.run(lambda stop: serve(stop, options), new_loop=uvloop.new_event_loop))


@dataclass(frozen=True, slots=True)
class Options:
    name: str
    servers: ClientConfig
    http: tuple[str, int]
    mode: str
    node: str | None
    nodeport_addresses: Sequence[str]
    max_connections: int | None
    dns: tuple[str, int] | None
    cluster_domain: str


class _Current:
    """The objects of the current instance of the proxier."""

    def __init__(self, lives: RestartSupervisor[Proxier]) -> None:
        self._lives = lives

    @property
    def services(self) -> Mapping[str, Service]:
        return self._lives.now.services

    @property
    def synced(self) -> bool:
        return self._lives.now.synced

    def slices_of(self, service: str) -> Mapping[str, EndpointSlice]:
        return self._lives.now.slices_of(service)

    def names_of(self, address: str) -> Iterable[str]:
        return self._lives.now.names_of(address)


async def serve(stop: asyncio.Event, options: Options) -> None:
    """Forward until `stop` is set."""
    backend: Backend
    if options.mode == NFTABLES:
        backend = NfTables(options.nodeport_addresses)
    else:
        backend = Userspace(options.nodeport_addresses or LOOPBACK, max_connections=options.max_connections)
    connection = Connection(options.servers.endpoints, tls=options.servers.tls)
    health = HealthChecks((options.nodeport_addresses or ("0.0.0.0" if options.mode == NFTABLES else LOOPBACK[0],))[0])
    lives = RestartSupervisor(lambda: Proxier(Client(connection), backend, options.node, applied=health.apply))
    status = StatusServer(*options.http, lives.checks, asyncio.get_running_loop())
    server = DnsServer(Resolver(_Current(lives), options.cluster_domain))
    if options.dns is not None:
        await server.start(*options.dns)
        log.info("DNS of %s on %s", options.cluster_domain, format_address(options.dns))
    status.start()
    log.info("proxy %s, status on %s, API servers at %s", options.name, status.address, ",".join(options.servers.endpoints))
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(lives.run())
            await stop.wait()
            running.cancel()
    finally:
        server.stop()
        await backend.close(DRAIN_GRACE)
        await health.close()
        status.stop()
        await connection.close()


if __name__ == "__main__":
    main()
