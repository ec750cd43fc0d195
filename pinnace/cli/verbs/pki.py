"""`pinnace pki`: the certificates of a cluster that was not started by `pinnace up`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from pinnace.api.nodenames import NodeNames
from pinnace.cli.command import verb
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import note, out


@verb(
    "pki",
    examples="""
        pinnace pki ./pki --server 10.0.0.1:7443,10.0.0.2:7443 --host 10.0.0.1 --host 10.0.0.2
        pinnace pki ./pki --server apiserver:7443 --host apiserver --etcd-host etcd --fleet kubelet --fleet edge=edge-0..99
        PINNACE_CONFIG=./pki/admin.conf pinnace get nodes
    """,
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--server", "servers", metavar="HOST:PORT[,...]", required=True, help="The API servers, as clients reach them.")
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="A name or address of API servers. Can be given again.")
@click.option("--etcd-host", "etcd_hosts", metavar="NAME", multiple=True, help="The same of etcd. Can be given again.")
@click.option(
    "--fleet",
    "fleets",
    metavar="NAME[=NODES,...]",
    multiple=True,
    callback=lambda context, option, given: dict(map(_fleet, given)),
    help="A fleet, and what its nodes are called: n7, node-0..99 or edge-*. [default: NAME-*]. Can be given again.",
)
def pki(
    settings: Settings,
    folder: Path,
    servers: str,
    hosts: tuple[str, ...],
    etcd_hosts: tuple[str, ...],
    fleets: Mapping[str, Sequence[str]],
) -> None:
    """Make the certificates of a cluster, and a configuration for each of its clients.

    What is there already and does not expire within 30 days stays; the rest is made anew, and running processes take it up.
    The certificates of API servers and of etcd are always good for this machine, too. etcd's are of an authority of its own.
    """
    from pinnace.client.config import parse_endpoints
    from pinnace.client.kubeconfig import ConfigError
    from pinnace.cluster.certificates import LOOPBACK, configuration, provide
    from pinnace.pki.folder import ADMIN

    try:
        made = provide(folder, parse_endpoints(servers), fleets, (*LOOPBACK, *hosts), (*LOOPBACK, *etcd_hosts))
    except ConfigError as error:
        raise Failure(str(error), hint=error.hint, code=ExitCode.USAGE) from None
    except (OSError, ValueError) as error:
        raise Failure(f"{folder} cannot be used: {error}", hint="name another folder", code=ExitCode.USAGE) from None
    for name in made:
        out(f"{folder / name}.crt made\n")
    if not made:
        note(f"all certificates in {folder} are good for another 30 days at least")
    note(f"to use it: export PINNACE_CONFIG={configuration(folder, ADMIN)}")


def _fleet(given: str) -> tuple[str, Sequence[str]]:
    """Its name, and the patterns of its nodes."""
    name, _, nodes = given.partition("=")
    patterns = [each.strip() for each in nodes.split(",") if each.strip()] or [f"{name}-*"]
    try:
        NodeNames.parse([name, *patterns])
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return name, patterns
