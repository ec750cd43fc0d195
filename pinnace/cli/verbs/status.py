"""`pinnace status`: the processes of a local cluster."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from pinnace.cli.command import verb
from pinnace.cli.errors import tell_hint
from pinnace.cli.local import contexts, elsewhere, running
from pinnace.cli.outcomes import ExitCode, Reported
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import note
from pinnace.cli.terminal.table import Table, one_line
from pinnace.cluster import view
from pinnace.cluster.errors import FolderError
from pinnace.cluster.view import ProcessStatus


@verb(
    "status",
    examples="""
        pinnace status
        pinnace status -o json | jq '.[] | select(.leader)'
        pinnace status -o json | jq '.[] | {name, options}'   # what each was configured with
    """,
)
@contexts.data_dir_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
def status(settings: Settings, data_dir: Path | None, output: str) -> None:
    """Show the processes of a local cluster: which run, which are ready, which of them lead.

    Exit code 0 when all are ready, 1 when not. For a cluster elsewhere, ask its API: `pinnace leader`, `pinnace get nodes`.
    """
    with running.translated():
        cluster = elsewhere.load(settings, contexts.present_data_dir(settings, data_dir), "status")
        try:
            found = running.run(cluster.status())
        except FolderError as error:
            note(f"who leads is not known: {error.message}")
            tell_hint(error.hint)
            found = running.run(view.status(cluster.state, None))
    if output == "json":
        click.echo(json.dumps([asdict(process) for process in found], indent=2))
    else:
        click.echo(table(found), nl=False)
    if not all(process.ready for process in found):
        raise Reported(ExitCode.SERVER)


def table(found: Sequence[ProcessStatus]) -> str:
    """A line for each process, and below what is wrong, and what the processes were configured with."""
    rows = [
        (
            process.name,
            str(process.pid or "-"),
            process.address,
            process.http,
            "yes" if process.ready else "no",
            "leads" if process.leader else "",
        )
        for process in found
    ]
    text = Table(["NAME", "PID", "ADDRESS", "HTTP", "READY", "LEADER"]).render(rows)
    wrong: dict[str, list[str]] = {}
    for process in found:
        wrong.setdefault(process.problem, []).append(process.name)
    lines = [f"{', '.join(names)}: {problem}" for problem, names in wrong.items() if problem]
    options = dict.fromkeys(
        f"{process.component}: {name}{' ' if name.startswith('-') else '='}{each}"
        for process in found
        for name, value in process.options.items()
        for each in ([value] if isinstance(value, str) else value)
    )
    for part in (lines, list(options)):
        if part:
            text += "\n" + "".join(f"{one_line(line)}\n" for line in part)
    return text
