"""`pinnace version`: of this program, and of the server when there is one."""

import asyncio
import json
from collections.abc import Mapping
from importlib import metadata

import click

from pinnace.cli.command import verb
from pinnace.cli.outcomes import Failure
from pinnace.cli.servers import configuration, reach
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import note


@verb(
    "version",
    examples="""
        pinnace version
        pinnace version --client -o json
    """,
)
@click.option("--client", is_flag=True, help="Only that of this program.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="As a document.")
def version(settings: Settings, client: bool, output: str | None) -> None:
    """Show the version of this program and of the server.

    It is no error if no server answers.
    """
    versions = {"client": own_version()}
    if not client:
        try:
            asyncio.run(reach(configuration(settings)))
        except Failure as failure:
            note(str(failure))
        else:
            versions["server"] = _ask(settings)
    if output == "json":
        click.echo(json.dumps(versions, indent=4))
    else:
        click.echo(text(versions))


def own_version() -> str:
    return metadata.version("pinnace")


def text(versions: Mapping[str, str]) -> str:
    return "\n".join(f"{whose.capitalize()} Version: {number}" for whose, number in versions.items())


def _ask(settings: Settings) -> str:
    """The server's version. Raises what a session raises."""
    from pinnace.api.version_pb2 import GetVersionRequest, VersionInfo  # with gRPC: only when there is a server to ask
    from pinnace.cli.session import Session, run

    found: list[str] = []

    async def ask(session: Session) -> None:
        answer = await session.client.connection.call("/pinnace.v1.Version/Get", GetVersionRequest(), VersionInfo)
        found.append(answer.version)

    run(settings, ask)
    return found[0]
