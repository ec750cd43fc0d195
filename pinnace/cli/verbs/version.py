"""The verbs `version` and `completion`: the versions of kubectl, the client and the servers, and completion scripts."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import click

from pinnace.cli import kubectl
from pinnace.cli.command import verb
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.servers import connect_to_any_server, get_server_version, load_configuration
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_note, print_result
from pinnace.client.config import ClientConfig
from pinnace.runtime import build, process

TIMEOUT = 3.0


@verb(
    "version",
    examples="""
        pinnace version
        pinnace version --client -o json
    """,
)
@click.option("--client", is_flag=True, help="Print the client versions only; no server is contacted.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="The output format.")
def version(settings: Settings, client: bool, output: str | None) -> None:
    """Print the versions of kubectl, this client and the servers.

    The lines of kubectl precede ours. Includes the commit of the build where it is known. If the servers differ, each is
    listed. It is no error if kubectl is missing, or if no server answers.
    """
    theirs = _get_kubectl_version(settings, client, output)
    own, servers = own_version(), dict[str, str]()
    if not client:
        try:
            servers = process.run_command(_get_server_versions(load_configuration(settings), settings.timeout or TIMEOUT))
        except Failure as failure:
            print_note(str(failure))
    if output == "json":
        document: dict[str, Any] = json.loads(theirs or "{}")
        document["pinnace"] = {"client": own} if client else {"client": own, "servers": servers}
        print_result(json.dumps(document, indent=2) + "\n")
    else:
        same = len(set(servers.values())) == 1
        named = {"server" if same else f"server {endpoint}": each for endpoint, each in servers.items()}
        print_result(theirs + format_versions({"client": own} | named) + "\n")
    if any(server != own for server in servers.values()):
        print_note("the versions of client and servers differ: docs/upgrading.md lists compatible versions")


def own_version() -> str:
    return build.build_version()


def format_versions(versions: Mapping[str, str]) -> str:
    return "\n".join(f"Pinnace {whose.capitalize()} Version: {number}" for whose, number in versions.items())


def _get_kubectl_version(settings: Settings, client: bool, output: str | None) -> str:
    """Return the output of kubectl; empty if it cannot be run. The reason is printed."""
    words = ["version", *(["--client"] if client else []), *(["-o", output] if output else [])]
    words += ["--context", settings.context] if settings.context else []
    for asked in (words, ["version", "--client", *words[1:]]):
        try:
            return kubectl.read_kubectl_output(asked)
        except kubectl.HandOverError as error:
            print_note(str(error))
            if client:
                break
    return ""


async def _get_server_versions(config: ClientConfig, timeout: float) -> dict[str, str]:
    """Return the versions of the responding servers, by endpoint. Raises Failure if no server responds, and ApiError."""
    from pinnace.client.errors import Unavailable  # imports gRPC, so only if a server is configured

    async def ask(endpoint: str) -> str | None:
        try:
            return await get_server_version(endpoint, config.tls, timeout)
        except Unavailable as error:
            print_note(error.message)
            return None

    await connect_to_any_server(config)
    answers = await asyncio.gather(*map(ask, config.endpoints))
    return {endpoint: answer for endpoint, answer in zip(config.endpoints, answers, strict=True) if answer is not None}


@verb(
    "completion",
    examples="""
        source <(pinnace completion bash)                                     # this shell only
        pinnace completion zsh > "${fpath[1]}/_pinnace"                       # zsh, permanently
        pinnace completion fish > ~/.config/fish/completions/pinnace.fish     # fish, permanently
    """,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "powershell"]))
def completion(settings: Settings, shell: str) -> None:
    """Output a shell completion script: kubectl's, for the name pinnace and with our verbs."""
    try:
        print_result(kubectl.read_kubectl_output(["completion", shell]).replace("kubectl", "pinnace"))
    except kubectl.HandOverError as error:
        raise Failure(str(error), hint=error.hint, code=ExitCode(error.code)) from None
