"""`pinnace-apiserver`: the command line of the API server."""

import asyncio
import logging
import socket
import sys

import click

from apiserver.server import ApiServer
from apiserver.storage.etcd import EtcdStorage
from pinnace.runtime import logs, process
from pinnace.runtime.http import StatusServer, parse_address

log = logging.getLogger(__name__)


@click.command(context_settings={"auto_envvar_prefix": "PINNACE_APISERVER", "show_default": True})
@click.option("--name", default=socket.gethostname, show_default="the host name", help="Who this server is, in logs.")
@click.option("--listen", default="127.0.0.1:7443", help="Address of the gRPC API.")
@click.option("--http", default="127.0.0.1:7480", help="Address of /metrics, /livez and /readyz.")
@click.option("--etcd", default="127.0.0.1:2379", help="etcd's client addresses, separated by commas.")
@click.option("-v", "--verbose", count=True, help="Log more.")
def main(name: str, listen: str, http: str, etcd: str, verbose: int) -> None:
    """The API server: the one door to the cluster's state, and the only one that talks to etcd."""
    logs.configure(name, verbose)
    endpoints = [endpoint.strip() for endpoint in etcd.split(",") if endpoint.strip()]
    if not endpoints:
        raise click.BadParameter("name at least one address", param_hint="--etcd")
    try:
        status = parse_address(http)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--http") from None
    try:
        parse_address(listen)  # gRPC takes port 99999 to be 34463
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--listen") from None
    sys.exit(process.run(lambda stop: serve(stop, listen, status, endpoints)))


async def serve(stop: asyncio.Event, listen: str, http: tuple[str, int], etcd: list[str]) -> None:
    """Serves until `stop` is set."""
    storage = EtcdStorage(etcd)
    server = ApiServer(storage)
    status = StatusServer(*http, {"cache": server.readiness}, asyncio.get_running_loop())
    status.start()
    try:
        address = await server.start(listen)
        log.info("serving on %s, status on %s, etcd at %s", address, status.address, ",".join(etcd))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.run())
            await stop.wait()
            await server.stop()
            running.cancel()
    finally:
        status.stop()
        await storage.close()


if __name__ == "__main__":
    main()
