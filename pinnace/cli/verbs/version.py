"""The verbs `version` and `completion`: the versions of the client and the servers, and click's completion scripts."""

import asyncio
import json
from collections.abc import Mapping

import click
from click.shell_completion import get_completion_class

from pinnace.cli.command import verb
from pinnace.cli.outcomes import Failure
from pinnace.cli.servers import configuration, reach, version_of
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import note, out
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
@click.option("--client", is_flag=True, help="Print the client version only; no server is contacted.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="The output format.")
def version(settings: Settings, client: bool, output: str | None) -> None:
    """Print the client and server version information.

    Includes the commit of the build where it is known. If the servers differ, each is listed. It is no error if no server
    answers.
    """
    own, servers = own_version(), dict[str, str]()
    if not client:
        try:
            servers = process.run_command(_ask(configuration(settings), settings.timeout or TIMEOUT))
        except Failure as failure:
            note(str(failure))
    if output == "json":
        click.echo(json.dumps({"client": own} if client else {"client": own, "servers": servers}, indent=4))
    else:
        same = len(set(servers.values())) == 1
        named = {"server" if same else f"server {endpoint}": each for endpoint, each in servers.items()}
        out(text({"client": own} | named) + "\n")
    if any(each != own for each in servers.values()):
        note("the versions of client and servers differ: docs/upgrading.md lists compatible versions")


def own_version() -> str:
    return build.version()


def text(versions: Mapping[str, str]) -> str:
    return "\n".join(f"{whose.capitalize()} Version: {number}" for whose, number in versions.items())


async def _ask(config: ClientConfig, timeout: float) -> dict[str, str]:
    """The versions of the responding servers, by endpoint. Raises Failure if no server responds, and ApiError."""
    from pinnace.client.errors import Unavailable  # imports gRPC, so only if a server is configured

    async def ask(endpoint: str) -> str | None:
        try:
            return await version_of(endpoint, config.tls, timeout)
        except Unavailable as error:
            note(error.message)
            return None

    await reach(config)
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
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(settings: Settings, shell: str) -> None:
    """Output a shell completion script."""
    found = get_completion_class(shell)
    assert found is not None
    program = click.get_current_context().find_root().command
    click.echo(found(program, {}, "pinnace", "_PINNACE_COMPLETE").source())
