"""`pinnace api-resources`: the kinds that there are."""

import click

from pinnace.api import resources
from pinnace.cli.command import verb
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import out
from pinnace.cli.terminal.table import Table

HEADERS = ("NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND")


@verb(
    "api-resources",
    examples="""
        pinnace api-resources
        pinnace api-resources --namespaced=false -o name
        pinnace api-resources --api-group apps
    """,
)
@click.option(
    "--namespaced/--no-namespaced", default=None, help="Only kinds that are in namespaces, or only those that are not."
)
@click.option("--api-group", metavar="GROUP", help='Only kinds of this group, such as apps; "" is the core\'s.')
@click.option("-o", "--output", type=click.Choice(["name"]), help="How to show them.")
@click.option("--no-headers", is_flag=True, help="No line of column names.")
def api_resources(
    settings: Settings, namespaced: bool | None, api_group: str | None, output: str | None, no_headers: bool
) -> None:
    """Show the kinds of objects.

    They are those that this program knows; a server of another version may have others.
    """
    shown = [
        each
        for each in sorted(resources.ALL, key=lambda each: (each.group, each.plural))
        if namespaced in (None, each.namespaced) and api_group in (None, each.group)
    ]
    if output == "name":
        out("".join(f"{each.plural}{'.' if each.group else ''}{each.group}\n" for each in shown))
        return
    rows = [
        (each.plural, ",".join(each.short_names), each.api_version, str(each.namespaced).lower(), each.kind) for each in shown
    ]
    out(Table(HEADERS, show_headers=not no_headers).render(rows))
