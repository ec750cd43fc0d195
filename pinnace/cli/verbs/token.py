"""The verbs `token`, `signer` and `join`: machines join a cluster by a token (pinnace.cluster.joining)."""

import asyncio
import socket
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.session import CommandSession, run_session
from pinnace.cli.settings import Duration, Settings
from pinnace.cli.terminal import Table, print_note, print_result
from pinnace.pki.bootstrap import BootstrapToken, certificate_pin, check_pin, node_subject
from pinnace.runtime.flags import parse_address_option

if TYPE_CHECKING:
    from pinnace.cluster.joining import StoredToken

PORT = 7445
"""The default port of the signer."""


class Token(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """A bootstrap token."""

    name = "token"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> BootstrapToken:
        if isinstance(value, BootstrapToken):
            return value
        try:
            return BootstrapToken.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Pin(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """The hash of an authority's public key."""

    name = "sha256:HEX"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return check_pin(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class TokenLifetime(Duration):
    """A duration, or 0: the token never expires."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        return 0.0 if str(value) in ("0", "0s", "0.0") else super().convert(value, param, ctx)


@click.group("token", cls=VerbGroup)
def token() -> None:
    """Manage bootstrap tokens, with which machines join a cluster."""


@verb(
    "create",
    examples="""
        pinnace token create                                    # valid for 24 hours
        pinnace token create --ttl 1h --print-join-command
        pinnace token create abcdef.0123456789abcdef --description "rack 7"
    """,
)
@click.argument("given", metavar="[TOKEN]", required=False, type=Token())
@click.option("--ttl", type=TokenLifetime(), default="24h", show_default=True, help="Duration of its validity. 0: for ever.")
@click.option("--description", default="", help="A description for people.")
@click.option("--print-join-command", is_flag=True, help="Print the command that a new machine executes.")
def create(settings: Settings, given: BootstrapToken | None, ttl: float, description: str, print_join_command: bool) -> None:
    """Create a bootstrap token: a Secret in kube-system."""
    expires = datetime.now(UTC) + timedelta(seconds=ttl) if ttl else None
    made = given or BootstrapToken.generate()
    run_session(settings, lambda session: _create_token(session, made, expires, description, as_command=print_join_command))


@verb("list", examples="        pinnace token list")
def list_(settings: Settings) -> None:
    """List the bootstrap tokens of the cluster, with their secrets."""
    run_session(settings, _print_tokens)


@verb("delete", examples="        pinnace token delete abcdef")
@click.argument("tokens", nargs=-1, required=True, metavar="ID|TOKEN...")
def delete(settings: Settings, tokens: tuple[str, ...]) -> None:
    """Delete bootstrap tokens. Machines that have joined stay in the cluster."""
    ids = [_parse_id(text) for text in tokens]
    run_session(settings, lambda session: _delete_tokens(session, ids))


token.add_command(create)
token.add_command(list_)
token.add_command(delete)


@verb(
    "signer",
    examples="""
        pinnace signer ./pki --listen 10.0.0.1:7445
    """,
)
@click.argument("folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.option(
    "--listen", type=parse_address_option, metavar="HOST:PORT", required=True, help="Address at which new machines reach it."
)
def signer(settings: Settings, folder: Path, listen: tuple[str, int]) -> None:
    """Sign the certificates of machines that join, on the machine with the key of the authority.

    FOLDER is that of `pinnace pki`. The key is in no other process, and stays on this machine. Each request needs a bootstrap
    token of the cluster. The signer has to run only while machines join.
    """
    from pinnace.runtime import logs, process

    logs.configure_logging("signer", verbosity=settings.verbose)
    sys.exit(process.run_component(lambda stop: _run_signer(stop, folder, listen)))


@verb(
    "join",
    examples="""
        pinnace join 10.0.0.1:7445 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:1234...
    """,
)
@click.argument("address", metavar="HOST:PORT", type=parse_address_option)
@click.option("--token", "given", type=Token(), required=True, help="A token of `pinnace token create`.")
@click.option(
    "--discovery-token-ca-cert-hash",
    "pins",
    type=Pin(),
    required=True,
    multiple=True,
    help="The hash of the public key of the cluster's authority. May be repeated.",
)
@click.option("--node-name", help="Name of the kubelet; its nodes are NAME-0, NAME-1, ...  [default: the host name]")
@click.option(
    "--cert-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("pki"),
    show_default=True,
    help="Folder for the certificate, its key and the kubeconfig.",
)
def join(
    settings: Settings,
    address: tuple[str, int],
    given: BootstrapToken,
    pins: tuple[str, ...],
    node_name: str | None,
    cert_dir: Path,
) -> None:
    """Get the certificate of a kubelet for this machine.

    HOST:PORT is the address of `pinnace signer`. The hash proves that the signer belongs to the cluster. The private key is
    created here and does not leave the machine. Then start pinnace-kubelet as the output says.
    """
    from pinnace.cluster.joining import JoinError, join_cluster

    name = (node_name or socket.gethostname()).lower()
    try:
        node_subject(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--node-name") from None
    present = [path for path in (cert_dir / f"{name}.{ending}" for ending in ("crt", "key", "conf")) if path.exists()]
    if present:
        hint = "this machine has joined a cluster; delete the file, or use another --cert-dir or --node-name"
        raise usage_failure(f"{present[0]} exists", hint=hint)
    host, port = address
    try:
        info = asyncio.run(join_cluster(f"{host}:{port}", given, pins, name, cert_dir))
    except JoinError as error:
        raise Failure(str(error), hint=error.hint, code=ExitCode.UNAVAILABLE) from None
    except OSError as error:
        raise Failure(f"{cert_dir} cannot be written: {error}", hint="specify another directory with --cert-dir") from None
    conf = cert_dir / f"{name}.conf"
    print_result(f"{conf} created, for the API servers {', '.join(info.servers)}\n")
    print_note(f"start the kubelet: pinnace-kubelet --name {quote(name)} --kubeconfig {quote(str(conf))} --listen IP:10250")


async def _create_token(
    session: CommandSession, made: BootstrapToken, expires: datetime | None, description: str, *, as_command: bool
) -> None:
    from pinnace.api.resources import CONFIG_MAPS, SECRETS
    from pinnace.client.errors import AlreadyExists, NotFound
    from pinnace.cluster.joining import CLUSTER_INFO, PUBLIC_NAMESPACE, ClusterInfo, token_secret

    info = None
    if as_command:
        try:
            info = ClusterInfo.decode((await session.client.of(CONFIG_MAPS).get(CLUSTER_INFO, PUBLIC_NAMESPACE)).data)
        except NotFound:
            hint = f"start one on the machine with the key of the authority: pinnace signer FOLDER --listen HOST:{PORT}"
            raise Failure("the cluster has no signer yet", hint=hint, code=ExitCode.NOT_FOUND) from None
    try:
        await session.client.of(SECRETS).create(token_secret(made, expires, description))
    except AlreadyExists:
        hint = f"`pinnace token delete {made.id}` deletes it"
        raise Failure(f'a token with the ID "{made.id}" exists', hint=hint, code=ExitCode.CONFLICT) from None
    if info is None:
        print_result(f"{made}\n")
    else:
        pin = certificate_pin(info.ca)
        print_result(f"pinnace join {info.signer} --token {made} --discovery-token-ca-cert-hash {pin}\n")


async def _print_tokens(session: CommandSession) -> None:
    from pinnace.api.resources import SECRETS, SYSTEM_NAMESPACE
    from pinnace.cluster.joining import SECRET_TYPE, read_token

    tokens: list[StoredToken] = []
    for secret in (await session.client.of(SECRETS).list(SYSTEM_NAMESPACE, fields=f"type={SECRET_TYPE}")).items:
        try:
            tokens.append(read_token(secret))
        except ValueError as error:
            print_note(f"{secret.metadata.name}: {error}")
    print_result(format_tokens(tokens, datetime.now(UTC)))


def format_tokens(tokens: "list[StoredToken]", now: datetime) -> str:
    """Return the table of kubeadm."""
    from pinnace.printers.columns import human_duration

    rows = [
        (
            str(stored.token),
            "<expired>"
            if stored.is_expired(now)
            else human_duration((stored.expires - now).total_seconds())
            if stored.expires
            else "<forever>",
            stored.expires.strftime("%Y-%m-%dT%H:%M:%SZ") if stored.expires else "<never>",
            ",".join(stored.usages) or "<none>",
            stored.description or "<none>",
            ",".join(stored.groups) or "<none>",
        )
        for stored in tokens
    ]
    return Table(("TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA GROUPS")).render(rows)


async def _delete_tokens(session: CommandSession, ids: list[str]) -> None:
    from pinnace.api.resources import SECRETS, SYSTEM_NAMESPACE
    from pinnace.client.errors import ApiError
    from pinnace.cluster.joining import SECRET_PREFIX

    for name in ids:
        try:
            await session.client.of(SECRETS).delete(f"{SECRET_PREFIX}{name}", SYSTEM_NAMESPACE)
        except ApiError as error:
            session.report_failure(error)
        else:
            print_result(f'bootstrap token "{name}" deleted\n')


def _parse_id(text: str) -> str:
    """Return the ID of a token, of which only the ID or the whole is given. Raises click.BadParameter."""
    name, _, secret = text.partition(".")
    try:
        return BootstrapToken.parse(f"{name}.{secret or '0' * 16}").id
    except ValueError:
        raise click.BadParameter("expected the ID of a token, such as abcdef, or the whole token") from None


async def _run_signer(stop: asyncio.Event, folder: Path, listen: tuple[str, int]) -> None:
    """Raises Failure."""
    from pinnace.client.client import Client
    from pinnace.client.config import load_config
    from pinnace.client.connection import Connection
    from pinnace.cluster.certificates import client_config_path
    from pinnace.cluster.joining import ClusterInfo, Signer, serve_signer
    from pinnace.pki.folder import ADMIN
    from pinnace.runtime.http import format_address

    config = load_config(file=client_config_path(folder, ADMIN))
    connection = Connection(config.endpoints, tls=config.tls)
    try:
        info = ClusterInfo(format_address(listen), (folder / "ca.crt").read_bytes(), config.endpoints)
        await serve_signer(stop, Signer(folder, Client(connection), info), folder, listen)
    finally:
        await connection.close()
