"""Options that several verbs share."""

import click

MOST_REPLICAS = 2**31 - 1
"""That the API can say."""
MOST = 2**63 - 1
"""Of other numbers."""


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
    type=click.Choice(["strict", "ignore"]),
    default="strict",
    show_default=True,
    help="ignore: leave out fields that are not known, instead of refusing them.",
)
at_revision = click.option(
    "--at-revision",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="As it was at etcd's revision N: the resourceVersion of any object or list, of the last minutes.",
)
dry_run = click.option(
    "--dry-run",
    type=click.Choice(["none", "server"]),
    default="none",
    help="server: let the server check and complete everything, and write nothing.",
)
DRY_RUN_SAID = " (server dry run)"
"""Behind what is told of an object."""
