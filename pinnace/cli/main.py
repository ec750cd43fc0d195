"""The main function of `pinnace`: runs a verb and returns the exit code."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from pinnace.cli import terminal
from pinnace.cli.command import LazyGroup
from pinnace.cli.errors import run_guarded
from pinnace.cli.settings import Settings
from pinnace.runtime import interrupts

MODULES = {
    "completion": "version",
    "down": "processes",
    "kill": "processes",
    "join": "token",
    "pod": "node",
    "restart": "processes",
    "restore": "backup",
    "signer": "token",
    "start": "processes",
    "status": "processes",
    "stop": "processes",
    "timeline": "ui",
}
"""Verbs whose module has the name of another verb."""

HELP = """A cluster control plane: commands for local clusters and fault injection, and the commands of kubectl.

Global flags may precede or follow the verb. Use "pinnace VERB --help" for more information about a verb."""

cli = LazyGroup("pinnace", package="pinnace.cli.verbs", modules=MODULES, help=HELP)


def _print_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted:
        from pinnace.cli.verbs.version import format_versions, own_version

        click.echo(format_versions({"client": own_version()}))
        ctx.exit()


cli.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="The same as `version --client`.",
    )
)


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command line, without the program name, and return the exit code."""
    settings = Settings(no_color=bool(os.environ.get("NO_COLOR")))
    words = list(arguments) or ["--help"]
    return run_guarded(lambda: cli.main(words, prog_name="pinnace", standalone_mode=False, obj=settings), settings)


def main(arguments: Sequence[str]) -> NoReturn:
    terminal.prepare_streams()
    try:
        code = run_command_line(arguments)
        interrupts.exit_on_signals_with(code)
    except KeyboardInterrupt:
        code = interrupts.INTERRUPTED
    sys.exit(code)
