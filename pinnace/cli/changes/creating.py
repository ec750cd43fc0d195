"""Creating objects on the server, or only printing them: what `create`, `run` and `expose` share."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import click

from pinnace.cli.objects.query import AT_ONCE
from pinnace.cli.objects.targets import Item, reference
from pinnace.cli.output import documents
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import out
from pinnace.client.errors import ApiError

CLIENT, SERVER = "client", "server"


class How(NamedTuple):
    """`output`: yaml, json or name; None: a line of text."""

    dry_run: str
    output: str | None


class Wanted(NamedTuple):
    """An object to create, and where it was written."""

    item: Item
    where: str = ""


def how_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `-o` and `--dry-run` to a verb that creates objects."""
    output = click.option("-o", "--output", type=click.Choice(["yaml", "json", "name"]), help="Print what was created.")
    dry_run = click.option(
        "--dry-run",
        type=click.Choice(["none", CLIENT, SERVER]),
        default="none",
        help="client: ask no server, for `-o yaml`. server: let it check and complete everything, and write nothing.",
    )
    return output(dry_run(function))


def create_one(settings: Settings, make: Callable[[str], Item], how: How) -> None:
    """Creates the object that `make` returns for a namespace; "" when the object is only printed."""
    if how.dry_run == CLIENT:
        report([make(settings.namespace or "")], how)
    else:
        run(settings, lambda session: create_all(session, [Wanted(make(session.namespace))], how))


async def create_all(session: Session, wanted: Sequence[Wanted], how: How) -> None:
    """Creates objects kind by kind, in this order. A failure does not stop the others."""
    session.wait_for_each(len(wanted))
    limit = asyncio.Semaphore(AT_ONCE)

    async def attempt(each: Wanted) -> Item | ApiError:
        resource, obj = each.item
        async with limit:
            try:
                return resource, await session.client.of(resource).create(obj, dry_run=how.dry_run == SERVER)
            except ApiError as error:
                return error

    created: list[Item] = []
    for _, group in groupby(wanted, key=lambda each: each.item[0]):
        same_kind = list(group)
        for each, outcome in zip(same_kind, await asyncio.gather(*map(attempt, same_kind)), strict=True):
            if isinstance(outcome, ApiError):
                session.failed(outcome, each.where)
            else:
                created.append(outcome)
    report(created, how)


def report(created: Sequence[Item], how: How) -> None:
    if how.output is None:
        said = f" ({how.dry_run} dry run)" if how.dry_run in (CLIENT, SERVER) else ""
        out("".join(f"{reference(resource, obj.metadata.name)} created{said}\n" for resource, obj in created))
    elif len(created) == 1:
        out(documents.one(how.output, created[0]))
    elif created:
        out(documents.many(how.output, created))
