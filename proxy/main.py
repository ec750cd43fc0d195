"""The command line of `pinnace-proxy`."""

import asyncio
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import click
import uvloop

from pinnace.api.core_v1_pb2 import Namespace, Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.client.flags import Servers, server_options
from pinnace.client.informer import RestartSupervisor
from pinnace.proxy.dns import DnsServer
from pinnace.proxy.dns_records import Resolver
from pinnace.proxy.handover import Handover, Predecessor
from pinnace.proxy.healthcheck import HealthChecks
from pinnace.proxy.limits import SWITCH_INTERVAL
from pinnace.proxy.nftables import NftablesBackend
from pinnace.proxy.proxier import Proxier, ProxyBackend
from pinnace.proxy.userspace import UserspaceBackend
from pinnace.runtime import flags, process
from pinnace.runtime.http import Check, StatusServer, format_address, parse_address

log = logging.getLogger(__name__)

USERSPACE, NFTABLES = "userspace", "nftables"
LOOPBACK = ("127.0.0.1",)
DRAIN_GRACE = 2.0
"""Seconds for which open connections may continue after SIGTERM."""
SUCCESSOR_TIMEOUT = 6.0
"""Seconds for which a proxy that is asked to stop waits for a successor that is starting."""
SYNC_POLL = 0.01


def _with_ip_address(
    context: click.Context, parameter: click.Parameter, address: tuple[str, int] | None
) -> tuple[str, int] | None:
    if address is not None:
        try:
            ip_address(address[0])
        except ValueError:
            raise click.BadParameter(f"expected an IP address and a port, got {address[0]!r}") from None
    return address


@click.command("pinnace-proxy", cls=flags.ComponentCommand)
@flags.replica_name_option
@server_options
@click.option(
    "--http", type=flags.parse_address_option, default="127.0.0.1:10249", help="Address of /metrics, /livez and /readyz."
)
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
@click.option(
    "--take-over",
    is_flag=True,
    help="Take over the listeners of a running proxy with the same --http address. It ends when this one is ready.",
)
@click.option(
    "--dns",
    type=flags.parse_address_option,
    help="Address of the DNS server (UDP and TCP).  [default: none]",
    show_default=False,
)
@click.option("--cluster-domain", default="cluster.local", help="The domain of the DNS server.")
@click.option(
    "--gateway",
    type=flags.parse_address_option,
    callback=_with_ip_address,
    help="Address of the gateway, for the name kubernetes.default.  [default: none]",
    show_default=False,
)
def main(
    name: str,
    servers: Servers,
    http: tuple[str, int],
    mode: str,
    node: str | None,
    nodeport_addresses: Sequence[str],
    max_connections: int | None,
    take_over: bool,
    dns: tuple[str, int] | None,
    cluster_domain: str,
    gateway: tuple[str, int] | None,
) -> None:
    """Forward connections to the addresses of services to their endpoints."""
    options = ProxyOptions(
        name, servers(), http, mode, node, nodeport_addresses, max_connections, take_over, dns, cluster_domain, gateway
    )
    sys.exit(process.run_component(lambda stop: serve(stop, options), new_loop=uvloop.new_event_loop))


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    name: str
    servers: ClientConfig
    http: tuple[str, int]
    mode: str
    node: str | None
    nodeport_addresses: Sequence[str]
    max_connections: int | None
    take_over: bool
    dns: tuple[str, int] | None
    cluster_domain: str
    gateway: tuple[str, int] | None


class _CurrentProxier:
    """The objects of the current instance of the proxier."""

    def __init__(self, lives: RestartSupervisor[Proxier]) -> None:
        self._lives = lives

    @property
    def services(self) -> Mapping[str, Service]:
        return self._lives.now.services

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        return self._lives.now.namespaces

    @property
    def synced(self) -> bool:
        return self._lives.now.synced

    def slices_of(self, service: str) -> Mapping[str, EndpointSlice]:
        return self._lives.now.slices_of(service)

    def services_with_address(self, address: str) -> Iterable[str]:
        return self._lives.now.services_with_address(address)


async def serve(stop: asyncio.Event, options: ProxyOptions) -> None:
    """Forward until `stop` is set, or until a successor has taken over. Raises OSError, Fatal."""
    predecessor = (
        await asyncio.to_thread(Predecessor.receive_listeners, format_address(options.http)) if options.take_over else None
    )
    inherited = predecessor.sockets if predecessor is not None else {}
    backend: ProxyBackend
    if options.mode == NFTABLES:
        backend = NftablesBackend(options.nodeport_addresses)
    else:
        addresses = options.nodeport_addresses or LOOPBACK
        backend = UserspaceBackend(addresses, max_connections=options.max_connections, inherited=inherited)
    connection = Connection(options.servers.endpoints, tls=options.servers.tls)
    health = HealthChecks((options.nodeport_addresses or ("0.0.0.0" if options.mode == NFTABLES else LOOPBACK[0],))[0])
    watches_namespaces = options.dns is not None
    lives = RestartSupervisor(
        lambda: Proxier(Client(connection), backend, options.node, applied=health.apply, watch_namespaces=watches_namespaces)
    )
    status = _StatusServer(options.http, lives.checks)
    server = DnsServer(Resolver(_CurrentProxier(lives), options.cluster_domain, options.gateway))
    if options.dns is not None:
        sys.setswitchinterval(SWITCH_INTERVAL)
        await server.start(*options.dns, inherited)
        log.info("DNS of %s on %s", options.cluster_domain, format_address(options.dns))
    await status.start()
    handover = Handover(status.address, lambda: {**backend.descriptors, **server.descriptors}, status.stop, status.start)
    endpoints = ",".join(options.servers.endpoints)
    log.info("proxy %s, status on %s, API servers at %s", options.name, status.address, endpoints)
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(lives.run())
            taken_over = group.create_task(_replace_predecessor(lives, predecessor, handover))
            stopped = group.create_task(stop.wait())
            tasks = (running, taken_over, stopped, group.create_task(server.wait()))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await handover.wait_until_idle(SUCCESSOR_TIMEOUT)
            for task in tasks:
                task.cancel()
    finally:
        if predecessor is not None:
            predecessor.close()
        server.stop()
        await backend.close(DRAIN_GRACE)
        await health.close()
        await status.stop()
        await connection.close()


async def _replace_predecessor(lives: RestartSupervisor[Proxier], predecessor: Predecessor | None, handover: Handover) -> None:
    """Let the predecessor end, and wait for a successor."""
    if predecessor is not None:
        while not lives.now.synced:  # noqa: ASYNC110 (of the instance that is current)
            await asyncio.sleep(SYNC_POLL)
        await asyncio.to_thread(predecessor.take_over)
        log.info("took over from the proxy that ran before")
    try:
        await handover.wait_for_successor()
    except OSError as error:  # another user has bound the name
        log.warning("no successor can take over: %s", error)
        await asyncio.Future()
    log.info("a successor has taken over")


class _StatusServer:
    """The status server, which can be started again."""

    def __init__(self, address: tuple[str, int], checks: Mapping[str, Check]) -> None:
        self._address, self._checks = address, checks
        self._server: StatusServer | None = None
        self.address = format_address(address)

    async def start(self) -> None:
        """Raises OSError."""
        self._server = StatusServer(*self._address, self._checks, asyncio.get_running_loop())
        self._server.start()
        self.address = self._server.address
        self._address = parse_address(self.address)

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.stop)


if __name__ == "__main__":
    main()
