"""`pinnace describe`: all about objects, for people."""

from pinnace.api.resources import Object
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
from pinnace.client.errors import ApiError, NotFound


@verb(
    "describe",
    examples="""
        pinnace describe pod a
        pinnace describe pod web-                       # all pods whose names begin with web-
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
    """Show everything about objects, with their events.

    A name that no object has stands for all objects whose names begin with it, as with kubectl.
    """
    query = Query.of(what, all_namespaces=all_namespaces, labels=selector)

    async def show_all(session: Session) -> None:
        session.look_back(at_revision)
        await show(session, query)

    run(settings, show_all)


async def show(session: Session, query: Query) -> None:
    async def texts_of(target: Target) -> list[str]:
        described = await describe_all(session.client, target.resource, await _found(session, query, target))
        return ["".join(f"{line}\n" for line in render(fields)) for fields in described]

    texts = [text for texts in await of_each(session, query, texts_of) for text in texts]
    out("\n\n".join(texts))
    if query.selects and not texts:
        tell_none(session, query)


async def _found(session: Session, query: Query, target: Target) -> list[Object]:
    """The objects of one target. A name without an object is a prefix; one that is no prefix either is reported."""
    if not target.names:
        return await fetch(session, query, target)
    client, namespace = session.client.of(target.resource), query.namespace(target.resource, session)
    found: dict[str, Object] = {}
    for name in target.names:
        try:
            found.setdefault(name, await client.get(name, namespace))
        except NotFound as error:
            listing = await client.list(namespace)
            matching = {obj.metadata.name: obj for obj in listing.items if obj.metadata.name.startswith(name)}
            if not matching:
                session.failed(error)
            found |= matching
        except ApiError as error:
            session.failed(error)
    return list(found.values())
