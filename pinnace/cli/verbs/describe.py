"""`pinnace describe`: all about objects, for people."""

from pinnace.cli import options
from pinnace.cli.command import verb
from pinnace.cli.describe.gathering import describe_all
from pinnace.cli.describe.text import render
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query, fetch, of_each, tell_none
from pinnace.cli.objects.targets import Target
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import out


@verb(
    "describe",
    examples="""
        pinnace describe pod a
        pinnace describe node/node-0 pod/a
        pinnace describe pods -l app=web -A
        pinnace describe pod a --at-revision 1234       # as it was then, with the events of then
    """,
)
@arguments.what
@options.all_namespaces
@options.selector
@options.at_revision
def describe(settings: Settings, what: tuple[str, ...], all_namespaces: bool, selector: str, at_revision: int | None) -> None:
    """Show everything about objects, with their events."""
    query = Query.of(what, all_namespaces=all_namespaces, labels=selector)

    async def show_all(session: Session) -> None:
        session.look_back(at_revision)
        await show(session, query)

    run(settings, show_all)


async def show(session: Session, query: Query) -> None:
    async def texts_of(target: Target) -> list[str]:
        described = await describe_all(session.client, target.resource, await fetch(session, query, target))
        return ["".join(f"{line}\n" for line in render(fields)) for fields in described]

    texts = [text for texts in await of_each(session, query, texts_of) for text in texts]
    out("\n\n".join(texts))
    if query.selects and not texts:
        tell_none(session, query)
