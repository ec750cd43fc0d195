"""The verb `pki`: certificates of clusters without `pinnace up`, and of users of any cluster."""

import asyncio
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

import click

from pinnace.api.names import NodeNames
from pinnace.cli.command import verb
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.settings import SHOWN, Settings
from pinnace.cli.terminal import print_note, print_result

RELOAD_SECONDS = 3.0
"""Seconds within which API servers read a changed key file, if they cannot be asked."""
RELOAD_TIMEOUT, RELOAD_POLL, ANSWER_TIMEOUT = 20.0, 0.1, 2.0
"""Seconds for which a rotation waits for API servers that run, between two questions, and for an answer."""


@verb(
    "pki",
    examples="""
        pinnace pki ./pki --server 10.0.0.1:7443,10.0.0.2:7443 --host 10.0.0.1 --host 10.0.0.2
        pinnace pki ./pki --server apiserver:7443 --host apiserver --etcd-host etcd --fleet kubelet --fleet edge=edge-0..99
        pinnace pki ./pki --export ~/.kube/far --server 10.0.0.1:7443 --gateway 10.0.0.3:6443 # a kubeconfig with the keys in it
        pinnace pki ./pki --user ada --group keepers          # a certificate for a user in a group
        pinnace pki ./pki --rotate-service-account-key        # a new key for tokens; those of the previous key remain valid
    """,
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--server", "servers", metavar="HOST:PORT[,...]", help="The addresses of the API servers for clients.")
@click.option(
    "--host", "hosts", metavar="NAME", multiple=True, help="A host name or address of the API servers. May be repeated."
)
@click.option(
    "--etcd-host", "etcd_hosts", metavar="NAME", multiple=True, help="A host name or address of etcd. May be repeated."
)
@click.option("--gateway", metavar="HOST:PORT", help="The address of a gateway, which kubectl needs.")
@click.option(
    "--fleet",
    "fleets",
    metavar="NAME[=NODES,...]",
    multiple=True,
    callback=lambda context, option, given: dict(map(_parse_fleet, given)),
    help="A fleet, and the names of its nodes: n7, node-0..99 or edge-*. [default: NAME-*]. May be repeated.",
)
@click.option(
    "--user",
    metavar="NAME",
    callback=lambda context, option, given: "" if given is None else _parse_user(given),
    help="Create only the certificate of this user.",
)
@click.option("--group", "groups", metavar="NAME", multiple=True, help="A group of the user. May be repeated.")
@click.option(
    "--export",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Create no certificate, but add the context of the administrator to this kubeconfig, with the certificates as data.",
)
@click.option(
    "--rotate-service-account-key",
    "rotate",
    is_flag=True,
    help="Create no certificate, but replace the key that signs tokens of service accounts. Tokens of the previous key remain "
    "valid, and those of earlier keys do not.",
)
def pki(
    settings: Settings,
    folder: Path,
    servers: str,
    hosts: tuple[str, ...],
    etcd_hosts: tuple[str, ...],
    gateway: str | None,
    fleets: Mapping[str, Sequence[str]],
    user: str,
    groups: tuple[str, ...],
    export: Path | None,
    rotate: bool,
) -> None:
    """Create the certificates of a cluster, and a kubeconfig for each of its clients.

    Existing certificates that are valid for 30 more days are kept. The others are renewed, and running processes reload them.
    The certificates of the API servers and of etcd are always valid for this machine. etcd has a certificate authority of its
    own.

    With --user, create a certificate for a user instead, signed by the existing authority. FOLDER can then be the folder of a
    local cluster. The addresses are taken from the administrator's kubeconfig unless they are given.
    """
    from pinnace.client.config import parse_endpoints
    from pinnace.cluster.certificates import client_config_path, export_kubeconfig, user_path
    from pinnace.pki.folder import ADMIN, PkiFolder

    if export is not None:
        if hosts or etcd_hosts or fleets or user or groups:
            raise usage_failure("--export creates no certificate", hint="use it with --server and --gateway only")
        with _translate_errors(export):
            export_kubeconfig(_find_signing_folder(folder), export, parse_endpoints(servers) if servers else (), gateway or "")
        print_result(f"{export} has the context pinnace\n")
        print_note(f"to use it: export KUBECONFIG={quote(str(export))}")
        return
    if rotate:
        if servers or hosts or etcd_hosts or gateway or fleets or user or groups:
            raise usage_failure("--rotate-service-account-key creates no certificate", hint="use it without other options")
        with _translate_errors(folder):
            signing = _find_signing_folder(folder)
            known = asyncio.run(_read_token_keys(signing))
            PkiFolder(signing).rotate_signing_key(lambda: asyncio.run(_await_new_token_key(signing, known)))
        print_result("replaced the key of service account tokens\n")
        return
    if user:
        if hosts or etcd_hosts or fleets or gateway:
            raise usage_failure(
                "--user cannot be used with other certificates", hint="omit --host, --etcd-host, --gateway and --fleet"
            )
        folder = _find_signing_folder(folder)
    elif groups:
        raise usage_failure("--group requires --user", hint="specify the user with --user")
    elif _is_of_local_cluster(folder):
        hint = "`pinnace restart` renews certificates; --user creates one for a user"
        raise usage_failure(f"{folder} belongs to a local cluster, which manages its own certificates", hint=hint)
    elif not servers:
        raise usage_failure("you must specify the API servers", hint="use --server HOST:PORT[,...]")
    with _translate_errors(folder):
        if gateway:
            (gateway,) = parse_endpoints(gateway)[:1]
        if user:
            made = _create_user_certificate(folder, user, groups, servers)
        else:
            made = _create_cluster_certificates(folder, servers, hosts, etcd_hosts, fleets, gateway or "")
    for name in made:
        print_result(f"{folder / name}.crt created\n")
    if not made:
        print_note(f"{'the certificate' if user else 'all certificates'} in {folder} remain valid for at least 30 days")
    print_note(f"to use it: export KUBECONFIG={quote(str(client_config_path(folder, user_path(user) if user else ADMIN)))}")


def _create_cluster_certificates(
    folder: Path,
    servers: str,
    hosts: Sequence[str],
    etcd_hosts: Sequence[str],
    fleets: Mapping[str, Sequence[str]],
    gateway: str,
) -> Sequence[str]:
    from pinnace.client.config import parse_endpoints
    from pinnace.cluster.certificates import LOOPBACK, create_certificates

    addresses = parse_endpoints(servers)
    return create_certificates(folder, addresses, fleets, (*LOOPBACK, *hosts), (*LOOPBACK, *etcd_hosts), gateway=gateway)


async def _read_token_keys(pki: Path) -> dict[str, bytes]:
    """Return the key set for tokens of each API server of the administrator's configuration that answers, by its address.
    Raises ConfigError."""
    from pinnace.api.tokens_pb2 import GetIssuerRequest, TokenIssuer
    from pinnace.client.config import load_config
    from pinnace.client.connection import Connection
    from pinnace.client.errors import ApiError
    from pinnace.cluster.certificates import client_config_path
    from pinnace.pki.folder import ADMIN

    path, keys = client_config_path(pki, ADMIN), dict[str, bytes]()
    if not path.is_file():
        return keys
    config = load_config(file=path)

    async def read(endpoint: str) -> None:
        connection = Connection([endpoint], tls=config.tls)
        try:
            method = "/pinnace.v1.Tokens/GetIssuer"
            issuer = await connection.call(method, GetIssuerRequest(), TokenIssuer, timeout=ANSWER_TIMEOUT, retry=False)
            keys[endpoint] = issuer.keys
        except ApiError:  # it does not run, and reads the keys when it starts
            pass
        finally:
            await connection.close()

    await asyncio.gather(*map(read, config.endpoints))
    return keys


async def _await_new_token_key(pki: Path, known: Mapping[str, bytes]) -> None:
    """Return when the API servers that run have read the new key. `known`: their key sets before. Raises Failure."""
    if not known:
        await asyncio.sleep(RELOAD_SECONDS)
        return
    deadline = time.monotonic() + RELOAD_TIMEOUT
    while behind := [name for name, keys in (await _read_token_keys(pki)).items() if keys == known.get(name)]:
        if time.monotonic() > deadline:
            message = f"the API server {behind[0]} has not read the new key within {RELOAD_TIMEOUT:g} s"
            raise Failure(message, hint="see its log; the previous key remains in use: rotate again")
        await asyncio.sleep(RELOAD_POLL)


def _create_user_certificate(folder: Path, user: str, groups: Sequence[str], servers: str) -> Sequence[str]:
    from pinnace.client.config import parse_endpoints
    from pinnace.cluster.certificates import create_user_certificate

    return create_user_certificate(folder, user, groups, parse_endpoints(servers) if servers else ())


def _is_of_local_cluster(folder: Path) -> bool:
    from pinnace.cluster.spec import FILE

    return (folder / FILE).is_file()


def _find_signing_folder(folder: Path) -> Path:
    """Return the directory with the certificate authority for `folder`. Raises Failure."""
    from pinnace.cluster.certificates import find_pki_folder

    path = find_pki_folder(folder)
    if path is None:
        hint = "specify a directory of `pinnace pki` or of a local cluster"
        raise Failure(f"{folder}: no certificate authority key (ca.key) found", hint=hint, code=ExitCode.NOT_FOUND)
    return path


@contextmanager
def _translate_errors(folder: Path) -> Iterator[None]:
    from pinnace.client.config import ConfigError

    try:
        yield
    except ConfigError as error:
        raise Failure(str(error), hint=error.hint, code=ExitCode.USAGE) from None
    except (OSError, ValueError) as error:
        raise Failure(f"{folder} cannot be used: {error}", hint="specify another directory", code=ExitCode.USAGE) from None


def _parse_user(given: str) -> str:
    """Validate a user name. It is also a file name, and a certificate limits it to 64 characters."""
    if not re.fullmatch(r"[\w@:+-][\w.@:+-]{0,63}", given, re.ASCII):
        raise click.BadParameter(
            f'"{given[:SHOWN]}": must consist of at most 64 letters, digits and .@:+-_, and must not start with a dot'
        )
    return given


def _parse_fleet(given: str) -> tuple[str, Sequence[str]]:
    """Parse the name of a fleet and the patterns of its nodes."""
    name, _, nodes = given.partition("=")
    patterns = [part.strip() for part in nodes.split(",") if part.strip()] or [f"{name}-*"]
    try:
        NodeNames.parse([name, *patterns])
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return name, patterns
