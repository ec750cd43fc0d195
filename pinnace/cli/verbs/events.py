"""`pinnace events`: what happened, oldest first."""

import click

from pinnace.api.resources import EVENTS
from pinnace.api.selectors import one_of
from pinnace.cli import options
from pinnace.cli.command import verb
from pinnace.cli.objects.query import Query
from pinnace.cli.objects.targets import parse
from pinnace.cli.outcomes import usage
from pinnace.cli.output.formats import chosen
from pinnace.cli.output.showing import Style, show
from pinnace.cli.session import run
from pinnace.cli.settings import Settings
from pinnace.printers.columns import View

TYPES = ("Normal", "Warning")
"""Kubernetes has no others."""


@verb(
    "events",
    examples="""
        pinnace events                          # of the namespace default
        pinnace events --for pod/a              # about one object
        pinnace events -A --types Warning -w    # all that goes wrong, as it happens
    """,
)
@options.all_namespaces
@click.option("--for", "about", metavar="KIND/NAME", help="Only events about this object.")
@click.option("--types", metavar="TYPE[,...]", default="", help="Only events of these types: Normal, Warning.")
@click.option("-o", "--output", type=click.Choice(["wide", "yaml", "json", "name"]), help="How to show the events.")
@click.option("-w", "--watch", is_flag=True, help="Then show new ones, until interrupted or --timeout.")
@click.option("--no-headers", is_flag=True, help="No line of column names.")
def events(
    settings: Settings,
    all_namespaces: bool,
    about: str | None,
    types: str,
    output: str | None,
    watch: bool,
    no_headers: bool,
) -> None:
    """Show what happened, oldest first.

    An event is kept for an hour after its last occurrence.
    """
    fields = [one_of("type", _types(types))] if types else []
    if about:
        targets = parse([about])
        if len(targets) != 1 or len(targets[0].names) != 1:
            raise usage(f'--for "{about}": expected one object', hint="as in --for pod/a")
        resource, (name,) = targets[0].resource, targets[0].names
        fields += [f"involvedObject.kind={resource.kind}", one_of("involvedObject.name", (name,))]
        all_namespaces = all_namespaces or not resource.namespaced
    query = Query.of([EVENTS.plural], all_namespaces=all_namespaces, fields=",".join(fields))
    style = Style(chosen(output), View(wide=output == "wide"), headers=not no_headers)
    if watch:
        from pinnace.cli.output.following import follow

        run(settings, lambda session: session.watch(follow(session, query, style)))
    else:
        run(settings, lambda session: show(session, query, style))


def _types(text: str) -> list[str]:
    """In whatever case they are written. Raises Failure (usage)."""
    known = {each.lower(): each for each in TYPES}
    words = [word.strip() for word in text.split(",")]
    if unknown := [word for word in words if word.lower() not in known]:
        raise usage(f'--types: "{unknown[0]}" is not a type of event', hint=f"they are {' and '.join(TYPES)}")
    return [known[word.lower()] for word in words]
