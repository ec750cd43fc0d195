"""Options that several verbs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pinnace.cli.outcomes import usage

if TYPE_CHECKING:
    from pinnace.api.manifest import Validate

MOST_REPLICAS = 2**31 - 1
"""That the API can say."""
MOST = 2**63 - 1
"""Of other numbers."""


VALIDATIONS: dict[str, Validate] = {"strict": "strict", "warn": "warn", "ignore": "ignore", "true": "strict", "false": "ignore"}
"""What kubectl takes for --validate, and what it means."""

all_namespaces = click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")
selector = click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Only objects with these labels: app=web,tier in (a,b),!old"
)
field_selector = click.option(
    "--field-selector",
    default="",
    metavar="FIELDS",
    help="Only objects with these fields: spec.nodeName=a,status.phase!=Failed",
)
filenames = click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="A manifest, a directory of manifests, or - for stdin. May be repeated.",
)
recursive = click.option("-R", "--recursive", is_flag=True, help="Also the directories in a directory given with -f.")
validate = click.option(
    "--validate",
    type=click.Choice(list(VALIDATIONS)),
    default="strict",
    is_flag=False,
    flag_value="strict",
    show_default=True,
    callback=lambda ctx, param, value: VALIDATIONS[value],
    help="Unknown fields: strict (true) refuses them, warn leaves them out with a warning, ignore (false) leaves them out.",
)
at_revision = click.option(
    "--at-revision",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="As it was at etcd's revision N: the resourceVersion of any object or list, of the last minutes.",
)


def _no_client_dry_run(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if value == "client":
        raise usage(
            "--dry-run=client is not supported: pinnace merges and validates objects on the server",
            hint="--dry-run=server writes nothing, and reports what would change",
        )
    return value


dry_run = click.option(
    "--dry-run",
    type=click.Choice(["none", "server", "client"]),
    metavar="[none|server]",
    callback=_no_client_dry_run,
    default="none",
    help="server: let the server check and complete everything, and write nothing.",
)
DRY_RUN_SAID = " (server dry run)"
"""Behind what is told of an object."""
