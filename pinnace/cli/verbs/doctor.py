"""`pinnace doctor`: what is wrong with this machine, the client's configuration and the cluster, and what to do about it."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from pinnace.cli.command import verb
from pinnace.cli.doctor.examination import examine
from pinnace.cli.doctor.finding import DEADLINE, Level, text
from pinnace.cli.local import contexts
from pinnace.cli.outcomes import ExitCode, Reported
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import out
from pinnace.runtime import process


@verb(
    "doctor",
    examples="""
        pinnace doctor
        pinnace doctor -o json | jq '.[] | select(.level != "ok")'
    """,
)
@contexts.data_dir_option
@click.option("-o", "--output", type=click.Choice(["json"]), help="As a document.")
def doctor(settings: Settings, data_dir: Path | None, output: str | None) -> None:
    """Find what is wrong with a cluster or this client.

    It looks at this machine, the client's configuration, the servers that it names and, of a local cluster, the processes, and
    says what to do about what is missing. Nothing is changed. The exit code is 10 when there is a problem; warnings are none.
    `--timeout` is the time for each check.
    """
    folder = contexts.named_data_dir(settings, data_dir)
    found = process.run_command(examine(settings, folder, settings.timeout or DEADLINE))
    out(json.dumps([asdict(each) for each in found], indent=4) + "\n" if output == "json" else text(found))
    if any(each.level is Level.PROBLEM for each in found):
        raise Reported(ExitCode.VERDICT)
